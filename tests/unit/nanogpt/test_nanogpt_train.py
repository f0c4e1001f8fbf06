"""The trainer: warm-up that leaves no trace, lanes in any portion, ranks in any number."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from parameters import parse_parameters
from ranks import Ranks
from tokens import default_folder, tokenize
from train import Trainer, TrainingError, make_trainer

SMALL = ("--layers=2", "--width=32", "--sequence_length=32", "--steps=4", "--validation_tokens=512")
ALONE = Ranks(rank=0, world=1, device=torch.device("cpu"))


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shards of this Python's library, made once."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ECOBENCH_DATA", str(folder))
        tokenize(default_folder())
    return folder


@pytest.fixture
def _data(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECOBENCH_DATA", str(data_folder))


def small_trainer(*more: str) -> Trainer:
    """Two layers of width 32 on 8 lanes of 32 tokens."""
    return make_trainer(parse_parameters([*SMALL, *more]), ALONE)


def events_of(folder: Path, *, rank: int = 0) -> list[dict[str, object]]:
    """What a rank said."""
    return [json.loads(line) for line in (folder / f"rank-{rank:05d}.jsonl").read_text().splitlines()]


def start_training(
    *arguments: str, data: Path, events: Path, workload: Path, ranks: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run train.py as a program: plainly, or under torchrun with that many ranks."""
    events.mkdir(exist_ok=True)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks else []
    return subprocess.run(
        [sys.executable, *launcher, "train.py", *arguments],
        cwd=workload,
        env={
            **os.environ,
            "ECOBENCH_DATA": str(data),
            "ECOBENCH_EVENTS": str(events),
            "PYTHONPATH": str(workload.parents[1]),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.usefixtures("_data")
def test_warm_up_leaves_no_trace() -> None:
    """After three real steps, undone, the next two steps are bit for bit those of a trainer that had no warm-up."""
    warm, cold = small_trainer(), small_trainer()

    warm.warm_up(3)

    assert warm.loader.state == cold.loader.state
    for step in (1, 2):
        assert torch.equal(warm.step(step), cold.step(step))
    for ours, theirs in zip(warm.model.parameters(), cold.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.usefixtures("_data")
def test_lanes_may_be_taken_in_any_portion() -> None:
    """One lane at a time gives the step of all eight at once; sums in another order, so to float32 rounding."""
    at_once, one_by_one = small_trainer("--micro_batch=8"), small_trainer("--micro_batch=1")

    for step in (1, 2):
        torch.testing.assert_close(one_by_one.step(step), at_once.step(step), rtol=1e-4, atol=0)


@pytest.mark.usefixtures("_data")
@pytest.mark.parametrize(("batch_size", "lane_length"), [(8, 32), (7, 28), (6, 24)])
def test_batch_size_is_the_length_of_the_lanes(batch_size: int, lane_length: int) -> None:
    """Eight lanes always: batch_size x 32 tokens in eight equal parts."""
    trainer = small_trainer(f"--batch_size={batch_size}")

    assert trainer.loader.lane_length == lane_length
    assert trainer.n_step_tokens == batch_size * 32


@pytest.mark.usefixtures("_data")
def test_compile_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch that is on does what it says or ends the run; it never falls back."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)

    with pytest.raises(TrainingError, match="install g"):
        small_trainer("--compile=on")


def test_parameters_are_those_of_the_manifest() -> None:
    """Types as declared: int, float, text, and switches as the words on and off."""
    parsed = parse_parameters(["--steps=3", "--matrix_rate=1", "--compile=on"])

    assert isinstance(parsed, Namespace)
    assert (parsed.steps, parsed.matrix_rate, parsed.compile) == (3, 1.0, "on")
    assert isinstance(parsed.matrix_rate, float)


@pytest.mark.parametrize("argument", ["--steps=-1", "--compile=maybe", "--no_such=1", "--cooldown_share=1.5"])
def test_wrong_parameters_are_refused(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Out of range, not a choice, or unknown: the message names it."""
    with pytest.raises(SystemExit):
        parse_parameters([argument])
    assert argument.split("=", maxsplit=1)[0].strip("-") in capsys.readouterr().err


def test_two_ranks_and_one_agree(data_folder: Path, tmp_path: Path, workload_folder: Path) -> None:
    """Losses of torchrun with two ranks are those of a plain start, to 1e-4; tokens are counted over both."""
    runs = {}
    for ranks in (0, 2):
        folder = tmp_path / f"events-{ranks}"
        done = start_training(*SMALL, data=data_folder, events=folder, workload=workload_folder, ranks=ranks)
        assert done.returncode == 0, done.stderr
        runs[ranks] = events_of(folder)

    losses = [[event["value"] for event in events if event["event"] == "metric"] for events in runs.values()]
    assert len(losses[0]) == 2
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    for events in runs.values():
        assert [event["tokens"] for event in events if event["event"] == "step"] == [256, 512, 768, 1024]
        assert events[-1]["status"] == "done"
    assert [event["event"] for event in events_of(tmp_path / "events-2", rank=1)].count("step") == 0
    phases = [event["phase"] for event in runs[0] if event["event"] == "phase_start"]
    assert phases == ["init", "warmup", "train", "eval", "eval"]


def test_stop_file_ends_the_run_after_a_step(data_folder: Path, tmp_path: Path, workload_folder: Path) -> None:
    """Asked before it starts, it takes one step, validates and says stopped."""
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "stop").touch()

    start_training(*SMALL, data=data_folder, events=folder, workload=workload_folder)

    events = events_of(folder)
    assert [event["step"] for event in events if event["event"] == "step"] == [1]
    assert events[-1]["status"] == "stopped"


def test_diverging_run_fails_with_a_reason(data_folder: Path, tmp_path: Path, workload_folder: Path) -> None:
    """A rate beyond all reason ends in a loss that is no number: goodbye says failed, stderr says what to do."""
    done = start_training(
        *SMALL, "--head_rate=1e38", data=data_folder, events=tmp_path / "events", workload=workload_folder
    )

    assert done.returncode == 1
    assert "training diverged" in done.stderr
    assert events_of(tmp_path / "events")[-1]["status"] == "failed"


def test_parting_ends_the_threads_of_the_group(tmp_path: Path, workload_folder: Path) -> None:
    """A thread of the group that outlives it aborts a finished rank now and then (7 of 45 starts on a busy machine)."""
    script = tmp_path / "part.py"
    script.write_text(
        "from pathlib import Path\n"
        "import torch\n"
        "from ranks import join_ranks\n"
        "with join_ranks('cpu') as ranks:\n"
        "    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])\n"
        "    ranks.wait()\n"
        "names = [name.read_text().strip() for name in Path('/proc/self/task').glob('*/comm')]\n"
        "assert not [name for name in names if 'gloo' in name], names\n"
    )

    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script)],
        env={**os.environ, "PYTHONPATH": str(workload_folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
