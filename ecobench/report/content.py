"""Everything that a report of one run shows, gathered from its folder: data out, nothing drawn.

Reads what there is: a trial that was killed half-way gets its timeline up to the last second.
What cannot be read is said in `TrialView.problem`, never left out silently.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ecobench.agreement import answering_traces
from ecobench.energy import Trace
from ecobench.errors import EcobenchError
from ecobench.measurement import Boundary, DomainEnergy, Evidence, MeterInfo, ReadingKind
from ecobench.reading import read_run
from ecobench.records import Figure, RunRecord, RunSummary, TrialRecord, TrialStatus
from ecobench.report.bounds import shown_phases
from ecobench.report.losses import LossLine, loss_lines, n_undrawn
from ecobench.report.provenance import environment_rows, reproduce_lines
from ecobench.report.tables import ordered_figures
from ecobench.report.timelines import HeldLine, PowerLine, held_line, power_line
from ecobench.store.folders import RunFolder, TrialFolder
from ecobench.store.samples import read_traces
from ecobench.transcript import Transcript
from ecobench.units import seconds
from ecobench.windows import TrialWindows, trial_windows

# More phases, or more stretches of them, than this make a timeline that nobody can read and that takes minutes to draw.
MOST_SPAN_PHASES = 12
MOST_SPANS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What energy the charts show: one boundary, one kind of evidence. Sums over others would mean nothing."""

    boundary: Boundary
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSpan:
    """One stretch of a phase, in seconds from the trial's origin."""

    phase: str
    start_s: float
    stop_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView:
    """One trial as the report shows it.

    Attributes:
        spans: phases in order of time; the origin is the launch, or the first event or sample where that is not known.
        n_undrawn_spans: shorter stretches of phases, left out since there are too many.
        n_undrawn_losses: metrics left out for the same reason.
        problem: why a part of the trial cannot be shown; None where all of it can.
    """

    record: TrialRecord
    power: tuple[PowerLine, ...]
    held: tuple[HeldLine, ...]
    spans: tuple[PhaseSpan, ...]
    losses: tuple[LossLine, ...]
    n_undrawn_spans: int
    n_undrawn_losses: int
    problem: str | None

    @property
    def index(self) -> int:
        return self.record.index


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBar:
    """One phase's mean energy over the trials, by domain.

    Attributes:
        energy: the summary's figure; None without a meter.
        parts: mean energy in J of each domain that is known.
    """

    phase: str
    is_measured: bool
    duration_s: float
    energy: Figure | None
    parts: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterRow:
    """One meter in one trial: what it is, and how well it saw the measured phase.

    Attributes:
        energy: of the measured phase from this meter's domain; None where the trial has no result.
    """

    trial: int
    info: MeterInfo
    n_samples: int
    n_failed: int
    errors: tuple[str, ...]
    energy: DomainEnergy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """What a report of one run shows."""

    run: RunRecord
    summary: RunSummary
    scope: Scope | None
    trials: tuple[TrialView, ...]
    bars: tuple[PhaseBar, ...]
    meters: tuple[MeterRow, ...]
    environment: tuple[tuple[str, str], ...]
    reproduce: tuple[str, ...]


def gather(folder: RunFolder) -> ReportContent:
    """The content of the report of the run in `folder`.

    Raises:
        RecordError: its `run.json` cannot be read.
    """
    stored = read_run(folder)
    run, summary = stored.run, stored.summary
    scope = primary_scope(summary)
    views: list[TrialView] = []
    meters: list[MeterRow] = []
    for record in stored.trials:
        view, rows = _read_trial(run, folder.trial(record.index), record, scope=scope)
        views.append(view)
        meters += rows
    return ReportContent(
        run=run,
        summary=summary,
        scope=scope,
        trials=tuple(views),
        bars=_bars(summary, stored.trials, scope),
        meters=tuple(meters),
        environment=environment_rows(run),
        reproduce=reproduce_lines(run),
    )


def primary_scope(summary: RunSummary) -> Scope | None:
    """Boundary and evidence of the first energy that is known; None where there is no meter."""
    figures = [figure for figure in ordered_figures(summary.figures) if figure.key == "energy_j"]
    for figure in sorted(figures, key=lambda one: one.value is None):
        if figure.boundary is not None and figure.evidence is not None:
            return Scope(boundary=figure.boundary, evidence=figure.evidence)
    return None


def scoped_figure(content: ReportContent, key: str) -> Figure | None:
    """The summary's figure `key` at the report's scope, or without any scope; None where there is none."""
    found = [figure for figure in content.summary.figures if figure.key == key]
    for figure in found:
        if content.scope is not None and (figure.boundary, figure.evidence) == (
            content.scope.boundary,
            content.scope.evidence,
        ):
            return figure
    return found[0] if found else None


def primary_figures(content: ReportContent) -> list[Figure]:
    """The four that answer the question: efficiency, energy per token, speed, power; those that there are."""
    keys = ("tokens_per_kwh", "energy_per_token_j", "tokens_per_s", "mean_power_w")
    found = [scoped_figure(content, key) for key in keys]
    return [figure for figure in found if figure is not None and figure.value is not None]


