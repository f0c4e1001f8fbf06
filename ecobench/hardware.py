"""What machine a preset is for. Pure: GPUs come in as facts, from whoever may ask a driver."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Architecture = Literal["hopper"]
CAPABILITY: dict[Architecture, tuple[int, int]] = {"hopper": (9, 0)}
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as its driver describes it."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a preset asks of the GPUs, all of them alike.

    Attributes:
        gpus: at least so many.
        architecture: exactly this one, where it is named.
        memory_gib: of each, nominally; boards that are sold with it report a little less.
        is_by_name_only: whether it is never chosen without being named.
    """

    gpus: int = 1
    architecture: Architecture | None = None
    memory_gib: float = 0.0
    is_by_name_only: bool = False

    def are_met_by(self, gpus: Sequence[Gpu]) -> bool:
        """Whether these GPUs can be chosen for."""
        if self.is_by_name_only or len(gpus) < self.gpus:
            return False
        least_bytes = 0.95 * self.memory_gib * GIB
        return all(
            gpu.memory_bytes >= least_bytes
            and (self.architecture is None or gpu.capability == CAPABILITY[self.architecture])
            for gpu in gpus
        )


def ranks_for(gpus: Sequence[Gpu]) -> int:
    """Processes that 8 lanes can be shared among, one a GPU: 1, 2, 4 or 8."""
    return max([n for n in (1, 2, 4, 8) if n <= len(gpus)], default=1)


def describe_gpus(gpus: Sequence[Gpu]) -> str:
    """`8 x NVIDIA H100 80GB HBM3`, or `no GPU`."""
    names = dict.fromkeys(gpu.name for gpu in gpus)
    return ", ".join(f"{sum(gpu.name == name for gpu in gpus)} x {name}" for name in names) or "no GPU"
