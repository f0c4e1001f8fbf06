"""Each reason to doubt a trial, raised by what it stands for and by nothing else."""

from typing import Any

import pytest

from ecobench.counter import BreakKind, CounterBreak
from ecobench.measurement import Evidence, QualityFlag, Segment, Severity, Window
from ecobench.quality import check_energy, check_speech, check_target, check_trace, check_windows, check_work
from ecobench.records import TargetResult
from ecobench.trace import trace_of
from ecobench.transcript import Transcript, read_transcript
from ecobench.windows import trial_windows
from records_for_tests import (
    DOMAIN_ENERGY,
    END,
    ENERGY,
    TARGET,
    S,
    but,
    goodbye,
    hello,
    meter_info,
    phase_start,
    phase_stop,
    run_spec,
    sample,
    step,
    transcript,
    trial_end,
)

LONG_S = 60.0


def codes(flags: list[QualityFlag]) -> dict[str, str]:
    """Severity of each flag."""
    return {flag.code: flag.severity.value for flag in flags}


def speech_flags(*transcripts: Transcript, **end: Any) -> dict[str, str]:
    """Flags on what was said."""
    n_ranks = next((one.hello.world_size for one in transcripts if one.hello is not None), 1)
    return codes(check_speech(run_spec(ranks=n_ranks), transcripts, trial_end(**end)))


def window_flags(*transcripts: Transcript, is_killed: bool = False) -> dict[str, str]:
    """Flags on the phases of a trial from 0 to 10 s."""
    return codes(
        check_windows(run_spec(), trial_windows(transcripts, launch_ns=0, exit_ns=10 * S), is_killed=is_killed)
    )


def test_a_whole_speech_gives_no_doubt() -> None:
    """One rank, two ranks, or rank 0 alone of two."""
    two = [transcript(hello(rank=rank, world_size=2), goodbye(8 * S), rank=rank) for rank in (0, 1)]

    assert speech_flags(transcript(hello(), goodbye(8 * S))) == {}
    assert speech_flags(*two) == {}
    assert speech_flags(two[0]) == {}


def test_a_workload_without_events_is_another_checks_business() -> None:
    """`status_of` says it, and `no_measured_phase`."""
    assert speech_flags() == {}


def test_a_broken_line_names_its_place() -> None:
    """With the number of all that are broken."""
    said = read_transcript(b'nonsense\n{"event": "dance", "time_ns": 1}\n', rank=0)
    (flag,) = check_speech(run_spec(), [said], END)

    assert (flag.code, flag.severity) == ("broken_events", Severity.INVALID)
    assert "2 event line(s)" in flag.evidence
    assert "first line 1: no JSON" in flag.evidence


def test_times_of_another_boot_do_not_compare() -> None:
    """A workload in a virtual machine has a monotonic clock of its own."""
    assert speech_flags(transcript(hello(boot_id="another"))) == {"other_boot": "invalid"}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"steps": 2, "step_time": 0.5, "mode": "plain"}, {}),
        ({"steps": 2.0, "step_time": 0.5, "mode": "plain"}, {}),
        ({"steps": 3, "step_time": 0.5, "mode": "plain"}, {"other_parameters": "invalid"}),
        ({"steps": "2", "step_time": 0.5, "mode": "plain"}, {"other_parameters": "invalid"}),
        ({"steps": 2, "step_time": 0.5}, {"other_parameters": "invalid"}),
        ({"steps": 2, "step_time": 0.5, "mode": "plain", "seed": 1}, {"other_parameters": "invalid"}),
        ({"steps": 2, "step_time": 0.5, "mode": None}, {"other_parameters": "invalid"}),
        ({"steps": 2, "step_time": [0.5], "mode": "plain"}, {"other_parameters": "invalid"}),
        (None, {"parameters_unsaid": "warning"}),
    ],
)
def test_parameters_are_those_asked_for(said: dict[str, object] | None, found: dict[str, str]) -> None:
    """As many, of the same values; 2.0 is 2, "2" is not, and `true` is no 1."""
    assert speech_flags(transcript(hello(parameters=said))) == found


def test_true_is_not_one() -> None:
    """A switch that came out as a boolean is not what was asked for."""
    flags = check_speech(run_spec(parameters={"n": 1}), [transcript(hello(parameters={"n": True}))], END)

    assert codes(flags) == {"other_parameters": "invalid"}


