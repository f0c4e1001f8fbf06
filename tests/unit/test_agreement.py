"""Counter and polled power side by side, against boards whose energy is known in closed form."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from board_traces import Board, steady, wave, window
from ecobench.agreement import judge, polled_beats, trimmed, window_energies
from ecobench.aliasing import SensorPeriod, beat_of, mean_step_s, observed_period
from ecobench.energy import boundary_energies, domain_energy
from ecobench.measurement import CheckVerdict, EnergyCheck, Evidence, ReadingKind, Window
from ecobench.trace import Trace
from ecobench.transcript import Transcript
from records_for_tests import hello, phase_start, phase_stop, step, transcript

S = 1_000_000_000
TRAIN = (10.0, 70.0)
# Sensors have noise, so that even a plateau moves; here a load before the window shows the sensor's period.
RESTLESS = wave(0, 730, high_w=120, low_w=90)


def training(step_ms: float, edges_s: tuple[float, float] = TRAIN) -> Transcript:
    """A workload that says a step every `step_ms` between the edges."""
    start_s, stop_s = edges_s
    n_steps = int((stop_s - start_s) * 1e3 / step_ms)
    stamps = [round((start_s + index * step_ms / 1e3) * S) for index in range(1, n_steps + 1)]
    return transcript(
        hello(0),
        phase_start(round(start_s * S)),
        *(step(stamp, index + 1, index + 1) for index, stamp in enumerate(stamps)),
        phase_stop(round(stop_s * S)),
    )


def stepping(step_ms: float, **changes: object) -> Board:
    """650 W for 60 % of each step and 300 W for the rest, from 10 to 70 s; 90 to 120 W around."""
    load = (RESTLESS, wave(10, step_ms, high_w=650, low_w=300), RESTLESS_AFTER)
    return Board(load=load, **changes)  # type: ignore[arg-type]


RESTLESS_AFTER = wave(70, 730, high_w=120, low_w=90)


def check_of(traces: Sequence[Trace], over: Window, said: Transcript | None, kind: ReadingKind) -> EnergyCheck:
    """The check by polled power of `kind`."""
    (found,) = window_energies(traces, [over], transcript=said)
    return next(check for check in found.checks if check.kind is kind)


def instant_check(board: Board, *, step_ms: float, calibrated_ratio: float | None = None) -> EnergyCheck:
    """Of a 60 s training with steps of `step_ms`."""
    traces = [board.counter(80), board.instant(80, calibrated_ratio=calibrated_ratio)]
    return check_of(traces, window(TRAIN), training(step_ms), ReadingKind.INSTANT_POWER)


@pytest.mark.parametrize("seed", range(8))
def test_a_plateau_is_right_by_both_ways(seed: int) -> None:
    """600 W from 10.037 to 70.037 s, between polls: 36,000 J, the counter to 0.1 %, the integral to 0.5 %."""
    board = Board(load=(steady(0, 100), steady(10.037, 600), steady(70.037, 100)), seed=seed)
    over = window((10.037, 70.037))

    assert board.energy_j(over) == pytest.approx(36_000)
    assert domain_energy(board.counter(80), over).energy_j == pytest.approx(36_000, rel=1e-3)
    assert domain_energy(board.instant(80), over).energy_j == pytest.approx(36_000, rel=5e-3)


@pytest.mark.parametrize("seed", range(4))
def test_a_step_inside_the_window_is_right_by_both_ways(seed: int) -> None:
    """300 W for 25 s, then 650 W for 35 s: 30,250 J."""
    board = Board(load=(steady(0, 300), steady(35.013, 650)), seed=seed)
    over = window((10.013, 70.013))

    assert board.energy_j(over) == pytest.approx(30_250)
    assert domain_energy(board.counter(80), over).energy_j == pytest.approx(30_250, rel=1e-3)
    assert domain_energy(board.instant(80), over).energy_j == pytest.approx(30_250, rel=5e-3)


def test_a_ramp_is_right_by_both_ways() -> None:
    """From 200 W in stairs of 0.5 s by 3 W: mean of 20 + k x 0.5 s for k to 119: 60 x (200 + 3 x 59.5 + 60) J."""
    stairs = [steady(10 + index * 0.5, 260.0 + 3 * index) for index in range(120)]
    board = Board(load=(steady(0, 257), *stairs), seed=3)
    over = window(TRAIN)

    assert board.energy_j(over) == pytest.approx(60 * (260 + 3 * 59.5))
    assert domain_energy(board.counter(80), over).energy_j == pytest.approx(26_310, rel=1e-3)
    assert domain_energy(board.instant(80), over).energy_j == pytest.approx(26_310, rel=5e-3)


@pytest.mark.parametrize("seed", range(4))
def test_fourteen_segments_with_dips_are_right_by_both_ways(seed: int) -> None:
    """600 W in 14 segments of 12 s, 250 W in dips of 1.013 s between: 100,800 J, the counter to 0.15 %."""
    starts = [5 + index * 13.013 for index in range(14)]
    load = itertools.chain.from_iterable((steady(at, 600), steady(at + 12, 250)) for at in starts)
    board = Board(load=(steady(0, 250), *load), seed=seed)
    over = window(*((at, at + 12) for at in starts))

    assert domain_energy(board.counter(190), over).energy_j == pytest.approx(100_800, rel=1.5e-3)
    assert domain_energy(board.instant(190), over).energy_j == pytest.approx(100_800, rel=5e-3)


# Beats by hand: 1/|1/0.095 - 10| = 1.9 s, 1/|1/0.09808 - 10| = 5.108 s, 1/|1/0.0997 - 10| = 33.23 s, 2.6 s;
# the last two keep time with the sensor at 2:1 and 1:2, 1/|2/0.1994 - 10| = 33.2 s, 1/|1/0.04985 - 20| = 16.6 s.
@pytest.mark.parametrize(
    ("step_ms", "beat_s", "is_aliased"),
    [
        (95, 1.9, False),
        (98.08, 5.108, False),
        (99.7, 33.23, True),
        (104, 2.6, False),
        (199.4, 33.23, True),
        (49.85, 16.62, False),
    ],
)
def test_the_beat_of_step_and_sensor_decides_whether_power_may_speak(
    step_ms: float, beat_s: float, *, is_aliased: bool
) -> None:
    """Three beats in 60 s are beats of up to 20 s."""
    found = instant_check(stepping(step_ms), step_ms=step_ms)

    assert found.step_s == pytest.approx(step_ms / 1e3, rel=1e-4)
    assert found.sensor_s == pytest.approx(0.1, rel=5e-4)
    assert found.beat_s == pytest.approx(beat_s, rel=0.12)
    assert found.is_aliased is is_aliased
    assert found.verdict is (CheckVerdict.UNDECIDED if is_aliased else CheckVerdict.AGREES)


@pytest.mark.parametrize("step_ms", [95, 98.08, 104])
@pytest.mark.parametrize("seed", range(3))
def test_unaliased_steps_are_right_by_both_ways(step_ms: float, seed: int) -> None:
    """Over whole beats and more the sensor has seen every place of the step; the counter to 0.1 %, the integral, whose
    last beat is cut, to 0.5 % of the truth and a part of that beat: 0.18 x one beat in 60 s at most.
    """
    board = stepping(step_ms, seed=seed)
    over = window(TRAIN)
    truth_j = board.energy_j(over)

    assert domain_energy(board.counter(80), over).energy_j == pytest.approx(truth_j, rel=1e-3)
    beat_s = 1 / abs(1e3 / step_ms - 10)
    assert domain_energy(board.instant(80), over).energy_j == pytest.approx(truth_j, rel=5e-3 + 0.18 * beat_s / 60)


@pytest.mark.parametrize("duration_s", [60, 600])
def test_steps_of_100_ms_are_never_decided(duration_s: int) -> None:
    """The sensor sees one place of the step for ever: wrong by up to half, and no length helps. The counter is right,
    and stays the answer.
    """
    over = window((10, 10 + duration_s))
    load = (RESTLESS, wave(10, 100, high_w=650, low_w=300, high_share=0.5))
    board = Board(load=load, seed=5, poll_ms=20 if duration_s == 60 else 50)
    until_s = duration_s + 20
    traces = [board.counter(until_s), board.instant(until_s)]
    said = training(100, (10, 10 + duration_s))

    (found,) = window_energies(traces, [over], transcript=said)

    (check,) = found.checks
    assert check.is_aliased is True
    assert check.verdict is CheckVerdict.UNDECIDED
    assert check.ratio is not None
    assert abs(check.ratio - 1) > 0.05
    (answer,) = found.domains
    assert answer.evidence is Evidence.G1
    assert answer.energy_j == pytest.approx(board.energy_j(over), rel=1e-3)


def test_an_aliased_integral_never_invalidates_a_calibrated_counter() -> None:
    """Off by far more than 5 % of the board's own ratio."""
    found = instant_check(stepping(100, seed=5), step_ms=100, calibrated_ratio=1.0)

    assert found.ratio is not None
    assert abs(found.ratio - 1) > 0.05
    assert found.verdict is CheckVerdict.UNDECIDED


