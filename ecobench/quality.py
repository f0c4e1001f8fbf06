"""Reasons to doubt a trial, as data: each flag with what was seen and what to do. Pure."""

from collections.abc import Mapping, Sequence

from ecobench.counter import CounterBreak
from ecobench.measurement import BoundaryEnergy, DomainEnergy, Evidence, QualityFlag, ReadingKind, Severity, Window
from ecobench.records import ParameterValue, RunSpec, StopRule, TargetResult, TrialEnd, TrialRecord
from ecobench.trace import Trace
from ecobench.transcript import Transcript
from ecobench.units import format_duration, format_number, format_si, seconds
from ecobench.windows import TrialWindows

# MLPerf Training's floor for power measurement is 60 samples at 1 Hz; sensors and edges need it, an estimate does not.
SHORTEST_METERED_S = 60.0
LARGEST_GAP_S = 0.5
LARGEST_SKEW_S = 0.1


def check_speech(spec: RunSpec, transcripts: Sequence[Transcript], end: TrialEnd) -> list[QualityFlag]:
    """What the workload said, against what it should say and what it was asked for."""
    flags = []
    for one in transcripts:
        who = f"rank {one.rank}: " if len(transcripts) > 1 else ""
        if one.n_problems:
            first = one.problems[0]
            flags.append(
                QualityFlag(
                    code="broken_events",
                    severity=Severity.INVALID,
                    evidence=f"{who}{one.n_problems} event line(s) break the protocol, first line {first.line}: "
                    f"{first.what}",
                    remedy="emit events through ecobench.events, from one process a rank",
                )
            )
        if one.hello is None:
            continue
        if one.hello.boot_id != end.boot_id:
            flags.append(
                QualityFlag(
                    code="other_boot",
                    severity=Severity.INVALID,
                    evidence=f"{who}the workload runs on another boot ({one.hello.boot_id}): its times do not compare",
                    remedy="start the workload on this machine, outside of virtual machines",
                )
            )
        flags += _check_parameters(who, one.hello.parameters, spec.parameters)
        if one.hello.world_size != spec.ranks:
            flags.append(
                QualityFlag(
                    code="other_ranks",
                    severity=Severity.INVALID,
                    evidence=f"{who}the workload runs {one.hello.world_size} rank(s), asked {spec.ranks}",
                    remedy="let the command in workload.toml start {ranks} ranks",
                )
            )
        n_outside = sum(not _within(event.time_ns, end) for event in one.events)
        if n_outside:
            flags.append(
                QualityFlag(
                    code="foreign_times",
                    severity=Severity.INVALID,
                    evidence=f"{who}{n_outside} event(s) are stamped before the launch or after the exit",
                    remedy="stamp with time.monotonic_ns() when it happens: emit events through ecobench.events",
                )
            )
    ranks = {one.rank for one in transcripts}
    if transcripts and 0 not in ranks:
        flags.append(
            QualityFlag(
                code="no_rank_0",
                severity=Severity.INVALID,
                evidence=f"events of ranks {sorted(ranks)} but none of rank 0, which defines the phases",
                remedy="set RANK from 0 on",
            )
        )
    expected = next((one.hello.world_size for one in transcripts if one.hello is not None), 1)
    if transcripts and len(ranks) not in (1, expected):
        flags.append(
            QualityFlag(
                code="ranks_missing",
                severity=Severity.WARNING,
                evidence=f"{len(ranks)} of {expected} ranks wrote events",
                remedy="let rank 0 alone emit, or all ranks",
            )
        )
    if end.n_orphans_ended:
        flags.append(
            QualityFlag(
                code="orphans_ended",
                severity=Severity.INFO,
                evidence=f"the workload left {end.n_orphans_ended} process(es) behind; they were ended",
            )
        )
    return flags


