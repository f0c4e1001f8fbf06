"""From a run's trials to its summary: each printed number with n, both intervals, boundary and evidence.

Pure. Trials that ran to their end are pooled; where none did, what the others measured is shown, and the status says
so. The instrument interval is the same for all trials (one sensor, one model): it does not shrink with n.
"""

from collections.abc import Callable, Sequence

from ecobench.measurement import Boundary, BoundaryEnergy, Evidence, Interval, QualityFlag, Severity
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
from ecobench.stats import mean_with_interval
from ecobench.units import J_PER_KWH

_WORST_FIRST = (
    TrialStatus.LOST,
    TrialStatus.FAILED,
    TrialStatus.INTERRUPTED,
    TrialStatus.STOPPED,
    TrialStatus.DONE,
)
_COMPLETE = (TrialStatus.DONE, TrialStatus.STOPPED)
_NOT_COUNTED = {
    Evidence.EST: "idle power of the machine, memory, disks, network, power supply and cooling; other programs",
    Evidence.C1: "GPUs, disks, network, fans, power supply losses and cooling",
}


def summarise(run: RunRecord, trials: Sequence[TrialRecord]) -> RunSummary:
    """The summary of `run` from the trials there are, in order."""
    complete = [trial for trial in trials if trial.result is not None and trial.status in _COMPLETE]
    pooled = complete or [trial for trial in trials if trial.result is not None]
    results = [trial.result for trial in pooled if trial.result is not None]
    flags = tuple(_flags(trials))
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
        figures=(*_energy_figures(run, results), *_plain_figures(results)),
        phases=_phases(run, results),
        target=run.spec.target,
        n_target_met=sum(target.is_met for target in targets) if targets else None,
        flags=flags,
        not_counted=_not_counted(results),
        to_improve=tuple(
            f"{absence.interface}: {absence.reason}" + (f": {absence.remedy}" if absence.remedy else "")
            for absence in run.absences
        ),
    )


def _energy_figures(run: RunRecord, results: Sequence[TrialResult]) -> list[Figure]:
    kinds = list(dict.fromkeys((one.boundary, one.evidence) for result in results for one in result.boundaries))
    if not kinds:
        why = "no meter was asked for" if run.spec.meter == "none" else "nothing was measured"
        return [
            _missing(key, label, unit, why)
            for key, label, unit in (
                ("energy_per_token_j", "energy per token", "J/token"),
                ("energy_j", "energy", "J"),
                ("mean_power_w", "mean power", "W"),
            )
        ]
    figures = []
    for boundary, evidence in kinds:
        pairs = [(result, _find(result.boundaries, boundary, evidence)) for result in results]

        def figure(
            key: str,
            label: str,
            unit: str,
            divisor: Callable[[TrialResult], float | None],
            lacking: str,
            kind: tuple[Boundary, Evidence] = (boundary, evidence),
            pairs: list[tuple[TrialResult, BoundaryEnergy | None]] = pairs,
        ) -> Figure:
            values, lows, highs = [], [], []
            reasons = []
            for result, energy in pairs:
                by = divisor(result)
                if energy is None or energy.energy_j is None:
                    reasons.append("not metered" if energy is None else energy.reason or "not metered")
                elif not by:
                    reasons.append(lacking)
                else:
                    values.append(energy.energy_j / by)
                    if energy.instrument is not None:
                        lows.append(energy.instrument.low / by)
                        highs.append(energy.instrument.high / by)
            return _figure(key, label, unit, values, lows, highs, reasons, *kind)

        per_token = figure(
            "energy_per_token_j", "energy per token", "J/token", lambda one: one.n_tokens, "no tokens were reported"
        )
        figures += [
            _inverse_per_kwh(per_token),
            per_token,
            figure("energy_j", "energy", "J", lambda _: 1.0, ""),
            figure("mean_power_w", "mean power", "W", lambda one: one.duration_s, "the measured phase never ran"),
        ]
    return figures


def _plain_figures(results: Sequence[TrialResult]) -> list[Figure]:
    phase = results[0].measured_phase if results else ""
    no_phase, no_tokens = f"phase `{phase}` never ran", "no tokens were reported"
    speeds = [one.n_tokens / one.duration_s for one in results if one.n_tokens and one.duration_s]
    durations = [one.duration_s for one in results if one.duration_s is not None]
    tokens = [float(one.n_tokens) for one in results if one.n_tokens is not None]
    figures = [
        _figure("tokens_per_s", "speed", "tokens/s", speeds, [], [], [no_tokens]),
        _figure("duration_s", "measured time", "s", durations, [], [], [no_phase]),
        _figure("n_tokens", "tokens", "tokens", tokens, [], [], [no_tokens]),
    ]
    finals: dict[tuple[str, str], list[float]] = {}
    for result in results:
        for metric in result.final_metrics:
            finals.setdefault((metric.name, metric.unit), []).append(metric.value)
    figures += [_figure(f"final_{name}", f"final {name}", unit, v, [], [], []) for (name, unit), v in finals.items()]
    return figures


