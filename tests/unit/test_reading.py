"""Runs read back after any end, and verified: every number from the raw bytes, every byte by its hash."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ecobench.measurement import Severity
from ecobench.reading import LOST_MESSAGE, RUNNING_MESSAGE, read_run, verify_run
from ecobench.records import TrialStatus
from ecobench.result import conclude_trial
from ecobench.store import RunFolder, TrialFolder, write_seal
from ecobench.store.samples import SampleWriter, compact, read_traces
from ecobench.summary import summarise
from records_for_tests import (
    BOOT,
    END,
    METER,
    SPEECH,
    S,
    as_lines,
    but,
    goodbye,
    hello,
    metric,
    phase_start,
    phase_stop,
    run_record,
    run_spec,
    sample,
    step,
    trial_end,
    trial_record,
)

ID = "20260902-141503-toy-abcd"
THEN = "2026-09-02T14:15:04.000+00:00"


def write_samples(trial: TrialFolder, *, until_s: float) -> None:
    """2 W from 0 s on, ten readings a second, a batch a second."""
    with SampleWriter(trial.samples, [METER]) as writer:
        rows = [(0, sample(tenth * (S // 10), tenth * 200_000)) for tenth in range(round(until_s * 10) + 1)]
        for first in range(0, len(rows), 10):
            writer.append(rows[first : first + 10])


def begin(tmp_path: Path, *, n_trials: int = 1) -> RunFolder:
    """A run that has its first record."""
    run = RunFolder(tmp_path / ID)
    run.path.mkdir()
    run.write(run_record(id=ID, spec=run_spec(n_trials=n_trials)))
    (run.source).mkdir()
    (run.source / "main.py").write_text("x = 1\n")
    return run


def add_trial(run: RunFolder, index: int = 0, *, events: bytes = as_lines(*SPEECH), until_s: float = 10) -> TrialFolder:
    """What a trial leaves on the disk while it runs."""
    trial = run.trial(index)
    trial.create()
    (trial.events / "rank-00000.jsonl").write_bytes(events)
    write_samples(trial, until_s=until_s)
    return trial


def conclude(run: RunFolder, trial: TrialFolder) -> None:
    """What the harness does at the end of a trial."""
    compact(trial.samples)
    record = conclude_trial(
        run.read().spec,
        trial.read_transcripts(),
        read_traces(trial.samples),
        END,
        index=trial.index,
        started_utc=THEN,
    )
    trial.write(record)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of two trials that came to its end."""
    run = begin(tmp_path, n_trials=2)
    for index in (0, 1):
        conclude(run, add_trial(run, index))
    run.write_summary(summarise(run.read(), read_run(run).trials))
    write_seal(run)
    return run


def test_a_concluded_run_is_read_as_it_was_written(run: RunFolder) -> None:
    """Records and summary, to the last bit."""
    stored = read_run(run)

    assert [trial.index for trial in stored.trials] == [0, 1]
    assert stored.summary == run.read_summary()
    assert stored.summary.figures[0].n == 2
    assert stored.summary.status is TrialStatus.DONE


def test_a_concluded_run_verifies(run: RunFolder) -> None:
    """Trials, summary and hashes, with nothing to note."""
    verdict = verify_run(run)

    assert verdict.problems == ()
    assert verdict.notes == ()
    assert len(verdict.checked) == 4


def test_a_missing_summary_is_made_again(run: RunFolder) -> None:
    """The same one; verify notes that it is not there."""
    before = run.read_summary()
    run.summary.unlink()

    assert read_run(run).summary == before
    assert verify_run(run).problems == ()
    assert verify_run(run).notes == ("there is no summary: the run did not come to its end",)


def set_in(document: Path, *way: str | int, value: object) -> None:
    """Change one entry of a JSON file."""
    whole = json.loads(document.read_text())
    inside: Any = whole
    for part in way[:-1]:
        inside = inside[part]
    inside[way[-1]] = value
    document.write_text(json.dumps(whole))


