"""Time of a simulation: it goes as fast as it is asked to."""

from ecobench.units import NS_PER_S


class SimulatedClock:
    """`Clock` that jumps to where its only sleeper wants to be, and wakes it early where a program ends before that."""

    def __init__(self) -> None:
        self._now_ns = 1000 * NS_PER_S
        self._wake_ns: int | None = None

    def now_ns(self) -> int:
        return self._now_ns

    def sleep_until(self, time_ns: int) -> None:
        until_ns = time_ns if self._wake_ns is None else min(time_ns, self._wake_ns)
        self._now_ns = max(self._now_ns, until_ns)

    def wake_at(self, time_ns: int | None) -> None:
        """Whoever sleeps then wakes, as at the end of a child process; None: nobody."""
        self._wake_ns = time_ns
