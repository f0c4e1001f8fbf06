"""How gradients of the ranks become one, in three ways that give the same update (but for the last).

    reduce-scatter    each rank gets the sum of its share only, updates it, and sends the new share to all
    all-reduce        each rank gets the sum of everything, before any update; what is not shared out is updated by all
    off               nothing is sent: each rank goes its own way. Only to see what communication costs

Reductions are started together and waited for one by one, so that work on the first hides the others' way. Sums, not
means: Muon and Adam do not depend on the scale of a gradient.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from spans import Spans

reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class GradSync(StrEnum):
    """Which way."""

    REDUCE_SCATTER = "reduce-scatter"
    ALL_REDUCE = "all-reduce"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Pending:
    """A tensor that is right once the work is done."""

    tensor: Tensor
    work: Any = None
    spans: Spans | None = None

    def wait(self) -> Tensor:
        """The tensor; on CUDA the stream waits, not this process."""
        if self.work is not None:
            with self.spans.measure("communication") if self.spans is not None else nullcontext():
                self.work.wait()
        return self.tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Splits a first dimension over the ranks in equal parts, padded with zeros at the end."""

    rank: int
    world: int
    sync: GradSync
    spans: Spans | None = None

    def share_of(self, total: int) -> tuple[int, int]:
        """Where this rank's part of `total` rows begins, and how many rows each rank's has."""
        n_rows = -(-total // self.world)
        return self.rank * n_rows, n_rows

    def start_reduction(self, gradient: Tensor) -> Pending:
        """This rank's part of the sum over all ranks of `gradient`."""
        if self.world == 1:
            return Pending(gradient)
        padded, own = self._padded(gradient), self._own(len(gradient))
        if self.sync is GradSync.OFF:
            return Pending(padded[own])
        if self.sync is GradSync.ALL_REDUCE:
            padded = padded.clone() if padded is gradient else padded
            return Pending(padded[own], dist.all_reduce(padded, async_op=True), self.spans)
        # A buffer of its own for what arrives: one that is also sent from would be a race.
        arriving = gradient.new_empty(own.stop - own.start, *gradient.shape[1:])
        return Pending(arriving, reduce_scatter(arriving, padded.contiguous(), async_op=True), self.spans)

    def start_sum(self, gradient: Tensor) -> Pending:
        """The whole sum over all ranks, in place."""
        if self.world == 1 or self.sync is GradSync.OFF:
            return Pending(gradient)
        return Pending(gradient, dist.all_reduce(gradient, async_op=True), self.spans)

    def start_gather(self, part: Tensor) -> Pending:
        """All ranks' parts one after the other; without communication, zeros where another rank's would be."""
        if self.world == 1:
            return Pending(part)
        if self.sync is GradSync.OFF:
            whole = part.new_zeros(self.world * len(part), *part.shape[1:])
            whole[self.rank * len(part) : (self.rank + 1) * len(part)] = part
            return Pending(whole)
        whole = part.new_empty(self.world * len(part), *part.shape[1:])
        return Pending(whole, all_gather(whole, part.contiguous(), async_op=True), self.spans)

    def _own(self, total: int) -> slice:
        start, n_rows = self.share_of(total)
        return slice(start, start + n_rows)

    def _padded(self, gradient: Tensor) -> Tensor:
        n_missing = -len(gradient) % self.world
        return F.pad(gradient, (*(0, 0) * (gradient.dim() - 1), 0, n_missing)) if n_missing else gradient
