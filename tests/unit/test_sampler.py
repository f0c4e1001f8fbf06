"""The sampling thread: on time, never hanging, and its failure always reaches the trial."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from ecobench import sampler as sampler_module
from ecobench.clock import LiveClock
from ecobench.errors import EcobenchError, MeterError, StoreError
from ecobench.measurement import MeterInfo, ReadingKind
from ecobench.sampler import Sampler
from ecobench.seams import Sample
from records_for_tests import meter_info

MS = 1_000_000


class FakeMeter:
    """Answers with what `answer` gives for the n-th reading."""

    def __init__(self, answer: Callable[[int], int | None], *, period_ns: int = 20 * MS, **changes: object) -> None:
        self.info: MeterInfo = meter_info(period_ns=period_ns, **changes)
        self._answer = answer
        self.n_readings = 0

    def read(self, times_ns: Sequence[int]) -> Sequence[Sample]:
        """One sample an instant."""
        samples = []
        for time_ns in times_ns:
            raw = self._answer(self.n_readings)
            self.n_readings += 1
            samples.append(Sample(time_ns=time_ns, raw=raw, call_ns=0, error=None if raw is not None else "EIO"))
        return samples

    def close(self) -> None:
        """Nothing to close."""


class Sink:
    """Keeps what it is handed."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[int, Sample]]] = []

    def __call__(self, rows: Sequence[tuple[int, Sample]]) -> None:
        self.batches.append(list(rows))

    def of(self, index: int) -> list[Sample]:
        """Samples of one meter."""
        return [sample for batch in self.batches for meter, sample in batch if meter == index]


def sampled(
    meters: Sequence[FakeMeter], sink: Callable[[Sequence[tuple[int, Sample]]], None], *, for_s: float
) -> Sampler:
    """A sampler that ran for some time and has ended."""
    sampler = Sampler(meters, clock=LiveClock(), sink=sink)
    sampler.start()
    time.sleep(for_s)
    sampler.stop()
    return sampler


@pytest.fixture
def barrier() -> Iterator[threading.Event]:
    """What a blocked meter waits for; set at the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()
    for thread in threading.enumerate():
        if thread.name == "sampler":
            thread.join(5)


def test_every_meter_is_read_at_its_own_period(tmp_path: object) -> None:
    """Never more often than it asks for, but for one reading at the start and one at the end."""
    del tmp_path
    sink = Sink()
    quick, slow = FakeMeter(lambda n: n, period_ns=20 * MS), FakeMeter(lambda n: n, period_ns=100 * MS)
    sampled([quick, slow], sink, for_s=0.2).raise_failure()

    assert [one.raw for one in sink.of(0)] == list(range(quick.n_readings))
    assert [one.raw for one in sink.of(1)] == list(range(slow.n_readings))
    assert quick.n_readings > slow.n_readings >= 2
    for index, period_ns in ((0, 20 * MS), (1, 100 * MS)):
        times_ns = [one.time_ns for one in sink.of(index)]
        assert len(times_ns) <= (times_ns[-1] - times_ns[0]) // period_ns + 2
    assert [one.time_ns for one in sink.of(0)] == sorted(one.time_ns for one in sink.of(0))


def test_first_samples_are_with_the_sink_when_start_returns() -> None:
    """So that whatever comes then lies between two samples."""
    sink = Sink()
    sampler = Sampler([FakeMeter(lambda n: n), FakeMeter(lambda n: n)], clock=LiveClock(), sink=sink)
    sampler.start()
    first = [list(batch) for batch in sink.batches]
    sampler.stop()

    assert [[meter for meter, _ in batch] for batch in first] == [[0, 1]]


def test_stop_reads_every_meter_once_more_and_at_once() -> None:
    """A meter with a period of an hour has two samples; nobody waits for the next second."""
    sink = Sink()
    meter = FakeMeter(lambda n: n, period_ns=3600 * 1000 * MS)
    sampler = Sampler([meter], clock=LiveClock(), sink=sink)
    sampler.start()
    before_ns = time.monotonic_ns()
    sampler.stop()

    assert time.monotonic_ns() - before_ns < 500 * MS
    assert [one.raw for one in sink.of(0)] == [0, 1]
    assert sink.of(0)[-1].time_ns >= before_ns


def test_stop_may_come_twice_or_without_a_start() -> None:
    """A trial that failed early stops what never ran."""
    Sampler([], clock=LiveClock(), sink=Sink()).stop()
    sampler = sampled([FakeMeter(lambda n: n)], Sink(), for_s=0)
    sampler.stop()
    sampler.raise_failure()


def test_no_meters_are_sampled_without_a_sample() -> None:
    """`--meter none` runs through the same code."""
    sink = Sink()
    sampler = sampled([], sink, for_s=0.05)

    assert sampler.energy_so_far_j() is None
    assert not any(sink.batches)


def test_a_late_pass_is_not_made_up_for_by_a_burst() -> None:
    """A reading that takes five periods leaves a gap, not five readings at once."""
    sink = Sink()
    meter = FakeMeter(lambda n: time.sleep(0.1 if n == 1 else 0) or n, period_ns=20 * MS)
    sampled([meter], sink, for_s=0.25).raise_failure()

    times_ns = [one.time_ns for one in sink.of(0)]
    assert len(times_ns) <= (times_ns[-1] - times_ns[0]) // (20 * MS) + 2 - 4


def test_a_failed_reading_is_a_sample_that_says_why() -> None:
    """It ends nothing, and is no part of the energy."""
    sink = Sink()
    sampler = sampled([FakeMeter(lambda n: None if n == 1 else 1000 * n)], sink, for_s=0.1)

    sampler.raise_failure()
    assert (sink.of(0)[1].raw, sink.of(0)[1].error) == (None, "EIO")


def broken_at(number: int) -> Callable[[int], int]:
    """An answer that raises at one reading."""

    def answer(n: int) -> int:
        if n == number:
            raise ZeroDivisionError("a bug in the meter")
        return n

    return answer


def test_a_meter_that_raises_at_once_fails_the_start() -> None:
    """As a meter error that names the exception."""
    sampler = Sampler([FakeMeter(broken_at(0))], clock=LiveClock(), sink=Sink())
    with pytest.raises(MeterError, match="ZeroDivisionError: a bug in the meter"):
        sampler.start()

    sampler.stop()


@pytest.mark.parametrize("number", [1, 3])
def test_a_meter_that_raises_later_is_told_when_asked(number: int) -> None:
    """During the run or at the last reading: the trial learns of it, and stop returns."""
    sampler = sampled([FakeMeter(broken_at(number))], Sink(), for_s=0.0 if number == 1 else 0.2)

    with pytest.raises(MeterError, match="ZeroDivisionError"):
        sampler.raise_failure()


@pytest.mark.parametrize("n_good", [0, 1])
def test_a_full_disk_reaches_the_trial_as_the_store_error_it_is(n_good: int) -> None:
    """At the first samples, start raises it; at the last, whoever asks after stop."""
    n_calls = 0

    def sink(_: Sequence[tuple[int, Sample]]) -> None:
        nonlocal n_calls
        n_calls += 1
        if n_calls > n_good:
            raise StoreError("samples cannot be written: No space left on device")

    sampler = Sampler([FakeMeter(lambda n: n)], clock=LiveClock(), sink=sink)

    def run() -> None:
        try:
            sampler.start()
        finally:
            sampler.stop()
        sampler.raise_failure()

    with pytest.raises(StoreError, match="No space left"):
        run()


def test_a_meter_that_never_answers_fails_the_start_and_does_not_hold_the_stop(
    barrier: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that hangs must not hang the harness."""
    monkeypatch.setattr(sampler_module, "ANSWER_WITHIN_S", 0.1)
    sampler = Sampler([FakeMeter(lambda n: barrier.wait() or n)], clock=LiveClock(), sink=Sink())
    before_s = time.monotonic()
    with pytest.raises(MeterError, match="did not answer"):
        sampler.start()
    sampler.stop()

    assert time.monotonic() - before_s < 2
    with pytest.raises(MeterError, match="did not answer"):
        sampler.raise_failure()


