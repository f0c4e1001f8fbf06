"""The ranks of one run, and the threads of each.

Alone (`python train.py`, or torchrun with one process) nothing is set up and nothing is sent. A rank is one process
with its own device; `WORLD_SIZE` and `RANK` come from torchrun.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

# Its functions have the process group of the moment it is first imported as a default argument. Optimizers import it
# behind our back, and where that comes after the group was made, the group is never destroyed: its threads then meet an
# interpreter that is being taken down, and now and then a rank that has finished dies of SIGABRT.
import torch.distributed.nn
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among `world`, and what they agree on."""

    rank: int
    world: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def total(self, value: Tensor) -> Tensor:
        """Sum over all ranks, in place."""
        if self.world > 1:
            dist.all_reduce(value)
        return value

    def agree(self, answer: Callable[[], bool]) -> bool:
        """What the first rank answers; the others do not ask, since they could see another answer in the same step."""
        if self.world == 1:
            return answer()
        flag = torch.tensor([self.is_first and answer()], dtype=torch.uint8, device=self.device)
        dist.broadcast(flag, src=0)
        return bool(flag.item())

    def follow(self, number: int) -> int:
        """The first rank's number."""
        if self.world == 1:
            return number
        shared = torch.tensor([number], device=self.device)
        dist.broadcast(shared, src=0)
        return int(shared.item())

    def wait(self) -> None:
        """Until every rank is here."""
        if self.world > 1:
            dist.barrier()

    def share(self, model: nn.Module) -> None:
        """Give every rank the first one's weights."""
        if self.world > 1:
            for parameter in model.parameters():
                dist.broadcast(parameter.data, src=0)

    def sync(self) -> None:
        """Until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()


@contextmanager
def join_ranks(device_name: str) -> Iterator[Ranks]:
    """Meet the other ranks, if there are any, and part from them at the end."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device(device_name)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Ranks(rank=rank, world=world, device=device)
    finally:
        if world > 1:
            dist.destroy_process_group()


def set_threads(n_threads: int, *, world: int) -> None:
    """Give this rank `n_threads`, or its part of the usable cores where that is 0.

    torch's own default is every core of the machine, also where a container may use only some, and torchrun's is one
    thread as soon as there are two ranks.
    """
    torch.set_num_threads(n_threads or max(1, count_usable_cores() // world))


def count_usable_cores() -> int:
    """Physical cores that this process may run on, no more than its control group's CPU quota; 1 or more."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text(encoding="ascii") if siblings.exists() else str(cpu))
    return max(1, min(len(cores), _quota_cores()))


def _quota_cores() -> int:
    try:
        quota_us, period_us = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return len(os.sched_getaffinity(0))
    return len(os.sched_getaffinity(0)) if quota_us == "max" else max(1, int(quota_us) // int(period_us))
