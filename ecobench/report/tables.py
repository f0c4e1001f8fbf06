"""The result block: the last lines of a run, legible without colour, in ASCII, at most 100 columns wide.

Every figure stands with its n, its repeatability interval, its instrument interval, its boundary and its evidence. A
figure without a value says why. Text that comes from a workload or a machine is shown, never obeyed: control characters
and whatever is not ASCII are escaped. Only the path of the report keeps its letters, since it gets copied.
"""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ecobench.measurement import Evidence, QualityFlag, Severity
from ecobench.records import Figure, PhaseSummary, RunRecord, RunSummary, TrialStatus
from ecobench.report.boards import GPU_COLUMNS, cap_text, gpu_cells
from ecobench.report.bounds import shown_evidence, shown_figures, shown_phases
from ecobench.report.quantities import (
    EVIDENCE_IN_WORDS,
    count_text,
    instrument_text,
    repeatability_text,
    scope_text,
    simulated_mark,
    value_text,
)
from ecobench.units import format_duration, format_number

WIDTH = 100
_GAP = "  "
# Efficiency first, then what it is made of. Figures with other keys follow in the summary's order.
_FIGURE_ORDER = (
    "tokens_per_kwh",
    "energy_per_token_j",
    "tokens_per_s",
    "energy_j",
    "mean_power_w",
    "duration_s",
    "n_tokens",
)
_SEVERITIES = (Severity.INVALID, Severity.WARNING, Severity.INFO)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagGroup:
    """Flags that differ in nothing but their evidence."""

    severity: Severity
    code: str
    evidence: tuple[str, ...]
    remedy: str | None


def result_block(run: RunRecord, summary: RunSummary, *, report_path: Path | None) -> str:
    """The result of a run as lines of text, for `print`."""
    spec = run.spec
    title = f"{_plain(simulated_mark(run))}{_plain(spec.workload)} (preset {_plain(spec.preset)})  {_plain(run.id)}"
    state = f"{trials_text(summary)}; figures are of phase `{_plain(spec.measured_phase)}`, means over trials"
    parts = [
        _wrapped(title),
        _wrapped(state),
        [],
        _figure_table(summary),
        _phase_table(summary.phases),
        _gpu_table(summary),
        _section("not counted", summary.not_counted),
        _flag_lines(summary.flags),
        _section("second opinion", summary.second_opinion),
        _section("to get better numbers here", summary.to_improve),
        _footer(summary, report_path),
    ]
    lines = [line for part in parts for line in ([*part] if part else [""])]
    return "\n".join(_without_double_blanks(lines)).rstrip("\n")


def headline(summary: RunSummary) -> str:
    """The run in one line, for a list: efficiency with its evidence, and speed."""
    figures = {figure.key: figure for figure in reversed(ordered_figures(summary.figures))}
    parts = []
    for key in ("tokens_per_kwh", "tokens_per_s"):
        figure = figures.get(key)
        if figure is not None and figure.value is not None:
            parts.append(f"{value_text(figure)}{f' {figure.evidence}' if figure.evidence else ''}")
    return ", ".join(parts) or "nothing measured"


def ordered_figures(figures: Iterable[Figure]) -> list[Figure]:
    """Figures in the order in which people read them; figures of one key stay together, in the order they had."""
    rank = {key: place for place, key in enumerate(_FIGURE_ORDER)}
    return sorted(figures, key=lambda figure: rank.get(figure.key, len(rank)))


def grouped_flags(flags: Iterable[QualityFlag]) -> list[FlagGroup]:
    """What takes away most comes first; what several trials say alike is said once, with the evidence of each."""
    groups: dict[tuple[Severity, str, str | None], list[str]] = {}
    for flag in flags:
        groups.setdefault((flag.severity, flag.code, flag.remedy), []).append(flag.evidence)
    found = [
        FlagGroup(severity=severity, code=code, evidence=shown_evidence(tuple(dict.fromkeys(evidence))), remedy=remedy)
        for (severity, code, remedy), evidence in groups.items()
    ]
    return sorted(found, key=lambda group: _SEVERITIES.index(group.severity))


def target_text(summary: RunSummary) -> str | None:
    """`val_loss <= 2.2 nats/byte: met in 3 of 3 trials`; None without a target."""
    target = summary.target
    if target is None:
        return None
    goal = f"{target.metric} <= {format_number(target.at_most)} {target.unit}"
    if summary.n_target_met is None:
        return f"{goal}: not known, no trial reported it"
    return f"{goal}: met in {summary.n_target_met} of {count_text(summary.n_trials, 'trial')}"


def trials_text(summary: RunSummary) -> str:
    """`done, 3 of 3 trials`, and what is wrong with it where something is."""
    text = f"{summary.status.value}, {summary.n_trials} of {count_text(summary.n_trials_planned, 'trial')}"
    return f"{text}, INVALID" if _is_refused(summary) else text


def status_text(summary: RunSummary) -> str:
    """`done`, `lost (invalid)`."""
    return f"{summary.status.value} (invalid)" if _is_refused(summary) else summary.status.value


def _is_refused(summary: RunSummary) -> bool:
    """A run that is still running is not valid yet, and not invalid either."""
    return not summary.is_valid and summary.status is not TrialStatus.RUNNING


