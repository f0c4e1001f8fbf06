"""One run: a configuration, its trials one after the other, and their summary. Order and time, no arithmetic."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from ecobench.catalog import Workload
from ecobench.config import Choice, expand_command
from ecobench.errors import EcobenchError
from ecobench.machine import read_machine, read_provenance
from ecobench.measurement import MeterAbsence, MeterInfo
from ecobench.reading import read_trial
from ecobench.records import SCHEMA, GpuSetting, RunRecord, RunSpec, RunSummary, StopRule, TrialRecord, TrialStatus
from ecobench.store import RunFolder, Store, write_seal
from ecobench.summary import summarise
from ecobench.trial import Interruption, Observer, Seams, run_trial

# Where it is not set, a busy-waiting OpenMP thread eats the core that it waits on, and its energy.
DEFAULT_ENVIRONMENT = {"PYTHONUNBUFFERED": "1"}


class RunOutcome(NamedTuple):
    """A run that has ended: its summary, and what ended it early, if anything did."""

    summary: RunSummary
    trials: tuple[TrialRecord, ...]
    error: EcobenchError | None


def make_spec(
    workload: Workload,
    choice: Choice,
    *,
    meter: str,
    n_trials: int,
    stop_rule: StopRule | None,
    settings: Sequence[GpuSetting] = (),
    simulation: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> RunSpec:
    """The run that was asked for, resolved. What the user's environment sets already wins over the preset's,
    and `environment` over both.
    """
    manifest = workload.manifest
    wanted = {**DEFAULT_ENVIRONMENT, **choice.preset.environment}
    return RunSpec(
        workload=manifest.name,
        workload_path=str(workload.path),
        preset=choice.preset.name,
        ranks=choice.ranks,
        parameters=choice.parameters,
        command=expand_command(
            manifest.command, python=sys.executable, ranks=choice.ranks, parameters=choice.parameters
        ),
        environment={name: os.environ.get(name, value) for name, value in wanted.items()} | dict(environment or {}),
        measured_phase=manifest.measured_phase,
        token_rule=manifest.token_rule,
        target=choice.preset.target,
        meter=meter,
        n_trials=n_trials,
        stop_rule=stop_rule,
        settings=tuple(settings),
        simulation=simulation,
    )


def begin_run(
    store: Store,
    spec: RunSpec,
    workload: Workload,
    *,
    argv: Sequence[str],
    meters: Sequence[MeterInfo],
    absences: Sequence[MeterAbsence],
) -> tuple[RunFolder, RunRecord]:
    """Make the run's folder, with everything that is known before the first trial.

    Raises:
        StoreError: it cannot be written.
    """
    folder = store.create(spec.workload)
    folder.hold()
    record = RunRecord(
        schema=SCHEMA,
        id=folder.id,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        argv=tuple(argv),
        spec=spec,
        machine=read_machine(),
        provenance=read_provenance(workload.path),
        meters=tuple(meters),
        absences=tuple(absences),
    )
    folder.write(record)
    folder.copy_source(workload.path)
    return folder, record


def run_trials(
    folder: RunFolder,
    record: RunRecord,
    *,
    seams: Seams,
    observer: Callable[[int], Observer],
    interruption: Interruption,
) -> RunOutcome:
    """Execute the trials, and write the summary and the seal. Ends at the first trial that did not come to its end:
    what broke one breaks the next.
    """
    trials: list[TrialRecord] = []
    error: EcobenchError | None = None
    for index in range(record.spec.n_trials):
        trial = folder.trial(index)
        try:
            trials.append(
                run_trial(record.spec, trial, seams=seams, observer=observer(index), interruption=interruption)
            )
        except EcobenchError as failure:
            error = failure
            trials += [read_trial(record.spec, trial)] if trial.path.exists() else []
        if error is not None or trials[-1].status not in (TrialStatus.DONE, TrialStatus.STOPPED):
            break
        if interruption.count:
            break
    summary = summarise(record, trials)
    try:
        folder.write_summary(summary)
        write_seal(folder)
    except EcobenchError as failure:
        error = error or failure
    finally:
        folder.release()
    return RunOutcome(summary=summary, trials=tuple(trials), error=error)
