"""The loader: which tokens a step sees. The same for any number of ranks.

A step is always 8 lanes of equal length, cut from the stream one after the other. A rank does 8/world of them:

    stream      | lane 0 | lane 1 | lane 2 | lane 3 | lane 4 | lane 5 | lane 6 | lane 7 | next step ...
    2 ranks     |            rank 0                 |            rank 1                 |

A target is the token behind; the last one of a step is the first token of the next. Nothing is drawn at random: the
shards are shuffled when they are made.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokens import Tokens, read_shard

N_LANES = 8


class Lanes(NamedTuple):
    """Tokens and their successors, each int64 `(n_lanes, length)`."""

    tokens_BT: Tensor
    targets_BT: Tensor

    def split(self, n_lanes: int) -> "Iterator[Lanes]":
        """The same lanes, at most `n_lanes` at a time."""
        return map(Lanes, self.tokens_BT.split(n_lanes), self.targets_BT.split(n_lanes))


class LaneLoader:
    """Goes through shards in their order, a step at a time. The rest of a shard too short for a step is left out; after
    the last shard comes the first.

    Raises:
        ValueError: the ranks do not divide the lanes, or no shard holds a whole step.
    """

    def __init__(self, paths: Sequence[Path], *, lane_length: int, rank: int = 0, world: int = 1) -> None:
        if N_LANES % world:
            raise ValueError(f"{world} ranks: a step is {N_LANES} lanes, so 1, 2, 4 or 8 ranks can share it")
        self.lane_length = lane_length
        self._shards: list[Tokens] = [read_shard(path) for path in paths]
        self._n_step_tokens = N_LANES * lane_length
        self._own = slice(rank * N_LANES // world, (rank + 1) * N_LANES // world)
        self._shard = 0
        self._position = 0
        longest = max(len(shard) for shard in self._shards)
        if longest < self._n_step_tokens + 1:
            raise ValueError(f"a step takes {self._n_step_tokens + 1} tokens, the longest shard has {longest}")

    @property
    def state(self) -> tuple[int, int]:
        """Where the next step begins: shard, and position in it."""
        return self._shard, self._position

    def restore(self, state: tuple[int, int]) -> None:
        """Go to what `state` gave."""
        self._shard, self._position = state

    def next_step(self) -> Lanes:
        """This rank's lanes of the next step."""
        while self._position + self._n_step_tokens + 1 > len(self._shards[self._shard]):
            self._shard, self._position = (self._shard + 1) % len(self._shards), 0
        start = self._position
        self._position += self._n_step_tokens
        stream = self._shards[self._shard][start : start + self._n_step_tokens + 1]
        tokens = torch.from_numpy(stream.astype(np.int64))
        return Lanes(
            tokens[:-1].view(N_LANES, self.lane_length)[self._own],
            tokens[1:].view(N_LANES, self.lane_length)[self._own],
        )
