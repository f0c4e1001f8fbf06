"""The report as one HTML page that needs nothing but itself: no network, and no JavaScript to be read.

Everything from outside (names, parameters, messages, flags) goes through the template's escaping. A content security
policy in the page forbids every request, so that even a mistake here could not send anything.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ecobench.measurement import Evidence, SecondOpinion, Severity
from ecobench.records import Figure
from ecobench.report import sentences
from ecobench.report.boards import CHECK_COLUMNS, GPU_COLUMNS, cap_text, check_rows, gpu_cells, stragglers_text
from ecobench.report.bounds import shown_figures, shown_phases
from ecobench.report.charts import bokeh_script, chart_items
from ecobench.report.content import MeterRow, ReportContent, TrialView, primary_figures
from ecobench.report.drawings import Drawings, Key
from ecobench.report.quantities import (
    BOUNDARY_IN_WORDS,
    EVIDENCE_IN_WORDS,
    evidence_mark,
    instrument_text,
    repeatability_text,
    scope_text,
    value_text,
)
from ecobench.report.tables import grouped_flags, ordered_figures, target_text
from ecobench.store.documents import as_plain
from ecobench.units import format_duration, format_number, format_si

_MICRO = re.compile(r"(\d) u([JW])")
# Terminal controls, and Unicode's overrides, embeddings, isolates and marks of direction.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# Of the reasons why a run is not valid, so many stand at the top of the page.
_MOST_REASONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartView:
    """One chart on the page: a Bokeh item where JavaScript runs, its PNG twin where it does not and on paper."""

    name: str
    title: str
    sentence: str
    keys: tuple[Key, ...]
    image: str
    item: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureView:
    """One row of a table of figures; the numbers as text, and the figure for their exact values."""

    label: str
    figure: Figure
    value: str
    number: str
    repeatability: str
    instrument: str
    scope: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One line of the table of trials, as text; `-` where there is nothing."""

    index: int
    status: str
    ending: str
    cells: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterView:
    """One line of the table of meters, as text."""

    trial: int
    domain: str
    cells: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]


def render(content: ReportContent, drawings: Drawings, *, images: Mapping[str, bytes]) -> str:
    """The page."""
    summary = content.summary
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_show_controls
    )
    # Bokeh reads its documents in order: a model is defined where it is first met.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "allow_nan": False}
    environment.filters["typeset"] = typeset
    template = environment.from_string(files(__package__).joinpath("template.html").read_text(encoding="utf-8"))
    kinds = [kind for kind in Evidence if any(figure.evidence is kind for figure in summary.figures)]
    boundaries = dict.fromkeys(figure.boundary for figure in summary.figures if figure.boundary is not None)
    figures, figures_note = shown_figures(ordered_figures(summary.figures), summary.target)
    phases, phases_note = shown_phases(summary.phases)
    return template.render(
        run=content.run,
        summary=summary,
        summary_plain=as_plain(summary),
        headline=sentences.headline(content),
        standfirst=sentences.standfirst(content),
        target=target_text(summary),
        main_figures=[_figure_view(figure) for figure in primary_figures(content)],
        figures=[_figure_view(figure) for figure in figures],
        figures_note=figures_note,
        phases=[
            (phase, format_duration(phase.duration_s), [_figure_view(figure) for figure in phase.figures])
            for phase in phases
        ],
        phases_note=phases_note,
        charts=_charts(content, drawings, images),
        chart_notes={
            "loss": drawings.loss.note if drawings.loss is not None else None,
            "power": drawings.power.note if drawings.power is not None else None,
            "throttle": drawings.held.note if drawings.held is not None else None,
            "energy": "Whiskers are the instrument interval (k = 2).",
        },
        trials=[_trial_row(content, view) for view in content.trials],
        gpus=[(gpu, tuple(zip(GPU_COLUMNS, gpu_cells(gpu), strict=True))) for gpu in summary.gpus],
        cap=cap_text(summary),
        stragglers=stragglers_text(summary.gpus),
        checks=[
            (name, tuple(zip(CHECK_COLUMNS, cells, strict=True)), why)
            for name, cells, why in check_rows([view.record for view in content.trials])
        ],
        opinions=[
            _opinion_row(view.record.index, one)
            for view in content.trials
            if view.record.result is not None
            for one in view.record.result.second_opinions
        ],
        meters=[_meter_view(row) for row in content.meters],
        bases=list(
            dict.fromkeys(
                (meter.interface, meter.counted, meter.basis)
                for meter in content.run.meters
                if meter.kind.carries_energy
            )
        ),
        flags=grouped_flags(summary.flags),
        words=[f"{kind.value}: {EVIDENCE_IN_WORDS[kind]}" for kind in kinds]
        + [f"{boundary.value}: {BOUNDARY_IN_WORDS[boundary]}" for boundary in boundaries],
        invalid_reasons=[
            evidence
            for group in grouped_flags(summary.flags)
            if group.severity is Severity.INVALID
            for evidence in group.evidence
        ][:_MOST_REASONS],
        is_estimate=Evidence.EST in kinds,
        is_simulated=content.run.spec.simulation is not None or Evidence.SIM in kinds,
        methods=sentences.methods(content),
        environment=content.environment,
        reproduce="\n".join(content.reproduce),
        bokeh=Markup(bokeh_script()) if images else Markup(""),
    )


