"""The seal: which files changed since a run was concluded."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ecobench.store import RunFolder, broken_seals, write_seal
from records_for_tests import run_record, trial_record


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A sealed run with one trial, a source file and what is derived."""
    run = RunFolder(tmp_path / "20260902-141503-toy-abcd")
    run.path.mkdir()
    run.write(run_record())
    run.source.mkdir()
    (run.source / "train.py").write_text("x = 1\n")
    (run.source / "caf\udce9 au lait.py").write_text("y = 2\n")
    trial = run.trial(0)
    trial.create()
    trial.write(trial_record())
    (trial.events / "rank-00000.jsonl").write_text("{}\n")
    for path in (run.summary, run.report, run.path / "loss.png"):
        path.write_text("derived")
    write_seal(run)
    return run


def test_an_untouched_run_is_whole(run: RunFolder) -> None:
    """Also once it was moved, and under another name."""
    assert broken_seals(run) == []
    moved = run.path.rename(run.path.with_name("moved"))
    assert broken_seals(RunFolder(moved)) == []


def test_sha256sum_reads_the_seal_too(run: RunFolder) -> None:
    """The format is the well-known one."""
    if shutil.which("sha256sum") is None:
        pytest.skip("needs sha256sum")
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=run.path, capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b": OK") == 5


def test_what_is_derived_is_not_sealed(run: RunFolder) -> None:
    """A report is drawn again at any time."""
    for path in (run.summary, run.report, run.path / "loss.png"):
        path.write_text("drawn again")
    (run.path / "power.png").touch()

    assert broken_seals(run) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: (path / "run.json").open("a").close(), []),
        (lambda path: (path / "run.json").write_text("{}"), ["run.json was changed"]),
        (lambda path: (path / "source/train.py").unlink(), ["source/train.py is gone"]),
        (lambda path: (path / "source/more.py").touch(), ["source/more.py was added"]),
        (
            lambda path: (path / "trials/000/events/rank-00000.jsonl").rename(
                path / "trials/000/events/rank-00001.jsonl"
            ),
            ["trials/000/events/rank-00000.jsonl is gone", "trials/000/events/rank-00001.jsonl was added"],
        ),
        (lambda path: (path / "trials/001").mkdir(), []),
        (
            lambda path: shutil.rmtree(path / "trials"),
            ["trials/000/events/rank-00000.jsonl is gone", "trials/000/trial.json is gone"],
        ),
    ],
)
def test_each_changed_file_is_named_with_what_happened(
    run: RunFolder, change: Callable[[Path], object], said: list[str]
) -> None:
    """Changed, gone, added."""
    change(run.path)

    assert broken_seals(run) == said


def test_a_flipped_bit_of_a_sealed_file_is_found(run: RunFolder) -> None:
    """One bit in every fifth byte of the trial's record."""
    path = run.trial(0).record
    data = path.read_bytes()
    for place in range(0, len(data), 5):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert broken_seals(run) == ["trials/000/trial.json was changed"]


def test_a_changed_byte_of_the_seal_itself_is_found(run: RunFolder) -> None:
    """Whatever the byte becomes: a file is not as sealed, or not sealed, or not there."""
    data = run.sums.read_bytes()
    for place in range(len(data)):
        for byte in (data[place] ^ 1, 0xFF):
            run.sums.write_bytes(data[:place] + bytes([byte]) + data[place + 1 :])
            assert broken_seals(run) != []
