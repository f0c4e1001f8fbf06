"""The truth of a simulation: power of one domain over time, constant between edges, and its exact integral. Pure."""

from dataclasses import dataclass, field

import numpy as np

from ecobench.trace import Float64s, Int64s
from ecobench.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PowerTruth:
    """Power of one domain. Before the first edge it is that of the first stretch, after the last that of the last.

    Attributes:
        edges_ns: ends of the stretches, increasing, `(n + 1,)`.
        power_w: in each, `(n,)`.
    """

    edges_ns: Int64s
    power_w: Float64s
    _energy_j: Float64s = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.edges_ns) != len(self.power_w) + 1 or np.any(np.diff(self.edges_ns) <= 0):
            raise ValueError("edges increase, and there is one more of them than of stretches")
        steps_j = self.power_w * (np.diff(self.edges_ns) / NS_PER_S)
        object.__setattr__(self, "_energy_j", np.concatenate(([0.0], np.cumsum(steps_j))))

    def energy_j(self, times_ns: Int64s) -> Float64s:
        """Energy since the first edge, exactly; negative before it."""
        inside: Float64s = np.interp(times_ns, self.edges_ns, self._energy_j)
        before = np.minimum(times_ns - self.edges_ns[0], 0) / NS_PER_S * self.power_w[0]
        after = np.maximum(times_ns - self.edges_ns[-1], 0) / NS_PER_S * self.power_w[-1]
        energy: Float64s = inside + before + after
        return energy

    def mean_power_w(self, times_ns: Int64s, *, window_ns: int) -> Float64s:
        """Mean over the `window_ns` before each time."""
        energy: Float64s = self.energy_j(times_ns) - self.energy_j(times_ns - window_ns)
        power: Float64s = energy / (window_ns / NS_PER_S)
        return power