def test_a_workload_without_parameters_need_not_say_them() -> None:
    """There is nothing to compare."""
    assert codes(check_speech(run_spec(parameters={}), [transcript(hello(parameters=None))], END)) == {}


def test_the_difference_is_told_with_its_rank() -> None:
    """So that it can be found among eight."""
    ranks = [
        transcript(hello(world_size=2)),
        transcript(hello(rank=1, world_size=2, parameters={"steps": 9, "step_time": 0.5, "mode": "plain"}), rank=1),
    ]
    (flag,) = check_speech(run_spec(ranks=2), ranks, END)

    assert flag.evidence == "rank 1: the workload ran with other parameters: steps is 9, asked 2"


def test_ranks_are_all_there_or_rank_0_alone() -> None:
    """Without rank 0 nothing is known of the phases; two of four are a warning."""
    ranks = [transcript(hello(rank=rank, world_size=4), rank=rank) for rank in range(4)]

    assert speech_flags(*ranks[1:]) == {"no_rank_0": "invalid", "ranks_missing": "warning"}
    assert speech_flags(*ranks[:2]) == {"ranks_missing": "warning"}
    assert speech_flags(*ranks) == {}


def test_orphans_are_worth_a_note() -> None:
    """They were ended; no number is wrong."""
    assert speech_flags(transcript(hello()), n_orphans_ended=2) == {"orphans_ended": "info"}


def test_whole_phases_give_no_doubt() -> None:
    """The measured one is there and stopped."""
    assert window_flags(transcript(hello(), phase_start(3 * S), phase_stop(8 * S))) == {}


def test_a_phase_that_was_never_entered_leaves_nothing_to_measure() -> None:
    """`train` was asked for."""
    assert window_flags(transcript(hello(), phase_start(3 * S, "trian"), phase_stop(8 * S, "trian"))) == {
        "no_measured_phase": "invalid"
    }


def test_a_phase_that_never_stopped_is_a_fault_unless_the_workload_was_killed() -> None:
    """Then its window ends with it."""
    said = transcript(hello(), phase_start(3 * S))

    assert window_flags(said) == {"unfinished_phase": "invalid"}
    assert window_flags(said, is_killed=True) == {"unfinished_phase": "warning"}


def test_ranks_that_are_apart_are_told() -> None:
    """By more than 0.1 s; by 0.1 s they are not."""
    first = transcript(hello(world_size=2), phase_start(3 * S), phase_stop(8 * S))
    late = 3 * S + S // 10
    for start_ns, found in ((late, {}), (late + 1_000_000, {"rank_skew": "warning"})):
        second = transcript(hello(rank=1, world_size=2), phase_start(start_ns), phase_stop(8 * S), rank=1)
        assert window_flags(first, second) == found


def test_ranks_with_other_phases_are_told() -> None:
    """One of them evaluated, the other did not."""
    first = transcript(hello(world_size=2), phase_start(3 * S), phase_stop(8 * S))
    second = transcript(
        hello(rank=1, world_size=2), phase_start(3 * S), phase_stop(8 * S), phase_start(8 * S, "eval"), rank=1
    )

    assert "ranks_differ" in window_flags(first, second)


def test_tokens_are_there_to_divide_by() -> None:
    """None and 0 are not."""
    assert codes(check_work(1, phase="train")) == {}
    assert codes(check_work(0, phase="train")) == {"no_tokens": "invalid"}
    assert codes(check_work(None, phase="train")) == {"no_tokens": "invalid"}


def test_a_whole_energy_over_a_minute_gives_no_doubt() -> None:
    """60 s are enough."""
    assert codes(check_energy([DOMAIN_ENERGY], [ENERGY], duration_s=LONG_S)) == {}
    assert codes(check_energy([DOMAIN_ENERGY], [ENERGY], duration_s=59.9)) == {"short_window": "warning"}


def test_an_energy_that_is_none_is_told_with_its_reason() -> None:
    """The run is invalid, since it was to be measured."""
    (flag,) = check_energy([], [but(ENERGY, energy_j=None, reason="5 % uncovered", instrument=None)], duration_s=LONG_S)

    assert (flag.code, flag.severity) == ("no_energy", Severity.INVALID)
    assert "boundary cpu: 5 % uncovered" in flag.evidence


