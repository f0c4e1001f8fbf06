"""The contract that every workload keeps, as a function for tests: run the smoke variant, read what it said.

    from ecobench.contract import check_workload
    check_workload("workloads/mine")

Like the harness it starts the workload in its own processes and never imports it.
"""

import os
import tempfile
from pathlib import Path

from ecobench.catalog import find_workload, make_data, read_data_info
from ecobench.clock import LiveClock
from ecobench.config import Choice
from ecobench.errors import RequestError
from ecobench.events import STOP_FILE
from ecobench.launcher import SupervisedLauncher
from ecobench.live import Progress
from ecobench.measurement import Severity
from ecobench.records import StopReason, StopRule, TrialRecord, TrialStatus
from ecobench.runner import make_spec
from ecobench.store.folders import TrialFolder
from ecobench.trial import Seams, run_trial

# The one that is being taken when the workload is asked, and one more for ranks that agree a step later.
MOST_STEPS_AFTER_ASKED = 2


class _NoInterruption:
    """A contract check is not interrupted by signals of its own."""

    count = 0
    name = "none"


def check_workload(name_or_path: str) -> TrialRecord:
    """Run a workload's `smoke` twice, to its end and until its first step, and check what it said.

    Returns:
        The record of the run to the end.

    Raises:
        AssertionError: it breaks the contract; the message says where.
        RequestError: there is no such workload, or it declares no smoke variant.
        WorkloadError: its program does not start, or does not end within the time that it states.
    """
    workload = find_workload(name_or_path)
    smoke = workload.manifest.smoke
    if smoke is None:
        raise RequestError(f"{workload.manifest.name} has no [smoke]", hint="declare one: preset, parameters, timeout")
    for source in workload.manifest.data.values():
        if smoke.preset in source.presets and not read_data_info(workload, source).is_present:
            make_data(workload, source)
            assert read_data_info(workload, source).is_present, f"[data.{source.name}] made nothing"
    preset = workload.manifest.presets[smoke.preset]
    defaults = {name: one.default for name, one in workload.manifest.parameters.items()}
    choice = Choice(preset=preset, ranks=preset.ranks, parameters={**defaults, **preset.parameters, **smoke.parameters})
    seams = Seams(clock=LiveClock(), make_launcher=SupervisedLauncher, open_meters=lambda _: ())

    def run_once(folder: Path, rule: StopRule | None) -> TrialRecord:
        spec = make_spec(workload, choice, meter="none", n_trials=1, stop_rule=rule)
        return run_trial(
            spec,
            TrialFolder(folder),
            seams=seams,
            observer=_ignore,
            interruption=_NoInterruption(),
            timeout_s=smoke.timeout_s,
        )

    with tempfile.TemporaryDirectory(prefix="ecobench-contract-") as scratch:
        whole = run_once(Path(scratch, "000"), None)
        said = _last_lines(Path(scratch, "000", "stderr"))
        assert whole.status is TrialStatus.DONE, f"{whole.message}\n{said}"
        assert whole.result is not None
        broken = [flag for flag in whole.result.flags if flag.severity is Severity.INVALID]
        assert not broken, "; ".join(flag.evidence for flag in broken)
        assert (whole.result.n_steps or 0) > 1, "smoke takes more than one step"

        first_step = StopRule(reason=StopReason.STEPS, limit=1.0, text="steps=1")
        stopped = run_once(Path(scratch, "001"), first_step)
        assert stopped.status in (TrialStatus.STOPPED, TrialStatus.DONE), stopped.message
        assert os.path.exists(Path(scratch, "001", "events", STOP_FILE)), "the workload was never asked to stop"
        assert stopped.result is not None
        if stopped.status is TrialStatus.DONE:  # the smoke variant may be over before anybody can ask
            n_steps, n_late = stopped.result.n_steps, _steps_after_asked(TrialFolder(Path(scratch, "001")))
            assert n_late <= MOST_STEPS_AFTER_ASKED, (
                f"the workload did not stop: {n_late} more steps after it was asked"
            )
            assert n_steps == whole.result.n_steps, (
                f"the workload did not stop as it says: `done` after {n_steps} of {whole.result.n_steps} steps"
            )
    return whole


def _steps_after_asked(folder: TrialFolder) -> int:
    first = folder.read_transcripts()[0]
    assert first.hello is not None
    asked_ns = (folder.events / STOP_FILE).stat().st_mtime_ns - first.hello.wall_ns + first.hello.time_ns
    return sum(step.time_ns > asked_ns for step in first.steps)


def _ignore(progress: Progress) -> None:
    pass


def _last_lines(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-15:])