def _figure_table(summary: RunSummary) -> list[str]:
    figures, left_out = shown_figures(ordered_figures(summary.figures), summary.target)
    rows = [(_plain(figure.label), *_figure_row(figure)) for figure in figures]
    header = ("figure", "value", "n", "repeatability 95%", "instrument k=2", "boundary")
    lines = _table(header, rows, widths=(18, 24, 4, 22, 14, 8)) if rows else ["no figures: no trial has a result"]
    lines += _wrapped(left_out) if left_out is not None else []
    target = target_text(summary)
    if target is not None:
        lines += _wrapped(f"target: {_plain(target)}")
    return [*lines, ""]


def _phase_table(phases: Sequence[PhaseSummary]) -> list[str]:
    rows: list[tuple[str, ...]] = []
    shown, left_out = shown_phases(phases)
    for phase in shown:
        name = _plain(phase.phase) + (" *" if phase.is_measured else "")
        duration = format_duration(phase.duration_s)
        energies = [_figure_row(figure) for figure in phase.figures if figure.key == "energy_j"]
        rows += [(name, duration, *row) for row in energies or [("no meter",)]]
    if not rows:
        return []
    header = ("phase", "time", "energy", "n", "repeatability 95%", "instrument k=2", "boundary")
    lines = _table(header, rows, widths=(12, 12, 21, 3, 17, 14, 8))
    if any(phase.is_measured for phase in phases):
        lines.append("* the measured phase")
    lines += _wrapped(left_out) if left_out is not None else []
    return [*lines, ""]


def _gpu_table(summary: RunSummary) -> list[str]:
    if not summary.gpus:
        return []
    rows = [(_plain(gpu.domain), *gpu_cells(gpu)) for gpu in summary.gpus]
    lines = _table(("gpu", *GPU_COLUMNS), rows, widths=(10, 12, 12, 20, 12, 14, 9))
    return [*lines, *_wrapped(cap_text(summary) or ""), ""]


def _figure_row(figure: Figure) -> tuple[str, ...]:
    """Cells beside the label; for a figure without a value a single one, which takes the whole rest of the line."""
    if figure.value is None:
        scope = "" if figure.boundary is None else f" ({scope_text(figure)})"
        return (f"not known{scope}: {_plain(figure.reason or 'no reason given')}",)
    return (
        _plain(value_text(figure)),
        str(figure.n),
        repeatability_text(figure),
        instrument_text(figure),
        scope_text(figure),
    )


def _flag_lines(flags: Sequence[QualityFlag]) -> list[str]:
    if not flags:
        return ["quality flags: none", ""]
    lines = ["quality flags"]
    for group in grouped_flags(flags):
        lines.append(f"  {group.severity.value}: {_plain(group.code)}")
        for evidence in group.evidence:
            lines += _wrapped(_plain(evidence), first="    ", rest="      ")
        if group.remedy is not None:
            lines += _wrapped(f"-> {_plain(group.remedy)}", first="    ", rest="       ")
    return [*lines, ""]


def _footer(summary: RunSummary, report_path: Path | None) -> list[str]:
    used = [kind for kind in Evidence if any(figure.evidence is kind for figure in summary.figures)]
    lines = [line for kind in used for line in _wrapped(f"{kind.value}: {EVIDENCE_IN_WORDS[kind]}")]
    if report_path is not None:
        shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(report_path))
        lines.append(f"report: {shown}")
    return lines


def _section(title: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    lines = [title]
    for item in items:
        lines += _wrapped(f"- {_plain(item)}", first="  ", rest="    ")
    return [*lines, ""]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, widths: Sequence[int]) -> list[str]:
    """Rows under a header, columns no wider than needed or allowed; a cell that is wider goes on in the next line.

    The last cell of a row that is shorter than the header takes the rest of the line.
    """
    ordinary = [row if len(row) == len(header) else row[:-1] for row in (header, *rows)]
    shares = [
        min(width, max(len(row[column]) for row in ordinary if column < len(row)))
        for column, width in enumerate(widths)
    ]
    lines = []
    for index, row in enumerate([header, *rows]):
        mine = list(shares[: len(row)])
        if len(row) < len(header):
            mine[-1] = WIDTH - sum(mine[:-1]) - len(_GAP) * (len(row) - 1)
        columns = [textwrap.wrap(cell, share) or [""] for cell, share in zip(row, mine, strict=True)]
        for depth in range(max(len(column) for column in columns)):
            texts = [column[depth] if depth < len(column) else "" for column in columns]
            lines.append(_GAP.join(text.ljust(share) for text, share in zip(texts, mine, strict=True)).rstrip())
        if index == 0:
            lines.append(_GAP.join("-" * share for share in shares))
    return lines


def _wrapped(text: str, *, first: str = "", rest: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [""]


def _plain(text: str) -> str:
    """Printable ASCII: what else there is shows as its escape, so that no name can move a cursor."""
    return "".join(char if " " <= char <= "~" else ascii(char)[1:-1] for char in text)


def _without_double_blanks(lines: Sequence[str]) -> list[str]:
    return [line for index, line in enumerate(lines) if line or (index > 0 and lines[index - 1])]
