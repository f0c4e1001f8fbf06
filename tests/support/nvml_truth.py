"""What a board of the NVML test bed really does: the closed forms in Python, apart from those of the C library.

Made of a copy of the shared history, so it answers for any instant, past or scheduled, as it stood when it was asked
for. Sums are taken from the start of history each time; nothing here reads the sums that the C library carries along.

    truth = bed.truth(0)
    truth.energy_j(start_ns, stop_ns)      # what was drawn
    truth.instant_mw(now_ns)               # what the 25/100 ms sensor reads then
    truth.counter_mj(now_ns)               # what the energy counter reads then
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of history, `start_ns` to `stop_ns`; `stop_ns` of the last one is None.

    `powers_w`: what is drawn while the load is high, and low; `cap_binds` likewise.
    """

    start_ns: int
    stop_ns: int | None
    origin_ns: int
    period_ns: int
    high_ns: int
    powers_w: tuple[float, float]
    clocks_mhz: tuple[float, float]
    cap_binds: tuple[bool, bool]
    is_busy: tuple[bool, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorTruth:
    """A sensor's grid and what it does to a number."""

    period_ns: int
    phase_ns: int
    window_ns: int
    gain: float
    offset_w: float

    def update_before(self, time_ns: int) -> int:
        """The last update at or before an instant."""
        return time_ns - (time_ns - self.phase_ns) % self.period_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTruth:
    """One board. Times are instants of the monotonic clock in ns."""

    pieces: tuple[Piece, ...]
    counter: SensorTruth
    instant: SensorTruth
    average: SensorTruth
    quantum_mj: int
    resets_ns: tuple[int, ...]
    module_w: float
    ambient_c: float
    c_per_w: float

    def power_w(self, time_ns: int) -> float:
        """Board power at an instant."""
        piece = self._piece_at(time_ns)
        return piece.powers_w[0 if _is_high(piece, time_ns) else 1]

    def clock_mhz(self, time_ns: int) -> float:
        """SM clock at an instant, between the steps of its ladder where a limit binds."""
        piece = self._piece_at(time_ns)
        return piece.clocks_mhz[0 if _is_high(piece, time_ns) else 1]

    def energy_j(self, start_ns: int, stop_ns: int) -> float:
        """Board energy between two instants."""
        return math.fsum(
            power_w * time_ns / NS_PER_S
            for piece, times_ns in self._times(start_ns, stop_ns)
            for power_w, time_ns in zip(piece.powers_w, times_ns, strict=True)
        )

    def mean_power_w(self, start_ns: int, stop_ns: int) -> float:
        """Mean board power between two instants."""
        return self.energy_j(start_ns, stop_ns) / (stop_ns - start_ns) * NS_PER_S

    def cap_ns(self, start_ns: int, stop_ns: int) -> int:
        """How long the limit bound between two instants: what the power-cap counter moves by."""
        return sum(
            time_ns
            for piece, times_ns in self._times(start_ns, stop_ns)
            for binds, time_ns in zip(piece.cap_binds, times_ns, strict=True)
            if binds
        )

    def busy_ns(self, start_ns: int, stop_ns: int) -> int:
        """How long the load was above idle between two instants."""
        return sum(
            time_ns
            for piece, times_ns in self._times(start_ns, stop_ns)
            for is_busy, time_ns in zip(piece.is_busy, times_ns, strict=True)
            if is_busy
        )

    def instant_mw(self, time_ns: int) -> int:
        """What the instant-power reading says when asked at an instant."""
        return self._sensed_mw(self.instant, time_ns)

    def average_mw(self, time_ns: int) -> int:
        """What the average-power reading says when asked at an instant."""
        return self._sensed_mw(self.average, time_ns)

    def counter_mj(self, time_ns: int) -> int:
        """What the energy counter reads when asked at an instant."""
        reset_ns = max((reset for reset in self.resets_ns if reset <= time_ns), default=self.resets_ns[0])
        at_ns = self.counter.update_before(time_ns)
        if at_ns <= reset_ns:
            return 0
        since_s = (at_ns - reset_ns) / NS_PER_S
        energy_j = self._seen_j(reset_ns, at_ns) if self.counter.window_ns else self.energy_j(reset_ns, at_ns)
        read_j = self.counter.gain * (energy_j + self.module_w * since_s) + self.counter.offset_w * since_s
        return math.floor(max(0.0, read_j) * 1e3 / self.quantum_mj) * self.quantum_mj

    def temperature_c(self, time_ns: int) -> float:
        """Die temperature: above ambient by the mean power of the last 10 s."""
        return self.ambient_c + self.c_per_w * self.mean_power_w(time_ns - 10 * NS_PER_S, time_ns)

    def _sensed_mw(self, sensor: SensorTruth, time_ns: int) -> int:
        at_ns = sensor.update_before(time_ns)
        power_w = sensor.gain * self.mean_power_w(at_ns - sensor.window_ns, at_ns) + sensor.offset_w
        return round(max(0.0, power_w) * 1e3)

    def _seen_j(self, reset_ns: int, at_ns: int) -> float:
        first_ns = self.counter.update_before(reset_ns) + self.counter.period_ns
        return math.fsum(
            self.mean_power_w(update_ns - self.counter.window_ns, update_ns) * self.counter.period_ns / NS_PER_S
            for update_ns in range(first_ns, at_ns + 1, self.counter.period_ns)
        )

    def _piece_at(self, time_ns: int) -> Piece:
        for piece in reversed(self.pieces):
            if piece.start_ns <= time_ns:
                return piece
        raise ValueError(f"history starts at {self.pieces[0].start_ns} ns, after {time_ns}")

    def _times(self, start_ns: int, stop_ns: int) -> Iterator[tuple[Piece, tuple[int, int]]]:
        """The pieces between two instants, each with its time spent high and low there."""
        self._piece_at(start_ns)
        for piece in self.pieces:
            from_ns = max(start_ns, piece.start_ns)
            to_ns = stop_ns if piece.stop_ns is None else min(stop_ns, piece.stop_ns)
            if from_ns < to_ns:
                high_ns = _high_between(piece, from_ns, to_ns)
                yield piece, (high_ns, to_ns - from_ns - high_ns)


def _is_high(piece: Piece, time_ns: int) -> bool:
    return not piece.period_ns or (time_ns - piece.origin_ns) % piece.period_ns < piece.high_ns


def _high_between(piece: Piece, from_ns: int, to_ns: int) -> int:
    """How much of [from, to) a square wave is high: whole periods are counted, the two cut ones looked at."""
    if not piece.period_ns:
        return to_ns - from_ns
    from_ns, to_ns = from_ns - piece.origin_ns, to_ns - piece.origin_ns
    n_before, n_after = from_ns // piece.period_ns, to_ns // piece.period_ns
    in_first = min(from_ns - n_before * piece.period_ns, piece.high_ns)
    in_last = min(to_ns - n_after * piece.period_ns, piece.high_ns)
    return (n_after - n_before) * piece.high_ns + in_last - in_first
