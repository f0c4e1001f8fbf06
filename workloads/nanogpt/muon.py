"""Muon: momentum, orthogonalised. One class for any number of ranks.

An update of a weight matrix is the matrix nearest to its momentum whose singular values are all about 1: every
direction learns at the same rate, not only the few that dominate the gradient. "Nearest" comes from five steps of a
Newton-Schulz iteration, which needs nothing but matrix products.

How the work is shared. Matrices of one shape form a group, padded with zeros to a multiple of the ranks:

    gradients of each rank        [ G0 G1 | G2 G3 | G4 0 ]     3 ranks, 5 matrices of one shape
    reduce-scatter (sum)          rank 0: G0 G1   rank 1: G2 G3   rank 2: G4 0           or all-reduce: `gradient_sync`
    momentum, orthogonalise       each rank on its own matrices only; its momentum is stored nowhere else
    all-gather                    every rank has all updates and applies them

All reductions are under way before the first group is worked on, and updates are gathered while the next group is. One
rank does the same without communication.

Source of the method and its coefficients: the Muon README and record 26 of the NanoGPT speedrun.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from gradient_sync import GradSync, Pending, Shares

# Not the coefficients that converge to 1 but those that lift small singular values fastest: five steps end between
# about 0.68 and 1.13, which is as good for training.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
NORM_EPSILON = 1e-7


def orthogonalise(matrices: Tensor) -> Tensor:
    """Singular values of each matrix of `(n, rows, cols)` moved to about 1, singular vectors kept.

    In bf16 on CUDA; on a CPU in the matrices' own type, since bf16 takes twice as long as fp32 there (measured).
    """
    a, b, c = NEWTON_SCHULZ
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    is_tall = x.size(-2) > x.size(-1)
    if is_tall:
        x = x.mT
    # The Frobenius norm bounds the largest singular value, and the iteration needs all of them at or below 1.
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + NORM_EPSILON)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return (x.mT if is_tall else x).to(matrices.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShapeGroup:
    """All parameters whose matrices have one shape."""

    parameters: list[Tensor]
    shape: tuple[int, int]


class Muon(Optimizer):
    """Muon over matrices: parameters `(rows, cols)`, or `(n, rows, cols)` for n matrices that lie together.

    Gradients are summed over the ranks, not averaged: the update does not depend on their scale.

    Args:
        lr: size of an update, in units of its spectral norm, times what `scaling` says.
        momentum: share of the old momentum that stays, with Nesterov's look ahead.
        weight_decay: in units of `lr`.
        shares: how ranks share the work, and how their gradients meet; one rank by default.
        scaling: `aspect`, sqrt(rows/cols) for tall matrices, else 1; or `size`, the root of the longer side.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        shares: Shares | None = None,
        scaling: str = "aspect",
    ) -> None:
        super().__init__(list(parameters), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        assert len(self.param_groups) == 1, "one group: shapes decide what is worked on together, not groups"
        self.shares = shares or Shares(rank=0, world=1, sync=GradSync.REDUCE_SCATTER)
        self.scaling = scaling
        self._shape_groups = self._group_by_shape()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002  # torch's signature
        """One update of every matrix. Each rank must call it in the same order."""
        reductions = [self.shares.start_reduction(_gradients_of(group)) for group in self._shape_groups]
        if self.shares.sync is GradSync.ALL_REDUCE:
            for reduction in reductions:
                reduction.wait()
        gathers = [
            self._start_gather(group, reduction)
            for group, reduction in zip(self._shape_groups, reductions, strict=True)
        ]
        for group, updates in zip(self._shape_groups, gathers, strict=True):
            self._apply(group, updates.wait())

    def _group_by_shape(self) -> list[_ShapeGroup]:
        by_shape: dict[tuple[int, int], list[Tensor]] = {}
        for parameter in self.param_groups[0]["params"]:
            if parameter.dim() not in (2, 3):
                raise ValueError(f"Muon takes matrices, not a parameter of shape {tuple(parameter.shape)}")
            by_shape.setdefault((parameter.size(-2), parameter.size(-1)), []).append(parameter)
        return [_ShapeGroup(parameters=parameters, shape=shape) for shape, parameters in by_shape.items()]

    def _start_gather(self, group: _ShapeGroup, reduction: Pending) -> Pending:
        """Updates of all matrices `(n or more, rows, cols)`, this rank's made here."""
        gradient = reduction.wait()
        momentum = self.param_groups[0]["momentum"]
        # Keyed by the group's first parameter, so that state_dict and load_state_dict carry it as any other state.
        state = self.state[group.parameters[0]]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        buffer = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return self.shares.start_gather(orthogonalise(gradient.lerp(buffer, momentum)))

    def _apply(self, group: _ShapeGroup, updates: Tensor) -> None:
        options = self.param_groups[0]
        rows, cols = group.shape
        scale = max(1.0, rows / cols) ** 0.5 if self.scaling == "aspect" else max(rows, cols) ** 0.5
        start = 0
        for parameter in group.parameters:
            matrices = parameter.view(-1, rows, cols)
            if options["weight_decay"]:
                matrices.mul_(1 - options["lr"] * options["weight_decay"])
            matrices.add_(updates[start : start + len(matrices)], alpha=-options["lr"] * scale)
            start += len(matrices)


def _gradients_of(group: _ShapeGroup) -> Tensor:
    """All gradients of a group, `(n, rows, cols)`."""
    missing = [parameter for parameter in group.parameters if parameter.grad is None]
    assert not missing, "every matrix needs a gradient in every step"
    return torch.cat([p.grad.view(-1, *group.shape) for p in group.parameters if p.grad is not None])
