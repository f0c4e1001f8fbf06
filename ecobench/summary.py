"""From a run's trials to its summary: each printed number with n, both intervals, boundary and evidence.

Pure. Trials that ran to their end are pooled; where none did, what the others measured is shown, and the status says
so. The instrument interval is the same for all trials (one sensor, one model): it does not shrink with n.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from ecobench.figure import (
    DURATION,
    ENERGY,
    PER_KWH,
    PER_TOKEN,
    POWER,
    SPEED,
    TOKENS,
    FigureHead,
    FigureKind,
    Readings,
    mean_figure,
    missing_figure,
    tokens_per_kwh_figure,
)
from ecobench.gpu_summary import cap_state_of, gpu_summaries
from ecobench.measurement import BoundaryEnergy, Evidence, QualityFlag, Severity
from ecobench.opinion import opinion_text
from ecobench.quality import check_equal_work
from ecobench.records import (
    SCHEMA,
    Figure,
    PhaseSummary,
    RunRecord,
    RunSummary,
    TrialRecord,
    TrialResult,
    TrialStatus,
)

_WORST_FIRST = (
    TrialStatus.RUNNING,
    TrialStatus.LOST,
    TrialStatus.FAILED,
    TrialStatus.INTERRUPTED,
    TrialStatus.STOPPED,
    TrialStatus.DONE,
)
_COMPLETE = (TrialStatus.DONE, TrialStatus.STOPPED)
_NOT_COUNTED = {
    Evidence.EST: "idle power of the machine, memory, disks, network, power supply and cooling; other programs",
    Evidence.G0: "processors, memory, disks, network, fans, power supply losses and cooling",
    Evidence.G1: "processors, memory, disks, network, fans, power supply losses and cooling",
    Evidence.C1: "GPUs, disks, network, fans, power supply losses and cooling",
}


def summarise(run: RunRecord, trials: Sequence[TrialRecord]) -> RunSummary:
    """The summary of `run` from the trials there are, in order."""
    complete = [trial for trial in trials if trial.result is not None and trial.status in _COMPLETE]
    pooled = complete or [trial for trial in trials if trial.result is not None]
    results = [trial.result for trial in pooled if trial.result is not None]
    flags = (*_flags(trials), *check_equal_work(complete, stop_rule=run.spec.stop_rule))
    status = next((one for one in _WORST_FIRST if any(trial.status is one for trial in trials)), TrialStatus.LOST)
    targets = [result.target for result in results if result.target is not None]
    return RunSummary(
        schema=SCHEMA,
        id=run.id,
        status=status,
        is_valid=bool(complete)
        and len(complete) == len(trials)
        and not any(flag.severity is Severity.INVALID for flag in flags),
        n_trials=len(results),
        n_trials_planned=run.spec.n_trials,
        figures=(*_energy_figures(run, results), *_plain_figures(run, results)),
        phases=_phases(run, results),
        target=run.spec.target,
        n_target_met=sum(target.is_met for target in targets) if targets else None,
        flags=flags,
        not_counted=_not_counted(results),
        to_improve=tuple(
            f"{absence.interface}: {absence.reason}" + (f": {absence.remedy}" if absence.remedy else "")
            for absence in run.absences
        ),
        gpus=gpu_summaries(results),
        cap_state=cap_state_of(results),
        second_opinion=_second_opinion(trials),
    )


def _energy_figures(run: RunRecord, results: Sequence[TrialResult]) -> list[Figure]:
    kinds = _kinds(one for result in results for one in result.boundaries)
    if not kinds:
        why = "no meter was asked for" if run.spec.meter == "none" else "nothing was measured"
        return [missing_figure(head, reason=why) for head in (PER_KWH, PER_TOKEN, ENERGY, POWER)]
    figures = []
    for kind in kinds:
        per_token = Readings()
        whole = Readings()
        power = Readings()
        for result in results:
            energy = _find(result.boundaries, kind)
            per_token.add(energy, per=result.n_tokens, lacking="no tokens were reported")
            whole.add(energy, per=1.0, lacking="")
            power.add(energy, per=result.duration_s, lacking="the measured phase never ran")
        figure = mean_figure(PER_TOKEN, per_token, kind=kind)
        figures += [
            tokens_per_kwh_figure(figure),
            figure,
            mean_figure(ENERGY, whole, kind=kind),
            mean_figure(POWER, power, kind=kind),
        ]
    return figures


def _plain_figures(run: RunRecord, results: Sequence[TrialResult]) -> list[Figure]:
    no_phase, no_tokens = [f"phase `{run.spec.measured_phase}` never ran"], ["no tokens were reported"]
    speeds = [one.n_tokens / one.duration_s for one in results if one.n_tokens and one.duration_s]
    durations = [one.duration_s for one in results if one.duration_s is not None]
    tokens = [float(one.n_tokens) for one in results if one.n_tokens is not None]
    figures = [
        mean_figure(SPEED, Readings(values=speeds, reasons=no_tokens)),
        mean_figure(DURATION, Readings(values=durations, reasons=no_phase)),
        mean_figure(TOKENS, Readings(values=tokens, reasons=no_tokens)),
    ]
    finals: dict[FigureHead, Readings] = {}
    for result in results:
        for metric in result.final_metrics:
            head = FigureHead(f"final_{metric.name}", f"final {metric.name}", metric.unit)
            finals.setdefault(head, Readings()).values.append(metric.value)
    return figures + [mean_figure(head, readings) for head, readings in finals.items()]


def _phases(run: RunRecord, results: Sequence[TrialResult]) -> tuple[PhaseSummary, ...]:
    names = dict.fromkeys(phase.phase for result in results for phase in result.phases)
    summaries = []
    for name in names:
        found = [phase for result in results for phase in result.phases if phase.phase == name]
        figures = []
        for kind in _kinds(one for phase in found for one in phase.boundaries):
            readings = Readings()
            for phase in found:
                readings.add(_find(phase.boundaries, kind), per=1.0, lacking="")
            figures.append(mean_figure(ENERGY, readings, kind=kind))
        summaries.append(
            PhaseSummary(
                phase=name,
                is_measured=name == run.spec.measured_phase,
                duration_s=sum(phase.duration_s for phase in found) / len(found),
                figures=tuple(figures),
            )
        )
    return tuple(summaries)


def _flags(trials: Sequence[TrialRecord]) -> list[QualityFlag]:
    """Flags of all trials: once what all of them say, else each with its trial in front."""
    by_trial = [(trial, _flags_of(trial)) for trial in trials]
    shared = [flag for flag in by_trial[0][1] if all(flag in own for _, own in by_trial)] if by_trial else []
    if len(trials) < 2:
        return shared
    return [dataclasses.replace(flag, evidence=f"every trial: {flag.evidence}") for flag in shared] + [
        dataclasses.replace(flag, evidence=f"trial {trial.index}: {flag.evidence}")
        for trial, own in by_trial
        for flag in own
        if flag not in shared
    ]


def _flags_of(trial: TrialRecord) -> list[QualityFlag]:
    own = list(trial.result.flags) if trial.result is not None else []
    if trial.message is not None and not any(trial.message in flag.evidence for flag in own):
        severity = Severity.WARNING if trial.status is TrialStatus.INTERRUPTED else Severity.INVALID
        own.append(QualityFlag(code=trial.status.value, severity=severity, evidence=trial.message))
    return own


def _not_counted(results: Sequence[TrialResult]) -> tuple[str, ...]:
    kinds = [kind for kind in _kinds(one for result in results for one in result.boundaries) if kind[1] in _NOT_COUNTED]
    texts = dict.fromkeys((kind.boundary, _NOT_COUNTED[kind.evidence]) for kind in kinds)
    if len({boundary for boundary, _ in texts}) < 2:
        return tuple(text for _, text in texts)
    return tuple(f"{boundary}: {text}" for boundary, text in texts)


def _second_opinion(trials: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Zeus's line for each trial; once where all say the same."""
    lines = []
    for trial in trials:
        if trial.end is not None and trial.result is not None:
            text = opinion_text(trial.end.zeus, trial.result.second_opinions)
            lines += [f"trial {trial.index}: {text}"] if text is not None else []
    said = {line.partition(": ")[2] for line in lines}
    return tuple(said) if len(said) == 1 else tuple(lines)


def _kinds(energies: Iterable[BoundaryEnergy]) -> list[FigureKind]:
    return list(dict.fromkeys(FigureKind(one.boundary, one.evidence) for one in energies))


def _find(energies: Sequence[BoundaryEnergy], kind: FigureKind) -> BoundaryEnergy | None:
    return next((one for one in energies if (one.boundary, one.evidence) == kind), None)
