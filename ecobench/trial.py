"""One trial: the order of things in time, and no arithmetic.

    launcher up → meters open → controls: snapshot, journal, guard, set, read back
    → sampler up, first sample of every meter seen → Zeus's window opens
    → lead-in → launch → … watch: events, stop rule, interrupts … → exit → lead-out
    → Zeus's window closes → sampler down → controls: checked, put back, verified → events and samples read back
    → result → trial.json

A crash at any line leaves a readable folder: events and samples are on the disk as they come, and what is missing is
only the record that can be derived from them.
"""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from ecobench.clock import read_boot_id
from ecobench.errors import ControlError, EcobenchError, StoreError, WorkloadError
from ecobench.events import STOP_FILE, VARIABLE
from ecobench.live import EventTail, Progress, is_reached
from ecobench.records import SCHEMA, RunSpec, TrialEnd, TrialRecord, TrialStatus, TrialTimes
from ecobench.result import conclude_trial
from ecobench.sampler import Sampler
from ecobench.seams import Clock, Control, Launcher, LaunchExit, LaunchRequest, Meter, Poller, SampleSink, SecondOpinion
from ecobench.store.folders import TrialFolder, last_words
from ecobench.store.samples import SampleWriter, compact, read_traces
from ecobench.units import NS_PER_S, seconds

# Samples on both sides of the workload, so that its first and last instants lie between two. Not without a meter.
LEAD_NS = NS_PER_S // 2
WATCH_EVERY_NS = NS_PER_S // 20
# A workload that was asked to stop by the stop file ends its step, validates and says goodbye; after this, SIGTERM.
STOP_FILE_GRACE_NS = 120 * NS_PER_S
CHECK_CONTROLS_EVERY_NS = NS_PER_S
INTERRUPT_GRACE_S = 2.0
STOP_GRACE_S = 10.0
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


class Interruption(Protocol):
    """What `ecobench.interrupts.Interrupts` knows."""

    @property
    def count(self) -> int: ...

    @property
    def name(self) -> str: ...


def _poll_live(meters: Sequence[Meter], clock: Clock, sink: SampleSink) -> Poller:
    return Sampler(meters, clock=clock, sink=sink)


class Seams(NamedTuple):
    """What a trial runs on: chosen by the command line, the same for every trial of a run."""

    clock: Clock
    make_launcher: Callable[[], Launcher]
    open_meters: Callable[[int], Sequence[Meter]]
    control: Control | None = None
    opinion: SecondOpinion | None = None
    make_poller: Callable[[Sequence[Meter], Clock, SampleSink], Poller] = _poll_live
    watch_every_ns: int = WATCH_EVERY_NS


Observer = Callable[[Progress], None]


class _Watched(NamedTuple):
    exit: LaunchExit
    was_asked_to_stop: bool
    was_interrupted: bool


def run_trial(
    spec: RunSpec,
    folder: TrialFolder,
    *,
    seams: Seams,
    observer: Observer,
    interruption: Interruption,
    timeout_s: float | None = None,
) -> TrialRecord:
    """Execute `spec` once into `folder`, and return the record that was written there.

    Raises:
        EcobenchError: nothing could be measured (no space, no meter, no such program); what there is is on the disk.
    """
    folder.create()
    zeus = None
    if seams.opinion is not None:
        seams.opinion.await_ready()
    started_utc = datetime.now(UTC).isoformat(timespec="milliseconds")
    clock = seams.clock
    launcher = seams.make_launcher()
    meters: Sequence[Meter] = ()
    try:
        meters = seams.open_meters(launcher.pid)
        if seams.control is not None:
            # The guard stands before anything is set: from here on, whoever is killed, it comes back.
            launcher.guard(seams.control.prepare(), run=seams.control.run)
            seams.control.apply()
        lead_ns = LEAD_NS if meters else 0
        with SampleWriter(folder.samples, [meter.info for meter in meters]) as writer:
            sampler = seams.make_poller(meters, clock, writer.append)
            try:
                sampler_up_ns = clock.now_ns()
                sampler.start()
                if seams.opinion is not None:
                    seams.opinion.begin()
                clock.sleep_until(clock.now_ns() + lead_ns)
                launch_ns = launcher.launch(_request(spec, folder, environment=os.environ))
                watched = _Watch(
                    spec=spec,
                    folder=folder,
                    launcher=launcher,
                    sampler=sampler,
                    clock=clock,
                    observer=observer,
                    interruption=interruption,
                    control=seams.control,
                    timeout_s=timeout_s,
                    watch_every_ns=seams.watch_every_ns,
                ).follow()
                clock.sleep_until(clock.now_ns() + lead_ns)
                if seams.opinion is not None:
                    zeus = seams.opinion.end()
            finally:
                sampler.stop()
            sampler.raise_failure()
            sampler_down_ns = clock.now_ns()
        if seams.control is not None:
            seams.control.check()
    except (ControlError, WorkloadError) as error:
        folder.write(
            TrialRecord(
                schema=SCHEMA,
                index=folder.index,
                status=TrialStatus.FAILED,
                started_utc=started_utc,
                message=error.message,
                end=None,
                result=None,
            )
        )
        raise
    finally:
        # Before the launcher: what cannot be put back here is tried again by the supervisor at its end.
        controls = seams.control.restore() if seams.control is not None else ()
        launcher.close()
        for meter in meters:
            meter.close()
    with contextlib.suppress(StoreError):  # the samples are safe as they are, only larger
        compact(folder.samples)
    end = TrialEnd(
        times=TrialTimes(
            sampler_up_ns=sampler_up_ns,
            launch_ns=launch_ns,
            exit_ns=watched.exit.time_ns,
            sampler_down_ns=sampler_down_ns,
        ),
        boot_id=read_boot_id(),
        exit_code=watched.exit.exit_code,
        error=watched.exit.error,
        n_orphans_ended=watched.exit.n_orphans_ended,
        was_asked_to_stop=watched.was_asked_to_stop,
        interrupted_by=interruption.name if watched.was_interrupted else None,
        last_words=None if watched.exit.exit_code == 0 else last_words(folder.stderr),
        controls=controls,
        zeus=zeus,
    )
    record = conclude_trial(
        spec,
        folder.read_transcripts(),
        read_traces(folder.samples),
        end,
        index=folder.index,
        started_utc=started_utc,
    )
    folder.write(record)
    return record


