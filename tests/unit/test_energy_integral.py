"""Energy from polled power, against closed forms."""

from collections.abc import Sequence

import numpy as np
import pytest

from ecobench.energy import Trace, cumulative_energy_j, domain_energies, domain_energy, power_curve
from ecobench.measurement import Boundary, DomainEnergy, Evidence, Interval, MeterInfo, ReadingKind, Segment, Window

S = 1_000_000_000


def polled(times_ns: Sequence[int], power_mw: Sequence[int], *, max_power_w: float | None = None) -> Trace:
    """What a power meter in mW said at these instants."""
    return Trace(
        info=MeterInfo(
            domain="gpu:0",
            kind=ReadingKind.INSTANT_POWER,
            interface="test",
            boundary=Boundary.GPU,
            evidence=Evidence.G0,
            si_per_count=1e-3,
            period_ns=S // 50,
            wraps_at_count=None,
            max_power_w=max_power_w,
            instrument_share=Interval(low=-0.1, high=0.2),
            counted="",
            basis="",
        ),
        time_ns=np.array(times_ns, dtype=np.int64),
        raw=np.array(power_mw, dtype=np.int64),
    )


def window(*edges_s: tuple[float, float]) -> Window:
    """A window of segments between seconds."""
    return Window(
        phase="train", segments=tuple(Segment(start_ns=round(a * S), stop_ns=round(b * S)) for a, b in edges_s)
    )


def energy_j(found: DomainEnergy) -> float:
    """The energy, which has to be there."""
    assert found.energy_j is not None, found.reason
    return found.energy_j


