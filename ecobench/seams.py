"""The seams to the world: clock, meter, control, launcher.

Everything above them is the same for a real machine, a fake tree and a simulation.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ecobench.measurement import MeterInfo, ZeusWindow
from ecobench.records import ControlRecord


class Sample(NamedTuple):
    """One reading of one meter.

    Attributes:
        time_ns: middle of the call, on the monotonic clock.
        raw: what the interface gave, in counts; None where it gave none.
        call_ns: how long the call took.
        error: why `raw` is None.
    """

    time_ns: int
    raw: int | None
    call_ns: int
    error: str | None


class Clock(Protocol):
    """Time as the harness sees it."""

    def now_ns(self) -> int: ...

    def sleep_until(self, time_ns: int) -> None: ...


class Meter(Protocol):
    """Reads one power domain in one kind through one interface."""

    @property
    def info(self) -> MeterInfo: ...

    def read(self, times_ns: Sequence[int]) -> Sequence[Sample]:
        """One sample for each instant asked for, in order.

        A live meter is only ever asked for one instant, the present; a simulated one answers a whole time grid at once.
        Never raises for a failed reading: the sample says why.
        """
        ...

    def close(self) -> None: ...


SampleSink = Callable[[Sequence[tuple[int, Sample]]], None]


class Poller(Protocol):
    """Asks the meters of a trial while it lasts, and hands their samples to its sink, by index of the meter."""

    def start(self) -> None:
        """Return once every meter can be read."""
        ...

    def stop(self) -> None:
        """Hand over what is left, and end. May be called twice."""
        ...

    def raise_failure(self) -> None:
        """Raise what ended it early, if anything did."""
        ...

    def energy_so_far_j(self) -> float | None:
        """Energy of all counters since the start; None without a counter."""
        ...


class Control(Protocol):
    """What a run sets on the machine, trial by trial, and puts back."""

    @property
    def run(self) -> str:
        """Whose settings these are; a guard puts back no other's."""
        ...

    def prepare(self) -> Sequence[Path]:
        """Write down what is set now, safely; the journals that say it."""
        ...

    def apply(self) -> None:
        """Set what was asked for; raises `ControlError` where it is not in force."""
        ...

    def check(self) -> None:
        """Note whether somebody else has changed it. Never raises."""
        ...

    def restore(self) -> tuple[ControlRecord, ...]:
        """Put back what `prepare` found, and verify it. Never raises; may be called again."""
        ...


class SecondOpinion(Protocol):
    """Another program that measures the same beside us, in a process of its own. No call raises for what it does."""

    def await_ready(self) -> None:
        """Return once it is ready, or given up."""
        ...

    def begin(self) -> None:
        """Have it open its window."""
        ...

    def end(self) -> ZeusWindow:
        """Have it close its window; what it said, or a note."""
        ...


class LaunchRequest(NamedTuple):
    """A program to start: `argv` in `directory` with exactly `environment`; its output goes to the two files."""

    argv: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str]
    stdout_path: Path
    stderr_path: Path


class LaunchExit(NamedTuple):
    """How a launched program ended.

    Attributes:
        exit_code: as the system gives it; negative is a signal. None: it never started, `error` says why.
        time_ns: when its first process was gone.
        n_orphans_ended: descendants that outlived it and were ended.
    """

    exit_code: int | None
    time_ns: int
    n_orphans_ended: int
    error: str | None


class Launcher(Protocol):
    """Starts the workload in its own processes, and leaves none of them behind."""

    @property
    def pid(self) -> int:
        """Root of the process tree that the workload will be in, known before it starts."""
        ...

    def guard(self, journals: Sequence[Path], *, run: str) -> None:
        """Have what `journals` say put back should the harness end without doing so."""
        ...

    def launch(self, request: LaunchRequest) -> int:
        """Start the program; returns the instant of the start in monotonic ns."""
        ...

    def poll(self) -> LaunchExit | None:
        """How the program ended; None while it runs."""
        ...

    def stop(self, *, grace_s: float) -> None:
        """Ask the program to end (SIGTERM), and end what is left of it after `grace_s`."""
        ...

    def close(self) -> None:
        """End everything that was launched."""
        ...
