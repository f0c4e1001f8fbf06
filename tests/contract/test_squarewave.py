"""The squarewave workload: it keeps the contract and its own grid, and says so where it cannot load what it should."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ecobench.contract import check_workload
from ecobench.records import MetricValue
from ecobench.transcript import Step, read_transcript

MS = 1_000_000


def run_wave(checkout: Path, events: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    events.mkdir()
    return subprocess.run(
        [sys.executable, "train.py", *arguments],
        cwd=checkout / "workloads" / "squarewave",
        env={**os.environ, "ECOBENCH_EVENTS": str(events), "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_squarewave_keeps_the_contract(checkout: Path) -> None:
    record = check_workload(str(checkout / "workloads" / "squarewave"))

    assert record.result is not None
    assert (record.result.n_steps, record.result.n_tokens) == (10, 10)


def test_edges_keep_to_the_grid_of_the_first_and_say_when_they_were(checkout: Path, tmp_path: Path) -> None:
    """5 periods of 60 ms, on for 20 ms: no edge is early, and a late one delays no later one."""
    events = tmp_path / "events"
    done = run_wave(checkout, events, "--period_s=0.06", f"--duty={1 / 3}", "--periods=5", "--phase_s=0.1")

    assert done.returncode == 0, done.stderr
    transcript = read_transcript((events / "rank-00000.jsonl").read_bytes(), rank=0)
    rising = [event.time_ns for event in transcript.events if isinstance(event, Step)]
    falling = [event.time_ns for event in transcript.events if isinstance(event, MetricValue)]
    start_ns = rising[0] - 60 * MS
    for n, (fell_ns, rose_ns) in enumerate(zip(falling, rising, strict=True)):
        assert fell_ns >= start_ns + (60 * n + 20) * MS - 5 * MS
        assert rose_ns >= start_ns + 60 * (n + 1) * MS - 5 * MS
        assert fell_ns < rose_ns


def test_without_a_gpu_the_load_cuda_says_so_in_one_line(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty CUDA_VISIBLE_DEVICES makes that so on any machine."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = run_wave(checkout, tmp_path / "events", "--load=cuda")

    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("squarewave: load `cuda` needs an NVIDIA GPU")
