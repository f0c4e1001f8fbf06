"""Own text as shards in GPT-2's tokens, for machines that bring their data themselves.

    python bpe.py --out=DIR FILE...     text files (each one document) and JSON lines (each line's `text` one document)

Written are the names that `fineweb` looks for: every 20th document goes to the validation shard, the others to training
shards of up to 100,000,000 tokens. With --out=$ECOBENCH_DATA/fineweb10B-gpt2 the GPU presets train on them; their
`data_hash` is their own, so that nothing is compared with FineWeb. GPT-2's tokens come from tiktoken, which fetches its
file once.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from fineweb import SHARD_TOKENS, shard_names
from hellaswag import HellaSwagError, encoder
from tokens import ShardError, Tokens, write_shard

SEPARATOR = 50_256
VALIDATION_ONE_IN = 20


def read_documents(paths: Iterable[Path]) -> Iterator[str]:
    """Documents of files in their order.

    Raises:
        ShardError: a file cannot be read, or a line of it is no document.
    """
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ShardError(f"{path}: {error}") from None
        if path.suffix != ".jsonl":
            yield text
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                yield str(json.loads(line)["text"])
            except (ValueError, KeyError, TypeError):
                raise ShardError(f'{path}, line {number}: not a JSON object with "text"') from None


def write_shards(
    documents: Iterable[str],
    folder: Path,
    encode: Callable[[str], Sequence[int]],
    *,
    shard_tokens: int = SHARD_TOKENS,
) -> int:
    """Write all documents as shards; how many training shards they filled.

    Raises:
        ShardError: fewer than two documents, or the folder holds shards already.
    """
    if any(folder.glob("*.bin")):
        raise ShardError(f"{folder} holds shards already: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    pieces: dict[bool, list[Tokens]] = {True: [], False: []}
    n_documents = n_shards = n_waiting = 0
    for document in documents:
        is_validation = n_documents % VALIDATION_ONE_IN == 0
        piece = np.array([SEPARATOR, *encode(document)], dtype=np.uint16)
        pieces[is_validation].append(piece)
        n_documents += 1
        n_waiting += 0 if is_validation else len(piece)
        while n_waiting >= shard_tokens:
            n_shards += 1
            n_waiting -= shard_tokens
            whole = np.concatenate(pieces[False])
            write_shard(folder / shard_names(n_shards)[-1], whole[:shard_tokens])
            pieces[False] = [whole[shard_tokens:]]
    if n_documents < 2:
        raise ShardError("at least two documents are needed, one for validation and one to train on")
    if any(map(len, pieces[False])):
        n_shards += 1
        write_shard(folder / shard_names(n_shards)[-1], np.concatenate(pieces[False]))
    write_shard(folder / shard_names(0)[0], np.concatenate(pieces[True]))
    return n_shards


def main() -> None:
    parser = argparse.ArgumentParser(description="Own text as shards in GPT-2's tokens.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="text, or JSON lines with `text`")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="an empty folder for the shards")
    args = parser.parse_args()
    try:
        n_shards = write_shards(read_documents(args.files), args.out, encoder("fineweb"))
    except (ShardError, HellaSwagError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    print(f"{n_shards} training shards and one for validation in {args.out}")


if __name__ == "__main__":
    main()
