"""Reasons to doubt what GPUs' meters say, as flags: counter against polled power, and aliasing. Pure."""

from collections.abc import Sequence

from ecobench.aliasing import FEWEST_BEATS, Beat
from ecobench.measurement import CheckVerdict, EnergyCheck, Evidence, QualityFlag, ReadingKind, Severity
from ecobench.records import PhaseResult
from ecobench.trace import Trace
from ecobench.units import format_duration, format_number

_CALIBRATE = "`ecobench doctor --calibrate` finds this board's own ratio"
_MOVE_THE_BEAT = "another batch size moves the step time away from the sensor's period; more steps help where a beat is"


def check_agreement(measured: PhaseResult, polled: Sequence[tuple[Trace, Beat | None]]) -> list[QualityFlag]:
    """What polled power says of the counters of the measured phase, and what the power in `polled`, which answers
    alone, is worth, each with its beat (None where that cannot be told).
    """
    flags = []
    for check in measured.checks:
        flags += _check_flags(check)
    checked = {check.domain for check in measured.checks if check.verdict is not CheckVerdict.MISSING}
    for domain in measured.domains:
        if domain.method == "counter" and domain.evidence is Evidence.G0 and domain.domain not in checked:
            flags.append(
                QualityFlag(
                    code="counter_unchecked",
                    severity=Severity.WARNING,
                    evidence=f"{domain.domain}: an energy counter with nothing polled beside it that worked; "
                    "its energy is shown as G0, not as G1",
                    remedy="see `ecobench doctor` for why this board's power cannot be read",
                )
            )
    for trace, beat in polled:
        flags += _polled_flags(trace, beat)
    return flags


def _check_flags(check: EnergyCheck) -> list[QualityFlag]:
    who = f"{check.domain}, {check.kind.value.replace('_', ' ')}"
    if check.is_aliased:
        beat = _beat_text(check.step_s, check.sensor_s, check.beat_s, check.n_beats)
        return [
            QualityFlag(
                code="check_aliased",
                severity=Severity.INFO,
                evidence=f"{who}: {beat}; it says nothing of the counter, which stays the answer",
                remedy=_MOVE_THE_BEAT,
            )
        ]
    if check.verdict is CheckVerdict.CONTRADICTS:
        return [
            QualityFlag(
                code="counter_contradicted",
                severity=Severity.INVALID,
                evidence=f"{who}: {check.reason}",
                remedy="one of the two is wrong: calibrate this board again with `ecobench doctor --calibrate`",
            )
        ]
    if check.verdict is CheckVerdict.DIFFERS:
        return [
            QualityFlag(
                code="counter_differs",
                severity=Severity.WARNING,
                evidence=f"{who}: {check.reason}",
                remedy=_CALIBRATE if check.calibrated_ratio is None else "run again, then calibrate this board again",
            )
        ]
    if check.verdict is CheckVerdict.UNDECIDED:
        return [
            QualityFlag(
                code="check_undecided",
                severity=Severity.WARNING,
                evidence=f"{who}: {check.reason}",
                remedy="emit `step` events: they tell aliasing from a difference",
            )
        ]
    return []


def _polled_flags(trace: Trace, beat: Beat | None) -> list[QualityFlag]:
    """Of power that answers alone. A second's average sees every place of a step."""
    if trace.info.kind is not ReadingKind.INSTANT_POWER:
        return []
    if beat is None:
        return [
            QualityFlag(
                code="aliasing_unknown",
                severity=Severity.INFO,
                evidence=f"{trace.info.domain}: there are too few steps, or too few changes of the reading, to tell "
                "whether sensor and steps keep time",
                remedy="emit `step` events",
            )
        ]
    if not beat.is_aliased:
        return []
    return [
        QualityFlag(
            code="aliased",
            severity=Severity.WARNING,
            evidence=f"{trace.info.domain}: {_beat_text(beat.step_s, beat.sensor_s, beat.beat_s, beat.n_beats)}; its "
            "energy is polled power alone and decides no comparison",
            remedy=_MOVE_THE_BEAT,
        )
    ]


def _beat_text(step_s: float | None, sensor_s: float | None, beat_s: float | None, n_beats: float | None) -> str:
    step, sensor = (format_number((each or 0) * 1e3, digits=4) for each in (step_s, sensor_s))
    told = f"steps of {step} ms against a sensor every {sensor} ms"
    if beat_s is None or (n_beats or 0) < 1:
        return f"{told} keep time over the whole window; no length helps"
    return f"{told} beat once in {format_duration(beat_s)}, {n_beats:.1f} beats in the window, under {FEWEST_BEATS:.0f}"
