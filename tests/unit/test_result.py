"""From what a trial left behind to its record: how it ended, and what it measured."""

from typing import Any

import numpy as np
import pytest

from ecobench.measurement import Evidence, Severity
from ecobench.records import TrialResult, TrialStatus
from ecobench.result import conclude_trial, evaluate_trial, status_of
from ecobench.trace import Trace
from ecobench.transcript import Transcript
from records_for_tests import (
    END,
    SPEECH,
    TARGET,
    S,
    goodbye,
    hello,
    meter_info,
    metric,
    phase_start,
    phase_stop,
    run_spec,
    step,
    transcript,
    trial_end,
)

DONE = transcript(hello(), goodbye(8 * S))
SILENT = transcript(hello())


def speaking(status: str) -> Transcript:
    """A rank whose last word is `status`."""
    return transcript(hello(), goodbye(8 * S, status))


def trace_of_2_w() -> Trace:
    """A counter of microjoules, ten readings a second over 10 s of 2 W: 200,000 counts between two."""
    return Trace(
        info=meter_info(),
        time_ns=np.arange(101, dtype=np.int64) * (S // 10),
        raw=np.arange(101, dtype=np.int64) * 200_000,
    )


def evaluated(*events: dict[str, Any], target: bool = False, **end: Any) -> TrialResult:
    """The result of a trial whose rank 0 said this under a meter that saw 2 W."""
    spec = run_spec(target=TARGET if target else None)
    return evaluate_trial(spec, [transcript(*events)], [trace_of_2_w()], trial_end(**end))


@pytest.mark.parametrize(
    ("transcripts", "end", "status", "message"),
    [
        ([DONE], {}, "done", None),
        ([speaking("stopped")], {}, "stopped", None),
        ([DONE, speaking("stopped")], {}, "stopped", None),
        ([speaking("failed")], {}, "failed", "the workload says that it failed"),
        ([DONE, speaking("failed")], {"last_words": "E"}, "failed", "the workload says that it failed: E"),
        ([], {}, "failed", "the workload ended without one event"),
        ([SILENT], {}, "failed", "the workload ended without a goodbye: it crashed, whatever its exit code"),
        ([DONE, SILENT], {}, "failed", "the workload ended without a goodbye: it crashed, whatever its exit code"),
        ([DONE], {"exit_code": 3}, "failed", "the workload ended with exit code 3"),
        (
            [DONE],
            {"exit_code": 1, "last_words": "ValueError: no"},
            "failed",
            "the workload ended with exit code 1: ValueError: no",
        ),
        ([DONE], {"exit_code": -9}, "failed", "the workload was ended by SIGKILL"),
        ([DONE], {"exit_code": -11, "last_words": "x"}, "failed", "the workload was ended by SIGSEGV: x"),
        ([DONE], {"exit_code": -99}, "failed", "the workload was ended by signal 99"),
        (
            [DONE],
            {"exit_code": None, "error": "the supervisor process was killed"},
            "failed",
            "the workload was lost: the supervisor process was killed",
        ),
        ([DONE], {"interrupted_by": "SIGINT"}, "interrupted", "interrupted by SIGINT"),
        ([SILENT], {"interrupted_by": "SIGTERM", "exit_code": -15}, "interrupted", "interrupted by SIGTERM"),
        ([], {"interrupted_by": "SIGINT", "exit_code": None, "error": "x"}, "interrupted", "interrupted by SIGINT"),
    ],
)
def test_every_ending_has_its_status_and_its_line(
    transcripts: list[Transcript], end: dict[str, Any], status: str, message: str | None
) -> None:
    """What the user did first, then what the system saw, then what the workload said."""
    assert status_of(transcripts, trial_end(**end)) == (TrialStatus(status), message)


def test_a_trial_is_measured_in_its_phase() -> None:
    """2 W over the 5 s of `train` are 10 J; 1000 tokens in 2 steps; the rest has its own energies."""
    record = conclude_trial(
        run_spec(target=TARGET), [transcript(*SPEECH)], [trace_of_2_w()], END, index=4, started_utc="then"
    )
    result = record.result

    assert (record.status, record.index, record.message, record.started_utc) == (TrialStatus.DONE, 4, None, "then")
    assert result is not None
    assert (result.duration_s, result.n_steps, result.n_tokens, result.data_hash) == (5.0, 2, 1000, "d0")
    (energy,) = result.boundaries
    assert energy.energy_j == pytest.approx(10.0, rel=1e-9)
    assert energy.evidence is Evidence.C1
    # From 1 s to 9 s: 2 s of warm-up, 5 s of train, and the last second that no phase owns.
    assert {phase.phase: phase.duration_s for phase in result.phases} == {"warmup": 2.0, "train": 5.0, "job": 1.0}
    assert sum(phase.boundaries[0].energy_j or 0 for phase in result.phases) == pytest.approx(16.0, rel=1e-9)
    assert {flag.code for flag in result.flags} == {"short_window"}


def test_the_target_is_met_by_the_last_value_and_first_met_where_it_was() -> None:
    """Down to 1.4 at step 1, up to 1.6 at step 2: crossed once, and missed."""
    events = (
        hello(),
        phase_start(3 * S),
        step(4 * S, 1, 500),
        metric(4 * S, "val_loss", 1.4, 1),
        step(6 * S, 2, 1000),
        metric(6 * S, "val_loss", 1.6, 2),
        metric(6 * S, "train_loss", 0.1, 2),
        phase_stop(8 * S),
        goodbye(8 * S),
    )
    result = evaluated(*events, target=True)

    assert result.target is not None
    assert (result.target.final_value, result.target.is_met) == (1.6, False)
    assert (result.target.first_step, result.target.first_n_tokens) == (1, 500)
    assert {one.name: one.value for one in result.final_metrics} == {"val_loss": 1.6, "train_loss": 0.1}
    assert "target_missed" in {flag.code for flag in result.flags}
    assert "target_missed" not in {flag.code for flag in evaluated(*events, target=True, was_asked_to_stop=True).flags}


def test_a_target_exactly_reached_is_met() -> None:
    """At most 1.5 includes 1.5; a metric that was never reported meets nothing."""
    head = (hello(), phase_start(3 * S), step(4 * S, 1, 500))
    at = evaluated(*head, metric(5 * S, "val_loss", 1.5, 1), target=True).target
    never = evaluated(*head, target=True).target

    assert at is not None
    assert at.is_met
    assert never is not None
    assert (never.final_value, never.is_met, never.first_step) == (None, False, None)


def test_a_workload_that_said_nothing_still_gives_a_result() -> None:
    """Its energy is that of the phase `job`; what is missing is None, and each has a flag."""
    result = evaluate_trial(run_spec(), [], [trace_of_2_w()], END)

    assert (result.duration_s, result.n_steps, result.n_tokens, result.boundaries) == (None, None, None, ())
    assert [(phase.phase, phase.duration_s) for phase in result.phases] == [("job", 8.0)]
    assert result.phases[0].boundaries[0].energy_j == pytest.approx(16.0, rel=1e-9)
    assert {flag.code for flag in result.flags if flag.severity is Severity.INVALID} == {
        "no_measured_phase",
        "no_tokens",
    }


def test_a_program_without_phases_is_measured_as_a_job() -> None:
    """`measured_phase = "job"`."""
    result = evaluate_trial(
        run_spec(measured_phase="job"),
        [transcript(hello(), step(5 * S, 3, 900), goodbye(8 * S))],
        [trace_of_2_w()],
        END,
    )

    assert (result.duration_s, result.n_steps, result.n_tokens) == (8.0, 3, 900)
    assert result.boundaries[0].energy_j == pytest.approx(16.0, rel=1e-9)


def test_a_killed_workload_keeps_what_it_did_until_then() -> None:
    """Its open phase ends with it, as a warning: the status says the rest."""
    result = evaluated(*SPEECH[:5], exit_code=-9)

    assert (result.duration_s, result.n_steps, result.n_tokens) == (6.0, 1, 500)
    unfinished = next(flag for flag in result.flags if flag.code == "unfinished_phase")
    assert unfinished.severity is Severity.WARNING


def test_without_a_meter_there_is_speed_alone() -> None:
    """No boundaries, no energies, and nothing about them among the flags."""
    result = evaluate_trial(run_spec(), [transcript(*SPEECH)], [], END)

    assert (result.duration_s, result.n_tokens, result.boundaries) == (5.0, 1000, ())
    assert result.flags == ()