def test_a_plateau_that_never_changes_is_power_times_time() -> None:
    """350 W x 20 s = 7,000 J from readings that all say the same: repeated values are values."""
    times_ns = list(range(0, 30 * S, S // 50))

    found = domain_energy(polled(times_ns, [350_000] * len(times_ns)), window((5, 25)))

    assert energy_j(found) == pytest.approx(7_000)
    assert found.method == "integral"
    assert found.evidence is Evidence.G0
    assert found.instrument is not None
    assert (found.instrument.low, found.instrument.high) == (pytest.approx(6_300), pytest.approx(8_400))


def held(power_w: int, other_w: int, *, segments_s: Sequence[tuple[float, float]], until_s: float) -> Trace:
    """A sensor that holds what it saw for 100 ms, read at 50 Hz: `power_w` within segments, else `other_w`; it ripples
    by a milliwatt, so that each update shows.
    """
    times_ns = list(range(0, round(until_s * S), S // 50))
    shown = [time // (S // 10) * (S // 10) / S for time in times_ns]
    return polled(
        times_ns,
        [1000 * (power_w if any(a <= at < b for a, b in segments_s) else other_w) + round(at * 10) % 2 for at in shown],
    )


def test_segments_of_few_updates_have_no_energy_by_polled_power() -> None:
    """0.2 s of a sensor that updates every 0.1 s: what it shows may be what was before."""
    found = domain_energy(held(600, 100, segments_s=[(2.0, 2.2)], until_s=5), window((2.0, 2.2)))

    assert found.energy_j is None
    assert found.reason == "1 segment(s) are shorter than 0.3 s, three updates of this sensor"


def test_interval_of_short_segments_holds_what_the_sensor_may_have_put_beyond_their_edges() -> None:
    """0.6 s at 100 W between 600 W, shown 100 ms late: the interval reaches 500 W x 0.1 s further an edge."""
    late = held(100, 600, segments_s=[(2.1, 2.7)], until_s=5)

    found = domain_energy(late, window((2.0, 2.6)))

    assert found.instrument is not None
    assert found.instrument.low <= 60 <= found.instrument.high
    value_j = energy_j(found)
    assert value_j == pytest.approx(105, abs=6)  # 0.1 s of 600 W too much, and the ramp between two readings
    assert found.instrument.low == pytest.approx(max(0, value_j * 0.9 - 100), abs=0.01)


def test_a_ramp_with_edges_between_samples_is_its_trapezoid() -> None:
    """P = 100 W/s x t, read every 0.4 s: from 1.1 to 2.9 s it is 50 x (2.9^2 - 1.1^2) = 360 J, exactly."""
    times_ns = list(range(0, 4 * S, 2 * S // 5))

    found = domain_energy(polled(times_ns, [time * 100 // 10**6 for time in times_ns]), window((1.1, 2.9)))

    assert energy_j(found) == pytest.approx(360)


def test_a_step_between_two_samples_is_split_in_the_middle() -> None:
    """100 W until 2.0 s, 300 W from 2.02 s: 2.01 s of each from 0 to 4.02 s but the ramp between: 804 J."""
    times_ns = list(range(0, 5 * S, S // 50))
    step = polled(times_ns, [100_000 if time <= 2 * S else 300_000 for time in times_ns])

    assert energy_j(domain_energy(step, window((0, 4.02)))) == pytest.approx(2.01 * 100 + 2.01 * 300)


def test_segments_add() -> None:
    """200 W over 1 s, 2 s and 0.5 s."""
    times_ns = list(range(0, 10 * S, S // 50))
    constant = polled(times_ns, [200_000] * len(times_ns))

    assert energy_j(domain_energy(constant, window((1, 2), (3, 5), (7, 7.5)))) == pytest.approx(700)


def test_samples_are_needed_on_both_sides() -> None:
    """The last sample is 20 ms before the end: nothing says what happened then."""
    times_ns = list(range(0, 10 * S, S // 50))
    constant = polled(times_ns, [200_000] * len(times_ns))

    late, early, inside = domain_energies(constant, [window((1, 10)), window((-1, 5)), window((0, 9.98))])

    assert late.energy_j is None
    assert late.reason is not None
    assert "both sides" in late.reason
    assert early.energy_j is None
    assert energy_j(inside) == pytest.approx(9.98 * 200)


def test_a_gap_of_5_s_in_the_middle_of_60_s_is_no_energy() -> None:
    """8.3 % of the window is not known."""
    times_ns = [time for time in range(0, 60 * S + 1, S // 50) if not 20 * S < time < 25 * S]

    found = domain_energy(polled(times_ns, [200_000] * len(times_ns)), window((0, 60)))

    assert found.energy_j is None
    assert found.reason == "samples miss 8.3% of the window (largest gap 5.00 s)"
    assert found.coverage_share == pytest.approx(55 / 60)


def test_a_gap_of_under_one_percent_is_bridged_and_told() -> None:
    """0.52 s of 60 s."""
    times_ns = [time for time in range(0, 60 * S + 1, S // 50) if not 20 * S < time < 20.52 * S]

    found = domain_energy(polled(times_ns, [200_000] * len(times_ns)), window((0, 60)))

    assert energy_j(found) == pytest.approx(12_000)
    assert found.coverage_share == pytest.approx(1 - 0.52 / 60)
    assert found.largest_gap_s == pytest.approx(0.52)


def test_a_gap_outside_of_every_segment_takes_nothing_away() -> None:
    """Nothing was read during the validation, which is not asked for."""
    times_ns = [time for time in range(0, 20 * S + 1, S // 50) if not 9.5 * S < time < 11.5 * S]

    found = domain_energy(polled(times_ns, [200_000] * len(times_ns)), window((1, 9), (12, 19)))

    assert energy_j(found) == pytest.approx(3_000)
    assert found.coverage_share == 1.0
    assert found.largest_gap_s == pytest.approx(0.02)


def test_a_reading_that_cannot_be_is_no_reading() -> None:
    """1,000,000 W once on a 700 W board: left out, its neighbours 40 ms apart carry the line."""
    times_ns = list(range(0, 10 * S, S // 50))
    power_mw = [200_000] * len(times_ns)
    power_mw[250] = 10**9

    found = domain_energy(polled(times_ns, power_mw, max_power_w=700), window((1, 9)))

    assert energy_j(found) == pytest.approx(1_600)


@pytest.mark.parametrize("n_samples", [0, 1])
def test_one_sample_or_none_is_no_energy(n_samples: int) -> None:
    """Power at one instant is no energy."""
    found = domain_energy(polled([S] * n_samples, [200_000] * n_samples), window((0, 2)))

    assert found.energy_j is None
    assert found.reason is not None


def test_only_impossible_readings_are_no_energy_and_say_so() -> None:
    """The driver answers, and never sensibly."""
    found = domain_energy(polled([0, S // 50, S // 25], [10**9] * 3, max_power_w=700), window((0, 0.04)))

    assert found.energy_j is None
    assert found.reason is not None
    assert "3 readings are no power this domain can draw" in found.reason


def test_cumulative_energy_follows_the_ramp_between_samples() -> None:
    """P = 100 W/s x t, read at 0 and 2 s: 50 J at 1 s, 200 J at 2 s."""
    assert cumulative_energy_j(polled([0, 2 * S], [0, 200_000]), [0, S, 2 * S, 3 * S]) == (0, 50, 200, None)


def test_power_curve_is_the_mean_between_samples() -> None:
    """Between 100 and 200 W lies 150 W."""
    curve = power_curve(polled([0, S], [100_000, 200_000]))

    assert curve is not None
    assert curve.power_w.tolist() == [150]