def check_windows(spec: RunSpec, windows: TrialWindows, *, is_killed: bool) -> list[QualityFlag]:
    """Whether the phases are whole, and the ranks together."""
    flags = []
    if windows.window(spec.measured_phase) is None:
        flags.append(
            QualityFlag(
                code="no_measured_phase",
                severity=Severity.INVALID,
                evidence=f"the workload never entered phase `{spec.measured_phase}`",
                remedy="see `measured_phase` in workload.toml, and the trial's stderr",
            )
        )
    for phase in windows.unfinished:
        flags.append(
            QualityFlag(
                code="unfinished_phase",
                severity=Severity.WARNING if is_killed else Severity.INVALID,
                evidence=f"phase `{phase}` never stopped; its window ends with the workload",
                remedy=None if is_killed else "leave phases in the order in which they were entered",
            )
        )
    for problem in windows.problems:
        flags.append(QualityFlag(code="ranks_differ", severity=Severity.WARNING, evidence=problem))
    for skew in windows.skews:
        if max(skew.start_s, skew.stop_s) > LARGEST_SKEW_S:
            flags.append(
                QualityFlag(
                    code="rank_skew",
                    severity=Severity.WARNING,
                    evidence=f"ranks enter `{skew.phase}` {format_duration(skew.start_s)} apart and leave it "
                    f"{format_duration(skew.stop_s)} apart",
                    remedy="put a barrier before the phase",
                )
            )
    return flags


def check_work(n_tokens: int | None, *, phase: str) -> list[QualityFlag]:
    """Whether there are tokens to divide by."""
    if n_tokens:
        return []
    return [
        QualityFlag(
            code="no_tokens",
            severity=Severity.INVALID,
            evidence=f"no tokens were reported in phase `{phase}`",
            remedy="emit a `step` event with the cumulative tokens after each optimizer step",
        )
    ]


def check_equal_work(trials: Sequence[TrialRecord], *, stop_rule: StopRule | None) -> list[QualityFlag]:
    """Whether the trials that are pooled did the same work; with a stop rule they may differ in how much of it."""
    results = [trial.result for trial in trials if trial.result is not None]
    found: dict[str, set[object]] = {"data": {result.data_hash for result in results}}
    if stop_rule is None:
        found |= {"tokens": {one.n_tokens for one in results}, "steps": {one.n_steps for one in results}}
    differing = [f"{what} {', '.join(sorted(map(str, values)))}" for what, values in found.items() if len(values) > 1]
    if not differing:
        return []
    return [
        QualityFlag(
            code="unequal_work",
            severity=Severity.INVALID,
            evidence=f"trials did different work: {'; '.join(differing)}",
            remedy="pool only trials of equal work: fix seeds and data, and read the trials one by one",
        )
    ]


def check_energy(
    domains: Sequence[DomainEnergy], boundaries: Sequence[BoundaryEnergy], *, duration_s: float
) -> list[QualityFlag]:
    """Whether the measured phase's energy is whole, and long enough."""
    flags = []
    for one in boundaries:
        if one.energy_j is None:
            flags.append(
                QualityFlag(
                    code="no_energy",
                    severity=Severity.INVALID,
                    evidence=f"no energy at boundary {one.boundary}: {one.reason}",
                    remedy="see `ecobench doctor`",
                )
            )
    for domain in domains:
        if domain.largest_gap_s is not None and domain.largest_gap_s > LARGEST_GAP_S:
            flags.append(
                QualityFlag(
                    code="sample_gap",
                    severity=Severity.WARNING,
                    evidence=f"{domain.domain}: {format_number(domain.largest_gap_s, digits=3)} s without a reading, "
                    f"{format_number(domain.coverage_share * 100, digits=3)} % of the window is covered",
                    remedy="the machine was overloaded or suspended; run again",
                )
            )
    metered = [one for one in boundaries if one.evidence is not Evidence.EST]
    if metered and duration_s < SHORTEST_METERED_S:
        flags.append(
            QualityFlag(
                code="short_window",
                severity=Severity.WARNING,
                evidence=f"{format_duration(duration_s)} measured, under {SHORTEST_METERED_S:.0f} s",
                remedy="raise the number of steps",
            )
        )
    if any(one.evidence is Evidence.EST for one in boundaries):
        flags.append(
            QualityFlag(
                code="estimated",
                severity=Severity.INFO,
                evidence="the energy is an estimate from CPU time and a model, not a measurement",
                remedy="a meter replaces it: see `ecobench doctor`",
            )
        )
    return flags