def nudge(document: Path, *way: str | int) -> None:
    """Change a number by its last bit."""
    inside: Any = json.loads(document.read_text())
    for part in way:
        inside = inside[part]
    set_in(document, *way, value=math.nextafter(inside, math.inf))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda run: nudge(run.trial(1).record, "result", "boundaries", 0, "energy_j"),
            "trial 1: result.boundaries[0]",
        ),
        (lambda run: set_in(run.trial(0).record, "result", "n_tokens", value=1001), "trial 0: result.n_tokens is 1001"),
        (lambda run: set_in(run.trial(0).record, "status", value="stopped"), "trial 0: status is"),
        (lambda run: set_in(run.trial(0).record, "end", "exit_code", value=1), "trial 0: status is"),
        (lambda run: set_in(run.trial(0).record, "surprise", value=1), "trial 0: "),
        (lambda run: run.trial(0).record.write_text("{"), "trial 0: "),
        (lambda run: nudge(run.summary, "figures", 0, "value"), "summary: figures[0].value"),
        (lambda run: nudge(run.summary, "figures", 1, "instrument", "low"), "summary: figures[1].instrument.low"),
        (lambda run: run.summary.write_text("[]"), "summary.json has schema None"),
        (lambda run: run.run.write_text("{}"), "run.json has schema None"),
        (lambda run: set_in(run.run, "spec", "measured_phase", value="warmup"), "trial 0: result.measured_phase"),
        (lambda run: (run.trial(0).events / "rank-00000.jsonl").unlink(), "trial 0: status is"),
        (lambda run: run.trial(0).samples.unlink(), "samples.arrow cannot be read"),
        (lambda run: run.trial(0).samples.write_bytes(b"ARROW"), "samples.arrow cannot be read"),
        (lambda run: (run.source / "main.py").write_text("x = 2\n"), "source/main.py was changed"),
        (lambda run: (run.trial(0).path / "stdout").touch(), "trials/000/stdout was added"),
        (lambda run: run.trial(1).path.rename(run.path / "elsewhere"), "summary: "),
    ],
)
def test_whatever_was_changed_verify_says_so(run: RunFolder, change: Callable[[RunFolder], object], said: str) -> None:
    """A number by its last bit, a status, a file: with the place."""
    change(run)

    assert any(said in problem for problem in verify_run(run).problems), verify_run(run).problems


def test_a_number_is_found_without_any_hash(run: RunFolder) -> None:
    """Who changes a record can change the seal too; the samples still say otherwise."""
    set_in(run.trial(0).record, "result", "phases", 1, "domains", 0, "energy_j", value=9.0)
    write_seal(run)

    assert verify_run(run).problems == ("trial 0: result.phases[1].domains[0].energy_j is 9.0, recomputed 10.0",)