def _phases(run: RunRecord, results: Sequence[TrialResult]) -> tuple[PhaseSummary, ...]:
    names = dict.fromkeys(phase.phase for result in results for phase in result.phases)
    summaries = []
    for name in names:
        found = [phase for result in results for phase in result.phases if phase.phase == name]
        kinds = dict.fromkeys((one.boundary, one.evidence) for phase in found for one in phase.boundaries)
        figures = []
        for boundary, evidence in kinds:
            energies = [_find(phase.boundaries, boundary, evidence) for phase in found]
            known = [one for one in energies if one is not None and one.energy_j is not None]
            reasons = [one.reason for one in energies if one is not None and one.reason]
            figures.append(
                _figure(
                    "energy_j",
                    "energy",
                    "J",
                    [one.energy_j for one in known if one.energy_j is not None],
                    [one.instrument.low for one in known if one.instrument],
                    [one.instrument.high for one in known if one.instrument],
                    reasons,
                    boundary,
                    evidence,
                )
            )
        summaries.append(
            PhaseSummary(
                phase=name,
                is_measured=name == run.spec.measured_phase,
                duration_s=sum(phase.duration_s for phase in found) / len(found),
                figures=tuple(figures),
            )
        )
    return tuple(summaries)


def _figure(
    key: str,
    label: str,
    unit: str,
    values: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    reasons: Sequence[str],
    boundary: Boundary | None = None,
    evidence: Evidence | None = None,
) -> Figure:
    if not values:
        return _missing(key, label, unit, "; ".join(dict.fromkeys(reasons)) or "not reported", boundary, evidence)
    has_instrument = len(lows) == len(values)
    return Figure(
        key=key,
        label=label,
        value=_mean(values),
        unit=unit,
        reason=None,
        n=len(values),
        repeatability=mean_with_interval(values).interval,
        instrument=Interval(low=_mean(lows), high=_mean(highs)) if has_instrument else None,
        boundary=boundary,
        evidence=evidence,
    )


def _missing(
    key: str,
    label: str,
    unit: str,
    reason: str,
    boundary: Boundary | None = None,
    evidence: Evidence | None = None,
) -> Figure:
    return Figure(
        key=key,
        label=label,
        value=None,
        unit=unit,
        reason=reason,
        n=0,
        repeatability=None,
        instrument=None,
        boundary=boundary,
        evidence=evidence,
    )


def _inverse_per_kwh(per_token: Figure) -> Figure:
    """tokens/kWh from J/token: 3.6e6 divided by it, and by the ends of its intervals."""

    def invert(interval: Interval | None) -> Interval | None:
        # An interval that reaches 0 J has no finite inverse.
        if interval is None or interval.low <= 0:
            return None
        return Interval(low=J_PER_KWH / interval.high, high=J_PER_KWH / interval.low)

    return Figure(
        key="tokens_per_kwh",
        label="efficiency",
        value=J_PER_KWH / per_token.value if per_token.value else None,
        unit="tokens/kWh",
        reason=per_token.reason if per_token.value is None else None if per_token.value else "0 J were measured",
        n=per_token.n if per_token.value else 0,
        repeatability=invert(per_token.repeatability),
        instrument=invert(per_token.instrument),
        boundary=per_token.boundary,
        evidence=per_token.evidence,
    )


def _flags(trials: Sequence[TrialRecord]) -> list[QualityFlag]:
    """Flags of all trials, each with its trial in front where there are several."""
    found = []
    for trial in trials:
        prefix = f"trial {trial.index}: " if len(trials) > 1 else ""
        for flag in trial.result.flags if trial.result is not None else ():
            found.append(
                QualityFlag(code=flag.code, severity=flag.severity, evidence=prefix + flag.evidence, remedy=flag.remedy)
            )
        if trial.message is not None and not any(trial.message in flag.evidence for flag in found):
            severity = Severity.WARNING if trial.status is TrialStatus.INTERRUPTED else Severity.INVALID
            found.append(QualityFlag(code=trial.status.value, severity=severity, evidence=prefix + trial.message))
    return found


def _not_counted(results: Sequence[TrialResult]) -> tuple[str, ...]:
    evidences = dict.fromkeys(one.evidence for result in results for one in result.boundaries)
    return tuple(_NOT_COUNTED[evidence] for evidence in evidences if evidence in _NOT_COUNTED)


def _find(energies: Sequence[BoundaryEnergy], boundary: Boundary, evidence: Evidence) -> BoundaryEnergy | None:
    return next((one for one in energies if one.boundary is boundary and one.evidence is evidence), None)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
