"""Reasons to doubt what GPUs' meters say, as flags: counter against polled power, aliasing, what held boards back,
what cannot be. Pure.
"""

from collections.abc import Sequence

import numpy as np

from ecobench.aliasing import FEWEST_BEATS, Beat
from ecobench.energy import domain_energy
from ecobench.gpu_records import GpuConditions
from ecobench.measurement import (
    CheckVerdict,
    EnergyCheck,
    Evidence,
    QualityFlag,
    ReadingKind,
    Segment,
    Severity,
    Window,
)
from ecobench.records import PhaseResult
from ecobench.trace import Trace
from ecobench.units import NS_PER_S, format_duration, format_number, seconds

# Held back for more than this share of the window is worth a flag; a degree is about half a percent of a board's power.
SLOWED_SHARE = 0.01
LARGEST_WARMING_C = 5.0
# Mean power over the limit: doubtful from the first on (DESIGN, section 6), impossible from the second on, which is
# more than the gain of an uncalibrated path explains. Under idle by more than the noise of a short lead-in: doubtful.
OVER_LIMIT_SHARE = 1.02
IMPOSSIBLE_SHARE = 1.1
UNDER_IDLE_SHARE = 0.95
# A reading that stays the same to its last digit for so long, while the counter says otherwise, is frozen.
FROZEN_NS = 5 * NS_PER_S
FROZEN_SHARE = 0.02
# A pass over all GPUs that is slower than this misses 0.15 % on segments of 12 s.
SLOWEST_PACE_NS = 40_000_000
_FEWEST_FOR_PACE = 10
# Segments of less make edges a percent of them. Source: DESIGN, section 6.
SHORTEST_SEGMENT_NS = 10 * NS_PER_S

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


def check_conditions(gpus: Sequence[GpuConditions]) -> list[QualityFlag]:
    """What held boards back, whether it held all alike, whether they warmed up, and power that no limit allows."""
    flags = []
    for one in gpus:
        for what, share in (("heat", one.thermal_share), ("the power brake", one.brake_share)):
            if share is not None and share >= SLOWED_SHARE:
                flags.append(
                    QualityFlag(
                        code="throttled",
                        severity=Severity.WARNING,
                        evidence=f"{one.domain}: held back by {what} for {_percent(share)} of the window",
                        remedy="cool the machine, or see what its power supply allows; such runs do not repeat",
                    )
                )
        if one.warming_c is not None and abs(one.warming_c) > LARGEST_WARMING_C:
            flags.append(
                QualityFlag(
                    code="temperature_drift",
                    severity=Severity.WARNING,
                    evidence=f"{one.domain}: {one.warming_c:+.0f} C from the first to the last tenth of the window",
                    remedy="a longer warm-up, or a trial before the first that counts",
                )
            )
        flags += _limit_flags(one)
    states = {one.cap_state for one in gpus}
    if len(states) > 1:
        shares = ", ".join(f"{one.domain} {_share_text(one)}" for one in gpus)
        flags.append(
            QualityFlag(
                code="unequal_caps",
                severity=Severity.WARNING,
                evidence=f"the power limit did not hold all GPUs alike: {shares}",
                remedy="look for a board that is hotter, has another limit, or waits for the others",
            )
        )
    return flags


def check_segments(measured: Window, gpus: Sequence[GpuConditions]) -> list[QualityFlag]:
    """Whether the segments are long enough for the edges of a GPU's counter."""
    short = [one for one in measured.segments if one.duration_ns < SHORTEST_SEGMENT_NS]
    if not gpus or sum(one.duration_ns for one in short) <= 0.01 * measured.duration_ns:
        return []
    shortest = format_duration(seconds(min(one.duration_ns for one in short)))
    return [
        QualityFlag(
            code="short_segments",
            severity=Severity.WARNING,
            evidence=f"{len(short)} of {len(measured.segments)} segments of `{measured.phase}` are under "
            f"{seconds(SHORTEST_SEGMENT_NS):.0f} s, the shortest {shortest}",
            remedy="validate less often",
        )
    ]


def check_idle(traces: Sequence[Trace], gpus: Sequence[GpuConditions], *, launch_ns: int) -> list[QualityFlag]:
    """Whether a board drew less over the window than before the launch."""
    flags = []
    powers = {one.domain: one.mean_power_w for one in gpus}
    for trace in traces:
        power_w = powers.get(trace.info.domain)
        before = trace.raw[trace.time_ns < launch_ns]
        if trace.info.kind is not ReadingKind.INSTANT_POWER or power_w is None or len(before) == 0:
            continue
        idle_w = float(before.mean()) * trace.info.si_per_count
        if power_w < UNDER_IDLE_SHARE * idle_w:
            flags.append(
                QualityFlag(
                    code="under_idle",
                    severity=Severity.WARNING,
                    evidence=f"{trace.info.domain}: {format_number(power_w)} W on average, "
                    f"{format_number(idle_w)} W before the launch",
                    remedy="was something else running on this GPU, or does the workload not use it?",
                )
            )
    return flags