@pytest.mark.parametrize("name", ["samples.arrow", "events/rank-00000.jsonl", "trial.json"])
def test_a_changed_byte_anywhere_in_a_trial_is_found(run: RunFolder, name: str) -> None:
    """Thirty places over the file, one bit each; and verify ends with a verdict, not with a traceback."""
    path = run.trial(0).path / name
    data = path.read_bytes()
    for place in range(0, len(data), max(1, len(data) // 30)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        assert f"trials/000/{name} was changed" in verify_run(run).problems
    path.write_bytes(data)
    assert verify_run(run).problems == ()


def test_a_run_that_was_never_sealed_is_noted(tmp_path: Path) -> None:
    """Its numbers are checked all the same."""
    run = begin(tmp_path)
    conclude(run, add_trial(run))
    verdict = verify_run(run)

    assert verdict.problems == ()
    assert len(verdict.notes) == 2
    assert verdict.checked == ("trial 0: every number follows from its samples and events",)


def test_a_trial_that_never_started_needs_no_samples(tmp_path: Path) -> None:
    """The program was not found: there is a record, and nothing to compute."""
    run = begin(tmp_path)
    trial = run.trial(0)
    trial.create()
    record = trial_record(status=TrialStatus.FAILED, message="no such program", end=None, result=None)
    trial.write(record)

    assert read_run(run).trials == (record,)
    assert verify_run(run).problems == ()


def test_a_lost_trial_is_cut_where_samples_and_events_both_reach(tmp_path: Path) -> None:
    """Samples to 6 s, events to 8 s: 3 s of train, 6 J, one step; and it is invalid."""
    run = begin(tmp_path)
    add_trial(run, until_s=6)
    (trial,) = read_run(run).trials

    assert (trial.status, trial.message) == (TrialStatus.LOST, LOST_MESSAGE)
    assert trial.end is not None
    assert (trial.end.times.launch_ns, trial.end.times.exit_ns, trial.end.boot_id) == (1 * S, 6 * S, BOOT)
    assert trial.result is not None
    assert (trial.result.duration_s, trial.result.n_steps, trial.result.n_tokens) == (3.0, 1, 500)
    assert trial.result.boundaries[0].energy_j == pytest.approx(6.0, rel=1e-9)
    assert [metric.value for metric in trial.result.final_metrics] == [2.0]
    assert (trial.result.flags[0].code, trial.result.flags[0].severity) == ("lost", Severity.INVALID)


def test_a_lost_trial_is_cut_at_its_last_event_where_samples_go_on(tmp_path: Path) -> None:
    """Samples to 10 s, events to 5 s: what came after is not known to be training."""
    run = begin(tmp_path)
    add_trial(run, events=as_lines(*SPEECH[:6]), until_s=10)
    (trial,) = read_run(run).trials

    assert trial.end is not None
    assert trial.end.times.exit_ns == 5 * S
    assert trial.result is not None
    assert (trial.result.duration_s, trial.result.n_tokens) == (2.0, 500)
    assert trial.result.boundaries[0].energy_j == pytest.approx(4.0, rel=1e-9)


def test_a_run_whose_harness_lives_is_running_and_not_lost(tmp_path: Path) -> None:
    """Held, it is running, with what there is so far; let go without an end, as a kill does, it is lost."""
    run = begin(tmp_path)
    add_trial(run, until_s=6)
    run.hold()
    running = read_run(RunFolder(run.path))
    notes = verify_run(RunFolder(run.path)).notes
    run.release()
    lost = read_run(RunFolder(run.path))

    assert (running.summary.status, running.trials[0].message) == (TrialStatus.RUNNING, RUNNING_MESSAGE)
    assert running.trials[0].result is not None
    assert "lost" not in [flag.code for flag in running.summary.flags]
    assert notes[0] == f"trial 0 was never concluded: {RUNNING_MESSAGE}"
    assert lost.summary.status is TrialStatus.LOST


@pytest.mark.parametrize("name", ["trials/000/events/rank-00000.jsonl", "trials/000/samples.arrow", "SHA256SUMS"])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_named_and_never_waited_for(run: RunFolder, name: str, kind: str) -> None:
    """A pipe or a folder in a file's place: a problem of `verify`, at once."""
    (run.path / name).unlink()
    if kind == "pipe":
        os.mkfifo(run.path / name)
    else:
        (run.path / name).mkdir()

    assert any(Path(name).name in problem for problem in verify_run(run).problems)


def test_a_lost_run_is_summarised_as_lost(tmp_path: Path) -> None:
    """Figures of what there is, in a run that is not valid; verify notes it and finds no fault."""
    run = begin(tmp_path)
    add_trial(run, until_s=6)
    summary = read_run(run).summary
    verdict = verify_run(run)

    assert (summary.status, summary.is_valid, summary.n_trials) == (TrialStatus.LOST, False, 1)
    assert verdict.problems == ()
    assert verdict.notes[0] == f"trial 0 was never concluded: {LOST_MESSAGE}"


def test_trials_before_the_lost_one_make_the_figures(tmp_path: Path) -> None:
    """The second of two was killed: n = 1, and the status is the worst."""
    run = begin(tmp_path, n_trials=2)
    conclude(run, add_trial(run, 0))
    add_trial(run, 1, until_s=6)
    stored = read_run(run)

    assert [trial.status for trial in stored.trials] == [TrialStatus.DONE, TrialStatus.LOST]
    assert (stored.summary.status, stored.summary.is_valid) == (TrialStatus.LOST, False)
    energy = next(one for one in stored.summary.figures if one.key == "energy_j")
    assert (energy.value, energy.n) == (pytest.approx(10.0, rel=1e-9), 1)


@pytest.mark.parametrize("n_bytes", range(0, len(as_lines(*SPEECH)), 37))
def test_events_torn_anywhere_are_read(tmp_path: Path, n_bytes: int) -> None:
    """The whole lines before the tear count; nothing is invented."""
    run = begin(tmp_path)
    add_trial(run, events=as_lines(*SPEECH)[:n_bytes])
    stored = read_run(run)

    assert stored.trials[0].status is TrialStatus.LOST
    assert verify_run(run).problems == ()


def test_samples_torn_anywhere_are_read(tmp_path: Path) -> None:
    """From no byte to all of them; the energy never grows with what was lost."""
    run = begin(tmp_path)
    trial = add_trial(run)
    data = trial.samples.read_bytes()
    energies_j = []
    for size in range(0, len(data), 97):
        trial.samples.write_bytes(data[:size])
        (lost,) = read_run(run).trials
        assert lost.status is TrialStatus.LOST
        if lost.result is not None and lost.result.boundaries:
            energies_j.append(lost.result.boundaries[0].energy_j or 0.0)

    assert energies_j == sorted(energies_j)
    assert energies_j[-1] == pytest.approx(10.0, rel=1e-9)


@pytest.mark.parametrize("events", [b"", b"nonsense\n", as_lines(hello(1 * S)), b'{"event"'])
def test_a_trial_killed_at_its_start_is_lost_without_numbers(tmp_path: Path, events: bytes) -> None:
    """No event, none that is whole, or only the first: nothing was measured yet."""
    run = begin(tmp_path)
    add_trial(run, events=events)
    (trial,) = read_run(run).trials

    assert trial.status is TrialStatus.LOST
    assert trial.result is None or trial.result.duration_s is None
    assert all(one.value is None for one in read_run(run).summary.figures)


def test_a_run_killed_before_its_first_trial_is_read(tmp_path: Path) -> None:
    """With a trial's folder that is still empty, and without."""
    run = begin(tmp_path)
    assert read_run(run).trials == ()
    run.trial(0).create()

    assert [trial.status for trial in read_run(run).trials] == [TrialStatus.LOST]


def test_samples_that_end_before_the_first_event_give_speed_without_energy(tmp_path: Path) -> None:
    """The last second of samples was lost: what was said stands, and the energy is None with a reason."""
    run = begin(tmp_path)
    add_trial(run, until_s=0.5)

    (trial,) = read_run(run).trials
    assert trial.status is TrialStatus.LOST
    assert trial.result is not None
    assert (trial.result.duration_s, trial.result.n_tokens) == (5.0, 1000)
    assert trial.result.boundaries[0].energy_j is None
    assert trial.result.boundaries[0].reason


def test_ranks_of_a_lost_trial_are_cut_alike(tmp_path: Path) -> None:
    """Rank 1 went on to 8 s, samples reach to 6 s: rank 1's stop is no part of it."""
    run = begin(tmp_path)
    trial = add_trial(
        run,
        events=as_lines(
            hello(world_size=2), phase_start(3 * S), step(5 * S, 1, 500), metric(5 * S, "val_loss", 2.0, 1)
        ),
        until_s=6,
    )
    second = as_lines(hello(rank=1, world_size=2), phase_start(3 * S), phase_stop(8 * S), goodbye(8 * S))
    (trial.events / "rank-00001.jsonl").write_bytes(second)
    (lost,) = read_run(run).trials

    assert lost.result is not None
    assert lost.result.duration_s == 3.0


def test_an_end_is_part_of_what_is_verified(run: RunFolder) -> None:
    """Moving the exit by a second changes the window of `job`."""
    record = run.trial(0).read()
    assert record is not None
    longer = trial_end(times=but(END.times, exit_ns=10 * S))
    run.trial(0).write(but(record, end=longer))

    problems = verify_run(run).problems
    assert any(
        problem.startswith("trial 0: result.phases[2].duration_s is 1.0, recomputed 2.0") for problem in problems
    )
