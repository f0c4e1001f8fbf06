"""Any number of ranks takes the steps of one: for both optimizers, and both ways that gradients meet."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from parameters import parse_parameters
from ranks import Ranks
from tokens import write_shard
from train import make_trainer

N_STEPS = 4
SMALL = (
    "--layers=6",
    "--width=32",
    "--heads=2",
    "--sequence_length=32",
    f"--steps={N_STEPS}",
    "--attention=windowed",
    "--window_block=4",
    "--window_positions=20",
    "--value_embeddings=on",
    "--unet_skips=on",
    "--input_mix=on",
    "--attention_free_block=3",
    "--bos_aligned=on",
)
ARMS = [
    (f"--optimizer={optimizer}", f"--grad_sync={grad_sync}")
    for optimizer, grad_sync in itertools.product(("muon", "adamw"), ("reduce-scatter", "all-reduce"))
]


def losses_of(arm: tuple[str, ...], folder: Path, *, rank: int = 0, world: int = 1) -> list[float]:
    """Mean loss of each step over all ranks, and the validation loss at the end."""
    ranks = Ranks(rank=rank, world=world, device=torch.device("cpu"))
    trainer = make_trainer(parse_parameters([*SMALL, *arm]), ranks, folder=folder)
    losses = [ranks.total(trainer.step(step)).item() / trainer.n_step_tokens for step in range(1, N_STEPS + 1)]
    return [*losses, trainer.validate(256, N_STEPS)]


def train_as_rank(rank: int, world: int, folder: str) -> None:
    """One of several processes, which meet through a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{world}", rank=rank, world_size=world)
    arms = [*ARMS, ("--communication=off",)]
    torch.save([losses_of(arm, Path(folder), rank=rank, world=world) for arm in arms], f"{folder}/{world}-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shard of short documents of few bytes."""
    folder = tmp_path_factory.mktemp("shards")
    generator = np.random.default_rng(3)
    tokens = generator.integers(0, 32, 20_000, dtype=np.uint16)
    tokens[generator.random(20_000) < 0.1] = 256
    write_shard(folder / "a_train_000001.bin", tokens)
    write_shard(folder / "a_val_000000.bin", tokens[:2000])
    return folder


@pytest.mark.parametrize("world", [2, 4, 8])
def test_ranks_take_the_steps_of_one(folder: Path, world: int) -> None:
    """Losses step by step to 1e-4 of one rank's, and of every rank alike; 8 ranks leave padding in Muon's groups."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    mp.start_processes(train_as_rank, args=(world, str(folder)), nprocs=world, start_method="fork")

    found = [torch.load(folder / f"{world}-{rank}.pt") for rank in range(world)]
    for number, arm in enumerate(ARMS):
        expected = losses_of(arm, folder)
        assert expected[-1] < expected[0]
        for of_rank in found:
            assert of_rank[number] == pytest.approx(expected, rel=1e-4), arm
    # Without communication ranks see the same first step and then go their own way.
    alone = losses_of((), folder)
    assert found[0][-1][0] == pytest.approx(alone[0], rel=1e-4)
    assert found[0][-1][N_STEPS - 1] != pytest.approx(alone[N_STEPS - 1], rel=1e-4)


@pytest.mark.parametrize(
    "switch",
    [
        "--attention=full",
        "--window_schedule=last",
        "--zero_init=off",
        "--value_embeddings=off",
        "--unet_skips=off",
        "--input_mix=off",
        "--logit_softcap=off",
        "--logit_scale=one",
        "--tied_head=on",
        "--head_precision=fp8",
        "--optimizer=adamw",
        "--batch_size=16",
        "--bos_aligned=off",
        "--seed=1",
        "--weight_decay=0.1",
        "--muon_scaling=size",
    ],
)
def test_a_switch_changes_the_training(folder: Path, switch: str) -> None:
    """Each does something, and the run still learns or at least computes."""
    plain, switched = losses_of((), folder), losses_of((switch,), folder)

    assert switched != pytest.approx(plain, rel=1e-6)
    assert all(np.isfinite(switched))


@pytest.mark.parametrize("switch", ["--micro_batch=1", "--head_chunk=32", "--spans=on", "--grad_sync=all-reduce"])
def test_a_switch_of_memory_or_speed_changes_no_loss(folder: Path, switch: str) -> None:
    """Sums in another order at most: to 1e-4."""
    assert losses_of((switch,), folder) == pytest.approx(losses_of((), folder), rel=1e-4)


def test_lane_parts_are_sequences_that_do_not_see_each_other(folder: Path) -> None:
    """Where attention stays within sequences, cutting a lane changes nothing; else it is another recipe."""
    sequences = ("--attention=sequence", "--bos_aligned=off", "--sequence_length=8", "--batch_size=32")

    whole, parts = losses_of(sequences, folder), losses_of((*sequences, "--lane_parts=4"), folder)

    assert parts == pytest.approx(whole, rel=1e-4)
    assert losses_of(("--lane_parts=4",), folder) != pytest.approx(losses_of((), folder), rel=1e-4)
