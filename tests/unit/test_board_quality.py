"""What is flagged of GPU meters, from whole trials of boards whose energy is known."""

from collections.abc import Sequence

import numpy as np
import pytest

from board_traces import Board, held, steadily, steady, told, wave, window
from ecobench.gpu_records import CapState
from ecobench.measurement import QualityFlag, Severity
from ecobench.records import TrialResult
from ecobench.result import evaluate_trial
from ecobench.trace import Trace
from ecobench.transcript import Transcript
from records_for_tests import (
    END,
    but,
    goodbye,
    hello,
    phase_start,
    phase_stop,
    run_spec,
    step,
    transcript,
    trial_end,
)

S = 1_000_000_000
TRAIN = (10.0, 70.0)
IDLE = wave(0, 730, high_w=120, low_w=90)
IDLE_AFTER = wave(70, 730, high_w=120, low_w=90)


def stepping(step_ms: float, **changes: object) -> Board:
    """650 W for 60 % of each step and 300 W for the rest, from 10 to 70 s."""
    return Board(load=(IDLE, wave(10, step_ms, high_w=650, low_w=300), IDLE_AFTER), **changes)  # type: ignore[arg-type]


def training(step_ms: float) -> Transcript:
    """A step of 500 tokens every `step_ms` from 10 to 70 s."""
    stamps = [round((10 + index * step_ms / 1e3) * S) for index in range(1, int(60e3 / step_ms) + 1)]
    steps = [step(stamp, index + 1, 500 * (index + 1)) for index, stamp in enumerate(stamps)]
    return transcript(hello(2 * S), phase_start(10 * S), *steps, phase_stop(70 * S), goodbye(70 * S))


def evaluated(traces: Sequence[Trace], said: Transcript) -> TrialResult:
    """A trial launched at 1 s that ended at 75 s; samples reach from 0 to 80 s."""
    times = but(END.times, launch_ns=1 * S, exit_ns=75 * S, sampler_down_ns=80 * S)
    return evaluate_trial(run_spec(), (said,), traces, trial_end(times=times))


def flags_of(result: TrialResult, code: str) -> list[QualityFlag]:
    """The flags with that code."""
    return [flag for flag in result.flags if flag.code == code]


def test_counters_answer_and_stand_beside_their_checks() -> None:
    """One energy at G1 for the boundary, checks by instant and by average power in the record, and no flag."""
    board = stepping(95)
    result = evaluated([board.counter(80), board.instant(80), board.average(80)], training(95))

    (whole,) = result.boundaries
    assert (whole.boundary, whole.evidence) == ("gpu", "G1")
    assert whole.energy_j == pytest.approx(board.energy_j(window(TRAIN)), rel=1e-3)
    (train,) = [phase for phase in result.phases if phase.phase == "train"]
    assert [(check.kind, check.verdict) for check in train.checks] == [
        ("instant_power", "agrees"),
        ("average_power", "agrees"),
    ]
    assert result.flags == ()


def test_a_difference_is_flagged_and_on_a_calibrated_board_takes_the_result() -> None:
    """Power 8 % low against the counter: a warning that asks for calibration; against a known ratio of 1, invalid."""
    board = stepping(95, power_gain=0.92)

    (warned,) = flags_of(evaluated([board.counter(80), board.instant(80)], training(95)), "counter_differs")
    known = evaluated([board.counter(80), board.instant(80, calibrated_ratio=1.0)], training(95))
    (refused,) = flags_of(known, "counter_contradicted")

    assert warned.severity is Severity.WARNING
    assert warned.evidence.startswith("gpu:0, instant power: polled power / counter = 0.91")
    assert "calibrate" in (warned.remedy or "")
    assert refused.severity is Severity.INVALID


def test_an_aliased_check_is_told_with_its_beat_and_takes_nothing() -> None:
    """99.7 ms against 100 ms: 33 s a beat, 1.8 in 60 s."""
    board = stepping(99.7)

    (flag,) = flags_of(evaluated([board.counter(80), board.instant(80)], training(99.7)), "check_aliased")

    assert flag.severity is Severity.INFO
    assert "steps of 99.70 ms against a sensor every 100" in flag.evidence
    assert "beat once in 3" in flag.evidence


def test_polled_power_alone_is_flagged_where_it_keeps_time_with_the_steps() -> None:
    """100.0 ms: no length helps. At 98.08 ms there are 12 beats, and nothing to flag."""
    (flag,) = flags_of(evaluated([stepping(100).instant(80)], training(100)), "aliased")
    fine = evaluated([stepping(98.08).instant(80)], training(98.08))

    assert "no length helps" in flag.evidence
    assert flags_of(fine, "aliased") == []
    assert fine.boundaries[0].evidence == "G0"


def test_a_counter_that_nothing_checks_says_so() -> None:
    """Instant power that never answered: G0, and why."""
    board = stepping(95)
    dead = board.instant(80)
    silent = Trace(info=dead.info, time_ns=dead.time_ns[:0], raw=dead.raw[:0], n_failed=4000, errors=("not supported",))

    result = evaluated([board.counter(80), silent], training(95))

    (flag,) = flags_of(result, "counter_unchecked")
    assert "G0, not as G1" in flag.evidence
    assert result.boundaries[0].evidence == "G0"


def test_without_steps_or_changes_nobody_can_tell_whether_power_is_aliased() -> None:
    """A plateau to the last digit: the period of its sensor is not seen."""
    flat = Board(load=(steady(0, 400),)).instant(80)

    assert len(flags_of(evaluated([flat], training(95)), "aliasing_unknown")) == 1


