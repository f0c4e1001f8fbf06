"""Reads simulated meters over the whole time grid of a trial at once."""

from collections.abc import Sequence

from ecobench.measurement import ReadingKind
from ecobench.seams import Clock, Meter, SampleSink


class GridPoller:
    """`Poller` that asks each meter once, at the end, for all instants at which a live one would have been asked."""

    def __init__(self, meters: Sequence[Meter], *, clock: Clock, sink: SampleSink) -> None:
        self._meters = meters
        self._clock = clock
        self._sink = sink
        self._start_ns = 0
        self._is_stopped = False
        self._first: dict[int, int] = {}

    def start(self) -> None:
        self._start_ns = self._clock.now_ns()

    def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        now_ns = self._clock.now_ns()
        for index, meter in enumerate(self._meters):
            times_ns = list(range(self._start_ns, now_ns, meter.info.period_ns))
            self._sink([(index, sample) for sample in meter.read([*times_ns, now_ns])])

    def raise_failure(self) -> None:
        """Nothing fails on its own here."""

    def energy_so_far_j(self) -> float | None:
        """Energy of all counters since the start; None without a counter."""
        total_j: float | None = None
        for meter in self._meters:
            if meter.info.kind is ReadingKind.ENERGY_COUNTER:
                first, last = meter.read([self._start_ns, self._clock.now_ns()])
                gained = (last.raw or 0) - (first.raw or 0) if last.raw is not None else 0
                total_j = (total_j or 0.0) + max(gained, 0) * meter.info.si_per_count
        return total_j
