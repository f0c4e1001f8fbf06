"""What is flagged of GPU meters, from whole trials of boards whose energy is known."""

from collections.abc import Sequence

import pytest

from ecobench.measurement import QualityFlag, Severity
from ecobench.records import TrialResult
from ecobench.result import evaluate_trial
from ecobench.trace import Trace
from ecobench.transcript import Transcript
from tests.support.board_traces import Board, steady, wave, window
from tests.support.records_for_tests import (
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
