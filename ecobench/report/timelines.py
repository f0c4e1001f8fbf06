"""Power over time from meters' traces, and what held GPUs back, thinned for drawing such that every peak stays. Pure.

A power line is a staircase: `power_w[i]` holds from `time_s[i]` to `time_s[i + 1]`; the last value is the one before it
again, so that the staircase has its last step.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ecobench.energy import Trace, power_curve
from ecobench.measurement import Boundary, Evidence, ReadingKind
from ecobench.units import NS_PER_S

# Twice as many points are drawn: enough for a chart 1200 pixels wide.
N_BUCKETS = 600

# What a counter of time counts, in words.
HOLDS = {
    "power_cap_ns": "power limit",
    "thermal_slowdown_ns": "heat",
    "sw_thermal_ns": "heat (driver)",
    "hw_thermal_ns": "heat (board)",
    "power_brake_ns": "power brake",
}

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLine:
    """Power of one domain over one trial, as steps; times in seconds from the trial's origin."""

    domain: str
    interface: str
    boundary: Boundary
    evidence: Evidence
    time_s: tuple[float, ...]
    power_w: tuple[float, ...]

    @property
    def peak_w(self) -> float:
        return max(self.power_w)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLine:
    """How much of the time one GPU was held back by one cause, as steps between readings, 0 to 100 %."""

    domain: str
    cause: str
    time_s: tuple[float, ...]
    held_percent: tuple[float, ...]


def held_line(trace: Trace, *, origin_ns: int) -> HeldLine | None:
    """What held a GPU back over time; None for other meters, and where nothing of that kind ever did. The power limit
    is drawn even where it never did.
    """
    cause = HOLDS.get(trace.info.quantity or "")
    if trace.info.kind is not ReadingKind.TIME_COUNTER or cause is None or len(trace.time_ns) < 2:
        return None
    held_s = np.diff(trace.raw) * trace.info.si_per_count
    if trace.info.quantity != "power_cap_ns" and not np.any(held_s > 0):
        return None
    percent = np.clip(held_s / (np.diff(trace.time_ns) / NS_PER_S), 0, 1) * 100
    time_s, steps = thin_steps(
        (trace.time_ns - origin_ns) / NS_PER_S, np.append(percent, percent[-1]), n_buckets=N_BUCKETS
    )
    return HeldLine(
        domain=trace.info.domain,
        cause=cause,
        time_s=tuple(round(float(time), 4) for time in time_s),
        held_percent=tuple(round(float(each), 3) for each in steps),
    )


def power_line(trace: Trace, *, origin_ns: int) -> PowerLine | None:
    """The power that `trace` saw; None where fewer than two readings leave none to draw."""
    curve = power_curve(trace)
    if curve is None or len(curve.power_w) == 0:
        return None
    time_s, power_w = thin_steps(
        (curve.time_ns - origin_ns) / NS_PER_S,
        np.append(curve.power_w, curve.power_w[-1]),
        n_buckets=N_BUCKETS,
    )
    return PowerLine(
        domain=trace.info.domain,
        interface=trace.info.interface,
        boundary=trace.info.boundary,
        evidence=trace.info.evidence,
        time_s=tuple(round(float(time), 4) for time in time_s),
        power_w=tuple(float(power) for power in power_w),
    )


def thin_steps(time_s: FloatArray, power_w: FloatArray, *, n_buckets: int) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest step of each of `n_buckets` stretches, in their order; first and last instants stay.

    Shapes: `(n,)` in, at most `(2 * n_buckets + 2,)` out; what is short enough already comes back unchanged.
    """
    n = len(time_s)
    if n <= 2 * n_buckets:
        return time_s, power_w
    edges = np.linspace(0, n, n_buckets + 1).astype(np.int64)
    kept = {0, n - 1}
    for start, stop in itertools.pairwise(edges):
        stretch = power_w[start:stop]
        kept.update((int(start + stretch.argmin()), int(start + stretch.argmax())))
    order = np.array(sorted(kept))
    return time_s[order], power_w[order]
