"""Reads runs back: as they were concluded, or, where the harness was killed, from what is on the disk. And verifies.

Whatever a run's end, its events and samples are there up to the last second; everything else follows from them by the
same pure functions that concluded the run.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from ecobench.errors import EcobenchError, RecordError
from ecobench.measurement import QualityFlag, Severity
from ecobench.records import (
    SCHEMA,
    RunRecord,
    RunSpec,
    RunSummary,
    TrialEnd,
    TrialRecord,
    TrialStatus,
    TrialTimes,
)
from ecobench.result import conclude_trial, evaluate_trial
from ecobench.store import RunFolder, TrialFolder, as_plain, broken_seals
from ecobench.store.samples import read_traces
from ecobench.summary import summarise
from ecobench.trace import Trace
from ecobench.transcript import Transcript

RUNNING_MESSAGE = "the trial is running; this is what is on the disk so far"
LOST_MESSAGE = "the harness was ended before it could conclude the trial; this is what was on the disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as read back; `trials` in order, each concluded, `lost` or `running`."""

    run: RunRecord
    trials: tuple[TrialRecord, ...]
    summary: RunSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What `verify` found: lines for what holds, what cannot be checked, and what does not hold."""

    checked: tuple[str, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]


def read_run(folder: RunFolder) -> StoredRun:
    """The run in `folder`, whatever end it had.

    Raises:
        RecordError: its records cannot be read.
    """
    run = folder.read()
    is_running = folder.is_running()
    trials = tuple(read_trial(run.spec, trial, is_running=is_running) for trial in folder.trials())
    try:
        summary = folder.read_summary()
    except RecordError:  # derived: it can be made again, and `verify` names the damage
        summary = None
    return StoredRun(run=run, trials=trials, summary=summary or summarise(run, trials))


def read_trial(spec: RunSpec, folder: TrialFolder, *, is_running: bool = False) -> TrialRecord:
    """A trial as it was concluded, else what follows from its events and samples: it is `lost`, unless its harness
    `is_running`.

    Raises:
        RecordError: its record cannot be read.
    """
    stored = folder.read()
    if stored is not None:
        return stored
    if is_running:
        return _conclude(spec, folder, TrialStatus.RUNNING, Severity.INFO, RUNNING_MESSAGE, remedy=None)
    return _conclude(spec, folder, TrialStatus.LOST, Severity.INVALID, LOST_MESSAGE, remedy="run it again")


def verify_run(folder: RunFolder) -> Verdict:
    """Recompute every number of the run from its raw samples and events, and check its hashes."""
    checked: list[str] = []
    notes: list[str] = []
    problems: list[str] = []
    try:
        run = folder.read()
    except RecordError as error:
        return Verdict(checked=(), notes=(), problems=(error.message, *_hash_problems(folder)))
    recomputed = []
    is_running = folder.is_running()
    for trial in folder.trials():
        name = f"trial {trial.index}"
        try:
            stored = trial.read()
            if stored is None:
                found = read_trial(run.spec, trial, is_running=is_running)
                notes.append(f"{name} was never concluded: {found.message}")
                recomputed.append(found)
                continue
            again = _recompute(run.spec, trial, stored)
        except (EcobenchError, ValueError) as error:
            problems.append(f"{name}: {error}")
            continue
        recomputed.append(again)
        differences = list(_differences(as_plain(stored), as_plain(again)))
        problems += [f"{name}: {line}" for line in differences[:10]]
        if not differences:
            checked.append(f"{name}: every number follows from its samples and events")
    try:
        summary = folder.read_summary()
        if summary is None:
            why = "is still running" if is_running else "did not come to its end"
            notes.append(f"there is no summary: the run {why}")
        else:
            differences = list(_differences(as_plain(summary), as_plain(summarise(run, recomputed))))
            problems += [f"summary: {line}" for line in differences[:10]]
            if not differences:
                checked.append("summary: every number follows from the trials")
    except RecordError as error:
        problems.append(error.message)
    if folder.sums.exists():
        broken = _hash_problems(folder)
        problems += broken
        if not broken:
            checked.append("every file is as it was when the run was sealed")
    else:
        notes.append("the run was never sealed: there are no hashes to check")
    return Verdict(checked=tuple(checked), notes=tuple(notes), problems=tuple(problems))


def _hash_problems(folder: RunFolder) -> list[str]:
    return broken_seals(folder) if folder.sums.exists() else []


def _recompute(spec: RunSpec, folder: TrialFolder, stored: TrialRecord) -> TrialRecord:
    if stored.end is None:
        return stored
    return conclude_trial(
        spec,
        folder.read_transcripts(),
        read_traces(folder.samples),
        stored.end,
        index=folder.index,
        started_utc=stored.started_utc,
    )


def _conclude(
    spec: RunSpec, folder: TrialFolder, status: TrialStatus, severity: Severity, message: str, *, remedy: str | None
) -> TrialRecord:
    """What is known of a trial that was not concluded: it is cut where samples and events both reach."""
    transcripts = folder.read_transcripts()
    try:
        traces = read_traces(folder.samples)
    except RecordError:
        traces = ()
    times = _lost_times(transcripts, traces)
    if times is None:
        return TrialRecord(
            schema=SCHEMA,
            index=folder.index,
            status=status,
            started_utc="unknown",
            message=message,
            end=None,
            result=None,
        )
    hello = next((one.hello for one in transcripts if one.hello is not None), None)
    end = TrialEnd(
        times=times,
        boot_id=hello.boot_id if hello is not None else "unknown",
        exit_code=None,
        error="nobody was left to see its end",
        n_orphans_ended=0,
        was_asked_to_stop=False,
        interrupted_by=None,
        last_words=None,
    )
    cut = [_cut(one, times.exit_ns) for one in transcripts]
    result = evaluate_trial(spec, cut, traces, end)
    flag = QualityFlag(code=status.value, severity=severity, evidence=message, remedy=remedy)
    return TrialRecord(
        schema=SCHEMA,
        index=folder.index,
        status=status,
        started_utc="unknown",
        message=message,
        end=end,
        result=dataclasses.replace(result, flags=(flag, *result.flags)),
    )


def _lost_times(transcripts: tuple[Transcript, ...], traces: tuple[Trace, ...]) -> TrialTimes | None:
    heard = [event.time_ns for one in transcripts for event in one.events]
    sampled = [int(trace.time_ns[end]) for trace in traces if len(trace.time_ns) for end in (0, -1)]
    if not heard:
        return None
    last_ns = min(max(heard), max(sampled)) if sampled else max(heard)
    if last_ns <= min(heard):  # killed before the first second of samples was written: what was said is left
        last_ns = max(heard)
    if last_ns <= min(heard):
        return None
    return TrialTimes(
        sampler_up_ns=min([*sampled, min(heard)]),
        launch_ns=min(heard),
        exit_ns=last_ns,
        sampler_down_ns=max([*sampled, last_ns]),
    )


def _cut(transcript: Transcript, stop_ns: int) -> Transcript:
    return dataclasses.replace(
        transcript, events=tuple(event for event in transcript.events if event.time_ns <= stop_ns)
    )


def _differences(stored: object, again: object, where: str = "") -> Iterator[str]:
    """Where two plain documents differ, as lines; numbers must be equal to the last bit."""
    if isinstance(stored, dict) and isinstance(again, dict):
        for key in dict.fromkeys((*stored, *again)):
            inside = f"{where}.{key}" if where else str(key)
            yield from _differences(stored.get(key), again.get(key), inside)
    elif isinstance(stored, list | tuple) and isinstance(again, list | tuple):
        if len(stored) != len(again):
            yield f"{where} has {len(stored)} entries, recomputed {len(again)}"
        for index, (one, other) in enumerate(zip(stored, again, strict=False)):
            yield from _differences(one, other, f"{where}[{index}]")
    elif stored != again:
        yield f"{where} is {stored!r}, recomputed {again!r}"