@dataclass(kw_only=True)
class _Watch:
    """Follows a running workload, and asks it to end where something says so."""

    spec: RunSpec
    folder: TrialFolder
    launcher: Launcher
    sampler: Poller
    clock: Clock
    observer: Observer
    interruption: Interruption
    control: Control | None
    timeout_s: float | None
    watch_every_ns: int
    checked_ns: int = 0
    n_interrupts_seen: int = 0
    stop_file_ns: int | None = None
    failure: EcobenchError | None = None

    def follow(self) -> _Watched:
        """Return once the workload has ended.

        Raises:
            EcobenchError: sampling failed, or the workload took too long; it has been ended.
        """
        tail = EventTail(self.folder.events)
        progress = Progress(measured_phase=self.spec.measured_phase)
        started_ns = self.clock.now_ns()
        while (exit_ := self.launcher.poll()) is None:
            now_ns = self.clock.now_ns()
            for event in tail.read():
                progress.take(event)
            progress.energy_j = self.sampler.energy_so_far_j()
            self.observer(progress)
            self._heed_controls(now_ns)
            self._heed_interrupts()
            self._heed_failures(now_ns - started_ns)
            self._heed_stop_rule(progress, now_ns=now_ns)
            self.clock.sleep_until(now_ns + self.watch_every_ns)
        if self.failure is not None:
            raise self.failure
        return _Watched(
            exit=exit_,
            was_asked_to_stop=self.stop_file_ns is not None,
            was_interrupted=self.n_interrupts_seen > 0,
        )

    def _heed_controls(self, now_ns: int) -> None:
        if self.control is not None and now_ns - self.checked_ns >= CHECK_CONTROLS_EVERY_NS:
            self.checked_ns = now_ns
            self.control.check()

    def _heed_interrupts(self) -> None:
        if self.interruption.count > self.n_interrupts_seen:
            # The first asks and allows for a moment; any after it does not.
            self.launcher.stop(grace_s=INTERRUPT_GRACE_S if self.n_interrupts_seen == 0 else 0.0)
            self.n_interrupts_seen = self.interruption.count

    def _heed_failures(self, elapsed_ns: int) -> None:
        if self.failure is not None:
            return
        try:
            self.sampler.raise_failure()
            if self.timeout_s is not None and seconds(elapsed_ns) > self.timeout_s:
                raise WorkloadError(
                    f"the workload did not end within {self.timeout_s:g} s", hint=f"see {self.folder.stderr}"
                )
        except EcobenchError as error:
            self.failure = error
            self.launcher.stop(grace_s=INTERRUPT_GRACE_S)

    def _heed_stop_rule(self, progress: Progress, *, now_ns: int) -> None:
        rule = self.spec.stop_rule
        if rule is None:
            return
        if self.stop_file_ns is None and is_reached(rule, progress, target=self.spec.target, now_ns=now_ns):
            self.stop_file_ns = now_ns
            try:
                (self.folder.events / STOP_FILE).touch()
            except OSError:  # a full disk: the workload is asked by signal
                self.launcher.stop(grace_s=STOP_GRACE_S)
        if self.stop_file_ns is not None and now_ns - self.stop_file_ns > STOP_FILE_GRACE_NS:
            self.stop_file_ns = now_ns
            self.launcher.stop(grace_s=STOP_GRACE_S)


def _without_ranks(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what a launcher around the harness set: the workload's ranks are its own launcher's."""
    return {name: value for name, value in environment.items() if name not in RANK_VARIABLES}


def _request(spec: RunSpec, folder: TrialFolder, *, environment: Mapping[str, str]) -> LaunchRequest:
    return LaunchRequest(
        argv=spec.command,
        directory=Path(spec.workload_path),
        environment={**_without_ranks(environment), **spec.environment, VARIABLE: str(folder.events)},
        stdout_path=folder.stdout,
        stderr_path=folder.stderr,
    )
