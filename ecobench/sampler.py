"""Polls meters into the trial's sample stream, from a thread of its own.

Each meter has its own period. The thread sleeps to the next due instant, reads the meters that are due, and hands
what it has to the sink once a second, so that a kill costs at most that. Late passes are not made up for: the stamps
say when a reading really was. The only broad `except` of the harness is here: whatever ends the thread is handed to
the trial, which ends too, since samples that were not taken cannot be taken later.
"""

import heapq
import threading
from collections.abc import Sequence

from ecobench.errors import EcobenchError, MeterError
from ecobench.measurement import ReadingKind
from ecobench.seams import Clock, Meter, Sample, SampleSink
from ecobench.units import NS_PER_S

FLUSH_NS = NS_PER_S
# A driver that hangs must not hang the harness: neither its start nor its end waits longer.
ANSWER_WITHIN_S = 5.0


class Sampler:
    """Samples `meters` between `start` and `stop`."""

    def __init__(self, meters: Sequence[Meter], *, clock: Clock, sink: SampleSink) -> None:
        self._meters = meters
        self._infos = [meter.info for meter in meters]
        self._clock = clock
        self._sink = sink
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._stop = threading.Event()
        self._first_pass = threading.Event()
        self._failure: Exception | None = None
        self._is_left_behind = False
        self._last_pass_ns: int | None = None
        self._last_raw: dict[int, int] = {}
        self._energy_j: dict[int, float] = {}

    def start(self) -> None:
        """Start, and return once every meter has been read once.

        Raises:
            MeterError: a meter did not answer in time.
            EcobenchError: the first samples could not be written.
        """
        self._thread.start()
        if not self._first_pass.wait(ANSWER_WITHIN_S):
            raise self._silence()
        self.raise_failure()

    def stop(self) -> None:
        """Read every meter once more, hand over what is left, and end. May be called twice. A meter that does not
        answer any more is left behind, and is the failure.
        """
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(ANSWER_WITHIN_S)
        if self._thread.is_alive():
            self._failure = self._failure or self._silence()
            self._is_left_behind = True

    def raise_failure(self) -> None:
        """Raise what ended the sampling, if anything has; a meter that has not answered for long counts as that."""
        if self._failure is None and self._thread.is_alive() and self._last_pass_ns is not None:
            slowest_ns = max([FLUSH_NS, *(meter.info.period_ns for meter in self._meters)])
            if self._clock.now_ns() - self._last_pass_ns > slowest_ns + ANSWER_WITHIN_S * NS_PER_S:
                raise self._silence()
        if isinstance(self._failure, EcobenchError):
            raise self._failure
        if self._failure is not None:
            raise MeterError(
                f"sampling ended: {type(self._failure).__name__}: {self._failure}", hint="this is a fault of ecobench"
            ) from self._failure

    def energy_so_far_j(self) -> float | None:
        """Energy of all counters since the start, for the live line and `--until energy=`; None without a counter.

        A step back of a counter that does not wrap counts as nothing; the trial's result judges it.
        """
        return sum(self._energy_j.values()) if self._energy_j else None

    def _run(self) -> None:
        pending: list[tuple[int, Sample]] = []
        try:
            now_ns = self._clock.now_ns()
            due = [(now_ns, index) for index in range(len(self._meters))]  # a heap: a hundred meters, and few due
            flush_ns = now_ns + FLUSH_NS
            while not self._stop.is_set():
                self._last_pass_ns = now_ns
                while due and due[0][0] <= now_ns:
                    due_ns, index = due[0]
                    pending += self._read(index, now_ns)
                    # On the grid again after a late pass, without a burst of readings to catch up.
                    period_ns = self._infos[index].period_ns
                    heapq.heapreplace(due, (due_ns + ((now_ns - due_ns) // period_ns + 1) * period_ns, index))
                if not self._first_pass.is_set() or now_ns >= flush_ns:
                    self._sink(pending)
                    pending = []
                    flush_ns = now_ns + FLUSH_NS
                    self._first_pass.set()
                self._wait_until(min(flush_ns, due[0][0]) if due else flush_ns)
                now_ns = self._clock.now_ns()
            for index in range(len(self._meters)):
                pending += self._read(index, self._clock.now_ns())
            if not self._is_left_behind:
                self._sink(pending)
        except Exception as error:  # noqa: BLE001  # handed to the trial by `raise_failure`, whatever it is
            self._failure = self._failure or error
            self._first_pass.set()

    def _silence(self) -> MeterError:
        return MeterError(
            f"the meters did not answer within {ANSWER_WITHIN_S:g} s", hint="`ecobench doctor` shows each"
        )

    def _wait_until(self, time_ns: int) -> None:
        remaining_s = (time_ns - self._clock.now_ns()) / NS_PER_S
        if remaining_s > 0:
            self._stop.wait(remaining_s)

    def _read(self, index: int, now_ns: int) -> list[tuple[int, Sample]]:
        info = self._infos[index]
        samples = self._meters[index].read((now_ns,))
        for sample in samples if info.kind is ReadingKind.ENERGY_COUNTER else ():
            if sample.raw is None:
                continue
            delta = sample.raw - self._last_raw.get(index, sample.raw)
            if delta < 0 and info.wraps_at_count is not None and delta + info.wraps_at_count < info.wraps_at_count / 2:
                delta += info.wraps_at_count  # a wrap; a longer way round is a reset, and counts as nothing here
            self._energy_j[index] = self._energy_j.get(index, 0.0) + max(delta, 0) * info.si_per_count
            self._last_raw[index] = sample.raw
        return [(index, sample) for sample in samples]
