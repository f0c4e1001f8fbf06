"""The loader: what a step sees, for any number of ranks."""

from pathlib import Path

import numpy as np
import pytest
import torch

from data import N_LANES, LaneLoader
from tokens import write_shard

LANE_LENGTH = 4
STEP_TOKENS = N_LANES * LANE_LENGTH


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Two shards that count up: three steps and a rest of 5, then one step and a rest of 3."""
    paths = [tmp_path / "a_train_000001.bin", tmp_path / "a_train_000002.bin"]
    write_shard(paths[0], np.arange(3 * STEP_TOKENS + 5, dtype=np.uint16))
    write_shard(paths[1], np.arange(1000, 1000 + STEP_TOKENS + 3, dtype=np.uint16))
    return paths


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_ranks_together_see_the_step_of_one_rank(shards: list[Path], world: int) -> None:
    """The ranks' lanes, one under the other, are the tokens in order of the stream, over a change of shards too."""
    loaders = [LaneLoader(shards, lane_length=LANE_LENGTH, rank=rank, world=world) for rank in range(world)]

    for start in (0, STEP_TOKENS, 2 * STEP_TOKENS, 1000, 0):
        steps = [loader.next_step() for loader in loaders]
        expected = torch.arange(start, start + STEP_TOKENS).view(N_LANES, LANE_LENGTH)

        assert torch.equal(torch.cat([step.tokens_BT for step in steps]), expected)
        assert torch.equal(torch.cat([step.targets_BT for step in steps]), expected + 1)


def test_split_lanes_are_the_same_lanes(shards: list[Path]) -> None:
    """Three lanes at a time are 3, 3 and 2, in their order."""
    step = LaneLoader(shards, lane_length=LANE_LENGTH).next_step()

    parts = list(step.split(3))

    assert [len(part.tokens_BT) for part in parts] == [3, 3, 2]
    assert torch.equal(torch.cat([part.targets_BT for part in parts]), step.targets_BT)


def test_restored_loader_gives_the_same_step_again(shards: list[Path]) -> None:
    """A kept position is all that there is to a loader's state."""
    loader = LaneLoader(shards, lane_length=LANE_LENGTH)
    loader.next_step()
    kept = loader.state
    expected = loader.next_step()

    loader.restore(kept)

    assert torch.equal(loader.next_step().tokens_BT, expected.tokens_BT)


def test_ranks_that_do_not_divide_the_lanes_are_refused(shards: list[Path]) -> None:
    """Three ranks cannot share eight lanes."""
    with pytest.raises(ValueError, match="3 ranks"):
        LaneLoader(shards, lane_length=LANE_LENGTH, world=3)


def test_shards_without_a_whole_step_are_refused(shards: list[Path]) -> None:
    """Too long a lane is an error at once, not an endless search."""
    with pytest.raises(ValueError, match="the longest shard has 101"):
        LaneLoader(shards, lane_length=100)


SEPARATOR = 7


def naive_aligned_steps(stream: list[int], lane_length: int, n_steps: int) -> list[list[list[int]]]:
    """Each lane from the next separator on, one token after the other."""
    at, steps = 0, []
    for _ in range(n_steps):
        lanes = []
        for _ in range(N_LANES):
            while stream[at] != SEPARATOR:
                at += 1
            lanes.append(stream[at : at + lane_length + 1])
            at += lane_length
        steps.append(lanes)
    return steps


@pytest.mark.parametrize("world", [1, 2, 4, 8])
@pytest.mark.parametrize("density", [0.3, 0.02])
def test_aligned_lanes_begin_with_documents(tmp_path: Path, world: int, density: float) -> None:
    """Against a search token by token, for any number of ranks; also where documents are longer than lanes."""
    generator = np.random.default_rng(1)
    tokens = generator.integers(8, 99, 40_000, dtype=np.uint16)
    tokens[generator.random(40_000) < density] = SEPARATOR
    path = tmp_path / "a_train_000001.bin"
    write_shard(path, tokens)
    loaders = [
        LaneLoader([path], lane_length=16, rank=rank, world=world, separator=SEPARATOR, prefetches=rank % 2 == 0)
        for rank in range(world)
    ]

    for lanes in naive_aligned_steps(tokens.tolist(), 16, 10):
        steps = [loader.next_step() for loader in loaders]
        expected = torch.tensor(lanes)

        assert torch.equal(torch.cat([step.tokens_BT for step in steps]), expected[:, :-1])
        assert torch.equal(torch.cat([step.targets_BT for step in steps]), expected[:, 1:])


def test_aligned_loader_leaves_a_shard_before_two_steps_remain(tmp_path: Path) -> None:
    """At 2 x step + 1 tokens or fewer the next shard begins, as in record 26; its rest is left out."""
    paths = [tmp_path / f"a_train_00000{number}.bin" for number in (1, 2)]
    n_step = N_LANES * LANE_LENGTH
    for path, first in zip(paths, (100, 200), strict=True):
        tokens = np.full(3 * n_step + 1, SEPARATOR, dtype=np.uint16)
        tokens[1::2] = first
        write_shard(path, tokens)
    loader = LaneLoader(paths, lane_length=LANE_LENGTH, separator=SEPARATOR)

    shards = [int(loader.next_step().tokens_BT.max()) for _ in range(3)]

    assert shards == [100, 200, 100]


def test_prefetched_steps_are_the_same_and_can_be_put_back(shards: list[Path]) -> None:
    """What was cut ahead is forgotten when the position is restored."""
    plain = LaneLoader(shards, lane_length=LANE_LENGTH)
    ahead = LaneLoader(shards, lane_length=LANE_LENGTH, prefetches=True)
    kept = ahead.state

    for _ in range(2):
        for _ in range(4):
            assert torch.equal(plain.next_step().tokens_BT, ahead.next_step().tokens_BT)
            assert plain.state == ahead.state
        plain.restore(kept)
        ahead.restore(kept)


def test_documents_that_never_begin_are_an_error(tmp_path: Path) -> None:
    """No endless search."""
    path = tmp_path / "a_train_000001.bin"
    write_shard(path, np.full(10_000, 9, dtype=np.uint16))

    with pytest.raises(ValueError, match="no shard has 8 documents"):
        LaneLoader([path], lane_length=16, separator=SEPARATOR).next_step()
