"""Which optimizer trains which parameter: Muon the matrices of the blocks, Adam the rest.

Every trained parameter is in exactly one optimizer; that is checked, since one that is in none trains badly without a
word. Learning rates are set each step from one share that the schedule gives.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from model import Gpt
from muon import Muon

# Far below the usual 0.9/0.999: runs of some hundred steps have no time for long memories. Source: record 26.
ADAM_BETAS = (0.8, 0.95)
ADAM_EPSILON = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Learning rates at the start of a run: `matrix` in spectral norm per update, the others per coordinate."""

    matrix: float
    embedding: float
    head: float


class Optimizers:
    """Both optimizers as one: `step`, `clear`, and a state to keep and put back."""

    def __init__(self, model: Gpt, rates: Rates, *, rank: int = 0, world: int = 1) -> None:
        self.world = world
        self.muon = Muon(model.blocks.parameters(), lr=rates.matrix, rank=rank, world=world)
        self.adam = Adam(
            [
                {"params": [model.embedding], "lr": rates.embedding},
                {"params": [model.head], "lr": rates.head},
            ],
            betas=ADAM_BETAS,
            eps=ADAM_EPSILON,
            fused=True,
        )
        self._all: tuple[Optimizer, ...] = (self.muon, self.adam)
        check_each_in_one(model, self._all)
        for group in self._groups():
            group["initial_lr"] = group["lr"]

    def step(self, *, rate_share: float, momentum: float) -> None:
        """One update, every learning rate times `rate_share`. Gradients are sums over ranks and lanes."""
        for group in self._groups():
            group["lr"] = group["initial_lr"] * rate_share
        self.muon.param_groups[0]["momentum"] = momentum
        # Adam's gradients are few and travel while Muon computes.
        reductions = [
            dist.all_reduce(parameter.grad, async_op=True)
            for group in self.adam.param_groups
            for parameter in group["params"]
            if self.world > 1
        ]
        self.muon.step()
        for reduction in reductions:
            reduction.wait()
        self.adam.step()

    def clear(self) -> None:
        """Forget the gradients."""
        for optimizer in self._all:
            optimizer.zero_grad(set_to_none=True)

    def state(self) -> list[dict[str, Any]]:
        """All state, to be kept by the caller: later steps do not change it."""
        return [copy.deepcopy(optimizer.state_dict()) for optimizer in self._all]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Put back what `state` gave, also where that was before the first step."""
        for optimizer, kept in zip(self._all, state, strict=True):
            optimizer.load_state_dict(copy.deepcopy(kept))
        self.clear()

    def _groups(self) -> Iterable[dict[str, Any]]:
        return [group for optimizer in self._all for group in optimizer.param_groups]


def check_each_in_one(model: nn.Module, optimizers: Iterable[Optimizer]) -> None:
    """Every parameter that is trained is in exactly one optimizer, and nothing else is.

    Raises:
        ValueError: names the parameters that are not.
    """
    counts: dict[Tensor, int] = {parameter: 0 for parameter in model.parameters() if parameter.requires_grad}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter not in counts:
                    raise ValueError(f"a parameter of shape {tuple(parameter.shape)} is optimized but not the model's")
                counts[parameter] += 1
    named = [(name, counts[parameter]) for name, parameter in model.named_parameters() if parameter.requires_grad]
    wrong = [f"{name} in {count}" for name, count in named if count != 1]
    if wrong:
        raise ValueError(f"each parameter belongs in exactly one optimizer: {', '.join(wrong)}")