def test_equal_gains_cancel_in_the_ratio() -> None:
    """Both paths 4 % high: nothing to see, and the instrument interval is what says so."""
    found = instant_check(stepping(95, counter_gain=1.04, power_gain=1.04), step_ms=95)

    assert found.ratio == pytest.approx(1, abs=1e-2)
    assert found.verdict is CheckVerdict.AGREES


# On an uncalibrated board a gain of each path explains any ratio: 0.93/1.01 = 0.921 is flagged, and no more.
@pytest.mark.parametrize(
    ("power_gain", "calibrated_ratio", "verdict"),
    [
        (0.93, None, CheckVerdict.DIFFERS),
        (0.93, 0.93 / 1.01, CheckVerdict.AGREES),
        (0.93, 0.95, CheckVerdict.DIFFERS),
        (0.93, 1.0, CheckVerdict.CONTRADICTS),
    ],
)
def test_different_gains_are_judged_against_the_boards_own_ratio(
    power_gain: float, calibrated_ratio: float | None, verdict: CheckVerdict
) -> None:
    """0.9208 is 3.1 % off 0.95 and 7.9 % off 1."""
    board = stepping(95, counter_gain=1.01, power_gain=power_gain)

    found = instant_check(board, step_ms=95, calibrated_ratio=calibrated_ratio)

    assert found.ratio == pytest.approx(0.9208, abs=1e-2)
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (1.0199, CheckVerdict.AGREES),
        (1.0201, CheckVerdict.DIFFERS),
        (0.9799, CheckVerdict.DIFFERS),
        (1.0499, CheckVerdict.DIFFERS),
        (1.0501, CheckVerdict.CONTRADICTS),
    ],
)
def test_two_and_five_percent_are_where_it_turns(ratio: float, verdict: CheckVerdict) -> None:
    """On a calibrated board; not calibrated, 5.01 % is a flag like 2.01 %."""
    assert judge(ratio, calibrated_ratio=1.0, is_aliased=False)[0] is verdict
    uncalibrated = judge(ratio, calibrated_ratio=None, is_aliased=False)[0]
    assert uncalibrated is (CheckVerdict.AGREES if verdict is CheckVerdict.AGREES else CheckVerdict.DIFFERS)