def _read_trial(
    run: RunRecord, folder: TrialFolder, record: TrialRecord, *, scope: Scope | None
) -> tuple[TrialView, list[MeterRow]]:
    problems: list[str] = []
    traces: tuple[Trace, ...] = ()
    try:
        traces = read_traces(folder.samples)
    except EcobenchError as error:
        problems.append(f"no samples: {error.message}")
    transcripts: tuple[Transcript, ...] = ()
    try:
        transcripts = folder.read_transcripts()
    except OSError as error:
        problems.append(f"events cannot be read: {error.strerror}")
    if not transcripts:
        problems.append("the workload wrote no events: no phases, no tokens, no loss")
    origin_ns = _origin_ns(record, traces, transcripts)
    windows = _windows(record, transcripts, origin_ns=origin_ns)
    answers = answering_traces(traces)
    # Polled power where there is some: between two ticks a counter's mean is off by a reading's share of a tick.
    polled = {trace.info.domain: trace for trace in traces if trace.info.kind is ReadingKind.INSTANT_POWER}
    drawn = [polled.get(trace.info.domain, trace) for trace in answers]
    lines = [power_line(trace, origin_ns=origin_ns) for trace in drawn]
    held = [held_line(trace, origin_ns=origin_ns) for trace in traces]
    measured = windows.window(run.spec.measured_phase) if windows is not None else None
    in_scope = [trace for trace in answers if _is_in(trace.info, scope)]
    first = next((transcript for transcript in transcripts if transcript.rank == 0), None)
    spans = _spans(windows, origin_ns=origin_ns)
    drawn_spans = _longest(spans)
    view = TrialView(
        record=record,
        power=tuple(line for line in lines if line is not None),
        held=tuple(line for line in held if line is not None),
        spans=drawn_spans,
        losses=loss_lines(
            first,
            measured=measured,
            traces=in_scope,
            target=run.spec.target,
        ),
        n_undrawn_spans=len(spans) - len(drawn_spans),
        n_undrawn_losses=n_undrawn(first, run.spec.target),
        problem="; ".join(problems) or None,
    )
    rows = [
        MeterRow(
            trial=folder.index,
            info=trace.info,
            n_samples=len(trace.time_ns),
            n_failed=trace.n_failed,
            errors=trace.errors,
            energy=_measured_energy(record, trace.info),
        )
        for trace in traces
        if trace.info.kind.carries_energy
    ]
    return view, rows


def _origin_ns(record: TrialRecord, traces: Sequence[Trace], transcripts: Sequence[Transcript]) -> int:
    if record.end is not None:
        return record.end.times.launch_ns
    starts = [transcript.events[0].time_ns for transcript in transcripts if transcript.events]
    starts += [int(trace.time_ns[0]) for trace in traces if len(trace.time_ns)]
    return min(starts, default=0)


def _windows(record: TrialRecord, transcripts: Sequence[Transcript], *, origin_ns: int) -> TrialWindows | None:
    if not any(transcript.events for transcript in transcripts) and record.end is None:
        return None
    exit_ns = record.end.times.exit_ns if record.end is not None else None
    return trial_windows(transcripts, launch_ns=origin_ns, exit_ns=exit_ns)


def _spans(windows: TrialWindows | None, *, origin_ns: int) -> tuple[PhaseSpan, ...]:
    spans = [
        PhaseSpan(
            phase=window.phase,
            start_s=seconds(segment.start_ns - origin_ns),
            stop_s=seconds(segment.stop_ns - origin_ns),
        )
        for window in (windows.windows if windows is not None else ())
        for segment in window.segments
    ]
    return tuple(sorted(spans, key=lambda span: span.start_s))


def _longest(spans: Sequence[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """The longest stretches of the phases that take the most time, in order of time."""
    taken_s: dict[str, float] = {}
    for span in spans:
        taken_s[span.phase] = taken_s.get(span.phase, 0.0) + span.stop_s - span.start_s
    phases = set(sorted(taken_s, key=lambda phase: -taken_s[phase])[:MOST_SPAN_PHASES])
    known = [span for span in spans if span.phase in phases]
    longest = sorted(known, key=lambda span: span.start_s - span.stop_s)[:MOST_SPANS]
    return tuple(sorted(longest, key=lambda span: span.start_s))


def _is_in(info: MeterInfo, scope: Scope | None) -> bool:
    return scope is not None and (info.boundary, info.evidence) == (scope.boundary, scope.evidence)


def _measured_energy(record: TrialRecord, info: MeterInfo) -> DomainEnergy | None:
    result = record.result
    if result is None:
        return None
    for phase in result.phases:
        if phase.phase == result.measured_phase:
            for domain in phase.domains:
                is_counter = info.kind is ReadingKind.ENERGY_COUNTER
                if (domain.domain, domain.boundary, domain.method == "counter") == (
                    info.domain,
                    info.boundary,
                    is_counter,
                ):
                    return domain
    return None


def _bars(summary: RunSummary, records: Sequence[TrialRecord], scope: Scope | None) -> tuple[PhaseBar, ...]:
    complete = (TrialStatus.DONE, TrialStatus.STOPPED)
    with_result = [record for record in records if record.result is not None]
    pooled = [record for record in with_result if record.status in complete] or with_result
    bars = []
    for phase in shown_phases(summary.phases)[0]:
        energies: dict[str, list[float]] = {}
        for record in pooled:
            for result in record.result.phases if record.result is not None else ():
                for domain in result.domains if result.phase == phase.phase else ():
                    is_in = scope is not None and (domain.boundary, domain.evidence) == (scope.boundary, scope.evidence)
                    if is_in and domain.energy_j is not None:
                        energies.setdefault(domain.domain, []).append(domain.energy_j)
        figure = next(
            (
                one
                for one in phase.figures
                if one.key == "energy_j"
                and scope is not None
                and (one.boundary, one.evidence) == (scope.boundary, scope.evidence)
            ),
            None,
        )
        bars.append(
            PhaseBar(
                phase=phase.phase,
                is_measured=phase.is_measured,
                duration_s=phase.duration_s,
                energy=figure,
                parts=tuple((domain, sum(found) / len(found)) for domain, found in energies.items()),
            )
        )
    return tuple(bars)
