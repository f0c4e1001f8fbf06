"""Sensors of a simulated board: what they make of the truth, how often, and how they fail. Pure.

A sensor updates every `update_ns` and says nothing new in between. Then instant power is the mean over a short window,
average power over a long one, and the counter the energy so far in whole quanta; each by a gain and an offset of its
own. What is asked reads the last update that is `latency_ns` old.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from ecobench.measurement import MeterInfo, ReadingKind
from ecobench.seams import Sample
from ecobench.simulation.truth import PowerTruth
from ecobench.trace import Float64s, Int64s
from ecobench.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensor:
    """How one sensor errs.

    Attributes:
        update_ns: its period; `phase_ns` when it first updates.
        window_ns: what instant power is a mean over, `average_ns` what average power is.
        quantum_j: the counter counts whole ones.
        gain: reading over truth; `offset_w` is added to power, and to the counter as it goes.
    """

    update_ns: int = NS_PER_S // 10
    phase_ns: int = 0
    window_ns: int = NS_PER_S // 40
    average_ns: int = NS_PER_S
    quantum_j: float = 0.001
    gain: float = 1.0
    offset_w: float = 0.0
    latency_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorFault:
    """What goes wrong with a sensor, as instants after the launch; None: it does not.

    Attributes:
        dies_at_s: it fails from then on.
        freezes_at_s: it repeats its last value from then on.
        resets_at_s: its counter starts again from 0.
        silent_from_s, silent_s: it fails for a while.
    """

    dies_at_s: float | None = None
    freezes_at_s: float | None = None
    resets_at_s: float | None = None
    silent_from_s: float | None = None
    silent_s: float = 0.0


NO_FAULT = SensorFault()


def sensor_counts(
    sensor: Sensor, truth: PowerTruth, kind: ReadingKind, times_ns: Int64s, *, si_per_count: float
) -> Int64s:
    """What the sensor says at each time, in counts of `si_per_count`."""
    ticks = last_updates(sensor, times_ns)
    value: Float64s
    if kind is ReadingKind.ENERGY_COUNTER:
        elapsed_s = (ticks - truth.edges_ns[0]) / NS_PER_S
        energy_j = truth.energy_j(ticks) * sensor.gain + sensor.offset_w * elapsed_s
        # A nanojoule, so that a whole number of quanta in decimal is one in binary too.
        value = np.floor((energy_j + 1e-9) / sensor.quantum_j) * sensor.quantum_j
    else:
        window_ns = sensor.window_ns if kind is ReadingKind.INSTANT_POWER else sensor.average_ns
        value = truth.mean_power_w(ticks, window_ns=window_ns) * sensor.gain + sensor.offset_w
    return np.rint(value / si_per_count).astype(np.int64)


def last_updates(sensor: Sensor, times_ns: Int64s) -> Int64s:
    """The update that is read at each time."""
    counted: Int64s = (times_ns - sensor.latency_ns - sensor.phase_ns) // sensor.update_ns
    return counted * sensor.update_ns + sensor.phase_ns


class SimulatedMeter:
    """`Meter` that answers a whole time grid at once; `truth` is asked for when it is read, `launch_ns` with it."""

    def __init__(
        self,
        info: MeterInfo,
        *,
        counts: Callable[[Int64s], Int64s],
        launch_ns: Callable[[], int],
        fault: SensorFault = NO_FAULT,
    ) -> None:
        self._info = info
        self._counts = counts
        self._launch_ns = launch_ns
        self._fault = fault

    @property
    def info(self) -> MeterInfo:
        return self._info

    def read(self, times_ns: Sequence[int]) -> Sequence[Sample]:
        times = np.asarray(times_ns, dtype=np.int64)
        if self._fault is NO_FAULT:
            counts = self._counts(times).tolist()
            return list(map(Sample._make, zip(times_ns, counts, repeat(0), repeat(None), strict=False)))
        fault, launch_ns = self._fault, self._launch_ns()
        asked = times
        if fault.freezes_at_s is not None:
            asked = np.minimum(times, launch_ns + round(fault.freezes_at_s * NS_PER_S))
        counts = self._counts(asked)
        if fault.resets_at_s is not None:
            reset = np.array([launch_ns + round(fault.resets_at_s * NS_PER_S)], dtype=np.int64)
            counts = np.where(asked >= reset[0], counts - self._counts(reset)[0], counts)
        is_dead = np.zeros(len(times), dtype=bool)
        if fault.dies_at_s is not None:
            is_dead |= times >= launch_ns + round(fault.dies_at_s * NS_PER_S)
        if fault.silent_from_s is not None:
            start = launch_ns + round(fault.silent_from_s * NS_PER_S)
            is_dead |= (times >= start) & (times < start + round(fault.silent_s * NS_PER_S))
        return [
            Sample(time, None, 0, "the simulated sensor does not answer") if dead else Sample(time, raw, 0, None)
            for time, raw, dead in zip(times_ns, counts.tolist(), is_dead.tolist(), strict=True)
        ]

    def close(self) -> None:
        """Nothing is held."""
