"""What an energy counter says between two instants that it was not read at. Pure.

A counter is read at the sampler's instants, but it moves at its own. Two kinds are told apart by the trace itself:

    it moves at (nearly) every reading      every reading is exact at its own instant (RAPL: about 1 ms)
    it stands still for several readings    it ticks (NVML: about 100 ms): only the readings where it has just moved
                                            say something, and that was at most one reading ago

So a counter becomes a row of *knots*: instants at which its energy is known. Between knots energy is interpolated. At
the edge of a segment it is extrapolated from inside, with the mean power of up to 1 s of knots next to the edge, since
an interpolation over the edge would smear what happens outside (a validation, idle) into the segment:

    energy                         o----o      o  knot
                              o---/            |  edge of the segment
                    o---|----/                    from the first knot inside back to the edge: the slope inside, but
            o------/                              never more than what the counter moved over that tick

A wrap is told from a reset by plausibility: more than the domain can draw in that time is no energy. After a reset
what the new value says is counted, and what was lost before it is bounded (`CounterBreak`).
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from ecobench.measurement import MeterInfo, Segment, Window
from ecobench.trace import Float64s, Int64s, Trace
from ecobench.units import NS_PER_S, seconds

# Over how long the power next to an edge is taken. Long enough that the jitter of one reading is a percent of it.
EDGE_NS = NS_PER_S

# A delta is no energy where it is more than this times what the domain can draw between the readings, two ticks added
# since neither end of the delta is known better. Source: DESIGN, section 6.
PLAUSIBLE_SHARE = 1.1
PLAUSIBLE_TICKS = 2


class BreakKind(StrEnum):
    """Why the energy between two knots is not known."""

    RESET = "reset"  # it started again from 0
    JUMP = "jump"  # it moved further, or back, than energy could have moved it
    HIDDEN_WRAP = "hidden_wrap"  # it was not read for so long that it may have gone round unseen


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterBreak:
    """Between two knots the counter did not only count.

    Attributes:
        counted_j: what is counted of it: what a restarted counter says; 0 for a jump.
        bound_j: most that the domain can have drawn in that time; None where its greatest power is not known.
    """

    kind: BreakKind
    start_ns: int
    stop_ns: int
    counted_j: float
    bound_j: float | None

    def touches(self, window: Window) -> bool:
        return any(self.start_ns < segment.stop_ns and segment.start_ns < self.stop_ns for segment in window.segments)

    def overlap_ns(self, window: Window) -> int:
        return sum(
            max(0, min(self.stop_ns, segment.stop_ns) - max(self.start_ns, segment.start_ns))
            for segment in window.segments
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CounterCurve:
    """A counter's knots: energy since the first of them, in counts, `(n_knots,)`.

    Attributes:
        tick_ns: how often the counter moves; 0 where that is not longer than the time between readings.
    """

    info: MeterInfo
    time_ns: Int64s
    counts: Int64s
    tick_ns: int
    breaks: tuple[CounterBreak, ...]


def counter_curve(trace: Trace) -> CounterCurve | None:
    """The knots of a counter; None where it never moved."""
    is_fresh = np.concatenate(([True], np.diff(trace.time_ns) > 0)) if len(trace.time_ns) else np.zeros(0, dtype=bool)
    time_ns, raw = trace.time_ns[is_fresh], trace.raw[is_fresh]
    moves = np.flatnonzero(np.diff(raw) != 0) + 1
    if len(moves) == 0:
        return None
    tick_ns = 0
    if len(moves) > 2 and np.median(np.diff(moves)) >= 2:
        tick_ns = int(np.median(np.diff(time_ns[moves])))
        # It moved between the reading before and this one, and not more than one tick before this one.
        unseen_ns = np.minimum(time_ns[moves] - time_ns[moves - 1], tick_ns)
        time_ns, raw = time_ns[moves] - unseen_ns // 2, raw[moves]
    increments, breaks = _increments(trace, time_ns, raw, tick_ns=tick_ns)
    return CounterCurve(
        info=trace.info,
        time_ns=time_ns,
        counts=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(increments))),
        tick_ns=tick_ns,
        breaks=breaks,
    )


def counter_energy_j(curve: CounterCurve, window: Window) -> float:
    """Energy of `window` by the counter. Whether samples cover it is asked elsewhere."""
    pieces = [_segment_counts(curve, segment) for segment in window.segments]
    # Whole counts are added as integers, so that a window from knot to knot is exact to the counter's unit.
    return (sum(whole for whole, _ in pieces) + sum(part for _, part in pieces)) * curve.info.si_per_count


def counts_at(curve: CounterCurve, time_ns: Int64s) -> Float64s:
    """Energy since the first knot in counts, interpolated between knots; held before the first and after the last."""
    origin_ns = curve.time_ns[0]
    # Relative to the first knot: monotonic clocks of long-lived machines are beyond what float64 resolves to 1 ns.
    interpolated: Float64s = np.interp(
        (time_ns - origin_ns).astype(np.float64),
        (curve.time_ns - origin_ns).astype(np.float64),
        curve.counts.astype(np.float64),
    )
    return interpolated


def _increments(trace: Trace, time_ns: Int64s, raw: Int64s, *, tick_ns: int) -> tuple[Int64s, tuple[CounterBreak, ...]]:
    """Counts between knots that are energy, and where they are not all of it."""
    info = trace.info
    deltas = np.diff(raw)
    dt_ns = np.diff(time_ns)
    most = _most_counts(info, dt_ns + PLAUSIBLE_TICKS * max(info.period_ns, tick_ns), share=PLAUSIBLE_SHARE)
    is_back = deltas < 0
    is_hidden_wrap = np.zeros(len(deltas), dtype=bool)
    if info.wraps_at_count is not None:
        # Without a greatest power half a turn decides: a counter that was read often has not moved further.
        most_wrapped = np.minimum(most, info.wraps_at_count / 2) if info.max_power_w is None else most
        is_wrap = is_back & (deltas + info.wraps_at_count <= most_wrapped)
        deltas = np.where(is_wrap, deltas + info.wraps_at_count, deltas)
        is_back &= ~is_wrap
        if info.max_power_w is not None:
            is_hidden_wrap = (dt_ns > trace.gap_ns) & (_most_counts(info, dt_ns, share=1.0) >= info.wraps_at_count)
    is_reset = is_back & ~is_hidden_wrap & (raw[1:] >= 0) & (raw[1:] <= most)
    is_jump = ~is_hidden_wrap & ((is_back & ~is_reset) | (deltas > most))
    increments = np.where(is_reset, raw[1:], np.where(is_jump | is_hidden_wrap, 0, deltas))

    breaks = []
    for index in np.flatnonzero(is_reset | is_jump | is_hidden_wrap):
        kind = BreakKind.HIDDEN_WRAP if is_hidden_wrap[index] else BreakKind.JUMP
        breaks.append(
            CounterBreak(
                kind=BreakKind.RESET if is_reset[index] else kind,
                start_ns=int(time_ns[index]),
                stop_ns=int(time_ns[index + 1]),
                counted_j=int(increments[index]) * info.si_per_count,
                bound_j=None if info.max_power_w is None else info.max_power_w * seconds(int(dt_ns[index])),
            )
        )
    return increments.astype(np.int64), tuple(breaks)


def _most_counts(info: MeterInfo, dt_ns: Int64s, *, share: float) -> npt.NDArray[np.float64]:
    if info.max_power_w is None:
        return np.full(len(dt_ns), np.inf)
    return share * info.max_power_w * (dt_ns / NS_PER_S) / info.si_per_count


def _segment_counts(curve: CounterCurve, segment: Segment) -> tuple[int, float]:
    """Counts of one segment: the whole ones between its first and last knot, and the part at its edges."""
    first = int(np.searchsorted(curve.time_ns, segment.start_ns, side="left"))
    last = int(np.searchsorted(curve.time_ns, segment.stop_ns, side="right")) - 1
    if last <= first:
        # Fewer than two knots inside: there is no power inside to extrapolate with.
        start, stop = counts_at(curve, np.array([segment.start_ns, segment.stop_ns], dtype=np.int64))
        return 0, float(stop - start)
    inner_last = int(np.searchsorted(curve.time_ns, curve.time_ns[first] + EDGE_NS, side="right")) - 1
    inner_first = int(np.searchsorted(curve.time_ns, curve.time_ns[last] - EDGE_NS, side="left"))
    lead = _edge_counts(
        curve,
        stretch_ns=int(curve.time_ns[first]) - segment.start_ns,
        slope=_slope(curve, first, max(first + 1, min(inner_last, last))),
        tick=(first - 1, first),
    )
    tail = _edge_counts(
        curve,
        stretch_ns=segment.stop_ns - int(curve.time_ns[last]),
        slope=_slope(curve, min(last - 1, max(inner_first, first)), last),
        tick=(last, last + 1),
    )
    return int(curve.counts[last] - curve.counts[first]), lead + tail


def _edge_counts(curve: CounterCurve, *, stretch_ns: int, slope: float, tick: tuple[int, int]) -> float:
    """Counts of the stretch between a segment's edge and its first or last knot."""
    before, after = tick
    if before >= 0 and after < len(curve.time_ns):
        return min(slope * stretch_ns, float(curve.counts[after] - curve.counts[before]))
    # The trace ends here. A ticking counter that has not moved for longer has drawn nothing that it does not show.
    return slope * (min(stretch_ns, curve.tick_ns) if curve.tick_ns else stretch_ns)


def _slope(curve: CounterCurve, first: int, last: int) -> float:
    """Mean counts per ns between two knots."""
    return float(curve.counts[last] - curve.counts[first]) / float(curve.time_ns[last] - curve.time_ns[first])
