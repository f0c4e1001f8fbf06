"""The loader: which tokens a step sees. The same for any number of ranks.

A step is always 8 lanes of equal length. A rank does 8/world of them. Plainly they are cut one after the other:

    stream      | lane 0 | lane 1 | lane 2 | lane 3 | lane 4 | lane 5 | lane 6 | lane 7 | next step ...
    2 ranks     |            rank 0                 |            rank 1                 |

Aligned, each begins where a document does, so that no lane opens with the rest of one; what lies between the end of a
lane and the next beginning of a document is skipped:

    documents   |a    |b  |c          |d |e     |f ...
    lanes       |a  b  c  |   skipped |d  e  f  |

A target is the token behind, also that of a lane's last token. Nothing is drawn at random: the shards are shuffled when
they are made. The next step is cut while the device works on this one.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from tokens import Tokens, read_shard

N_LANES = 8

Position: TypeAlias = tuple[int, int]


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

    Args:
        separator: the token that lanes begin with; None: they are cut one after the other.
        prefetches: whether the next step is cut in the background, into memory that a GPU copies from by itself.

    Raises:
        ValueError: the ranks do not divide the lanes, or no shard holds a whole step.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        lane_length: int,
        rank: int = 0,
        world: int = 1,
        separator: int | None = None,
        prefetches: bool = False,
    ) -> None:
        if N_LANES % world:
            raise ValueError(f"{world} ranks: a step is {N_LANES} lanes, so 1, 2, 4 or 8 ranks can share it")
        self.lane_length = lane_length
        self.paths = tuple(paths)
        self._separator = separator
        self._n_step_tokens = N_LANES * lane_length
        self._own = slice(rank * N_LANES // world, (rank + 1) * N_LANES // world)
        self._background = ThreadPoolExecutor(1, "loader") if prefetches else None
        self._next: Future[tuple[Lanes, Position]] | None = None
        self._position: Position = (0, 0)
        self.open()
        longest = max(len(shard) for shard in self._shards)
        if longest <= self._n_needed:
            raise ValueError(f"a step takes {self._n_needed + 1} tokens, the longest shard has {longest}")

    @property
    def state(self) -> Position:
        """Where the next step begins: shard, and position in it."""
        return self._position

    def restore(self, state: Position) -> None:
        """Go to what `state` gave."""
        self._position = state
        self._next = None

    def open(self) -> None:
        """Map all shards anew."""
        self._next = None
        self._shards: list[Tokens] = [read_shard(path) for path in self.paths]

    def close(self) -> None:
        """Let go of all shards, until `open`."""
        if self._next is not None:
            self._next.result()
        self._next = None
        self._shards = []

    def next_step(self) -> Lanes:
        """This rank's lanes of the next step."""
        cut = self._next.result() if self._next is not None else self._cut(self._position)
        lanes, self._position = cut
        if self._background is not None:
            self._next = self._background.submit(self._cut, self._position)
        return lanes

    @property
    def _n_needed(self) -> int:
        """Tokens behind a position that a shard must have, and one more; gaps at documents' ends are allowed for."""
        return self._n_step_tokens if self._separator is None else 2 * self._n_step_tokens + 1

    def _cut(self, position: Position) -> tuple[Lanes, Position]:
        for _ in range(len(self._shards) + 1):
            number, at = position
            if at + self._n_needed < len(self._shards[number]):
                starts = self._find_starts(self._shards[number], at)
                if starts is not None:
                    return self._read(number, starts), (number, starts[-1] + self.lane_length)
            position = ((number + 1) % len(self._shards), 0)
        raise ValueError(f"no shard has {N_LANES} documents that begin {self.lane_length} tokens apart")

    def _find_starts(self, shard: Tokens, at: int) -> list[int] | None:
        if self._separator is None:
            return [at + lane * self.lane_length for lane in range(N_LANES)]
        last = len(shard) - self.lane_length - 1
        n_searched = self._n_needed
        while True:  # nearly always one round: documents are short beside lanes
            beginnings = at + np.flatnonzero(shard[at : min(at + n_searched, last + 1)] == self._separator)
            starts: list[int] = []
            while len(starts) < N_LANES:
                earliest = starts[-1] + self.lane_length if starts else at
                index = int(np.searchsorted(beginnings, earliest))
                if index == len(beginnings):
                    break
                starts.append(int(beginnings[index]))
            if len(starts) == N_LANES:
                return starts
            if at + n_searched > last:
                return None
            n_searched *= 2

    def _read(self, number: int, starts: Sequence[int]) -> Lanes:
        shard = self._shards[number]
        cuts = np.stack([shard[start : start + self.lane_length + 1] for start in starts[self._own]])
        tokens = torch.from_numpy(cuts.astype(np.int64))
        lanes = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        if self._background is not None and torch.cuda.is_available():
            lanes = lanes[0].pin_memory(), lanes[1].pin_memory()
        return Lanes(*lanes)
