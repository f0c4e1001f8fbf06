"""Muon: momentum, orthogonalised. One class for any number of ranks.

An update of a weight matrix is the matrix nearest to its momentum whose singular values are all about 1: every
direction learns at the same rate, not only the few that dominate the gradient. "Nearest" comes from five steps of a
Newton-Schulz iteration, which needs nothing but matrix products.

How the work is shared. Matrices of one shape form a group, padded with zeros to a multiple of the ranks:

    gradients of each rank        [ G0 G1 | G2 G3 | G4 0 ]     3 ranks, 5 matrices of one shape
    reduce-scatter (sum)          rank 0: G0 G1   rank 1: G2 G3   rank 2: G4 0
    momentum, orthogonalise       each rank on its own matrices only; its momentum is stored nowhere else
    all-gather                    every rank has all updates and applies them

All reductions are under way before the first group is worked on, and updates are gathered while the next group is. One
rank does the same without communication.

Source of the method and its coefficients: the Muon README and record 26 of the NanoGPT speedrun.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

# Not the coefficients that converge to 1 but those that lift small singular values fastest: five steps end between
# about 0.68 and 1.13, which is as good for training.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
NORM_EPSILON = 1e-7

reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


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
    """All matrices of one shape, as views into their parameters, and this rank's share of them."""

    parameters: list[Tensor]
    shape: tuple[int, int]
    n_matrices: int
    n_owned: int
    first_owned: int


class Muon(Optimizer):
    """Muon over matrices: parameters `(rows, cols)`, or `(n, rows, cols)` for n matrices that lie together.

    Gradients are summed over the ranks, not averaged: the update does not depend on their scale.

    Args:
        lr: size of an update, in units of its spectral norm; times sqrt(rows/cols) for tall matrices.
        momentum: share of the old momentum that stays, with Nesterov's look ahead.
        weight_decay: in units of `lr`.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        super().__init__(list(parameters), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        assert len(self.param_groups) == 1, "one group: shapes decide what is worked on together, not groups"
        self.rank = rank
        self.world = world
        self._shape_groups = self._group_by_shape()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002  # torch's signature
        """One update of every matrix. Each rank must call it in the same order."""
        reductions = [self._start_reduction(group) for group in self._shape_groups]
        gathers = []
        for group, (gradient, work) in zip(self._shape_groups, reductions, strict=True):
            if work is not None:
                work.wait()
            gathers.append(self._start_gather(group, self._update_of(group, gradient)))
        for group, (update, work) in zip(self._shape_groups, gathers, strict=True):
            if work is not None:
                work.wait()
            self._apply(group, update)

    def _group_by_shape(self) -> list[_ShapeGroup]:
        by_shape: dict[tuple[int, int], list[Tensor]] = {}
        for parameter in self.param_groups[0]["params"]:
            if parameter.dim() not in (2, 3):
                raise ValueError(f"Muon takes matrices, not a parameter of shape {tuple(parameter.shape)}")
            by_shape.setdefault((parameter.size(-2), parameter.size(-1)), []).append(parameter)
        groups = []
        for shape, parameters in by_shape.items():
            n_matrices = sum(parameter.numel() for parameter in parameters) // (shape[0] * shape[1])
            n_owned = -(-n_matrices // self.world)
            groups.append(
                _ShapeGroup(
                    parameters=parameters,
                    shape=shape,
                    n_matrices=n_matrices,
                    n_owned=n_owned,
                    first_owned=self.rank * n_owned,
                )
            )
        return groups

    def _start_reduction(self, group: _ShapeGroup) -> tuple[Tensor, Any]:
        """This rank's matrices of the summed gradient `(n_owned, rows, cols)`, there once the work is done."""
        missing = [p for p in group.parameters if p.grad is None]
        assert not missing, "every matrix needs a gradient in every step"
        gradients = torch.cat([p.grad.view(-1, *group.shape) for p in group.parameters if p.grad is not None])
        if self.world == 1:
            return gradients, None
        n_padding = group.n_owned * self.world - group.n_matrices
        gradients = torch.cat([gradients, gradients.new_zeros(n_padding, *group.shape)]) if n_padding else gradients
        owned = gradients.new_empty(group.n_owned, *group.shape)
        return owned, reduce_scatter(owned, gradients, op=dist.ReduceOp.SUM, async_op=True)

    def _update_of(self, group: _ShapeGroup, gradient: Tensor) -> Tensor:
        momentum = self.param_groups[0]["momentum"]
        # Keyed by the group's first parameter, so that state_dict and load_state_dict carry it as any other state.
        state = self.state[group.parameters[0]]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        buffer = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return orthogonalise(gradient.lerp(buffer, momentum))

    def _start_gather(self, group: _ShapeGroup, owned: Tensor) -> tuple[Tensor, Any]:
        """Updates of all matrices `(n_matrices or more, rows, cols)`, there once the work is done."""
        if self.world == 1:
            return owned, None
        updates = owned.new_empty(group.n_owned * self.world, *group.shape)
        return updates, all_gather(updates, owned.contiguous(), async_op=True)

    def _apply(self, group: _ShapeGroup, updates: Tensor) -> None:
        options = self.param_groups[0]
        rows, cols = group.shape
        scale = max(1.0, rows / cols) ** 0.5
        start = 0
        for parameter in group.parameters:
            matrices = parameter.view(-1, rows, cols)
            if options["weight_decay"]:
                matrices.mul_(1 - options["lr"] * options["weight_decay"])
            matrices.add_(updates[start : start + len(matrices)], alpha=-options["lr"] * scale)
            start += len(matrices)