def test_what_a_cut_beat_may_leave_is_granted() -> None:
    """650 and 300 W in steps of 49.85 ms: 3.6 beats leave 2 % too much, which is the beat's and not the board's. By
    hand: the samples scatter by up to 171 W about 510 W, so sqrt 2 x 171 / (3.14 x 3.6) / 510 = 4.2 % at most.
    """
    found = instant_check(stepping(49.85), step_ms=49.85)

    assert found.ratio is not None
    assert abs(found.ratio - 1) > 0.02
    assert found.cut_beat_share is not None
    assert 0.02 < found.cut_beat_share < 0.045
    assert found.verdict is CheckVerdict.AGREES
    assert judge(1.06, calibrated_ratio=1.0, is_aliased=False, cut_beat_share=0.02)[0] is CheckVerdict.DIFFERS


def test_without_steps_a_difference_is_not_judged() -> None:
    """`-- COMMAND` says nothing: whether the 8 % are aliasing, nobody knows."""
    board = stepping(95, power_gain=0.92)
    found = check_of([board.counter(80), board.instant(80)], window(TRAIN), None, ReadingKind.INSTANT_POWER)

    assert found.is_aliased is None
    assert found.verdict is CheckVerdict.UNDECIDED
    assert "too few steps" in found.reason


def test_an_average_of_1_s_is_compared_without_the_edges() -> None:
    """100 W around 12 s at 600 W: over the whole segment the average has 0.5 s of 100 W in it at the start, which costs
    0.5 x 500 of 7,200 J, 3.5 %; without 1.5 s at each edge it says 600 W x 9 s.
    """
    board = Board(load=(steady(0, 100), steady(10, 600), steady(22, 100)), seed=2)
    over = window((10, 22))

    naive = domain_energy(board.average(30), over).energy_j
    found = check_of([board.counter(30), board.average(30)], over, None, ReadingKind.AVERAGE_POWER)

    assert naive is not None
    assert naive < 7_200 * 0.975
    assert found.trimmed_s == 1.5
    assert found.polled_j == pytest.approx(5_400, rel=1e-3)
    assert found.ratio == pytest.approx(1, abs=2e-3)
    assert found.verdict is CheckVerdict.AGREES
    assert trimmed(window((0, 3))) is None


def test_a_missing_tail_has_no_energy_by_either_way() -> None:
    """Lost from 50 s on: the window to 70 s is not extrapolated, one to 45 s is whole."""
    board = stepping(95)
    traces = [board.counter(50), board.instant(50)]

    lost, whole = window_energies(traces, [window(TRAIN), window((10, 45))], transcript=training(95))

    assert lost.domains[0].energy_j is None
    assert lost.checks[0].verdict is CheckVerdict.MISSING
    assert whole.domains[0].energy_j == pytest.approx(board.energy_j(window((10, 45))), rel=1e-3)