def check_frozen(traces: Sequence[Trace], measured: Window, checks: Sequence[EnergyCheck]) -> list[QualityFlag]:
    """Whether polled power stood still while the energy counter says that the board's power was another. One that is
    known to keep time with the steps stands still for that.
    """
    aliased = {check.domain for check in checks if check.is_aliased}
    counters = {one.info.domain: one for one in traces if one.info.kind is ReadingKind.ENERGY_COUNTER}
    flags = []
    for trace in traces:
        counter = counters.get(trace.info.domain)
        if trace.info.kind is not ReadingKind.INSTANT_POWER or counter is None or len(trace.raw) < 2:
            continue
        if trace.info.domain in aliased:
            continue
        still = _longest_stillness(trace, measured)
        if still is None or still.duration_ns < FROZEN_NS:
            continue
        counted = domain_energy(counter, Window(phase=measured.phase, segments=(still,))).energy_j
        at = int(np.searchsorted(trace.time_ns, still.start_ns, side="right")) - 1
        said_w = float(trace.raw[max(0, at)]) * trace.info.si_per_count
        counted_w = None if counted is None else counted / seconds(still.duration_ns)
        if counted_w is not None and abs(said_w - counted_w) > FROZEN_SHARE * counted_w:
            flags.append(
                QualityFlag(
                    code="frozen_sensor",
                    severity=Severity.WARNING,
                    evidence=f"{trace.info.domain}: power stood at {format_number(said_w)} W for "
                    f"{format_duration(seconds(still.duration_ns))}, the counter says {format_number(counted_w)} W",
                    remedy="the counter stays the answer and has no check meanwhile; see `nvidia-smi -q -d POWER`, and "
                    "whether a step takes as long as the sensor's period",
                )
            )
    return flags


def check_foreign(traces: Sequence[Trace], measured: Window) -> list[QualityFlag]:
    """Whether somebody else computed on a measured GPU: its energy is then not the workload's."""
    flags = []
    for trace in traces:
        if trace.info.quantity != "foreign_processes":
            continue
        first_ns, last_ns = measured.segments[0].start_ns, measured.segments[-1].stop_ns
        # Asked once a second: the readings just before and after a short window count too.
        first = max(0, int(np.searchsorted(trace.time_ns, first_ns, side="right")) - 1)
        last = int(np.searchsorted(trace.time_ns, last_ns, side="left"))
        n_most = int(trace.raw[first : last + 1].max(initial=0))
        if n_most > 0:
            flags.append(
                QualityFlag(
                    code="foreign_process",
                    severity=Severity.WARNING,
                    evidence=f"{trace.info.domain}: up to {n_most} process(es) of somebody else; their energy is in it",
                    remedy="`ecobench doctor` lists who uses a GPU; end them, or choose others with --gpus",
                )
            )
    return flags


def check_pace(traces: Sequence[Trace]) -> list[QualityFlag]:
    """Whether a GPU's counter was read too seldom for the edges of segments."""
    slow = {}
    for trace in traces:
        is_counter = trace.info.kind is ReadingKind.ENERGY_COUNTER and trace.info.device is not None
        if is_counter and len(trace.time_ns) > _FEWEST_FOR_PACE:
            every_ns = float(np.median(np.diff(trace.time_ns)))
            if every_ns > SLOWEST_PACE_NS:
                slow[trace.info.domain] = every_ns
    if not slow:
        return []
    return [
        QualityFlag(
            code="slow_reading",
            severity=Severity.WARNING,
            evidence=f"energy counters were read every {max(slow.values()) / 1e6:.0f} ms ({', '.join(slow)}); from"
            f" {SLOWEST_PACE_NS / 1e6:.0f} ms on, segments of 12 s are not within 0.15 %",
            remedy="fewer GPUs with --gpus, longer segments, or a driver that answers faster",
        )
    ]


def _longest_stillness(trace: Trace, measured: Window) -> Segment | None:
    """The longest stretch of one segment over which the reading never changed."""
    starts = np.flatnonzero(np.concatenate(([True], np.diff(trace.raw) != 0)))
    start_ns = trace.time_ns[starts]
    stop_ns = np.append(trace.time_ns[starts[1:]], trace.time_ns[-1])
    found: Segment | None = None
    for segment in measured.segments:
        from_ns, to_ns = np.maximum(start_ns, segment.start_ns), np.minimum(stop_ns, segment.stop_ns)
        longest = int(np.argmax(to_ns - from_ns))
        if to_ns[longest] > from_ns[longest]:
            here = Segment(start_ns=int(from_ns[longest]), stop_ns=int(to_ns[longest]))
            found = here if found is None or here.duration_ns > found.duration_ns else found
    return found


def _limit_flags(one: GpuConditions) -> list[QualityFlag]:
    flags = _over_limit(one)
    lowest_w, highest_w = one.limit_lowest_w, one.limit_highest_w
    if lowest_w is not None and highest_w is not None and lowest_w != highest_w:
        flags.append(
            QualityFlag(
                code="limit_moved",
                severity=Severity.WARNING,
                evidence=f"{one.domain}: the limit in force was between {format_number(lowest_w)} and "
                f"{format_number(highest_w)} W inside the window",
                remedy="something else on this machine sets limits, or the board lowers its own: find which, run again",
            )
        )
    return flags


def _over_limit(one: GpuConditions) -> list[QualityFlag]:
    power_w, limit_w = one.mean_power_w, one.limit_highest_w
    if power_w is None or limit_w is None or power_w <= OVER_LIMIT_SHARE * limit_w:
        return []
    return [
        QualityFlag(
            code="over_limit",
            severity=Severity.INVALID if power_w > IMPOSSIBLE_SHARE * limit_w else Severity.WARNING,
            evidence=f"{one.domain}: {format_number(power_w)} W on average, its limit is {format_number(limit_w)} W",
            remedy="a meter with a gain, or a limit that is not in force: `ecobench doctor --calibrate`",
        )
    ]


def _share_text(one: GpuConditions) -> str:
    return one.cap_state.value if one.cap_share is None else _percent(one.cap_share)


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


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
