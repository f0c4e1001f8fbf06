"""Under which conditions a GPU ran over a window: clocks, temperatures, limits, and what held it back. Pure.

Gauges are read about once a second: their readings inside the window are averaged. Counters of time (nanoseconds in
which the board was held at its power limit, was too hot, was braked) are interpolated at the edges of segments; one
that was set back, or was not read on both sides of the window, tells nothing.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from ecobench.gpu_records import CapState, GpuConditions
from ecobench.measurement import Boundary, DomainEnergy, ReadingKind, Window
from ecobench.trace import Float64s, Int64s, Trace, has_sample_on_both_sides
from ecobench.units import NS_PER_S, seconds

# The cap bound from half of the time on, and never below a hundredth of it. Source: DESIGN, section 6.
BOUND_SHARE = 0.5
NEVER_BOUND_SHARE = 0.01

POWER_CAP = ("power_cap_ns",)
THERMAL = ("thermal_slowdown_ns", "sw_thermal_ns", "hw_thermal_ns")
BRAKE = ("power_brake_ns",)

_FEWEST_FOR_DRIFT = 5


def gpu_conditions(
    traces: Sequence[Trace], domains: Sequence[DomainEnergy], window: Window
) -> tuple[GpuConditions, ...]:
    """The conditions of each GPU with an energy among `domains` over `window`."""
    found: dict[str, dict[str, Trace]] = {}
    devices: dict[str, str | None] = {}
    for trace in traces:
        devices[trace.info.domain] = trace.info.device
        if trace.info.quantity is not None:
            found.setdefault(trace.info.domain, {})[trace.info.quantity] = trace
    return tuple(
        _conditions(domain, devices.get(domain.domain), found.get(domain.domain, {}), window)
        for domain in domains
        if domain.boundary is Boundary.GPU and "/" not in domain.domain
    )


def cap_state_of_share(share: float | None) -> CapState:
    """Whether the power limit held one GPU back."""
    if share is None:
        return CapState.UNKNOWN
    if share >= BOUND_SHARE:
        return CapState.BOUND
    return CapState.NEVER_BOUND if share < NEVER_BOUND_SHARE else CapState.PARTLY


def cap_state(states: Iterable[CapState]) -> CapState | None:
    """Over several: what all of them say, unknown where one is, else partly; None of none."""
    found = set(states)
    if not found:
        return None
    if CapState.UNKNOWN in found:
        return CapState.UNKNOWN
    return next(iter(found)) if len(found) == 1 else CapState.PARTLY


def counted_share(trace: Trace, window: Window) -> float | None:
    """Share of the window in which a counter of time counted, 0 to 1; None where it does not tell."""
    if trace.info.kind is not ReadingKind.TIME_COUNTER:
        raise ValueError(f"{trace.info.quantity} of {trace.info.domain} counts no time")
    if len(trace.time_ns) < 2 or not has_sample_on_both_sides(trace.time_ns, window):
        return None
    first = int(np.searchsorted(trace.time_ns, window.segments[0].start_ns, side="right")) - 1
    last = int(np.searchsorted(trace.time_ns, window.segments[-1].stop_ns, side="left"))
    if np.any(np.diff(trace.raw[first : last + 1]) < 0):
        return None
    edges_ns = np.array([(segment.start_ns, segment.stop_ns) for segment in window.segments], dtype=np.int64)
    counted = _counted_until(trace, edges_ns)
    share = float((counted[:, 1] - counted[:, 0]).sum()) * trace.info.si_per_count / seconds(window.duration_ns)
    # Its readings are stamped to the length of a call: a share of just over 1 is 1.
    return min(share, 1.0)


def _conditions(energy: DomainEnergy, uuid: str | None, found: dict[str, Trace], window: Window) -> GpuConditions:
    temperatures_c = _values(found.get("temperature_c"), window)
    clocks_mhz = _values(found.get("sm_clock_mhz"), window)
    requested_w = _values(found.get("limit_requested_w"), window)
    enforced_w = _values(found.get("limit_enforced_w"), window)
    cap_share = _largest_share(found, POWER_CAP, window)
    return GpuConditions(
        domain=energy.domain,
        uuid=uuid,
        energy_j=energy.energy_j,
        mean_power_w=None if energy.energy_j is None else energy.energy_j / seconds(window.duration_ns),
        sm_clock_mhz=_mean(clocks_mhz),
        temperature_c=_mean(temperatures_c),
        hottest_c=max(temperatures_c, default=None),
        warming_c=_warming(temperatures_c),
        limit_requested_w=requested_w[-1] if requested_w else None,
        limit_lowest_w=min(enforced_w, default=None),
        limit_highest_w=max(enforced_w, default=None),
        cap_share=cap_share,
        cap_state=cap_state_of_share(cap_share),
        thermal_share=_largest_share(found, THERMAL, window),
        brake_share=_largest_share(found, BRAKE, window),
    )


def _values(trace: Trace | None, window: Window) -> list[float]:
    """The readings inside the window, in order."""
    if trace is None:
        return []
    inside = np.zeros(len(trace.time_ns), dtype=bool)
    for segment in window.segments:
        inside |= (trace.time_ns >= segment.start_ns) & (trace.time_ns <= segment.stop_ns)
    return [float(raw) * trace.info.si_per_count for raw in trace.raw[inside]]


def _warming(temperatures_c: Sequence[float]) -> float | None:
    if len(temperatures_c) < _FEWEST_FOR_DRIFT:
        return None
    tenth = max(1, len(temperatures_c) // 10)
    return sum(temperatures_c[-tenth:]) / tenth - sum(temperatures_c[:tenth]) / tenth


def _largest_share(found: dict[str, Trace], quantities: Sequence[str], window: Window) -> float | None:
    shares = [counted_share(found[quantity], window) for quantity in quantities if quantity in found]
    return max((share for share in shares if share is not None), default=None)


def _counted_until(trace: Trace, instants_ns: Int64s) -> Float64s:
    origin_ns = trace.time_ns[0]
    counted: Float64s = np.interp(
        (instants_ns - origin_ns) / NS_PER_S,
        (trace.time_ns - origin_ns) / NS_PER_S,
        (trace.raw - trace.raw[0]).astype(np.float64),
    )
    return counted


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
