"""Run folders: made, found again by id, and read whatever lies between them."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ecobench.errors import RequestError, StoreError
from ecobench.store import RunFolder, Store
from ecobench.store.folders import last_words
from records_for_tests import SPEECH, as_lines, run_record, trial_record

NOW = datetime(2026, 9, 2, 14, 15, 3, tzinfo=UTC)


def make_run(store: Store, name: str) -> RunFolder:
    """A run folder of that name with its first record."""
    folder = RunFolder(store.root / name)
    folder.path.mkdir(parents=True)
    folder.write(run_record(id=name))
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three runs, a folder that is none, a file, and a run that was killed before its first record."""
    store = Store(tmp_path / "runs")
    for name in ("20260902-141503-toy-abcd", "20260902-141503-toy-abzz", "20260903-000000-nanogpt-k3f9"):
        make_run(store, name)
    (store.root / "20260904-000000-toy-dead" / "trials").mkdir(parents=True)
    (store.root / "notes").mkdir()
    (store.root / "zzz.txt").write_text("mine")
    return store


def test_an_id_says_when_and_what(tmp_path: Path) -> None:
    """UTC to the second, the workload, four letters that are easily told apart."""
    folder = Store(tmp_path / "a" / "b").create("toy", now=NOW)

    stamp, _, letters = folder.id.rpartition("-")
    assert stamp == "20260902-141503-toy"
    assert len(letters) == 4
    assert not set(letters) & set("01ilo")
    assert folder.path.is_dir()


def test_runs_of_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    """Also where their letters would be the same: 200 of them."""
    store = Store(tmp_path)

    assert len({store.create("toy", now=NOW).id for _ in range(200)}) == 200


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_a_store_that_cannot_be_made_is_a_store_error(tmp_path: Path, where: str) -> None:
    """With the way to another folder."""
    (tmp_path / "file").touch()

    with pytest.raises(StoreError) as caught:
        Store(tmp_path / where).create("toy")
    assert "ECOBENCH_HOME" in str(caught.value.hint)


def test_the_environment_names_the_store_else_the_working_folder_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty variable names none."""
    monkeypatch.setenv("ECOBENCH_HOME", str(tmp_path / "there"))
    assert Store.from_environment().root == tmp_path / "there"
    monkeypatch.setenv("ECOBENCH_HOME", "")
    assert Store.from_environment().root == tmp_path / "ecobench-runs"


def test_only_folders_with_a_record_are_runs(store: Store) -> None:
    """Oldest first."""
    assert [run.id for run in store.runs()] == [
        "20260902-141503-toy-abcd",
        "20260902-141503-toy-abzz",
        "20260903-000000-nanogpt-k3f9",
    ]


def test_a_store_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    """Looking makes nothing."""
    store = Store(tmp_path / "runs")

    assert list(store.runs()) == []
    with pytest.raises(RequestError, match="no runs in"):
        store.find("last")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("20260902-141503-toy-abcd", "20260902-141503-toy-abcd"),
        ("20260902-141503-toy-abz", "20260902-141503-toy-abzz"),
        ("20260903", "20260903-000000-nanogpt-k3f9"),
        ("last", "20260903-000000-nanogpt-k3f9"),
    ],
)
def test_a_run_is_found_by_id_by_unique_prefix_and_as_the_last(store: Store, asked: str, found: str) -> None:
    """The newest is `last`."""
    assert store.find(asked).id == found


def test_an_exact_id_wins_over_a_longer_one(store: Store) -> None:
    """A copy beside a run does not make the run unfindable."""
    make_run(store, "20260902-141503-toy-abcd.backup")

    assert store.find("20260902-141503-toy-abcd").id == "20260902-141503-toy-abcd"


def test_a_folder_of_another_name_is_never_the_last(store: Store) -> None:
    """`last` is the newest run, and what someone renamed says no time; it is still found by its name."""
    make_run(store, "kept-for-the-paper")

    assert store.find("last").id == "20260903-000000-nanogpt-k3f9"
    assert store.find("kept").id == "kept-for-the-paper"


def test_a_run_elsewhere_is_found_by_its_path(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that someone sent; `.` from within it."""
    elsewhere = make_run(Store(tmp_path / "mail"), "20250101-000000-toy-sent")

    assert store.find(str(elsewhere.path)).path == elsewhere.path
    assert store.find("mail/20250101-000000-toy-sent").path == elsewhere.path
    monkeypatch.chdir(elsewhere.path)
    assert store.find(".").path.resolve() == elsewhere.path.resolve()


@pytest.mark.parametrize(("asked", "says"), [("2026", "start of 3 runs"), ("toy", "no run `toy`"), ("", "no run ``")])
def test_what_is_not_one_run_is_refused(store: Store, asked: str, says: str) -> None:
    """With a way on."""
    with pytest.raises(RequestError, match=says) as caught:
        store.find(asked)
    assert caught.value.hint


