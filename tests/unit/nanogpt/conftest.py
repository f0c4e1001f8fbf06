"""Puts the workload's folder where its files find each other by plain name, as they do when train.py is started."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

WORKLOAD = Path(__file__).resolve().parents[3] / "workloads" / "nanogpt"
if str(WORKLOAD) not in sys.path:
    sys.path.insert(0, str(WORKLOAD))


@pytest.fixture(autouse=True)
def _one_thread_one_seed() -> Iterator[None]:
    """One thread, since several would only wait for each other on sizes this small; equal random numbers each time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def workload_folder() -> Path:
    """Folder of the nanogpt workload."""
    return WORKLOAD
