"""Calibration against sensors in closed form: what was put in is found, within the interval, or it is said why not."""

import numpy as np
import pytest

from ecobench.calibration import Wave, calibrate
from ecobench.calibration_records import Estimate, SensorCalibration
from ecobench.measurement import Boundary, Evidence, Interval, MeterInfo, ReadingKind
from ecobench.trace import Float64s, Int64s, Trace

S = 1_000_000_000
MS = 1_000_000
LOW_W, HIGH_W = 100.0, 600.0
POLL_NS = 4 * MS


def info(kind: ReadingKind) -> MeterInfo:
    return MeterInfo(
        domain="gpu:0",
        kind=kind,
        interface="test",
        boundary=Boundary.GPU,
        evidence=Evidence.G1,
        si_per_count=0.001,
        period_ns=POLL_NS,
        wraps_at_count=None,
        max_power_w=1000.0,
        instrument_share=Interval(low=-0.05, high=0.05),
        counted="the board",
        basis="test",
    )


class Load:
    """A square wave of 100 and 600 W from `start_ns` on, low before it; its energy in closed form."""

    def __init__(self, start_ns: int, period_ns: int, *, duty: float = 0.5, length_ns: int = 8 * S) -> None:
        self.start_ns, self.period_ns, self.high_ns = start_ns, period_ns, round(duty * period_ns)
        self.n = length_ns // period_ns
        self.stop_ns = start_ns + self.n * period_ns

    def energy_j(self, until_ns: Int64s) -> Float64s:
        """Since an hour before the start."""
        since = np.clip(until_ns - self.start_ns, 0, self.n * self.period_ns)
        n, rest = np.divmod(since, self.period_ns)
        on_ns = n * self.high_ns + np.minimum(rest, self.high_ns)
        lowest_ns = (until_ns - (self.start_ns - 3600 * S)).astype(np.float64)
        return np.asarray((LOW_W * lowest_ns + (HIGH_W - LOW_W) * on_ns) / S)

    def mean_w(self, stop_ns: Int64s, window_ns: int) -> Float64s:
        return np.asarray((self.energy_j(stop_ns) - self.energy_j(stop_ns - window_ns)) / (window_ns / S))

    def wave(self, *traces: Trace) -> Wave:
        rising = self.start_ns + self.period_ns * np.arange(self.n, dtype=np.int64)
        return Wave(rising_ns=rising, falling_ns=rising + self.high_ns, stop_ns=self.stop_ns, traces=traces)

    def polls(self) -> Int64s:
        """Every 4 ms with up to 1 ms of jitter, from half a second before to half a second after."""
        grid = np.arange(self.start_ns - S // 2, self.stop_ns + S // 2, POLL_NS, dtype=np.int64)
        return grid + np.random.default_rng(3).integers(0, MS, len(grid))

    def power(
        self,
        kind: ReadingKind,
        *,
        window_ns: int,
        period_ns: int = 100 * MS,
        lag_ns: int = 0,
        gain: float = 1.0,
        noise_w: float = 0.0,
    ) -> Trace:
        polls = self.polls()
        updates = polls - (polls - 17 * MS) % period_ns
        noise = np.random.default_rng(4).normal(0, 1, 1_000_000)[(updates // period_ns) % 1_000_000]
        power_w = gain * self.mean_w(updates - lag_ns, window_ns) + noise_w * noise
        return Trace(info=info(kind), time_ns=polls, raw=np.round(power_w * 1000).astype(np.int64))

    def counter(self, *, window_ns: int | None = None, period_ns: int = 100 * MS, gain: float = 1.0) -> Trace:
        """`window_ns` None: it sees all of the time."""
        polls = self.polls()
        updates = polls - (polls - 41 * MS) % period_ns
        if window_ns is None:
            energy_j = gain * self.energy_j(updates)
        else:
            first = int(updates[0])
            grid = np.arange(first, int(updates[-1]) + 1, period_ns, dtype=np.int64)
            summed = np.cumsum(self.mean_w(grid, window_ns) * period_ns / S)
            energy_j = gain * summed[(updates - first) // period_ns]
        return Trace(
            info=info(ReadingKind.ENERGY_COUNTER), time_ns=polls, raw=np.round(energy_j * 1000).astype(np.int64)
        )


# Periods that keep no time with 100 ms, one after the other on one clock.
LOADS = [Load(10 * S, 230 * MS), Load(30 * S + 33 * MS, 370 * MS), Load(50 * S + 71 * MS, 1730 * MS)]


def sensor(waves: list[Wave], kind: ReadingKind) -> SensorCalibration:
    return next(one for one in calibrate(waves) if one.kind is kind)


def assert_holds(estimate: Estimate, truth: float, *, within: float) -> None:
    """The value is near, and the interval holds the truth and is not wider than twice that."""
    assert estimate.value == pytest.approx(truth, abs=within)
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low - 1e-9 <= truth <= estimate.high + 1e-9
    assert estimate.high - estimate.low <= 4 * within


def test_instant_power_of_25_ms_in_every_100_is_found_as_that() -> None:
    found = sensor(
        [load.wave(load.power(ReadingKind.INSTANT_POWER, window_ns=25 * MS)) for load in LOADS],
        ReadingKind.INSTANT_POWER,
    )

    assert_holds(found.update_period_s, 0.1, within=0.0002)
    assert_holds(found.window_s, 0.025, within=0.003)
    assert_holds(found.lag_s, 0.0, within=0.003)


def test_lag_is_told_from_window() -> None:
    """The window ended 40 ms before the update."""
    found = sensor(
        [load.wave(load.power(ReadingKind.INSTANT_POWER, window_ns=25 * MS, lag_ns=40 * MS)) for load in LOADS],
        ReadingKind.INSTANT_POWER,
    )

    assert_holds(found.window_s, 0.025, within=0.003)
    assert_holds(found.lag_s, 0.040, within=0.003)


def test_average_over_1_s_is_found_as_that() -> None:
    found = sensor(
        [load.wave(load.power(ReadingKind.AVERAGE_POWER, window_ns=S)) for load in LOADS], ReadingKind.AVERAGE_POWER
    )

    assert_holds(found.update_period_s, 0.1, within=0.0002)
    assert_holds(found.window_s, 1.0, within=0.01)
    assert_holds(found.lag_s, 0.0, within=0.01)


def test_noise_widens_the_interval_and_does_not_shift_it() -> None:
    """25 W of noise on a step of 500 W."""
    quiet, noisy = (
        sensor(
            [load.wave(load.power(ReadingKind.INSTANT_POWER, window_ns=25 * MS, noise_w=noise_w)) for load in LOADS],
            ReadingKind.INSTANT_POWER,
        ).window_s
        for noise_w in (0.0, 25.0)
    )

    assert noisy.low is not None and noisy.high is not None and quiet.low is not None and quiet.high is not None  # noqa: PT018
    assert noisy.high - noisy.low > quiet.high - quiet.low
    assert noisy.low <= 0.025 <= noisy.high


@pytest.mark.parametrize(("window_ns", "coverage"), [(None, 1.0), (25 * MS, 0.25), (50 * MS, 0.5)])
def test_counter_that_sees_part_of_the_time_is_told_from_one_that_sees_all(
    window_ns: int | None, coverage: float
) -> None:
    found = sensor([load.wave(load.counter(window_ns=window_ns)) for load in LOADS], ReadingKind.ENERGY_COUNTER)

    assert_holds(found.update_period_s, 0.1, within=0.0002)
    assert_holds(found.coverage_share, coverage, within=0.03)


def test_ratio_is_the_gains_of_both_paths_and_its_interval_the_waves() -> None:
    """1.03 by power and 0.98 by counter are 1.0510."""
    waves = [
        load.wave(
            load.counter(gain=0.98),
            load.power(ReadingKind.INSTANT_POWER, window_ns=25 * MS, gain=1.03),
            load.power(ReadingKind.AVERAGE_POWER, window_ns=S, gain=1.01),
        )
        for load in (*LOADS, Load(90 * S, S, duty=1.0))
    ]
    instant, average = sensor(waves, ReadingKind.INSTANT_POWER).ratio, sensor(waves, ReadingKind.AVERAGE_POWER).ratio

    assert instant.value == pytest.approx(1.03 / 0.98, rel=1e-4)
    assert instant.low is not None
    assert instant.high is not None
    assert instant.low <= 1.03 / 0.98 <= instant.high
    assert average.value == pytest.approx(1.01 / 0.98, rel=1e-4)


def test_average_has_no_ratio_from_waves_nor_from_a_short_plateau() -> None:
    """Trimmed by 1.5 s at each edge, a plateau of 4 s leaves 1 s, and a wave says what was before it."""
    for loads in (LOADS, (Load(90 * S, S, duty=1.0, length_ns=4 * S),)):
        waves = [load.wave(load.counter(), load.power(ReadingKind.AVERAGE_POWER, window_ns=S)) for load in loads]
        ratio = sensor(waves, ReadingKind.AVERAGE_POWER).ratio

        assert ratio.value is None
        assert "no plateau is long enough" in (ratio.reason or "")


def test_what_cannot_be_told_is_none_with_a_reason() -> None:
    """A frozen reading, one that ignores the load, one without a counter beside it, one quicker than the polling."""
    load = LOADS[1]
    polls = load.polls()
    frozen = Trace(info=info(ReadingKind.INSTANT_POWER), time_ns=polls, raw=np.full(len(polls), 300_000))
    rng = np.random.default_rng(5)
    ignoring = Trace(
        info=info(ReadingKind.INSTANT_POWER),
        time_ns=polls,
        raw=rng.integers(100_000, 600_000, 100)[(polls // (100 * MS)) % 100],
    )
    quick = load.power(ReadingKind.INSTANT_POWER, window_ns=25 * MS, period_ns=5 * MS)

    still = sensor([load.wave(frozen)], ReadingKind.INSTANT_POWER)
    assert (still.update_period_s.value, still.window_s.value) == (None, None)
    assert "never moved" in (still.update_period_s.reason or "")
    deaf = sensor([load.wave(ignoring)], ReadingKind.INSTANT_POWER)
    assert deaf.window_s.value is None
    assert "does not follow the load" in (deaf.window_s.reason or "")
    assert "no plateau" in (deaf.ratio.reason or "")
    fast = sensor([load.wave(quick)], ReadingKind.INSTANT_POWER)
    assert fast.update_period_s.value is None
    assert "moves at nearly every reading" in (fast.update_period_s.reason or "")
    assert_holds(fast.window_s, 0.025, within=0.008)


def test_window_that_the_waves_are_too_short_for_is_not_guessed() -> None:
    """1 s of averaging, and waves of 1.6 s: what is left of them shows windows of 0.3 s at the longest."""
    loads = [Load(10 * S, 230 * MS, length_ns=1610 * MS), Load(30 * S + 33 * MS, 370 * MS, length_ns=1600 * MS)]
    found = sensor(
        [load.wave(load.power(ReadingKind.AVERAGE_POWER, window_ns=S)) for load in loads], ReadingKind.AVERAGE_POWER
    )

    assert found.window_s.value is None
    assert found.lag_s.value is None
