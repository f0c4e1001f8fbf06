"""Sensors against closed forms."""

import numpy as np
import pytest

from ecobench.measurement import ReadingKind
from ecobench.simulation.sensor import Sensor, SensorFault, SimulatedMeter, sensor_counts
from ecobench.simulation.truth import PowerTruth
from ecobench.trace import Int64s
from records_for_tests import meter_info

MS = 1_000_000
S = 1_000_000_000


def square(period_ms: int, *, high_w: float, low_w: float, n: int) -> PowerTruth:
    """`n` periods, the first half of each high."""
    edges = np.arange(2 * n + 1, dtype=np.int64) * (period_ms // 2) * MS
    return PowerTruth(edges_ns=edges, power_w=np.tile([high_w, low_w], n))


def at(*times_ns: int) -> Int64s:
    return np.array(times_ns, dtype=np.int64)


def test_truth_integrates_a_square_wave() -> None:
    """2.5 periods of 200 ms, 600 and 100 W: three highs and two lows of 0.1 s, 200 J; beyond: at the last power."""
    truth = square(200, high_w=600.0, low_w=100.0, n=10)

    assert truth.energy_j(at(500 * MS)) == pytest.approx([200.0])
    assert truth.energy_j(at(2 * S, 3 * S)) == pytest.approx([700.0, 800.0])
    assert truth.energy_j(at(-S)) == pytest.approx([-600.0])


def test_counter_is_within_its_quantum() -> None:
    """At its updates the counter is the integral, rounded down to whole quanta."""
    truth = square(70, high_w=633.3, low_w=111.1, n=600)
    sensor = Sensor(quantum_j=0.5, phase_ns=13 * MS)
    times = np.arange(13 * MS, 40 * S, 100 * MS, dtype=np.int64)

    read_j = sensor_counts(sensor, truth, ReadingKind.ENERGY_COUNTER, times, si_per_count=0.001) / 1000

    late_j = truth.energy_j(times) - read_j
    assert np.all(late_j >= -1e-6)
    assert np.all(late_j < 0.5 + 1e-6)


def test_counter_stands_still_between_updates() -> None:
    truth = square(200, high_w=600.0, low_w=100.0, n=50)
    times = at(100 * MS, 150 * MS, 199 * MS, 200 * MS)

    read = sensor_counts(Sensor(), truth, ReadingKind.ENERGY_COUNTER, times, si_per_count=0.001)

    assert list(read) == [60_000, 60_000, 60_000, 70_000]


def test_instant_power_sees_a_quarter_of_the_time() -> None:
    """A load that keeps time with the sensor: the window of 25 ms before each update lies in the low half, always."""
    truth = square(100, high_w=600.0, low_w=100.0, n=100)
    times = np.arange(1 * S, 9 * S, 100 * MS, dtype=np.int64)

    instant = sensor_counts(Sensor(), truth, ReadingKind.INSTANT_POWER, times, si_per_count=0.001) / 1000
    average = sensor_counts(Sensor(), truth, ReadingKind.AVERAGE_POWER, times, si_per_count=0.001) / 1000

    assert instant == pytest.approx(np.full(80, 100.0))
    assert average == pytest.approx(np.full(80, 350.0))


def test_gain_and_offset() -> None:
    """-5 % and +2 W of a constant 400 W: 382 W, and 3,820 J in 10 s."""
    truth = PowerTruth(edges_ns=at(0, 20 * S), power_w=np.array([400.0]))
    sensor = Sensor(gain=0.95, offset_w=2.0)

    assert list(sensor_counts(sensor, truth, ReadingKind.INSTANT_POWER, at(10 * S), si_per_count=1.0)) == [382]
    assert list(sensor_counts(sensor, truth, ReadingKind.ENERGY_COUNTER, at(10 * S), si_per_count=1.0)) == [3820]


def test_latency_shows_what_was() -> None:
    truth = PowerTruth(edges_ns=at(0, 10 * S, 20 * S), power_w=np.array([100.0, 500.0]))
    sensor = Sensor(latency_ns=500 * MS)

    read = sensor_counts(sensor, truth, ReadingKind.INSTANT_POWER, at(10 * S, 11 * S), si_per_count=1.0)

    assert list(read) == [100, 500]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (SensorFault(dies_at_s=2.0), [100, 200, None, None, None]),
        (SensorFault(freezes_at_s=2.0), [100, 200, 300, 300, 300]),
        (SensorFault(resets_at_s=2.0), [100, 200, 0, 100, 200]),
        (SensorFault(silent_from_s=1.0, silent_s=2.0), [100, None, None, 400, 500]),
    ],
)
def test_faults(fault: SensorFault, expected: list[int | None]) -> None:
    """100 W read each second in joules, launched at 1 s: time counts from there."""
    truth = PowerTruth(edges_ns=at(0, 20 * S), power_w=np.array([100.0]))
    meter = SimulatedMeter(
        meter_info(),
        counts=lambda times: sensor_counts(Sensor(), truth, ReadingKind.ENERGY_COUNTER, times, si_per_count=1.0),
        launch_ns=lambda: 1 * S,
        fault=fault,
    )

    assert [one.raw for one in meter.read([S, 2 * S, 3 * S, 4 * S, 5 * S])] == expected
