"""Energy from counters, against powers whose energy is known in closed form."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from ecobench.counter import BreakKind, counter_curve
from ecobench.energy import (
    Trace,
    counter_breaks,
    cumulative_energy_j,
    domain_energies,
    domain_energy,
    power_curve,
    trace_of,
)
from ecobench.measurement import Boundary, DomainEnergy, Evidence, Interval, MeterInfo, ReadingKind, Segment, Window
from ecobench.seams import Sample
from ecobench.trace import Float64s

S = 1_000_000_000
MS = 1_000_000


def meter(
    *,
    period_ms: int = 100,
    si_per_count: float = 1e-6,
    wraps_at_count: int | None = None,
    max_power_w: float | None = 1000.0,
    share: tuple[float, float] = (-0.05, 0.05),
    evidence: Evidence = Evidence.C1,
) -> MeterInfo:
    """A counter in uJ that is read every 0.1 s, if nothing else is said."""
    return MeterInfo(
        domain="cpu:0/package",
        kind=ReadingKind.ENERGY_COUNTER,
        interface="test",
        boundary=Boundary.CPU,
        evidence=evidence,
        si_per_count=si_per_count,
        period_ns=period_ms * MS,
        wraps_at_count=wraps_at_count,
        max_power_w=max_power_w,
        instrument_share=Interval(low=share[0], high=share[1]),
        counted="",
        basis="",
    )


def trace(info: MeterInfo, times_ns: Sequence[int], raw: Sequence[int]) -> Trace:
    """What the counter said at these instants."""
    return Trace(info=info, time_ns=np.array(times_ns, dtype=np.int64), raw=np.array(raw, dtype=np.int64))


def window(*edges_s: tuple[float, float]) -> Window:
    """A window of segments between seconds."""
    return Window(
        phase="train", segments=tuple(Segment(start_ns=round(a * S), stop_ns=round(b * S)) for a, b in edges_s)
    )


def energy_j(found: DomainEnergy) -> float:
    """The energy, which has to be there."""
    assert found.energy_j is not None, found.reason
    return found.energy_j


def steps_j(changes: Sequence[tuple[float, float]]) -> Callable[[Float64s], Float64s]:
    """Energy in J until a time in s, of a power that is `w` from `s` on for each of `changes`."""
    starts = np.array([each[0] for each in changes])
    powers = np.array([each[1] for each in changes])
    before = np.concatenate(([0.0], np.cumsum(np.diff(starts) * powers[:-1])))

    def energy(time_s: Float64s) -> Float64s:
        index = np.searchsorted(starts, time_s, side="right") - 1
        total: Float64s = before[index] + (time_s - starts[index]) * powers[index]
        return total

    return energy


def ticking(
    energy: Callable[[Float64s], Float64s], *, until_s: float, seed: int, tick_ms: float = 100, poll_ms: float = 20
) -> Trace:
    """A counter in mJ that moves every `tick_ms` from a random phase on, polled with jitter of a fifth of a period."""
    random = np.random.default_rng(seed)
    phase_s = random.uniform(0, tick_ms / 1e3)
    polls_s = np.arange(0, until_s, poll_ms / 1e3) + random.uniform(
        0, poll_ms / 5e3, size=round(until_s * 1e3 / poll_ms)
    )
    ticks_s = np.maximum(np.floor((polls_s - phase_s) / (tick_ms / 1e3)) * tick_ms / 1e3 + phase_s, 0)
    return Trace(
        info=meter(period_ms=round(poll_ms), si_per_count=1e-3),
        time_ns=(polls_s * S).astype(np.int64),
        raw=np.floor(energy(ticks_s) * 1e3).astype(np.int64) + 123_456,
    )


def test_constant_power_is_power_times_time() -> None:
    """350 W x 20 s = 7,000 J, whatever the counter started from; +-5 % of it is what the instrument leaves open."""
    times_ns = list(range(0, 30 * S, S // 10))
    found = domain_energy(
        trace(meter(), times_ns, [5_000_000_000 + 350 * time // 1000 for time in times_ns]), window((5, 25))
    )

    assert energy_j(found) == pytest.approx(7_000, abs=1e-6)
    assert found.method == "counter"
    assert found.instrument is not None
    assert (found.instrument.low, found.instrument.high) == (pytest.approx(6_650), pytest.approx(7_350))
    assert found.coverage_share == 1.0
    assert found.largest_gap_s == pytest.approx(0.1)


def test_one_step_of_5000_j_counts_as_a_whole_in_the_window_it_falls_into() -> None:
    """Still, then 5,000 J between two readings, then still."""
    times_ns = [0, 1 * S, 2 * S, 3 * S, 4 * S]
    one_step = trace(
        meter(period_ms=1000, max_power_w=None), times_ns, [0, 0, 5_000_000_000, 5_000_000_000, 5_000_000_000]
    )

    inside, after = domain_energies(one_step, [window((0.5, 3.5)), window((2.5, 4.0))])

    assert inside.energy_j == pytest.approx(5_000, abs=1e-6)
    assert after.energy_j is None
    assert after.reason == "1 segment(s) are shorter than 3 s, three readings of this counter"


@pytest.mark.parametrize("seed", range(40))
def test_a_60_s_segment_is_right_to_one_part_in_a_thousand(seed: int) -> None:
    """100 W idle around 600 W from 10.037 s to 70.037 s: 36,000 J, by a 100 ms counter in mJ polled at 50 Hz."""
    source = steps_j([(0, 100), (10.037, 600), (70.037, 100)])

    found = domain_energy(ticking(source, until_s=80, seed=seed), window((10.037, 70.037)))

    assert energy_j(found) == pytest.approx(36_000, rel=1e-3)


@pytest.mark.parametrize("seed", range(40))
def test_fourteen_segments_of_12_s_with_dips_are_right_to_15_in_ten_thousand(seed: int) -> None:
    """600 W in 14 segments of 12 s, 250 W in dips of 1.013 s between: 14 x 7,200 J = 100,800 J."""
    starts = [5 + index * 13.013 for index in range(14)]
    changes = [(0.0, 250.0), *itertools.chain.from_iterable(((at, 600.0), (at + 12, 250.0)) for at in starts)]

    found = domain_energy(ticking(steps_j(changes), until_s=190, seed=seed), window(*((at, at + 12) for at in starts)))

    assert energy_j(found) == pytest.approx(100_800, rel=1.5e-3)


def test_edges_do_not_take_in_what_happens_outside() -> None:
    """A dip of 0.35 s to 0 W between two segments at 600 W, edges in the middle of a tick: the error is that of a
    reading's jitter (20 ms at 600 W an edge), not of a tick's share of the dip.
    """
    source = steps_j([(0, 600), (10.05, 0), (10.4, 600)])

    found = domain_energy(ticking(source, until_s=20, seed=1), window((5, 10.05), (10.4, 15)))

    assert energy_j(found) == pytest.approx(600 * (5.05 + 4.6), abs=4 * 0.02 * 600 / 2)


def test_a_ramp_is_its_triangle() -> None:
    """From 0 W at 0 s to 400 W at 40 s; from 10 to 30 s: (100 + 300)/2 x 20 = 4,000 J."""
    times_ns = list(range(0, 40 * S, S // 10))
    ramp = trace(meter(), times_ns, [round(5 * (time / S) ** 2 * 1e6) for time in times_ns])

    assert energy_j(domain_energy(ramp, window((10, 30)))) == pytest.approx(4_000, abs=1e-6)
    # Off the readings by 30 ms: the mean power of 1 s inside is off by 5 W over 70 and 30 ms.
    shifted = 5 * (30.03**2 - 10.03**2)
    assert energy_j(domain_energy(ramp, window((10.03, 30.03)))) == pytest.approx(shifted, abs=5 * 0.1 + 0.01)


def test_an_edge_never_takes_more_than_its_tick_moved() -> None:
    """200 W from 1.0 s on, idle before: a window that starts in the idle tick counts no energy for it."""
    times_ns = list(range(0, 3 * S, S // 10))
    step = trace(meter(evidence=Evidence.EST), times_ns, [max(0, 200 * (time - 1 * S) // 1000) for time in times_ns])

    assert energy_j(domain_energy(step, window((0.95, 2.0)))) == pytest.approx(200, abs=1e-6)


def test_readings_at_known_times_are_exact_to_the_unit_over_a_wrap_and_over_a_reset() -> None:
    """12,345 uJ a reading; the counter wraps at 1,000,000,000 and is later set back to 0 exactly at a reading."""
    info = meter(wraps_at_count=1_000_000_000)
    true = [index * 12_345 for index in range(100)]
    raw = [(999_900_000 + each) % 1_000_000_000 for each in true]
    raw[60:] = [each - true[59] for each in true[60:]]
    found = domain_energy(trace(info, [index * S // 10 for index in range(100)], raw), window((0, 9.9)))

    assert energy_j(found) == 99 * 12_345 * 1e-6


def test_a_wrap_is_energy_and_no_break() -> None:
    """Once around at 262,143.328911 J between two readings: 3 uJ before the end and 4 after it."""
    info = meter(wraps_at_count=262_143_328_911)
    wrapping = trace(info, [0, S // 10, S // 5], [262_143_328_900, 262_143_328_908, 4])

    assert counter_breaks(wrapping) == ()
    assert energy_j(domain_energy(wrapping, window((0, 0.2)))) == 15 * 1e-6


def test_a_reset_counts_what_the_new_value_says_and_bounds_the_rest() -> None:
    """5 J a reading; at 5.0 s the counter says 2 J instead of 250 J: 2 counted, at most 100 W x 0.1 s = 10 J drawn."""
    info = meter(wraps_at_count=262_143_328_911, max_power_w=100.0, share=(0.0, 0.0))
    raw = [index * 5_000_000 for index in range(100)]
    raw[50:] = [2_000_000 + (index - 50) * 5_000_000 for index in range(50, 100)]
    reset = trace(info, [index * S // 10 for index in range(100)], raw)

    (broken,) = counter_breaks(reset)
    found, before = domain_energies(reset, [window((0, 9.9)), window((0, 4.9))])

    assert (broken.kind, broken.start_ns, broken.stop_ns) == (BreakKind.RESET, round(4.9 * S), 5 * S)
    assert broken.counted_j == 2
    assert broken.bound_j == pytest.approx(10)
    assert energy_j(found) == 98 * 5 + 2
    assert found.instrument is not None
    assert (found.instrument.low, found.instrument.high) == (492, pytest.approx(502))
    assert before.instrument is not None
    assert before.instrument.high == energy_j(before) == 245


def test_an_impossible_delta_is_no_energy() -> None:
    """A reading jumps by 1 MJ in 0.1 s and the counter goes on from there: 97 of 99 deltas of 1 J, two lost."""
    raw = [index * 1_000_000 for index in range(100)]
    raw[30:] = [each + 10**12 for each in raw[30:]]
    jumping = trace(meter(), [index * S // 10 for index in range(100)], raw)

    (broken,) = counter_breaks(jumping)

    assert broken.kind is BreakKind.JUMP
    assert (broken.counted_j, broken.bound_j) == (0, pytest.approx(100))
    assert energy_j(domain_energy(jumping, window((0, 9.9)))) == 98


def test_a_counter_set_back_to_somewhere_high_is_a_jump() -> None:
    """Down by 1 MJ to a value that cannot have been counted since: nothing is taken from it."""
    raw = [3 * 10**12 + index * 1_000_000 for index in range(100)]
    raw[30:] = [each - 10**12 for each in raw[30:]]
    back = trace(meter(), [index * S // 10 for index in range(100)], raw)

    assert [each.kind for each in counter_breaks(back)] == [BreakKind.JUMP]
    assert energy_j(domain_energy(back, window((0, 9.9)))) == 98


def test_a_gap_that_may_hide_a_whole_turn_has_no_energy() -> None:
    """65 kJ around at 1,000 W: after 100 s without a reading nobody knows how often it went round."""
    info = meter(wraps_at_count=65_532_610_987)
    times_ns = [index * S // 10 for index in range(100)]
    raw = [index * 1_000_000 for index in range(100)]
    later = [time + 100 * S for time in times_ns]
    hiding = trace(info, times_ns + later, raw + [each + 10**9 for each in raw])

    whole, before = domain_energies(hiding, [window((0, 109)), window((0, 9))])

    assert [each.kind for each in counter_breaks(hiding)] == [BreakKind.HIDDEN_WRAP]
    assert whole.energy_j is None
    assert whole.reason is not None
    assert "hidden wrap" in whole.reason
    assert energy_j(before) == 90


def test_bursts_after_a_late_tick_are_not_taken_for_a_reset() -> None:
    """A 100 ms counter at 700 W moves by 70 J from one 20 ms reading to the next: far over 700 W x 20 ms, and real."""
    source = steps_j([(0, 700)])
    info = meter(period_ms=20, si_per_count=1e-3, max_power_w=700)
    polled = ticking(source, until_s=20, seed=3)
    bounded = Trace(info=info, time_ns=polled.time_ns, raw=polled.raw)

    assert counter_breaks(bounded) == ()
    assert energy_j(domain_energy(bounded, window((2, 18)))) == pytest.approx(11_200, rel=1e-3)


def test_a_counter_that_never_moves_is_absent() -> None:
    """A constant is no measurement of 0 J."""
    found = domain_energy(trace(meter(), [0, S, 2 * S], [7, 7, 7]), window((0, 2)))

    assert found.energy_j is None
    assert found.instrument is None
    assert found.reason is not None
    assert "never moved" in found.reason


def test_idle_is_zero_where_the_counter_moved_before() -> None:
    """Zero means that zero was measured: CPU time of a process tree that sleeps."""
    times_ns = list(range(0, 10 * S, S // 10))
    sleeping = trace(meter(evidence=Evidence.EST), times_ns, [min(time // 1000, 5 * S // 1000) for time in times_ns])

    assert domain_energy(sleeping, window((6, 9))).energy_j == 0.0
    assert energy_j(domain_energy(sleeping, window((4, 9)))) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("times_ns", "reason"), [([], "no sample"), ([S], "1 sample only")])
def test_one_reading_or_none_is_no_energy(times_ns: list[int], reason: str) -> None:
    """A difference needs two."""
    found = domain_energy(trace(meter(), times_ns, [5] * len(times_ns)), window((0, 2)))

    assert found.energy_j is None
    assert found.reason == reason
    assert found.coverage_share == 0.0
    assert found.largest_gap_s is None if not times_ns else found.largest_gap_s == 1.0


def test_a_gap_in_the_middle_is_bridged_by_the_counter_and_told() -> None:
    """100 W for 60 s, nothing read from 20 to 25 s: 6,000 J, 55/60 covered, a gap of 5 s."""
    times_ns = [time for time in range(0, 60 * S + 1, S // 10) if not 20 * S < time < 25 * S]
    found = domain_energy(trace(meter(), times_ns, [100 * time // 1000 for time in times_ns]), window((0, 60)))

    assert energy_j(found) == pytest.approx(6_000, abs=1e-6)
    assert found.coverage_share == pytest.approx(55 / 60)
    assert found.largest_gap_s == pytest.approx(5)


def test_a_missing_tail_is_no_energy_and_says_why() -> None:
    """Readings fail from 50 s on: 10 of 60 s are unknown, and not extrapolated over."""
    samples = [Sample(time * MS, 100 * time * 1000, 0, None) for time in range(0, 50_001, 100)]
    samples += [Sample(time * MS, None, 0, "device lost") for time in range(50_100, 60_001, 100)]
    lost = trace_of(meter(), samples)

    found, before = domain_energies(lost, [window((0, 60)), window((0, 50))])

    assert found.energy_j is None
    assert found.reason == "samples miss 16.7% of the window (largest gap 10.00 s); 100 readings failed: device lost"
    assert found.coverage_share == pytest.approx(50 / 60)
    assert energy_j(before) == pytest.approx(5_000, abs=1e-6)


def test_a_gap_over_an_edge_is_not_bridged() -> None:
    """The last reading inside is 2 s before the end of 20 s, the next one 3 s after it."""
    times_ns = [time for time in range(0, 30 * S, S // 10) if not 18 * S < time < 23 * S]
    found = domain_energy(trace(meter(), times_ns, [100 * time // 1000 for time in times_ns]), window((0, 20)))

    assert found.energy_j is None
    assert found.largest_gap_s == pytest.approx(5)


def test_segments_of_less_than_three_ticks_have_no_energy() -> None:
    """What lies outside of them would be taken for what is in them: a wave of 100 and 20 W came out 35 % low."""
    wave = ticking(steps_j([(index / 10, 100 if index % 2 else 20) for index in range(100)]), until_s=10, seed=2)
    found = domain_energy(wave, window(*[(index / 10, (index + 1) / 10) for index in range(1, 99, 2)]))

    assert found.energy_j is None
    assert "49 segment(s) are shorter than" in (found.reason or "")


def test_a_counter_that_stands_still_takes_the_number_away() -> None:
    """40 W, frozen from 5 s on while it is read: hardware that is on draws power."""
    times_ns = list(range(0, 10 * S, S // 10))
    frozen = trace(meter(), times_ns, [40 * min(time, 5 * S) // 1000 for time in times_ns])

    found, before = domain_energies(frozen, [window((0, 9)), window((0, 5))])

    assert found.energy_j is None
    assert (found.reason or "").startswith("the counter stood still for 44.4% of the window")
    assert energy_j(before) == pytest.approx(200, abs=1e-6)


def test_long_uptimes_lose_no_precision() -> None:
    """Ten years after boot (3e17 ns) float64 resolves 64 ns: the instants are kept as integers."""
    boot_ns = 3 * 10**17
    times_ns = [boot_ns + index * S // 10 + index for index in range(100)]
    constant = trace(meter(), times_ns, [1000 * (time - boot_ns) // 1000 for time in times_ns])
    segment = Segment(start_ns=boot_ns + S + 7, stop_ns=boot_ns + 2 * S + 7)

    found = domain_energy(constant, Window(phase="train", segments=(segment,)))

    assert energy_j(found) == pytest.approx(1000, abs=1e-5)


def test_readings_with_one_stamp_count_once() -> None:
    """A coarse clock gives two readings the same instant."""
    twice = trace(meter(), [0, S, S, 2 * S], [0, 1_000_000, 1_000_001, 2_000_000])

    assert energy_j(domain_energy(twice, window((0, 2)))) == 2


def test_samples_out_of_order_are_a_mistake() -> None:
    """Traces are in order of time."""
    with pytest.raises(ValueError, match="not in order"):
        trace(meter(), [S, 0], [0, 1])


def test_ticks_are_seen_where_the_counter_moves_less_often_than_it_is_read() -> None:
    """100 ms ticks at 20 ms readings; no tick where every reading moves."""
    slow = counter_curve(ticking(steps_j([(0, 600)]), until_s=10, seed=5))
    fast = counter_curve(trace(meter(), [0, S // 10, S // 5, 3 * S // 10], [0, 1, 2, 3]))

    assert slow is not None
    assert slow.tick_ns == pytest.approx(100 * MS, abs=20 * MS)
    assert fast is not None
    assert fast.tick_ns == 0


def test_cumulative_energy_is_none_outside_of_the_samples() -> None:
    """100 W from 1 s to 3 s: 0, 50 and 200 J at 1, 1.5 and 3 s; nothing is known before and after."""
    times_ns = [1 * S, 2 * S, 3 * S]
    constant = trace(meter(), times_ns, [0, 100_000_000, 200_000_000])

    found = cumulative_energy_j(constant, [S - 1, S, 3 * S // 2, 3 * S, 3 * S + 1])

    assert found == (None, 0, 50, 200, None)
    assert cumulative_energy_j(trace(meter(), times_ns, [1, 1, 1]), [S]) == (None,)
    assert cumulative_energy_j(trace(meter(), [], []), [S]) == (None,)


def test_power_curve_is_the_mean_between_readings() -> None:
    """100 J in 1 s, then 100 J in 2 s."""
    curve = power_curve(trace(meter(), [0, 1 * S, 3 * S], [0, 100_000_000, 200_000_000]))

    assert curve is not None
    assert curve.time_ns.tolist() == [0, 1 * S, 3 * S]
    assert curve.power_w.tolist() == [100, 50]
    assert power_curve(trace(meter(), [0, S], [1, 1])) is None