def test_trials_are_the_numbered_folders_in_order(tmp_path: Path) -> None:
    """Not what else was put there; a thousandth trial comes after the 999th."""
    run = RunFolder(tmp_path)
    for name in ("010", "002", "999", "1000", "7", "\N{SUPERSCRIPT TWO}", "notes"):
        (tmp_path / "trials" / name).mkdir(parents=True)
    (tmp_path / "trials" / "003").touch()

    assert [trial.index for trial in run.trials()] == [2, 10, 999, 1000]
    assert [run.trial(index).path.name for index in (2, 10, 999, 1000)] == ["002", "010", "999", "1000"]


def test_ranks_are_read_in_order_and_each_once(tmp_path: Path) -> None:
    """Files of other names are not the protocol's, even where a number can be read from them."""
    trial = RunFolder(tmp_path).trial(0)
    trial.create()
    for name in (
        "rank-00010",
        "rank-00002",
        "rank-0",
        "rank-2",
        "rank-\N{SUPERSCRIPT TWO}",
        "rank-x",
        "rank-00002-old",
    ):
        (trial.events / f"{name}.jsonl").write_bytes(as_lines(*SPEECH))
    (trial.events / "stop").touch()

    assert [one.rank for one in trial.read_transcripts()] == [2, 10]


def test_a_trial_without_a_record_has_none(tmp_path: Path) -> None:
    """The harness was killed before it could write one."""
    trial = RunFolder(tmp_path).trial(0)
    trial.create()

    assert trial.read() is None
    trial.write(trial_record())
    assert trial.read() == trial_record()
    with pytest.raises(StoreError):
        trial.create()


def test_the_source_is_kept_without_caches_secrets_and_data(tmp_path: Path) -> None:
    """Files up to 1 MiB; nothing hidden, no bytecode, no dangling link."""
    workload = tmp_path / "mine"
    for name in ("train.py", "parts/model.py", ".env", ".git/config", "__pycache__/x.pyc", "parts/__pycache__/y.pyc"):
        (workload / name).parent.mkdir(parents=True, exist_ok=True)
        (workload / name).write_text("x")
    (workload / "tokens.bin").write_bytes(bytes((1 << 20) + 1))
    (workload / "gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(workload / "pipe")
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    run.copy_source(workload)

    kept = sorted(path.relative_to(run.source).as_posix() for path in run.source.rglob("*") if path.is_file())
    assert kept == ["parts/model.py", "train.py"]


def test_a_store_inside_the_workload_is_not_copied_into_itself(tmp_path: Path) -> None:
    """`ecobench run .` from within a workload's folder puts ./ecobench-runs there."""
    (tmp_path / "train.py").write_text("x")
    store = Store(tmp_path / "ecobench-runs")
    make_run(store, "20260902-141503-toy-abcd").copy_source(tmp_path)
    run = make_run(store, "20260902-141504-toy-abcd")
    run.copy_source(tmp_path)

    assert [path.name for path in run.source.rglob("*")] == ["train.py"]


def test_a_link_to_a_folder_above_is_not_followed_forever(tmp_path: Path) -> None:
    """What a link names is not the workload's own."""
    workload = tmp_path / "mine"
    workload.mkdir()
    (workload / "train.py").write_text("x")
    (workload / "loop").symlink_to(workload)
    (workload / "data").symlink_to(tmp_path)
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    run.copy_source(workload)

    assert [path.name for path in run.source.rglob("*")] == ["train.py"]


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("", None),
        ("  \n====\n----\n", None),
        ("warming up\nout of patience\n", "out of patience"),
        ("Traceback:\n  x\nValueError: no tokens\nsome launcher's summary\n", "ValueError: no tokens"),
        (
            "[rank1]: torch.OutOfMemoryError: CUDA\nE ChildFailedError: \n======\n",
            "[rank1]: torch.OutOfMemoryError: CUDA",
        ),
        ("x" * 1000, "x" * 300),
    ],
)
def test_last_words_are_the_error_else_the_last_line(tmp_path: Path, stderr: str, words: str | None) -> None:
    """Below the error of a rank its launcher prints a summary of its own."""
    (tmp_path / "stderr").write_text(stderr)

    assert last_words(tmp_path / "stderr") == words
    assert last_words(tmp_path / "nothing") is None


def test_last_words_need_no_utf8(tmp_path: Path) -> None:
    """A program may print anything before it dies, and much of it."""
    (tmp_path / "stderr").write_bytes(b"\xff" * 200_000 + b"\nRuntimeError: \xff\n")

    assert last_words(tmp_path / "stderr") == "RuntimeError: \N{REPLACEMENT CHARACTER}"
