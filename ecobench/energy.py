"""Energy of power domains over windows, and of boundaries over their domains. Pure.

Two methods. An energy counter is differenced (`ecobench.counter`); polled power is integrated by trapezoids, with
interpolation at the edges and repeated values kept as they are. Neither invents anything: a counter that never moved,
samples that end before the window does, a domain that is missing from a sum give None and a reason, never 0.

A gap between samples costs an integral the energy in it, and so its value from 1 % of the window on. A counter bridges
it, unless it reaches over an edge of a segment.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ecobench.aliasing import sensor_period
from ecobench.counter import (
    BreakKind,
    CounterBreak,
    CounterCurve,
    counter_curve,
    counter_energy_j,
    counts_at,
)
from ecobench.measurement import (
    Boundary,
    BoundaryEnergy,
    DomainEnergy,
    Evidence,
    Interval,
    MeterInfo,
    ReadingKind,
    Window,
)
from ecobench.trace import (
    MOST_UNCOVERED_SHARE,
    Coverage,
    Float64s,
    Int64s,
    Trace,
    coverage,
    has_sample_on_both_sides,
    trace_of,
)
from ecobench.units import NS_PER_S

__all__ = [
    "BreakKind",
    "CounterBreak",
    "PowerCurve",
    "Trace",
    "boundary_energies",
    "counter_breaks",
    "cumulative_energy_j",
    "domain_energies",
    "domain_energy",
    "power_curve",
    "trace_of",
]

COUNTER = "counter"
INTEGRAL = "integral"

# A power reading above this times what the domain can draw is no reading. Source: DESIGN, section 6.
PLAUSIBLE_SHARE = 1.1

# A segment shorter than this many readings, or ticks, of a counter has no energy by it. Source: a square power wave of
# 100 and 20 W read at 10 Hz came out at 65 % and 255 % in segments of one reading, within 0.1 % from three on.
SHORTEST_PERIODS = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PowerCurve:
    """Power over time for a drawing: `power_w[i]` is the mean from `time_ns[i]` to `time_ns[i + 1]`.

    `(n_points + 1,)` instants for `(n_points,)` powers.
    """

    time_ns: Int64s
    power_w: Float64s


def domain_energy(trace: Trace, window: Window) -> DomainEnergy:
    """Energy of the trace's domain over one window."""
    return domain_energies(trace, [window])[0]


def domain_energies(trace: Trace, windows: Sequence[Window]) -> tuple[DomainEnergy, ...]:
    """Energy of the trace's domain over each window.

    Raises:
        ValueError: the trace is of a gauge or a counter of time.
    """
    if not trace.info.kind.carries_energy:
        raise ValueError(f"{trace.info.quantity} of {trace.info.domain} carries no energy")
    if trace.info.kind is ReadingKind.ENERGY_COUNTER:
        curve = counter_curve(trace)
        return tuple(_by_counter(trace, curve, window) for window in windows)
    power = _Power.of(trace)
    update_ns = _update_ns(trace)
    return tuple(_by_integral(trace, power, window, update_ns=update_ns) for window in windows)


def counter_breaks(trace: Trace) -> tuple[CounterBreak, ...]:
    """Where an energy counter was reset, jumped, or may have wrapped unseen; none for a meter of power."""
    curve = counter_curve(trace) if trace.info.kind is ReadingKind.ENERGY_COUNTER else None
    return () if curve is None else curve.breaks


def boundary_energies(domains: Sequence[DomainEnergy]) -> tuple[BoundaryEnergy, ...]:
    """The sums over one window, one for each boundary and evidence among `domains`.

    A domain inside another (`gpu:0/memory` in `gpu:0`) is not added to it. Evidence is never mixed in a sum.

    Raises:
        ValueError: one domain twice with the same evidence: which of the two counts is for the caller to say.
    """
    groups: defaultdict[tuple[Boundary, Evidence], list[DomainEnergy]] = defaultdict(list)
    for domain in domains:
        groups[domain.boundary, domain.evidence].append(domain)
    return tuple(_sum(boundary, evidence, group) for (boundary, evidence), group in groups.items())


