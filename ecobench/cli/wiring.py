"""Chooses the implementations behind the seams. Nothing else does."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ecobench.clock import LiveClock
from ecobench.errors import MeterError, StoreError
from ecobench.launcher import SupervisedLauncher
from ecobench.measurement import MeterInfo, ReadingKind
from ecobench.meters import Discovery, discover
from ecobench.seams import Clock, Launcher, SecondOpinion

if TYPE_CHECKING:
    from ecobench.controls.nvml import NvmlControl
    from ecobench.controls.recovery import PutBack
    from ecobench.gpus import Selection
    from ecobench.hardware import Gpu
    from ecobench.meters.sensor_probe import ProbedBoard


def make_clock() -> Clock:
    """The machine's own clock."""
    return LiveClock()


def make_launcher() -> Launcher:
    """A supervisor for one trial."""
    return SupervisedLauncher()


def meter_finder(choice: str, gpu_uuids: Sequence[str] | None = None) -> Callable[[int], Discovery]:
    """Opens the meters of `choice` for a trial, given the root of the workload's process tree."""

    def find(root_pid: int) -> Discovery:
        found = discover(choice, root_pid=root_pid, gpu_uuids=gpu_uuids)
        if not any(meter.info.device for meter in found.meters):
            return found
        from ecobench.cli.calibrated import with_ratios
        from ecobench.meters.sensor_probe import driver_version
        from ecobench.store.calibrations import read_calibration

        calibrated = with_ratios(found.meters, find=read_calibration, driver=driver_version())
        return dataclasses.replace(found, meters=calibrated)

    return find


def choose_gpus(typed: str | None) -> "Selection | None":
    """The GPUs of `--gpus`, else those that CUDA would see; None where there is no GPU to choose from.

    Raises:
        RequestError: one that is named is not there.
        MeterError: GPUs were asked for, and there is no driver.
    """
    from ecobench.gpus import GpuId, select_gpus

    try:
        from ecobench.nvml import close_driver, find_boards, open_driver

        open_driver()
    except (ImportError, MeterError) as error:
        if typed is None:
            return None
        if isinstance(error, MeterError):
            raise MeterError(f"--gpus {typed}: {error.message}", hint=error.hint) from error
        raise MeterError(f"--gpus {typed}: {error}", hint="pip install nvidia-ml-py") from error
    try:
        boards = [GpuId(one.index, one.uuid, one.name) for one in find_boards().found]
    finally:
        close_driver()
    return select_gpus(typed, os.environ, boards) if boards or typed is not None else None


def open_control(
    power_limit: str | None, sm_clock: str | None, gpu_uuids: Sequence[str] | None = None
) -> "tuple[NvmlControl | None, tuple[PutBack, ...]]":
    """What the run will set, tried and locked, and what runs before it had left to put back."""
    if power_limit is None and sm_clock is None:
        # No folder for journals: nothing was ever set from here, and this run sets nothing.
        with contextlib.suppress(StoreError):
            return None, put_left_back()
        return None, ()
    from ecobench.controls.nvml import NvmlControl

    return NvmlControl.open(power_limit, sm_clock, environment=os.environ, uuids=gpu_uuids)


def find_gpus(gpu_uuids: Sequence[str] | None = None) -> "tuple[Gpu, ...]":
    """The GPUs that a preset may be chosen for."""
    from ecobench.controls.board import describe_boards

    return describe_boards(gpu_uuids)


@contextmanager
def second_opinion(meters: Sequence[MeterInfo]) -> Iterator[SecondOpinion | None]:
    """Zeus, on the GPUs whose energy counter is a meter of the run; None where there is no such GPU."""
    gpus = {
        info.domain: info.device or info.domain.partition(":")[2]  # `gpu:3` is the driver's own index
        for info in meters
        if info.interface == "nvml" and info.kind is ReadingKind.ENERGY_COUNTER and info.domain.startswith("gpu:")
    }
    if not gpus:
        yield None
        return
    from ecobench.meters.zeus import ZeusProcess

    zeus = ZeusProcess(gpus)
    try:
        yield zeus
    finally:
        zeus.close()


@contextmanager
def calibration_probes() -> "Iterator[tuple[list[ProbedBoard], str]]":
    """Every board's readings, polled quickly, and the driver that they come through."""
    from ecobench.meters.sensor_probe import close_probes, driver_version, open_probes

    boards = open_probes()
    try:
        yield boards, driver_version() or "unknown"
    finally:
        close_probes(boards)


def put_left_back() -> "tuple[PutBack, ...]":
    """Put back what runs that were killed have left set. Without any, no driver is loaded."""
    from ecobench.controls.journal import find_journals, runtime_folder

    folder = runtime_folder(os.environ)
    if not find_journals(folder):
        return ()
    from ecobench.controls.recovery import put_all_back

    return put_all_back(folder)