def test_a_gpu_lost_in_the_middle_takes_the_sum_and_leaves_the_others() -> None:
    """GPU 1 of two is gone from 40 s on: no sum, and the reason names it; GPU 0 keeps its number."""
    first, second = stepping(95), stepping(95, domain="gpu:1", seed=4)
    traces = [first.counter(80), first.instant(80), second.counter(40), second.instant(40)]

    (found,) = window_energies(traces, [window(TRAIN)], transcript=training(95))
    (whole,) = boundary_energies(found.domains)

    assert found.domains[0].energy_j == pytest.approx(first.energy_j(window(TRAIN)), rel=1e-3)
    assert whole.evidence is Evidence.G1
    assert whole.energy_j is None
    assert (whole.reason or "").startswith("gpu:1: samples miss 50.0%")


def test_a_reset_in_the_window_costs_the_energy_before_it_and_no_more() -> None:
    """600 W; the counter starts again at 40 s: at most two ticks and a reading are lost, 0.2 % of 60 s."""
    board = Board(load=(RESTLESS, steady(10, 600), steady(70, 100)), resets_s=(40.033,), seed=6)

    (found,) = window_energies([board.counter(80), board.instant(80)], [window(TRAIN)], transcript=None)

    assert found.domains[0].energy_j == pytest.approx(36_000, abs=600 * 0.22)
    assert found.checks[0].polled_j == pytest.approx(36_000, rel=5e-3)


def test_a_counter_alone_is_not_g1() -> None:
    """Nothing polled beside it: the number stays, as G0."""
    board = stepping(95)

    (found,) = window_energies([board.counter(80)], [window(TRAIN)], transcript=training(95))

    assert found.domains[0].energy_j == pytest.approx(board.energy_j(window(TRAIN)), rel=1e-3)
    assert found.domains[0].method == "counter"
    assert found.domains[0].evidence is Evidence.G0
    assert found.checks == ()


def test_without_a_counter_polled_power_answers_and_its_beat_is_known() -> None:
    """No counter, or one that never moved: the integral, G0."""
    board = stepping(99.7)
    dead = board.counter(80)
    still = Trace(info=dead.info, time_ns=dead.time_ns, raw=dead.raw * 0 + 7)

    for traces in ([board.instant(80)], [still, board.instant(80)]):
        (found,) = window_energies(traces, [window(TRAIN)], transcript=training(99.7))
        ((_, beat),) = polled_beats(traces, window(TRAIN), transcript=training(99.7))

        assert (found.domains[0].method, found.domains[0].evidence) == ("integral", Evidence.G0)
        assert beat is not None
        assert beat.is_aliased


def test_one_board_without_a_counter_makes_all_of_them_polled() -> None:
    """A sum of counters and integrals would be neither: both boards are answered by power, and sum up."""
    first, second = stepping(95), stepping(95, domain="gpu:1", seed=4)
    traces = [first.counter(80), first.instant(80), second.instant(80)]

    (found,) = window_energies(traces, [window(TRAIN)], transcript=training(95))

    assert [(one.method, one.evidence) for one in found.domains] == [("integral", Evidence.G0)] * 2
    (whole,) = boundary_energies(found.domains)
    assert whole.energy_j is not None
    assert [check.domain for check in found.checks] == ["gpu:0"]


def test_a_sensor_period_is_seen_though_some_updates_say_the_same() -> None:
    """Of 100 ms updates every third repeats the one before: 100 and 200 ms between changes. A constant has none."""
    polls_ms = np.arange(0, 30_000, 20)
    updates = polls_ms // 100
    said = Board(load=(steady(0, 400),)).instant(30)
    repeating = Trace(info=said.info, time_ns=polls_ms * 1_000_000, raw=updates - (updates % 3 == 2))

    found = observed_period(repeating)

    assert found is not None
    assert found.period_s == pytest.approx(0.1, rel=2e-3)
    assert found.unsure_share == pytest.approx(0.02 / 29.8, rel=0.02)
    assert observed_period(said) is None


def test_steps_around_a_validation_do_not_count_as_steps() -> None:
    """Steps of 0.1 s in two segments with 5 s between: the mean step is 0.1 s."""
    stamps = [*(1 + index / 10 for index in range(20)), *(8 + index / 10 for index in range(20))]
    said = transcript(hello(0), *(step(round(at * S), index, index) for index, at in enumerate(stamps)))

    assert mean_step_s(said, window((0, 3), (7.9, 10))) == pytest.approx(0.1)
    assert mean_step_s(None, window((0, 3))) is None


def test_slow_steps_beat_fast() -> None:
    """1.7 s a step against 0.1 s: 4/1.7 Hz is 7.65 Hz from 10 Hz, nothing to fear."""
    found = beat_of(step_s=1.7, sensor=SensorPeriod(period_s=0.1, unsure_share=1e-4), window=window(TRAIN))

    assert found.beat_s == pytest.approx(1 / (10 - 4 / 1.7))
    assert found.harmonics == (4, 1)
    assert not found.is_aliased
