"""Muon: against torch's own, and against itself on two ranks."""

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from gradient_sync import GradSync, Shares
from muon import Muon, orthogonalise

N_STEPS = 3
# Three matrices of one shape: on two ranks one place of four is padding. Tall, wide, and three that lie together.
SHAPES = [(12, 8), (12, 8), (12, 8), (8, 24), (3, 16, 16)]


def make_parameters() -> list[torch.nn.Parameter]:
    """Equal ones in every process."""
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def gradients_of(step: int) -> list[torch.Tensor]:
    """The sum over all ranks of one step's gradients."""
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def train(*, rank: int = 0, world: int = 1, sync: GradSync = GradSync.REDUCE_SCATTER) -> list[torch.Tensor]:
    """Parameters after some steps; each rank brings an unequal share of each gradient, which add up to it."""
    parameters = make_parameters()
    shares = Shares(rank=rank, world=world, sync=sync)
    optimizer = Muon(parameters, lr=0.02, momentum=0.9, weight_decay=0.1, shares=shares)
    share = 1.0 if world == 1 else (0.25, 0.75)[rank]
    for step in range(N_STEPS):
        for parameter, gradient in zip(parameters, gradients_of(step), strict=True):
            parameter.grad = gradient * share
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def train_as_rank(rank: int, folder: str) -> None:
    """One of two processes, which meet through a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for sync in (GradSync.REDUCE_SCATTER, GradSync.ALL_REDUCE):
        torch.save(train(rank=rank, world=2, sync=sync), f"{folder}/{sync}-{rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_train_what_one_does(tmp_path: Path) -> None:
    """Whichever way gradients meet, both ranks end with one process's weights, remainder included; to 1e-5."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    mp.start_processes(train_as_rank, args=(str(tmp_path),), nprocs=2, start_method="fork")

    expected = train()
    for path in tmp_path.glob("*.pt"):
        found = torch.load(path)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(48, 16), (16, 48), (16, 16)])
def test_updates_are_those_of_torch(shape: tuple[int, int]) -> None:
    """Equal to torch.optim.Muon to 2e-3 after three steps of 0.02: that one iterates in bf16, which rounds to 0.4 %."""
    start = torch.randn(shape)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    optimizers = [
        Muon([ours], lr=0.02, momentum=0.95, weight_decay=0.1),
        torch.optim.Muon([theirs], lr=0.02, momentum=0.95, weight_decay=0.1, nesterov=True),
    ]
    for step in range(3):
        gradient = torch.randn(shape, generator=torch.Generator().manual_seed(step))
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        for optimizer in optimizers:
            optimizer.step()

    assert (ours - start).abs().max() > 0.005
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-3)


def test_singular_values_end_in_the_band() -> None:
    """From values between 0.1 and 1 of the norm's share, five steps lead into 0.68 to 1.14, and vectors stay."""
    u, _ = torch.linalg.qr(torch.randn(4, 24, 16))
    v, _ = torch.linalg.qr(torch.randn(4, 16, 16))
    values = torch.linspace(0.2, 1.0, 16)

    result = orthogonalise(u * values @ v.mT)

    found = torch.linalg.svdvals(result)
    assert found.min() > 0.65
    assert found.max() < 1.20
    diagonal = u.mT @ result @ v
    torch.testing.assert_close(diagonal, torch.diag_embed(diagonal.diagonal(dim1=1, dim2=2)), rtol=0, atol=1e-4)


def test_matrices_that_lie_together_are_orthogonalised_apart() -> None:
    """Three in one parameter move as three parameters do."""
    together = torch.nn.Parameter(torch.zeros(3, 8, 8))
    apart = [torch.nn.Parameter(torch.zeros(8, 8)) for _ in range(3)]
    gradient = torch.randn(3, 8, 8)
    together.grad = gradient.clone()
    for parameter, own in zip(apart, gradient, strict=True):
        parameter.grad = own.clone()

    Muon([together], lr=0.1).step()
    Muon(apart, lr=0.1).step()

    torch.testing.assert_close(together.detach(), torch.stack([parameter.detach() for parameter in apart]))


def test_scale_of_gradients_does_not_matter() -> None:
    """Sums over ranks or means: the update is the same, so nothing has to be divided; epsilon apart."""
    small, large = torch.nn.Parameter(torch.zeros(8, 8)), torch.nn.Parameter(torch.zeros(8, 8))
    gradient = torch.randn(8, 8)
    small.grad, large.grad = gradient.clone(), 4096 * gradient

    Muon([small], lr=0.1).step()
    Muon([large], lr=0.1).step()

    torch.testing.assert_close(small, large, rtol=1e-4, atol=1e-5)


def test_vectors_are_refused() -> None:
    """What is no matrix belongs in the other optimizer."""
    with pytest.raises(ValueError, match="not a parameter of shape"):
        Muon([torch.nn.Parameter(torch.zeros(8))], lr=0.1)
