"""How long the parts of a step take: forward, backward, communication that work waits for, optimizer, data. On request.

Each part's end waits for the device, so that its time is its own. That takes away what would overlap: a run with spans
is slower than one without, and its efficiency is not to be compared. `communication` is the time that reductions and
gathers are waited for; what overlaps with work is in nobody's way and not seen here.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Spans:
    """Sums up the parts of the steps since the last `take`. A part within another is taken out of it."""

    def __init__(self, sync: Callable[[], None], *, is_on: bool) -> None:
        self._sync = sync
        self._is_on = is_on
        self._spent_s: dict[str, float] = {}
        self._within_s = [0.0]

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time of this stretch to the part of that name."""
        if not self._is_on:
            yield
            return
        self._sync()
        start = time.perf_counter()
        self._within_s.append(0.0)
        yield
        self._sync()
        spent_s, within_s = time.perf_counter() - start, self._within_s.pop()
        self._within_s[-1] += spent_s
        self._spent_s[name] = self._spent_s.get(name, 0.0) + spent_s - within_s

    def take(self) -> dict[str, float]:
        """Seconds of each part since last asked; empty where it is off."""
        taken, self._spent_s = self._spent_s, {}
        return taken