def cumulative_energy_j(trace: Trace, times_ns: Sequence[int]) -> tuple[float | None, ...]:
    """Energy from the trace's first sample to each instant, in J; None outside of the samples, and without energy.

    Only differences mean something: take the value at the start of what is looked at from it.
    """
    if len(trace.time_ns) < 2:
        return (None,) * len(times_ns)
    instants = np.array(times_ns, dtype=np.int64)
    if trace.info.kind is ReadingKind.ENERGY_COUNTER:
        curve = counter_curve(trace)
        if curve is None:
            return (None,) * len(times_ns)
        energies_j = counts_at(curve, instants) * trace.info.si_per_count
        first_ns, last_ns = trace.time_ns[0], trace.time_ns[-1]
    else:
        power = _Power.of(trace)
        if len(power.time_ns) < 2:
            return (None,) * len(times_ns)
        energies_j = power.energy_until_j(instants)
        first_ns, last_ns = power.time_ns[0], power.time_ns[-1]
    return tuple(
        float(energy_j) if first_ns <= instant <= last_ns else None
        for instant, energy_j in zip(instants, energies_j, strict=True)
    )


def power_curve(trace: Trace) -> PowerCurve | None:
    """Mean power between the knots of a counter, or between samples of power; None where there are none."""
    if trace.info.kind is ReadingKind.ENERGY_COUNTER:
        curve = counter_curve(trace)
        if curve is None:
            return None
        joules = np.diff(curve.counts) * trace.info.si_per_count
        return PowerCurve(time_ns=curve.time_ns, power_w=joules / (np.diff(curve.time_ns) / NS_PER_S))
    power = _Power.of(trace)
    if len(power.time_ns) < 2:
        return None
    return PowerCurve(time_ns=power.time_ns, power_w=(power.power_w[1:] + power.power_w[:-1]) / 2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Power:
    """Plausible samples of power, and the energy up to each of them. `(n_samples,)` all."""

    time_ns: Int64s
    power_w: Float64s
    energy_j: Float64s
    n_refused: int

    @classmethod
    def of(cls, trace: Trace) -> "_Power":
        power_w: Float64s = trace.raw.astype(np.float64) * trace.info.si_per_count
        is_good = np.concatenate((np.ones(1, dtype=bool), np.diff(trace.time_ns) > 0))[: len(power_w)]
        most_w = np.inf if trace.info.max_power_w is None else PLAUSIBLE_SHARE * trace.info.max_power_w
        is_plausible = (power_w >= 0) & (power_w <= most_w)
        time_ns, power_w = trace.time_ns[is_good & is_plausible], power_w[is_good & is_plausible]
        trapezoids_j = np.diff(time_ns) / NS_PER_S * (power_w[1:] + power_w[:-1]) / 2
        return cls(
            time_ns=time_ns,
            power_w=power_w,
            energy_j=np.concatenate((np.zeros(min(1, len(power_w))), np.cumsum(trapezoids_j))),
            n_refused=int(np.count_nonzero(~is_plausible)),
        )

    def energy_until_j(self, instants_ns: Int64s) -> Float64s:
        """Energy from the first sample to each instant between the samples."""
        before = np.clip(np.searchsorted(self.time_ns, instants_ns, side="right") - 1, 0, len(self.time_ns) - 2)
        since_s = (instants_ns - self.time_ns[before]) / NS_PER_S
        step_s = (self.time_ns[before + 1] - self.time_ns[before]) / NS_PER_S
        slope = (self.power_w[before + 1] - self.power_w[before]) / step_s
        energies_j: Float64s = self.energy_j[before] + since_s * (self.power_w[before] + slope * since_s / 2)
        return energies_j


def _by_counter(trace: Trace, curve: CounterCurve | None, window: Window) -> DomainEnergy:
    found = coverage(trace.time_ns, window, gap_ns=trace.gap_ns)
    if len(trace.time_ns) < 2:
        return _nothing(trace, found, COUNTER, _few_samples(trace))
    if curve is None:
        return _nothing(trace, found, COUNTER, "the counter never moved over the whole trial: it counts as absent")
    breaks = [broken for broken in curve.breaks if broken.touches(window)]
    # A break between two ordinary readings is bounded and reported; a longer one is as good as not measured.
    lost_ns = sum(broken.overlap_ns(window) for broken in breaks if broken.stop_ns - broken.start_ns > trace.gap_ns)
    if lost_ns > MOST_UNCOVERED_SHARE * window.duration_ns:
        kinds = ", ".join(dict.fromkeys(broken.kind.replace("_", " ") for broken in breaks))
        share = lost_ns / window.duration_ns
        return _nothing(trace, found, COUNTER, f"{share:.1%} of the window lies in a broken stretch ({kinds})")
    if found.edges_missing_share > MOST_UNCOVERED_SHARE:
        return _nothing(trace, found, COUNTER, _uncovered(trace, found.edges_missing_share, found))
    if (reason := _still(trace, window) or _too_short(trace, curve, window)) is not None:
        return _nothing(trace, found, COUNTER, reason)
    energy_j = counter_energy_j(curve, window)
    lost_at_most_j = sum(broken.bound_j for broken in breaks if broken.bound_j is not None)
    return _domain_energy(trace.info, found, COUNTER, energy_j, lost_at_most_j=lost_at_most_j)


def _still(trace: Trace, window: Window) -> str | None:
    """Why a metered counter's standstill takes the number away; None where it moved throughout.

    Hardware that is on draws power, so its counter moves; an estimate from CPU time may rightly stand still.
    """
    if trace.info.evidence is Evidence.EST:
        return None
    starts = np.flatnonzero(np.concatenate(([True], np.diff(trace.raw) != 0)))
    stops = np.append(starts[1:], len(trace.raw)) - 1
    still_ns, longest_ns = 0, 0
    is_long = trace.time_ns[stops] - trace.time_ns[starts] > trace.gap_ns
    for start_ns, stop_ns in zip(trace.time_ns[starts[is_long]], trace.time_ns[stops[is_long]], strict=True):
        for segment in window.segments:
            still_ns += max(0, min(int(stop_ns), segment.stop_ns) - max(int(start_ns), segment.start_ns))
        longest_ns = max(longest_ns, int(stop_ns - start_ns))
    if still_ns <= MOST_UNCOVERED_SHARE * window.duration_ns:
        return None
    share = still_ns / window.duration_ns
    return f"the counter stood still for {share:.1%} of the window (longest {longest_ns / NS_PER_S:.2f} s)"


def _too_short(trace: Trace, curve: CounterCurve, window: Window) -> str | None:
    """Why segments are too short for this counter; None where they are long enough, or make up little of the window.

    With fewer than two or three knots inside there is no power inside to extrapolate with, and what lies outside of the
    segment would be taken for what is in it.
    """
    least_ns = SHORTEST_PERIODS * max(trace.info.period_ns, curve.tick_ns)
    # From knot to knot nothing is extrapolated, however short it is.
    short = [
        segment
        for segment in window.segments
        if segment.duration_ns < least_ns
        and not (segment.start_ns in curve.time_ns and segment.stop_ns in curve.time_ns)
    ]
    if sum(segment.duration_ns for segment in short) <= MOST_UNCOVERED_SHARE * window.duration_ns:
        return None
    return f"{len(short)} segment(s) are shorter than {least_ns / NS_PER_S:.3g} s, three readings of this counter"


def _by_integral(trace: Trace, power: _Power, window: Window, *, update_ns: int) -> DomainEnergy:
    found = coverage(power.time_ns, window, gap_ns=trace.gap_ns)
    refused = f"; {power.n_refused} readings are no power this domain can draw" if power.n_refused else ""
    if len(power.time_ns) < 2:
        return _nothing(trace, found, INTEGRAL, _few_samples(trace) + refused)
    if not has_sample_on_both_sides(power.time_ns, window):
        reason = "no samples on both sides of the window's edges" + _why(trace)
        return _nothing(trace, found, INTEGRAL, reason + refused)
    if 1 - found.share > MOST_UNCOVERED_SHARE:
        return _nothing(trace, found, INTEGRAL, _uncovered(trace, 1 - found.share, found) + refused)
    if (short := _too_short_to_poll(window, update_ns=update_ns)) is not None:
        return _nothing(trace, found, INTEGRAL, short + refused)
    edges_ns = np.array([(segment.start_ns, segment.stop_ns) for segment in window.segments], dtype=np.int64)
    until_j = power.energy_until_j(edges_ns)
    energy_j = float((until_j[:, 1] - until_j[:, 0]).sum())
    return _domain_energy(
        trace.info, found, INTEGRAL, energy_j, blurred_j=_blurred_j(power, edges_ns.ravel(), update_ns=update_ns)
    )


def _too_short_to_poll(window: Window, *, update_ns: int) -> str | None:
    """Why segments are too short for polled power; None where they are long enough, or make up little of the window."""
    least_ns = SHORTEST_PERIODS * update_ns
    short = [segment for segment in window.segments if segment.duration_ns < least_ns]
    if sum(segment.duration_ns for segment in short) <= MOST_UNCOVERED_SHARE * window.duration_ns:
        return None
    return f"{len(short)} segment(s) are shorter than {least_ns / NS_PER_S:g} s, three updates of this sensor"


def _blurred_j(power: _Power, edges_ns: Int64s, *, update_ns: int) -> float:
    """What polled power may put on the wrong side of edges, in J: at each, its step there for one update.

    A sensor shows a step of power up to one update late, and between two readings it is interpolated. The step is the
    largest difference of readings within an update and a half of the edge.
    """
    firsts = np.searchsorted(power.time_ns, edges_ns - update_ns * 3 // 2, side="left")
    lasts = np.searchsorted(power.time_ns, edges_ns + update_ns * 3 // 2, side="right")
    near = [power.power_w[first:last] for first, last in zip(firsts, lasts, strict=True) if last > first]
    return float(sum(readings.max() - readings.min() for readings in near)) * update_ns / NS_PER_S


def _update_ns(trace: Trace) -> int:
    """How often a polled sensor says something new: no more often than it is read, and as seen in the trace."""
    seen = sensor_period(trace)
    return max(trace.info.period_ns, round(seen.period_s * NS_PER_S) if seen is not None else 0)


def _sum(boundary: Boundary, evidence: Evidence, group: Sequence[DomainEnergy]) -> BoundaryEnergy:
    names = [domain.domain for domain in group]
    if len(set(names)) != len(names):
        raise ValueError(f"a domain twice in the {evidence} energy of boundary {boundary}: {', '.join(names)}")
    parts = [domain for domain in group if not any(domain.domain.startswith(f"{name}/") for name in names)]
    energies_j = [part.energy_j for part in parts if part.energy_j is not None]
    instruments = [part.instrument for part in parts if part.instrument is not None]
    missing = [f"{part.domain}: {part.reason}" for part in parts if part.energy_j is None]
    # Fully correlated, so the ends add: no sensor's error is taken to make up for another's.
    whole = Interval(low=sum(each.low for each in instruments), high=sum(each.high for each in instruments))
    return BoundaryEnergy(
        boundary=boundary,
        evidence=evidence,
        domains=tuple(part.domain for part in parts),
        energy_j=None if missing else sum(energies_j),
        reason="; ".join(missing) if missing else None,
        instrument=None if missing else whole,
    )


def _domain_energy(
    info: MeterInfo,
    found: Coverage,
    method: str,
    energy_j: float,
    *,
    lost_at_most_j: float = 0.0,
    blurred_j: float = 0.0,
) -> DomainEnergy:
    share = info.instrument_share
    return DomainEnergy(
        domain=info.domain,
        boundary=info.boundary,
        evidence=info.evidence,
        method=method,
        energy_j=energy_j,
        reason=None,
        instrument=Interval(
            low=max(0.0, energy_j * (1 + share.low) - blurred_j),
            high=energy_j * (1 + share.high) + lost_at_most_j + blurred_j,
        ),
        coverage_share=found.share,
        largest_gap_s=found.largest_gap_s,
    )


def _nothing(trace: Trace, found: Coverage, method: str, reason: str) -> DomainEnergy:
    return DomainEnergy(
        domain=trace.info.domain,
        boundary=trace.info.boundary,
        evidence=trace.info.evidence,
        method=method,
        energy_j=None,
        reason=reason,
        instrument=None,
        coverage_share=found.share,
        largest_gap_s=found.largest_gap_s,
    )


def _few_samples(trace: Trace) -> str:
    count = "no sample" if len(trace.time_ns) == 0 else f"{len(trace.time_ns)} sample only"
    return count + _why(trace)


def _uncovered(trace: Trace, share: float, found: Coverage) -> str:
    return f"samples miss {share:.1%} of the window (largest gap {found.largest_gap_s or 0:.2f} s)" + _why(trace)


def _why(trace: Trace) -> str:
    return f"; {trace.n_failed} readings failed: {trace.errors[-1]}" if trace.errors else ""
