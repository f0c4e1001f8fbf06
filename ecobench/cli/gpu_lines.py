"""GPUs as `ecobench doctor` shows them: who they are, as CUDA and as the driver number them, and what stands against
measuring them.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ecobench.errors import EcobenchError

if TYPE_CHECKING:
    from ecobench.nvml import FoundBoard


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One board. `cuda_index` None: a program that is started here does not see it, or its place cannot be told."""

    index: int
    uuid: str
    name: str
    cuda_index: int | None
    limit_requested_w: float | None
    limit_enforced_w: float | None
    limit_default_w: float | None
    limit_min_w: float | None
    limit_max_w: float | None
    has_mig: bool
    is_virtual: bool
    pids: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """The driver and its boards; `problem` says why there is none, or why the choice of GPUs cannot be told."""

    driver: str | None
    nvml: str | None
    cuda: str | None
    gpus: tuple[GpuFacts, ...]
    problem: str | None


def read_gpus() -> DriverFacts:
    """What the driver tells; never raises."""
    from ecobench import nvml
    from ecobench.gpus import GpuId, select_gpus

    try:
        nvml.open_driver()
    except EcobenchError as error:
        return DriverFacts(driver=None, nvml=None, cuda=None, gpus=(), problem=error.message)
    try:
        boards = nvml.find_boards()
        problem = "; ".join(f"GPU {lost.index}: {lost.reason}" for lost in boards.lost) or None
        order: list[str] = []
        try:
            ids = [GpuId(one.index, one.uuid, one.name) for one in boards.found]
            order = [one.uuid for one in select_gpus(None, os.environ, ids).gpus]
        except EcobenchError as error:
            problem = "; ".join(part for part in (problem, error.message) if part)
        versions = nvml.read_versions()
        return DriverFacts(
            driver=versions.driver,
            nvml=versions.nvml,
            cuda=versions.cuda,
            gpus=tuple(_facts(board, order) for board in boards.found),
            problem=problem,
        )
    finally:
        nvml.close_driver()


def gpu_lines(facts: DriverFacts) -> list[str]:
    """A line on the driver, and one for each board."""
    lines = []
    if facts.driver is not None:
        lines.append(f"driver    NVIDIA {facts.driver}, NVML {facts.nvml}, CUDA {facts.cuda}")
    for gpu in facts.gpus:
        cuda = "not visible to CUDA here" if gpu.cuda_index is None else f"cuda:{gpu.cuda_index}"
        lines.append(f"GPU {gpu.index:<5} {gpu.name}, {cuda}, {gpu.uuid}")
        if gpu.limit_enforced_w is not None:
            lines.append(
                f"          limit {_watts(gpu.limit_requested_w)} asked, {_watts(gpu.limit_enforced_w)} in force,"
                f" default {_watts(gpu.limit_default_w)}, {_watts(gpu.limit_min_w)} to {_watts(gpu.limit_max_w)}"
            )
        if gpu.has_mig:
            lines.append("          MIG is on: its energy cannot be told apart by instance")
        if gpu.is_virtual:
            lines.append("          a virtual GPU: its power is not its own")
        if gpu.pids:
            lines.append(f"          in use by {len(gpu.pids)} process(es): {', '.join(map(str, gpu.pids))}")
    if facts.problem is not None and (facts.gpus or facts.driver):
        lines.append(f"          {facts.problem}")
    return lines


def _facts(board: "FoundBoard", order: list[str]) -> GpuFacts:
    from ecobench import nvml

    limits = nvml.read_limits(board)
    return GpuFacts(
        index=board.index,
        uuid=board.uuid,
        name=board.name,
        cuda_index=order.index(board.uuid) if board.uuid in order else None,
        limit_requested_w=limits.requested_w,
        limit_enforced_w=limits.enforced_w,
        limit_default_w=limits.default_w,
        limit_min_w=limits.min_w,
        limit_max_w=limits.max_w,
        has_mig=nvml.has_mig(board),
        is_virtual=nvml.is_virtual(board),
        pids=nvml.compute_pids(board),
    )


def _watts(value: float | None) -> str:
    return "?" if value is None else f"{value:g} W"
