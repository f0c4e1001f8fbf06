"""AdamW, shared by the ranks as the gradients are.

torch's own AdamW does the arithmetic. With reduce-scatter each rank runs it on its part of every parameter, a view, and
keeps the moments of that part only; then the parts are gathered. With all-reduce, and alone, it runs on the whole.

Gradients come in as sums over all tokens of a step. Where they are clipped, they become means first, since the norm
that they are clipped to is one of means.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import AdamW

from gradient_sync import GradSync, Pending, Shares


@dataclass(frozen=True, slots=True)
class _Part:
    """A parameter, and this rank's part of it as a view; the whole where the optimizer is not shared out."""

    parameter: Tensor
    view: Tensor


class SharedAdamW:
    """AdamW over groups of parameters, each with its rate, betas and decay.

    Args:
        groups: as torch's optimizers take them.
        epsilon: added to the root of the second moment, torch's way (after the correction of its bias).
        clip: norm of the mean gradient that is kept; 0: not clipped, and gradients stay sums.
        n_tokens: that a step's gradient sums over.
    """

    def __init__(
        self,
        groups: Iterable[Mapping[str, Any]],
        *,
        epsilon: float,
        shares: Shares,
        clip: float = 0.0,
        n_tokens: int = 1,
    ) -> None:
        self.shares = shares
        self.clip = clip
        self.n_tokens = n_tokens
        self.is_shared_out = shares.world > 1 and shares.sync is not GradSync.ALL_REDUCE
        self._parts: list[_Part] = []
        cut_groups = []
        for group in groups:
            parts = [self._cut(parameter) for parameter in group["params"]]
            self._parts += parts
            cut_groups.append({**group, "params": [part.view for part in parts]})
        self.adam = AdamW(cut_groups, eps=epsilon, weight_decay=0.0, fused=True)

    @property
    def parameters(self) -> list[Tensor]:
        """What it trains."""
        return [part.parameter for part in self._parts]

    def start_reductions(self) -> list[Pending]:
        """Send off all gradients; `step` takes what this returns."""
        return [self._start_reduction(part) for part in self._parts]

    @torch.no_grad()
    def step(self, reductions: Sequence[Pending]) -> None:
        """One update, once the gradients are there."""
        for part, reduction in zip(self._parts, reductions, strict=True):
            part.view.grad = self._trimmed(part, reduction.wait())
        if self.clip:
            self._clip()
        self.adam.step()
        if self.is_shared_out:
            self._gather()

    def clear(self) -> None:
        """Forget the gradients."""
        for part in self._parts:
            part.parameter.grad = part.view.grad = None

    def _cut(self, parameter: Tensor) -> _Part:
        if not self.is_shared_out:
            return _Part(parameter, parameter)
        start, n_rows = self.shares.share_of(parameter.numel())
        return _Part(parameter, parameter.detach().view(-1)[start : start + n_rows])

    def _start_reduction(self, part: _Part) -> Pending:
        assert part.parameter.grad is not None, "every parameter needs a gradient in every step"
        if self.is_shared_out:
            return self.shares.start_reduction(part.parameter.grad.view(-1))
        return self.shares.start_sum(part.parameter.grad)

    def _trimmed(self, part: _Part, gradient: Tensor) -> Tensor:
        """Without the padding that the last ranks' parts have."""
        return gradient[: len(part.view)] if self.is_shared_out else gradient

    def _clip(self) -> None:
        gradients = [part.view.grad for part in self._parts if part.view.grad is not None]
        square = torch.stack([gradient.float().square().sum() for gradient in gradients]).sum()
        if self.is_shared_out and self.shares.sync is not GradSync.OFF:
            dist.all_reduce(square)
        norm = square.sqrt() / self.n_tokens
        factor = torch.clamp(self.clip / (norm + 1e-6), max=1.0) / self.n_tokens
        for gradient in gradients:
            gradient.mul_(factor)

    def _gather(self) -> None:
        gathers = []
        for part in self._parts:
            _, n_rows = self.shares.share_of(part.parameter.numel())
            whole = part.view.new_zeros(n_rows)
            whole[: len(part.view)] = part.view
            gathers.append(self.shares.start_gather(whole))
        for part, gather in zip(self._parts, gathers, strict=True):
            whole = gather.wait()
            if self.shares.sync is not GradSync.OFF:
                part.parameter.view(-1).copy_(whole[: part.parameter.numel()])
