"""Which optimizer trains which parameter: Muon the matrices of the blocks, AdamW the rest; or AdamW everything.

The model says which role each parameter has, and a role has a learning rate. Every trained parameter is in exactly one
optimizer; that is checked, since one that is in none trains badly without a word. Learning rates are set each step from
one share that the schedule gives.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn
from torch.optim import Optimizer

from adam import SharedAdamW
from gradient_sync import GradSync, Shares
from muon import Muon

# Far below the usual 0.9/0.999: runs of some hundred steps have no time for long memories. Source: record 26.
ADAM_BETAS = (0.8, 0.95)
ADAM_EPSILON = 1e-10


class HasRoles(Protocol):
    """A model that says what its parameters are for."""

    def roles(self) -> dict[str, list[nn.Parameter]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Learning rates at the start of a run: of Muon in spectral norm per update, the others per coordinate.

    Attributes:
        adamw: of the matrices where AdamW trains them.
    """

    matrix: float
    embedding: float
    head: float
    scalar: float = 0.04
    adamw: float = 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """All that is chosen about the optimizers.

    Attributes:
        is_muon: whether Muon trains the matrices.
        adam_betas: of embedding, head and scalars.
        adamw_betas: of the matrices where AdamW trains them.
        weight_decay: in units of the learning rate, of everything but scalars.
        muon_scaling: `aspect` or `size`, see Muon.
        clip: norm that the mean gradient is clipped to, over all parameters; 0: not.
        n_tokens: of a step.
    """

    rates: Rates
    is_muon: bool = True
    adam_betas: tuple[float, float] = ADAM_BETAS
    adam_epsilon: float = ADAM_EPSILON
    adamw_betas: tuple[float, float] = (0.6, 0.9)
    weight_decay: float = 0.0
    muon_scaling: str = "aspect"
    clip: float = 0.0
    n_tokens: int = 1
    shares: Shares = field(default_factory=lambda: Shares(rank=0, world=1, sync=GradSync.REDUCE_SCATTER))

    def __post_init__(self) -> None:
        if self.clip and self.is_muon:
            raise ValueError("gradient_clip needs optimizer=adamw: Muon's updates have a size of their own")


class Optimizers:
    """Both optimizers as one: `step`, `clear`, and a state to keep and put back."""

    def __init__(self, model: HasRoles, config: OptimizerConfig) -> None:
        roles = model.roles()
        rates, decay = config.rates, config.weight_decay
        adam_groups: list[dict[str, Any]] = [
            {"params": roles["embedding"], "lr": rates.embedding, "weight_decay": decay},
            {"params": roles["head"], "lr": rates.head, "weight_decay": decay},
            {"params": roles["scalar"], "lr": rates.scalar, "weight_decay": 0.0},
        ]
        adam_groups = [{**group, "betas": config.adam_betas} for group in adam_groups]
        self.muon = None
        if config.is_muon:
            self.muon = Muon(
                roles["matrix"],
                lr=rates.matrix,
                weight_decay=decay,
                shares=config.shares,
                scaling=config.muon_scaling,
            )
        else:
            adam_groups.append(
                {"params": roles["matrix"], "lr": rates.adamw, "betas": config.adamw_betas, "weight_decay": decay}
            )
        self.adam = SharedAdamW(
            [group for group in adam_groups if group["params"]],
            epsilon=config.adam_epsilon,
            shares=config.shares,
            clip=config.clip,
            n_tokens=config.n_tokens,
        )
        for group in self._groups():
            group["initial_lr"] = group["lr"]

    @property
    def parameters(self) -> list[Tensor]:
        """Everything that is trained."""
        return [*(self.muon.param_groups[0]["params"] if self.muon else ()), *self.adam.parameters]

    def step(self, *, rate_share: float, momentum: float) -> None:
        """One update, every learning rate times `rate_share`. Gradients are sums over ranks and lanes."""
        for group in self._groups():
            group["lr"] = group["initial_lr"] * rate_share
        # AdamW's gradients are few and travel while Muon computes.
        reductions = self.adam.start_reductions()
        if self.muon is not None:
            self.muon.param_groups[0]["momentum"] = momentum
            self.muon.step()
        self.adam.step(reductions)

    def clear(self) -> None:
        """Forget the gradients."""
        if self.muon is not None:
            self.muon.zero_grad(set_to_none=True)
        self.adam.clear()

    def state(self) -> list[dict[str, Any]]:
        """All state, to be kept by the caller: later steps do not change it."""
        return [copy.deepcopy(optimizer.state_dict()) for optimizer in self._all()]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Put back what `state` gave, also where that was before the first step."""
        for optimizer, kept in zip(self._all(), state, strict=True):
            optimizer.load_state_dict(copy.deepcopy(kept))
        self.clear()

    def _all(self) -> Iterator[Optimizer]:
        if self.muon is not None:
            yield self.muon
        yield self.adam.adam

    def _groups(self) -> Iterable[dict[str, Any]]:
        return [group for optimizer in self._all() for group in optimizer.param_groups]


def check_each_in_one(named: Mapping[str, Tensor], trained: Iterable[Tensor]) -> None:
    """Every parameter is trained exactly once, and nothing else is.

    Raises:
        ValueError: names the parameters that are not.
    """
    counts: dict[Tensor, int] = dict.fromkeys(named.values(), 0)
    for parameter in trained:
        if parameter not in counts:
            raise ValueError(f"a parameter of shape {tuple(parameter.shape)} is optimized but not the model's")
        counts[parameter] += 1
    wrong = [f"{name} in {counts[parameter]}" for name, parameter in named.items() if counts[parameter] != 1]
    if wrong:
        raise ValueError(f"each parameter belongs in exactly one optimizer: {', '.join(wrong)}")
