"""Which of a domain's meters answers for its energy, and what the others say of that answer. Pure.

    energy counter      the answer (`G1`), where it moved at all
    instant power       its check over the whole window; without a counter the answer (`G0`)
    average over 1 s    a second check, over the window trimmed by 1.5 s at each edge of a segment: what it says just
                        after an edge is of before it

Counter and polled power may carry a gain each, so their ratio is judged against the board's own, where it was
calibrated; elsewhere it is judged against 1, and never invalidates. Power that is aliased (`ecobench.aliasing`) decides
nothing, and after a few beats only to within what the last, cut one may leave: steps of 650 and 300 W over 3.6 beats
came out 2.0 % off. A counter that nothing checks is not `G1`: it is shown as `G0`, and flagged.

The domains of one boundary are answered alike: where one GPU has no working counter, all are answered by polled power,
since a sum over two kinds of evidence is neither.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ecobench.aliasing import Beat, SensorPeriod, beat_of, mean_step_s, sensor_period
from ecobench.energy import domain_energies
from ecobench.measurement import (
    Boundary,
    CheckVerdict,
    DomainEnergy,
    EnergyCheck,
    Evidence,
    ReadingKind,
    Segment,
    Window,
)
from ecobench.trace import Trace
from ecobench.transcript import Transcript
from ecobench.units import NS_PER_S

# Off by so much: a flag, and, on a calibrated board, no result. Source of the three: DESIGN, section 6.
DIFFERS_SHARE = 0.02
CONTRADICTS_SHARE = 0.05
TRIM_NS = 3 * NS_PER_S // 2

POWERS = (ReadingKind.INSTANT_POWER, ReadingKind.AVERAGE_POWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEnergy:
    """One window's answers, and their checks side by side."""

    domains: tuple[DomainEnergy, ...]
    checks: tuple[EnergyCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meters:
    """The traces of one domain that carry energy; a counter that never moved is none."""

    domain: str
    counter: Trace | None
    instant: Trace | None
    average: Trace | None

    @property
    def boundary(self) -> Boundary:
        return self.first.info.boundary

    @property
    def first(self) -> Trace:
        found = next((one for one in (self.counter, self.instant, self.average) if one is not None), None)
        assert found is not None  # made from traces
        return found

    @property
    def power(self) -> Trace | None:
        return self.instant or self.average


def window_energies(
    traces: Sequence[Trace], windows: Sequence[Window], *, transcript: Transcript | None
) -> tuple[WindowEnergy, ...]:
    """Energy of every domain over each window, with its checks."""
    meters = _by_domain(traces)
    steps_s = [mean_step_s(transcript, window) for window in windows]
    answers, checks = [], []
    for one, trace in _answering(meters):
        checks_here = _checks(one, windows, steps_s)
        checks.append(checks_here)
        answers.append(
            [
                _as_evidence(answer, checks_of)
                for answer, checks_of in zip(domain_energies(trace, windows), checks_here, strict=True)
            ]
        )
    return tuple(
        WindowEnergy(
            domains=_alike([of_domain[index] for of_domain in answers]),
            checks=tuple(check for of_domain in checks for check in of_domain[index]),
        )
        for index in range(len(windows))
    )


def answering_traces(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """The one trace of each domain that answers for its energy."""
    return tuple(trace for _, trace in _answering(_by_domain(traces)))


def polled_beats(
    traces: Sequence[Trace], window: Window, *, transcript: Transcript | None
) -> list[tuple[Trace, Beat | None]]:
    """Each trace of power that answers, and its beat with the steps; None where that cannot be told."""
    step_s = mean_step_s(transcript, window)
    return [
        (trace, _beat(sensor_period(trace), step_s, window))
        for _, trace in _answering(_by_domain(traces))
        if trace.info.kind in POWERS
    ]


def trimmed(window: Window, trim_ns: int = TRIM_NS) -> Window | None:
    """The window without `trim_ns` at both edges of each segment; None where nothing is left of it."""
    segments = tuple(
        Segment(start_ns=segment.start_ns + trim_ns, stop_ns=segment.stop_ns - trim_ns)
        for segment in window.segments
        if segment.duration_ns > 2 * trim_ns
    )
    return Window(phase=window.phase, segments=segments) if segments else None


def judge(
    ratio: float,
    *,
    calibrated_ratio: float | None,
    is_aliased: bool | None,
    cut_beat_share: float = 0.0,
    why_unknown: str = "",
) -> tuple[CheckVerdict, str]:
    """The verdict on one ratio of polled power to counter, and the reason in words. What a cut beat may put on the
    ratio is granted.
    """
    against = calibrated_ratio if calibrated_ratio is not None else 1.0
    off = ratio / against - 1
    of_what = f"the board's own ratio of {against:.4f}" if calibrated_ratio is not None else "1, uncalibrated"
    said = f"polled power / counter = {ratio:.4f}, {off:+.2%} off {of_what}"
    if is_aliased:
        return CheckVerdict.UNDECIDED, f"{said}; the sensor keeps time with the steps, so that decides nothing"
    if abs(off) - cut_beat_share <= DIFFERS_SHARE:
        return CheckVerdict.AGREES, said
    if is_aliased is None:
        return CheckVerdict.UNDECIDED, f"{said}; {why_unknown}, so it cannot be told whether that is aliasing"
    if abs(off) - cut_beat_share > CONTRADICTS_SHARE and calibrated_ratio is not None:
        return CheckVerdict.CONTRADICTS, said
    return CheckVerdict.DIFFERS, said


def _by_domain(traces: Iterable[Trace]) -> list[_Meters]:
    found: defaultdict[tuple[str, Boundary], dict[ReadingKind, Trace]] = defaultdict(dict)
    for trace in traces:
        if trace.info.kind in (ReadingKind.ENERGY_COUNTER, *POWERS):
            found[trace.info.domain, trace.info.boundary][trace.info.kind] = trace
    return [_meters(domain, kinds) for (domain, _), kinds in found.items()]


def _meters(domain: str, kinds: dict[ReadingKind, Trace]) -> _Meters:
    counter = kinds.get(ReadingKind.ENERGY_COUNTER)
    has_power = any(kind in kinds for kind in POWERS)
    # Alone it stays, to say why there is no energy.
    if counter is not None and has_power and (counter.is_still or len(counter.raw) < 2):
        counter = None
    return _Meters(
        domain=domain,
        counter=counter,
        instant=kinds.get(ReadingKind.INSTANT_POWER),
        average=kinds.get(ReadingKind.AVERAGE_POWER),
    )


def _answering(meters: Sequence[_Meters]) -> list[tuple[_Meters, Trace]]:
    """A boundary whose domains have all a counter is answered by counters, else by power."""
    is_counted = dict.fromkeys(Boundary, True)
    for one in meters:
        is_counted[one.boundary] &= one.counter is not None or one.power is None
    return [(one, one.first if is_counted[one.boundary] else one.power or one.first) for one in meters]


def _checks(
    meters: _Meters, windows: Sequence[Window], steps_s: Sequence[float | None]
) -> Sequence[tuple[EnergyCheck, ...]]:
    """For each window the checks of one domain's counter: one by each trace of power there is."""
    powers = [power for power in (meters.instant, meters.average) if power is not None]
    if meters.counter is None or not powers:
        return [()] * len(windows)
    return list(zip(*(_checks_by(meters.counter, power, windows, steps_s) for power in powers), strict=True))


def _checks_by(
    counter: Trace, power: Trace, windows: Sequence[Window], steps_s: Sequence[float | None]
) -> list[EnergyCheck]:
    """The checks of `counter` by `power`, one for each window."""
    is_average = power.info.kind is ReadingKind.AVERAGE_POWER
    trim_ns = TRIM_NS if is_average else 0
    overs = [trimmed(window, trim_ns) for window in windows]
    compared = [over for over in overs if over is not None]
    energies = zip(domain_energies(counter, compared), domain_energies(power, compared), strict=True)
    sensor = sensor_period(power)
    return [
        _check(
            power,
            window,
            None if over is None else next(energies),
            step_s=step_s,
            sensor=sensor,
            # A second's average holds every place of a step that is shorter than it: it has no beat.
            beat=None if is_average else _beat(sensor, step_s, window),
            trim_ns=trim_ns,
        )
        for window, over, step_s in zip(windows, overs, steps_s, strict=True)
    ]


def _check(
    power: Trace,
    window: Window,
    energies: tuple[DomainEnergy, DomainEnergy] | None,
    *,
    step_s: float | None,
    sensor: SensorPeriod | None,
    beat: Beat | None,
    trim_ns: int,
) -> EnergyCheck:
    """One check, given what counter and power say of the trimmed window; None where nothing is left of that."""
    is_aliased = False if power.info.kind is ReadingKind.AVERAGE_POWER else beat.is_aliased if beat else None
    counter_j, polled_j = (each.energy_j for each in energies) if energies is not None else (None, None)
    ratio = polled_j / counter_j if polled_j is not None and counter_j else None
    cut_beat_share = _cut_beat_share(power, window, beat) if beat is not None else None
    calibrated_ratio = power.info.calibrated_ratio
    if ratio is None:
        verdict = CheckVerdict.MISSING
        lacking = [each.reason for each in energies or () if each.reason is not None]
        short = f"no segment is longer than {2 * trim_ns / NS_PER_S:g} s"
        reason = "; ".join(lacking) or (short if energies is None else "the counter says 0 J")
    else:
        why_unknown = "the workload reports too few steps" if step_s is None else "the sensor's period was not observed"
        verdict, reason = judge(
            ratio,
            calibrated_ratio=calibrated_ratio,
            is_aliased=is_aliased,
            cut_beat_share=cut_beat_share or 0.0,
            why_unknown=why_unknown,
        )
    return EnergyCheck(
        domain=power.info.domain,
        kind=power.info.kind,
        counter_j=counter_j,
        polled_j=polled_j,
        trimmed_s=trim_ns / NS_PER_S,
        ratio=ratio,
        calibrated_ratio=calibrated_ratio,
        step_s=step_s,
        sensor_s=sensor.period_s if sensor is not None else None,
        beat_s=beat.beat_s if beat is not None else None,
        n_beats=beat.n_beats if beat is not None else None,
        cut_beat_share=cut_beat_share,
        is_aliased=is_aliased,
        verdict=verdict,
        reason=reason,
    )


def _cut_beat_share(power: Trace, window: Window, beat: Beat) -> float | None:
    """Most that half a beat too many leaves in the mean: a sine of amplitude a over n beats, a / (pi n) at most."""
    if beat.n_beats == 0:
        return None
    is_inside = np.zeros(len(power.time_ns), dtype=bool)
    for segment in window.segments:
        is_inside |= (power.time_ns >= segment.start_ns) & (power.time_ns <= segment.stop_ns)
    inside = power.raw[is_inside]
    if len(inside) == 0 or inside.mean() <= 0:
        return None
    amplitude = math.sqrt(2) * float(inside.std())
    return amplitude / (math.pi * beat.n_beats) / float(inside.mean())


def _beat(sensor: SensorPeriod | None, step_s: float | None, window: Window) -> Beat | None:
    if step_s is None or sensor is None:
        return None
    return beat_of(step_s=step_s, sensor=sensor, window=window)


def _as_evidence(answer: DomainEnergy, checks: Sequence[EnergyCheck]) -> DomainEnergy:
    """A counter's answer as what it is worth: `G1` needs a polled check that worked."""
    is_checked = any(check.verdict is not CheckVerdict.MISSING for check in checks)
    if answer.evidence is Evidence.G1 and not is_checked and answer.energy_j is not None:
        return dataclasses.replace(answer, evidence=Evidence.G0)
    return answer


def _alike(domains: Sequence[DomainEnergy]) -> tuple[DomainEnergy, ...]:
    """One evidence over a boundary's counters: the least of them."""
    least = {one.boundary for one in domains if one.evidence is Evidence.G0}
    return tuple(
        dataclasses.replace(one, evidence=Evidence.G0) if one.evidence is Evidence.G1 and one.boundary in least else one
        for one in domains
    )