def test_what_held_boards_back_is_flagged_with_how_much_of_the_time() -> None:
    """Heat for 3 % of the window; the brake for 0.4 %, which is not worth a word; 12 C warmer at the end."""
    board = stepping(95)
    warming = told("temperature_c", {float(at): 40 + at / 5 for at in range(81)}, si_per_count=0.1)
    traces = [board.counter(80), board.instant(80), warming]
    traces += [held("hw_thermal_ns", share=0.03), held("power_brake_ns", share=0.004)]

    result = evaluated(traces, training(95))

    (throttled,) = flags_of(result, "throttled")
    assert throttled.evidence == "gpu:0: held back by heat for 3 % of the window"
    # 61 readings: the last 6 are 55 s after the first 6, at 0.2 C/s.
    (drift,) = flags_of(result, "temperature_drift")
    assert drift.evidence.startswith("gpu:0: +11 C")


def test_a_limit_that_holds_one_gpu_and_not_the_other_is_flagged() -> None:
    """95 % of the time against 0.2 %: the node is `partly` bound, and says which is which."""
    first, second = stepping(95), stepping(95, domain="gpu:1", seed=3)
    traces = [one.counter(80) for one in (first, second)] + [one.instant(80) for one in (first, second)]
    traces += [held("power_cap_ns", share=0.95), held("power_cap_ns", share=0.002, domain="gpu:1")]

    result = evaluated(traces, training(95))

    (flag,) = flags_of(result, "unequal_caps")
    assert flag.evidence.endswith("gpu:0 95 %, gpu:1 0.2 %")
    assert result.cap_state is CapState.PARTLY
    assert [one.cap_state for one in result.gpus] == [CapState.BOUND, CapState.NEVER_BOUND]


@pytest.mark.parametrize(("limit_w", "severity"), [(510, None), (505, Severity.WARNING), (460, Severity.INVALID)])
def test_more_power_than_the_limit_allows_is_no_power(limit_w: float, severity: Severity | None) -> None:
    """0.6 x 650 + 0.4 x 300 = 510 W with a gain of 1.018, 519 W: 1.8 % over 510 W, 2.8 % over 505, 13 % over 460."""
    board = stepping(95, counter_gain=1.018, power_gain=1.018)
    limit = steadily("limit_enforced_w", limit_w, si_per_count=1e-3)

    found = flags_of(evaluated([board.counter(80), board.instant(80), limit], training(95)), "over_limit")

    assert [flag.severity for flag in found] == ([] if severity is None else [severity])


def test_a_limit_that_moves_inside_the_window_is_flagged_though_no_run_has_set_it() -> None:
    """595 W until 40 s, 450 W from then on; 595 W all the time is fine."""
    board = stepping(95)
    moving = told("limit_enforced_w", {float(at): 595 if at < 40 else 450 for at in range(81)}, si_per_count=1e-3)
    still = steadily("limit_enforced_w", 595, si_per_count=1e-3)

    (flag,) = flags_of(evaluated([board.counter(80), board.instant(80), moving], training(95)), "limit_moved")

    assert "between 450.0 and 595.0 W" in flag.evidence
    assert flags_of(evaluated([board.counter(80), board.instant(80), still], training(95)), "limit_moved") == []


def test_less_power_than_before_the_launch_is_flagged() -> None:
    """320 W before the launch, by somebody else's work; 100 W while the workload, which uses another GPU, runs."""
    board = Board(load=(wave(0, 730, high_w=330, low_w=310), wave(5, 730, high_w=110, low_w=90)))

    (flag,) = flags_of(evaluated([board.counter(80), board.instant(80)], training(95)), "under_idle")

    assert "W before the launch" in flag.evidence


def test_a_sensor_that_froze_is_told_from_one_that_is_steady() -> None:
    """Power of 650 W from 30 s on, read as the 400 W of before: frozen. A plateau at 400 W that reads 400 W is not."""
    board = Board(load=(IDLE, steady(10, 400), steady(30, 650), IDLE_AFTER))
    seen = board.instant(80)
    stuck = np.where((seen.time_ns > 20 * S) & (seen.time_ns < 70 * S), 400_000, seen.raw)
    frozen = Trace(info=seen.info, time_ns=seen.time_ns, raw=stuck)
    plateau = Board(load=(IDLE, steady(10, 400), IDLE_AFTER))

    (flag,) = flags_of(evaluated([board.counter(80), frozen], training(95)), "frozen_sensor")

    assert flag.evidence.startswith("gpu:0: power stood at 400.0 W for ")
    assert flags_of(evaluated([plateau.counter(80), plateau.instant(80)], training(95)), "frozen_sensor") == []


def test_a_reading_that_stands_still_for_the_steps_is_aliased_and_not_frozen() -> None:
    """Steps of 100.0 ms: the sensor reads one value for a minute, and its period is known from before and after."""
    board = stepping(100)

    result = evaluated([board.counter(80), board.instant(80)], training(100))

    assert [flag.severity for flag in flags_of(result, "check_aliased")] == [Severity.INFO]
    assert flags_of(result, "frozen_sensor") == []


def test_segments_of_less_than_10_s_are_flagged() -> None:
    """Six segments of 9 s with validations of 1 s between."""
    board = stepping(95)
    events = []
    for index in range(6):
        events += [phase_start((10 + 10 * index) * S), phase_stop((19 + 10 * index) * S)]
    said = transcript(hello(2 * S), *events, goodbye(70 * S))

    (flag,) = flags_of(evaluated([board.counter(80), board.instant(80)], said), "short_segments")

    assert flag.evidence.startswith("6 of 6 segments of `train` are under 10 s")
