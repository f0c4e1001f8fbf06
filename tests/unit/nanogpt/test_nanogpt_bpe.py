"""Own text as shards that the GPU presets find."""

import json
from itertools import chain
from pathlib import Path

import pytest

import fineweb
from bpe import SEPARATOR, read_documents, write_shards
from tokens import ShardError, read_shard


def encode(text: str) -> list[int]:
    """Bytes stand for GPT-2's tokens, whose file is not on every machine."""
    return list(text.encode())


def test_documents_become_shards_in_order(tmp_path: Path) -> None:
    """The first of every 20 is for validation; the others follow each other over shards of 50 tokens."""
    texts = [f"document {number:02d}" for number in range(22)]
    path = tmp_path / "all.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    n_shards = write_shards(read_documents([path]), tmp_path / "out", encode, shard_tokens=50)

    train = [[SEPARATOR, *encode(text)] for number, text in enumerate(texts) if number not in (0, 20)]
    validation = [[SEPARATOR, *encode(text)] for text in (texts[0], texts[20])]
    first, *others = [read_shard(shard).tolist() for shard in fineweb.find_files(tmp_path / "out", n_shards)]
    assert first == list(chain(*validation))
    assert list(chain(*others)) == list(chain(*train))
    assert [len(one) for one in others] == [50] * 4 + [40]


def test_text_files_are_documents_and_bad_lines_are_named(tmp_path: Path) -> None:
    """A plain file is one document; a line without `text` is an error with its number."""
    (tmp_path / "a.txt").write_text("one\ntwo")
    (tmp_path / "b.jsonl").write_text('{"text": "three"}\n{"no": 1}\n')
    documents = read_documents([tmp_path / "a.txt", tmp_path / "b.jsonl"])

    assert [next(documents), next(documents)] == ["one\ntwo", "three"]
    with pytest.raises(ShardError, match=r"b\.jsonl, line 2"):
        next(documents)


def test_shards_that_are_there_are_not_written_over(tmp_path: Path) -> None:
    """FineWeb took a while to fetch."""
    write_shards(["a", "b"], tmp_path, encode)

    with pytest.raises(ShardError, match="holds shards already"):
        write_shards(["c", "d"], tmp_path, encode)
    with pytest.raises(ShardError, match="two documents"):
        write_shards(["c"], tmp_path / "new", encode)