def test_a_meter_that_stops_answering_does_not_hold_the_stop(
    barrier: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The samples before it are kept, the failure is told, and what comes late goes nowhere."""
    monkeypatch.setattr(sampler_module, "ANSWER_WITHIN_S", 0.1)
    sink = Sink()
    sampler = Sampler([FakeMeter(lambda n: barrier.wait() if n else n)], clock=LiveClock(), sink=sink)
    sampler.start()
    time.sleep(0.05)
    sampler.stop()

    with pytest.raises(MeterError, match="did not answer"):
        sampler.raise_failure()
    n_batches = len(sink.batches)
    barrier.set()
    time.sleep(0.1)
    assert len(sink.batches) == n_batches


@pytest.mark.parametrize(
    ("readings", "wraps_at_count", "energy_j"),
    [
        ([100, 150], 1000, 50e-6),
        ([900, 100], 1000, 200e-6),
        ([900, 100], None, 0.0),
        ([None, 100], 1000, 0.0),
        ([7], None, 0.0),
    ],
)
def test_energy_so_far_is_that_of_the_counters(
    readings: list[int | None], wraps_at_count: int | None, energy_j: float
) -> None:
    """First to last reading, once around where it wraps; a power meter has no part in it."""
    meter = FakeMeter(lambda n: readings[min(n, len(readings) - 1)], wraps_at_count=wraps_at_count)
    power = FakeMeter(lambda n: 1000 * n, kind=ReadingKind.INSTANT_POWER)
    sampler = sampled([meter, power], Sink(), for_s=0.0)

    assert sampler.energy_so_far_j() == pytest.approx(energy_j, abs=1e-15)


def test_without_a_counter_there_is_no_energy_so_far() -> None:
    """None, not 0 J."""
    power = FakeMeter(lambda n: 1000 * n, kind=ReadingKind.INSTANT_POWER)

    assert sampled([power], Sink(), for_s=0.0).energy_so_far_j() is None


def test_failures_are_errors_that_a_user_can_act_on() -> None:
    """Each with a hint."""
    sampler = sampled([FakeMeter(broken_at(1))], Sink(), for_s=0.0)
    with pytest.raises(EcobenchError) as caught:
        sampler.raise_failure()

    assert caught.value.hint


def test_meter_that_falls_silent_is_a_failure_while_the_trial_runs(
    barrier: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial learns of it by looking, and not first when it stops the sampler."""
    monkeypatch.setattr(sampler_module, "ANSWER_WITHIN_S", 0.1)
    monkeypatch.setattr(sampler_module, "FLUSH_NS", 50 * MS)
    sampler = Sampler([FakeMeter(lambda n: barrier.wait() if n else n)], clock=LiveClock(), sink=Sink())
    sampler.start()
    sampler.raise_failure()
    time.sleep(0.25)

    with pytest.raises(MeterError, match="did not answer"):
        sampler.raise_failure()
    barrier.set()
    sampler.stop()
