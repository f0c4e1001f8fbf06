"""What only CUDA can show of the squarewave workload. No machine has run this file yet."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ecobench.records import MetricValue
from ecobench.transcript import Step, read_transcript

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def test_edges_of_the_cuda_load_are_within_10_ms_of_their_grid(checkout: Path, tmp_path: Path) -> None:
    """10 periods of 200 ms, half on: an edge is late by the products that are under way, and never early."""
    events = tmp_path / "events"
    events.mkdir()
    subprocess.run(
        [sys.executable, "train.py", "--load=cuda", "--period_s=0.2", "--periods=10"],
        cwd=checkout / "workloads" / "squarewave",
        env={**os.environ, "ECOBENCH_EVENTS": str(events), "PYTHONPATH": str(checkout)},
        check=True,
        timeout=120,
    )
    transcript = read_transcript((events / "rank-00000.jsonl").read_bytes(), rank=0)
    highs_s = [event.value for event in transcript.events if isinstance(event, MetricValue)]
    rising_ns = [event.time_ns for event in transcript.events if isinstance(event, Step)]

    assert all(0.1 <= high_s < 0.11 for high_s in highs_s)
    assert all(abs(later - earlier - 200_000_000) < 10_000_000 for earlier, later in itertools.pairwise(rising_ns))