def check_trace(trace: Trace, breaks: Sequence[CounterBreak], measured: Window | None) -> list[QualityFlag]:
    """Whether one meter answered, and counted on without a break."""
    domain = trace.info.domain
    flags = []
    is_counter = trace.info.kind is ReadingKind.ENERGY_COUNTER and trace.info.evidence is not Evidence.EST
    if is_counter and trace.is_still:
        flags.append(
            QualityFlag(
                code="dead_counter",
                severity=Severity.WARNING,
                evidence=f"{domain}: the energy counter never moved; it counts as absent",
                remedy="where polled power answers in its place, the figures say so; see `ecobench doctor`",
            )
        )
    if trace.n_failed:
        flags.append(
            QualityFlag(
                code="failed_readings",
                severity=Severity.WARNING,
                evidence=f"{domain}: {trace.n_failed} readings failed: {'; '.join(trace.errors[:3])}",
                remedy="see `ecobench doctor`",
            )
        )
    for one in breaks:
        if measured is None or not one.touches(measured):
            continue
        kind = one.kind.replace("_", " ")
        duration = format_duration(seconds(one.stop_ns - one.start_ns))
        lost = "an unknown energy" if one.bound_j is None else f"at most {format_si(one.bound_j, 'J', digits=3)}"
        flags.append(
            QualityFlag(
                code=f"counter_{one.kind}",
                severity=Severity.WARNING,
                evidence=f"{domain}: the counter did not count on over {duration} ({kind}); {lost} is lost",
                remedy="do not reload drivers or suspend the machine during a run",
            )
        )
    return flags


def check_controls(end: TrialEnd) -> list[QualityFlag]:
    """Limits that somebody else changed during the trial, and settings that could not be put back."""
    flags = []
    for control in end.controls:
        who = f"GPU {control.setting.index}"
        if control.changes:
            first = control.changes[0]
            asked_w = control.setting.limit_w
            after_s = seconds(first.time_ns - end.times.launch_ns)
            flags.append(
                QualityFlag(
                    code="limit_changed",
                    severity=Severity.INVALID,
                    evidence=f"{who}: the limit of {asked_w:g} W became {first.requested_w:g} W requested, "
                    f"{first.enforced_w:g} W in force, seen {after_s:.1f} s after the launch"
                    + (f", and changed {len(control.changes)} times in all" if len(control.changes) > 1 else ""),
                    remedy="something else on this machine sets limits: find and stop it, then run again",
                )
            )
        if control.problem is not None:
            flags.append(
                QualityFlag(
                    code="not_restored",
                    severity=Severity.WARNING,
                    evidence=f"{who} was not put back as it was found: {control.problem}",
                    remedy="`ecobench restore` tries again",
                )
            )
    return flags


def check_target(target: TargetResult | None, *, was_asked_to_stop: bool) -> list[QualityFlag]:
    """Whether the run trained as far as it was meant to."""
    if target is None or target.is_met or was_asked_to_stop:
        return []
    final = "was not reported" if target.final_value is None else f"ended at {format_number(target.final_value)}"
    return [
        QualityFlag(
            code="target_missed",
            severity=Severity.WARNING,
            evidence=f"{target.target.metric} {final}, the target is {target.target.at_most:g} {target.target.unit}",
            remedy="compare energy only between runs that reach the same target",
        )
    ]


def _check_parameters(
    who: str, said: Mapping[str, object] | None, asked: Mapping[str, ParameterValue]
) -> list[QualityFlag]:
    if said is None:
        if not asked:
            return []
        return [
            QualityFlag(
                code="parameters_unsaid",
                severity=Severity.WARNING,
                evidence=f"{who}the workload does not say which parameters it ran with",
                remedy='emit("hello", parameters=vars(args)) first',
            )
        ]
    differing = [
        f"{name} is {said.get(name, 'missing')!r}, asked {asked.get(name, 'nothing')!r}"
        for name in sorted({*said, *asked})
        if name not in said or name not in asked or not _same(said[name], asked[name])
    ]
    if not differing:
        return []
    return [
        QualityFlag(
            code="other_parameters",
            severity=Severity.INVALID,
            evidence=f"{who}the workload ran with other parameters: {'; '.join(differing)}",
            remedy="let the workload's command line and workload.toml declare the same parameters",
        )
    ]


def _within(time_ns: int, end: TrialEnd) -> bool:
    return end.times.launch_ns <= time_ns <= end.times.exit_ns


def _same(said: object, asked: ParameterValue) -> bool:
    if isinstance(said, bool) or isinstance(said, str) != isinstance(asked, str):
        return False
    return said == asked