def test_a_gap_of_more_than_half_a_second_is_told() -> None:
    """0.5 s is none; without any sample there is no gap to speak of."""
    for gap_s, found in ((0.5, {}), (0.51, {"sample_gap": "warning"}), (None, {})):
        domain = but(DOMAIN_ENERGY, largest_gap_s=gap_s)
        assert codes(check_energy([domain], [ENERGY], duration_s=LONG_S)) == found


def test_an_estimate_is_always_said_to_be_one() -> None:
    """And a short one is no worse than a long one: it has no edges."""
    estimate = but(ENERGY, evidence=Evidence.EST)

    assert codes(check_energy([], [estimate], duration_s=1.0)) == {"estimated": "info"}
    assert codes(check_energy([], [estimate, ENERGY], duration_s=1.0)) == {
        "estimated": "info",
        "short_window": "warning",
    }


def test_failed_readings_are_counted_and_named() -> None:
    """Each reason once."""
    trace = trace_of(meter_info(), [sample(1, 1), sample(2, None, error="EIO"), sample(3, None, error="EIO")])
    (flag,) = check_trace(trace, (), None)

    assert flag.code == "failed_readings"
    assert flag.evidence == "cpu:0/package: 2 readings failed: EIO"


def test_a_counter_that_never_moved_is_said_to_be_dead_and_an_idle_estimate_is_not() -> None:
    """Polled power may answer in its place, and then nothing else would tell."""
    still = trace_of(meter_info(), [sample(1, 7), sample(2, 7)])
    moving = trace_of(meter_info(), [sample(1, 7), sample(2, 8)])
    idle = trace_of(but(meter_info(), evidence=Evidence.EST), [sample(1, 7), sample(2, 7)])

    assert codes(check_trace(still, (), None)) == {"dead_counter": "warning"}
    assert codes(check_trace(moving, (), None)) == {}
    assert codes(check_trace(idle, (), None)) == {}


def test_a_break_counts_where_it_touches_the_measured_window() -> None:
    """Before it, or without a window, it is nobody's energy."""
    trace = trace_of(meter_info(), [sample(1, 1)])
    one = CounterBreak(kind=BreakKind.RESET, start_ns=2 * S, stop_ns=3 * S, counted_j=0.0, bound_j=400.0)
    for first_s, found in ((2, {"counter_reset": "warning"}), (3, {})):
        window = Window(phase="train", segments=(Segment(start_ns=first_s * S, stop_ns=9 * S),))
        assert codes(check_trace(trace, [one], window)) == found
    assert codes(check_trace(trace, [one], None)) == {}


def test_a_missed_target_is_told_unless_somebody_stopped_the_run() -> None:
    """Whoever asks for ten steps does not ask for the target."""
    missed = TargetResult(target=TARGET, final_value=1.75, is_met=False, first_step=None, first_n_tokens=None)
    (flag,) = check_target(missed, was_asked_to_stop=False)

    assert flag.evidence == "val_loss ended at 1.750, the target is 1.5 nats/token"
    assert check_target(missed, was_asked_to_stop=True) == []
    assert check_target(but(missed, is_met=True), was_asked_to_stop=False) == []
    assert check_target(None, was_asked_to_stop=False) == []
    (flag,) = check_target(but(missed, final_value=None), was_asked_to_stop=False)
    assert flag.evidence.startswith("val_loss was not reported")


def test_every_flag_that_costs_trust_says_what_to_do() -> None:
    """Except one that the workload's own end explains."""
    flags = [
        *check_speech(run_spec(), [transcript(hello(boot_id="x", parameters={}), step(2 * S, 1, 1))], END),
        *check_work(None, phase="train"),
        *check_energy(
            [but(DOMAIN_ENERGY, largest_gap_s=1.0)], [but(ENERGY, energy_j=None, reason="x")], duration_s=1.0
        ),
    ]

    assert len(flags) >= 6
    assert all(flag.remedy for flag in flags)


def test_another_number_of_ranks_than_asked_is_invalid() -> None:
    """`--set ranks=2` of a program that runs one."""
    one = transcript(hello(), goodbye(8 * S))

    assert codes(check_speech(run_spec(ranks=2), [one], trial_end())) == {"other_ranks": "invalid"}


def test_events_outside_of_the_workloads_life_are_invalid() -> None:
    """A stamp that was made up: the trial ran from 0 to 10 s."""
    late = transcript(hello(), goodbye(11 * S))

    assert speech_flags(late) == {"foreign_times": "invalid"}
