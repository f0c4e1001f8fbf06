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
