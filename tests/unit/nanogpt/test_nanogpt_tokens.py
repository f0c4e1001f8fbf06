"""Shards and the text of the standard library."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tokens import (
    MAGIC,
    SEPARATOR,
    ShardError,
    cut_pieces,
    find_source_files,
    read_info,
    read_shard,
    tokenize,
    tokenize_library,
    write_shard,
)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library of 60 files, each with one line of its own, and a folder that does not count."""
    folder = tmp_path / "library"
    (folder / "package" / "test").mkdir(parents=True)
    for index in range(60):
        (folder / "package" / f"module_{index}.py").write_text(f"only_in = {index}\n")
    (folder / "package" / "test" / "test_it.py").write_text("left_out = True\n")
    return folder


def test_shard_comes_back_as_written(tmp_path: Path) -> None:
    """Header and tokens survive the disk, and the file is 1,024 bytes of header and two bytes a token."""
    path = tmp_path / "a_train_000001.bin"
    tokens = np.array([0, 1, 256, 65535], dtype=np.uint16)

    write_shard(path, tokens)

    assert read_shard(path).tolist() == [0, 1, 256, 65535]
    assert path.stat().st_size == 1024 + 2 * 4
    assert np.fromfile(path, dtype="<i4", count=4).tolist() == [20240520, 1, 4, 0]


@pytest.mark.parametrize(
    ("position", "value", "said"), [(0, MAGIC + 1, "magic"), (1, 2, "version 2"), (2, 5, "5 tokens take 1034")]
)
def test_damaged_header_is_refused_by_name(tmp_path: Path, position: int, value: int, said: str) -> None:
    """A wrong magic, version or length is an error that names the file."""
    path = tmp_path / "a_train_000001.bin"
    write_shard(path, np.zeros(4, dtype=np.uint16))
    header = np.memmap(path, dtype="<i4", mode="r+", shape=(256,))
    header[position] = value
    header.flush()

    with pytest.raises(ShardError, match=f"a_train_000001.bin.*{said}"):
        read_shard(path)


def test_shard_shorter_than_a_header_is_refused(tmp_path: Path) -> None:
    """A cut file is an error too, not an empty shard."""
    path = tmp_path / "a_val_000000.bin"
    path.write_bytes(b"\0" * 100)

    with pytest.raises(ShardError, match="less than the header"):
        read_shard(path)


def test_pieces_end_at_lines_and_join_to_the_text() -> None:
    """No piece is over the limit, none ends inside a line that would have fitted, and nothing is lost."""
    text = b"abc\n" * 10 + b"x" * 25 + b"\nend"

    pieces = list(cut_pieces(text, at_most=10))

    assert b"".join(pieces) == text
    assert max(len(piece) for piece in pieces) == 10
    assert pieces[:5] == [b"abc\nabc\n"] * 5
    assert pieces[5:] == [b"x" * 10, b"x" * 10, b"x" * 5 + b"\nend"]


def test_same_library_gives_same_tokens(library: Path) -> None:
    """Nothing random is in the order."""
    first, second = tokenize_library(library), tokenize_library(library)

    assert first.train.tolist() == second.train.tolist()
    assert first.validation.tolist() == second.validation.tolist()


def test_train_and_validation_share_no_file(library: Path) -> None:
    """Each file's line is on one side only, all are there, and the test folder is on neither."""
    split = tokenize_library(library)

    def lines(tokens: np.ndarray) -> set[str]:
        pieces = bytes(tokens[tokens != SEPARATOR].astype(np.uint8)).decode().splitlines()
        return set(pieces)

    assert lines(split.train).isdisjoint(lines(split.validation))
    assert lines(split.train) | lines(split.validation) == {f"only_in = {index}" for index in range(60)}
    assert split.n_train_files + split.n_validation_files == 60
    assert int((split.train == SEPARATOR).sum()) == split.n_train_files


def test_left_out_folders_are_not_read(library: Path) -> None:
    """Folders of tests do not count as text."""
    assert len(find_source_files(library)) == 60


def test_damaged_shards_are_made_again(library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One changed token is noticed by the hash, and `tokenize` replaces the folder and leaves nothing beside it."""
    folder = tmp_path / "data" / "stdlib"
    made = tokenize(folder, library=library)
    shard = np.memmap(folder / "stdlib_val_000000.bin", dtype="<u2", mode="r+")
    shard[-1] ^= 1
    shard.flush()

    with pytest.raises(ShardError, match="data_hash"):
        read_info(folder)
    assert tokenize(folder, library=library) == made
    assert read_info(folder) == made
    assert [path.name for path in folder.parent.iterdir()] == ["stdlib"]
    assert "made again" in capsys.readouterr().err


def test_empty_library_is_refused(tmp_path: Path) -> None:
    """A Python without its source files gives an error and no empty shards."""
    (tmp_path / "library").mkdir()

    with pytest.raises(ShardError, match="no Python source files"):
        tokenize(tmp_path / "data", library=tmp_path / "library")
    assert not (tmp_path / "data").exists()


def test_info_says_what_is_there_in_one_document(tmp_path: Path, workload_folder: Path) -> None:
    """`info --json` before and after `tokenize`, as the harness calls them."""

    def call(action: str) -> dict[str, object]:
        command = [sys.executable, "tokens.py", action, f"--out={tmp_path / 'made'}", "--json"]
        done = subprocess.run(command, cwd=workload_folder, capture_output=True, text=True, check=True)
        document: dict[str, object] = json.loads(done.stdout)
        return document

    before, made, after = call("info"), call("tokenize"), call("info")

    assert before["present"] is False
    assert before["n_train_tokens"] is None
    assert made == after
    assert after["present"] is True
    assert isinstance(after["n_train_tokens"], int)
    assert after["n_train_tokens"] > 1_000_000
    assert len(str(after["data_hash"])) == 64