def _opinion_row(index: int, opinion: SecondOpinion) -> tuple[str, str, str, str, str | None]:
    """Trial and domain, Zeus's energy, ours over the same window, their ratio, and the note."""
    theirs, ours = ("none" if one is None else format_si(one, "J") for one in (opinion.theirs_j, opinion.ours_j))
    ratio = "none" if opinion.ratio is None else f"{opinion.ratio:.4f}"
    return (f"{index} {opinion.domain}", theirs, ours, ratio, opinion.note)


def typeset(text: str) -> str:
    """The page's own letters in place of ASCII: `14.4 uJ` with a real micro sign, `<=` as one sign."""
    return _MICRO.sub("\\1 \u00b5\\2", text).replace("<=", "\u2264")


def _show_controls(value: object) -> object:
    """Text with its control characters as escapes: none may turn the direction of what stands after it."""
    if isinstance(value, str) and not isinstance(value, Markup) and not value.isprintable():
        return _CONTROL.sub(lambda found: ascii(found.group())[1:-1], value)
    return value


def _charts(content: ReportContent, drawings: Drawings, images: Mapping[str, bytes]) -> list[ChartView]:
    items = chart_items(drawings)
    loss, power, held, phases = drawings.loss, drawings.power, drawings.held, drawings.phases
    known = {
        "loss": ("Loss against what it cost", sentences.loss_sentence(content), loss.keys if loss else ()),
        "power": ("Power over time", sentences.power_sentence(content), power.keys if power else ()),
        "throttle": ("What held the GPUs back", cap_text(content.summary) or "", held.keys if held else ()),
        "energy": ("Energy by phase", sentences.phases_sentence(content), phases.keys if phases else ()),
        "time": ("Time by phase", sentences.phases_sentence(content), ()),
    }
    return [
        ChartView(
            name=name,
            title=title,
            sentence=sentence,
            keys=tuple(keys),
            image="data:image/png;base64," + base64.b64encode(images[name]).decode("ascii"),
            item=items[name],
        )
        for name, (title, sentence, keys) in known.items()
        if name in items
    ]


def _figure_view(figure: Figure) -> FigureView:
    value = value_text(figure)
    return FigureView(
        label=figure.label,
        figure=figure,
        value=value,
        number=value.partition(" ")[0],
        repeatability=repeatability_text(figure),
        instrument=instrument_text(figure),
        scope=scope_text(figure),
    )


def _trial_row(content: ReportContent, view: TrialView) -> TrialRow:
    result = view.record.result
    energy_j, mark = None, ""
    for one in result.boundaries if result is not None else ():
        if content.scope is not None and (one.boundary, one.evidence) == (
            content.scope.boundary,
            content.scope.evidence,
        ):
            energy_j, mark = one.energy_j, evidence_mark(one.evidence)
    duration_s = result.duration_s if result is not None else None
    n_tokens = result.n_tokens if result is not None else None
    cells = [
        ("measured", "-" if duration_s is None else format_duration(duration_s)),
        ("tokens", "-" if n_tokens is None else f"{n_tokens:,}"),
        ("speed", f"{format_number(n_tokens / duration_s)} tokens/s" if n_tokens and duration_s else "-"),
    ]
    if content.scope is not None:
        cells += [
            ("energy", "-" if energy_j is None else f"{format_si(energy_j, 'J')}{mark}"),
            ("per token", f"{format_si(energy_j / n_tokens, 'J')}{mark}" if energy_j is not None and n_tokens else "-"),
            ("power", f"{format_si(energy_j / duration_s, 'W')}{mark}" if energy_j is not None and duration_s else "-"),
        ]
    target = content.run.spec.target
    metrics = result.final_metrics if result is not None else ()
    shown = [metric for metric in metrics if target is None or metric.name == target.metric][:1]
    cells.append(("final loss", f"{format_number(shown[0].value)} {shown[0].unit}" if shown else "-"))
    remarks = [text for text in (view.record.message, view.problem) if text is not None]
    exit_code = view.record.end.exit_code if view.record.end is not None else None
    if exit_code:
        remarks.append(f"exit code {exit_code}")
    return TrialRow(
        index=view.index,
        status=view.record.status.value,
        ending=sentences.ending(view.record.status),
        cells=tuple(cells),
        remarks=tuple(remarks),
    )


def _meter_view(row: MeterRow) -> MeterView:
    info, energy = row.info, row.energy
    share = info.instrument_share
    gap_s = energy.largest_gap_s if energy is not None else None
    remarks = [*row.errors]
    if energy is not None and energy.reason is not None:
        remarks.append(energy.reason)
    return MeterView(
        trial=row.trial,
        domain=info.domain,
        cells=(
            ("interface", f"{info.interface}, {info.kind.value.replace('_', ' ')}"),
            ("scope", f"{info.boundary.value} {info.evidence.value}"),
            ("instrument, k=2", f"{share.low * 100:+.3g} % to {share.high * 100:+.3g} %"),
            ("readings", f"{row.n_samples:,}"),
            ("failed", f"{row.n_failed:,}"),
            ("covered", "-" if energy is None else f"{energy.coverage_share * 100:.4g} %"),
            ("largest gap", "-" if gap_s is None else format_duration(gap_s)),
        ),
        remarks=tuple(remarks),
    )
