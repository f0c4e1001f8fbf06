"""Token shards: what they look like on disk, and the ones every machine can make without a download.

    python tokens.py tokenize [--out=DIR] [--json]   make the shards of the Python standard library, if they are missing
    python tokens.py info [--out=DIR] [--json]       say what is there; exit code 0 also where nothing is

A shard is a file in the speedrun's format: a header of 256 int32 (magic 20240520, version 1, number of tokens, zeros),
then the tokens as little-endian uint16.

The text is the Python standard library's own source: real text, on every machine that can start this file. Bytes are
the tokens (0 to 255), and 256 is the separator that opens each piece. Files are cut at line ends into pieces of at most
1 KiB and the pieces shuffled: in file order a model meets one module after the other and forgets (measured: 1.85 nats
a byte instead of 1.53 after equal steps). Train and validation are split by file, never inside one.

The text differs between Python versions, so each version has its own folder and every folder its `data_hash`: losses on
different hashes are not comparable. Standard library and numpy only; nothing here knows torch.
"""

import argparse
import hashlib
import json
import os
import platform
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

MAGIC = 20240520
VERSION = 1
HEADER_INTS = 256
HEADER_BYTES = 4 * HEADER_INTS
SEPARATOR = 256

INFO_SCHEMA = 1
INFO_NAME = "info.json"
PIECE_BYTES = 1024
VALIDATION_ONE_IN = 20
# Tests repeat the library's own text; encodings, pydoc_data and lib2to3's tables are generated; the rest are programs
# or installed packages that happen to lie there.
LEFT_OUT = frozenset(
    "test tests site-packages dist-packages __pycache__ idlelib lib2to3 turtledemo encodings pydoc_data".split()
)

Tokens = npt.NDArray[np.uint16]


class ShardError(Exception):
    """A shard or its folder is not what it should be; the message names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """`info.json`: what a folder of shards holds.

    Attributes:
        data_hash: sha256 over the train tokens followed by the validation tokens, as little-endian uint16.
    """

    schema: int
    source: str
    python: str
    n_train_files: int
    n_validation_files: int
    n_train_tokens: int
    n_validation_tokens: int
    data_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSplit:
    """Both token streams, and how many files each came from."""

    train: Tokens
    validation: Tokens
    n_train_files: int
    n_validation_files: int


def write_shard(path: Path, tokens: Tokens) -> None:
    """Write one shard and push it to the disk."""
    header = np.zeros(HEADER_INTS, dtype="<i4")
    header[:3] = MAGIC, VERSION, len(tokens)
    with path.open("wb") as file:
        file.write(header.tobytes())
        file.write(tokens.astype("<u2", copy=False).tobytes())
        file.flush()
        os.fsync(file.fileno())


def read_shard(path: Path) -> Tokens:
    """Tokens of one shard, mapped rather than read: `(n_tokens,)`.

    Raises:
        ShardError: missing, not a shard, another version, or not as long as its header says.
    """
    try:
        size_bytes = path.stat().st_size
        header = np.fromfile(path, dtype="<i4", count=HEADER_INTS)
    except OSError as error:
        raise ShardError(f"{path}: {error.strerror}") from None
    if len(header) < HEADER_INTS:
        raise ShardError(f"{path}: {size_bytes} bytes are less than the header of a token shard")
    magic, version, n_tokens = (int(value) for value in header[:3])
    if magic != MAGIC:
        raise ShardError(f"{path}: not a token shard (magic {magic}, expected {MAGIC})")
    if version != VERSION:
        raise ShardError(f"{path}: version {version}, this program reads version {VERSION}")
    if size_bytes != HEADER_BYTES + 2 * n_tokens:
        raise ShardError(f"{path}: {size_bytes} bytes, but {n_tokens} tokens take {HEADER_BYTES + 2 * n_tokens}")
    return np.memmap(path, dtype="<u2", mode="r", offset=HEADER_BYTES, shape=(n_tokens,))


def find_shards(folder: Path, split: str) -> list[Path]:
    """Shards of `train` or `val` in their order.

    Raises:
        ShardError: there is none.
    """
    paths = sorted(folder.glob(f"*_{split}_*.bin"))
    if not paths:
        raise ShardError(f"{folder}: no {split} shards (*_{split}_*.bin)")
    return paths


def hash_tokens(streams: Iterable[Tokens]) -> str:
    """sha256 in hex over all streams one after the other, as little-endian uint16."""
    digest = hashlib.sha256()
    for tokens in streams:
        digest.update(np.ascontiguousarray(tokens, dtype="<u2").data)
    return digest.hexdigest()


def cache_root() -> Path:
    """Where all token shards belong: `$ECOBENCH_DATA`, else the user's cache."""
    given = os.environ.get("ECOBENCH_DATA")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(cache) / "ecobench"


def default_folder() -> Path:
    """Where the shards of this Python's standard library belong."""
    return cache_root() / f"python-stdlib-{platform.python_version()}"


def read_info(folder: Path) -> ShardInfo | None:
    """What the folder holds, every token checked against the recorded hash; None where there is nothing.

    Raises:
        ShardError: something is there and it is damaged.
    """
    path = folder / INFO_NAME
    if not path.exists():
        return None
    try:
        info = ShardInfo(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ShardError(f"{path}: {error}") from None
    if info.schema != INFO_SCHEMA:
        raise ShardError(f"{path}: schema {info.schema}, this program reads {INFO_SCHEMA}")
    streams = [read_shard(shard) for split in ("train", "val") for shard in find_shards(folder, split)]
    if hash_tokens(streams) != info.data_hash:
        raise ShardError(f"{folder}: the tokens do not match the data_hash in {INFO_NAME}")
    return info


def find_source_files(library: Path) -> list[Path]:
    """Python files of the standard library in `library`, in order of their names, without `LEFT_OUT` and config-*."""
    found = []
    for folder, subfolders, names in os.walk(library):
        subfolders[:] = [name for name in subfolders if name not in LEFT_OUT and not name.startswith("config-")]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(found, key=lambda path: path.relative_to(library).as_posix())


def cut_pieces(text: bytes, *, at_most: int = PIECE_BYTES) -> Iterator[bytes]:
    """Cut at line ends into pieces of at most `at_most` bytes; a longer line is cut where it must be."""
    piece = b""
    for line in text.splitlines(keepends=True):
        if piece and len(piece) + len(line) > at_most:
            yield piece
            piece = b""
        piece += line
        while len(piece) > at_most:
            yield piece[:at_most]
            piece = piece[at_most:]
    if piece:
        yield piece


def tokenize_library(library: Path) -> TokenSplit:
    """Both token streams of the library's source. The same files give the same tokens on every machine.

    Raises:
        ShardError: the library has no source files, or too few for two splits.
    """
    # Order and split come from hashes of names, not from a random generator: nothing to seed, and one more file in the
    # library moves no other file to another split.
    pieces: dict[str, list[tuple[bytes, bytes]]] = {"train": [], "val": []}
    n_files = {"train": 0, "val": 0}
    for path in find_source_files(library):
        name = path.relative_to(library).as_posix()
        split = "val" if _number_of(name) % VALIDATION_ONE_IN == 0 else "train"
        n_files[split] += 1
        for index, piece in enumerate(cut_pieces(path.read_bytes())):
            pieces[split].append((_digest(f"{name}:{index}"), piece))
    if not pieces["train"] or not pieces["val"]:
        raise ShardError(f"{library}: no Python source files here to make tokens of")
    return TokenSplit(
        train=_join_shuffled(pieces["train"]),
        validation=_join_shuffled(pieces["val"]),
        n_train_files=n_files["train"],
        n_validation_files=n_files["val"],
    )


def tokenize(folder: Path, *, library: Path | None = None) -> ShardInfo:
    """Make the shards in `folder` unless intact ones are there already; what is damaged is replaced.

    The folder appears whole or not at all, also when two processes make it at once.

    Raises:
        ShardError: no source files, or the folder cannot be written.
    """
    try:
        present = read_info(folder)
    except ShardError as error:
        print(f"{error}: made again", file=sys.stderr)
        present = None
    if present is not None:
        return present
    split = tokenize_library(library or Path(sysconfig.get_paths()["stdlib"]))
    info = ShardInfo(
        schema=INFO_SCHEMA,
        source=f"source files of the Python {platform.python_version()} standard library, as bytes",
        python=platform.python_version(),
        n_train_files=split.n_train_files,
        n_validation_files=split.n_validation_files,
        n_train_tokens=len(split.train),
        n_validation_tokens=len(split.validation),
        data_hash=hash_tokens([split.train, split.validation]),
    )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
            made = Path(temporary, "made")
            made.mkdir()
            write_shard(made / "stdlib_train_000001.bin", split.train)
            write_shard(made / "stdlib_val_000000.bin", split.validation)
            (made / INFO_NAME).write_text(json.dumps(asdict(info), indent=2) + "\n", encoding="utf-8")
            _put_in_place(made, folder)
    except OSError as error:
        raise ShardError(f"{folder}: {error.strerror or error}") from None
    return info


def _put_in_place(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        # Something is there: another process was quicker with the very same tokens, or it is damaged and replaced.
        try:
            is_intact = read_info(folder) is not None
        except ShardError:
            is_intact = False
        if not is_intact:
            folder.rename(made.with_name("damaged"))
            made.rename(folder)


def _join_shuffled(pieces: list[tuple[bytes, bytes]]) -> Tokens:
    parts: list[Tokens] = []
    for _, piece in sorted(pieces):
        parts += [np.array([SEPARATOR], dtype=np.uint16), np.frombuffer(piece, dtype=np.uint8).astype(np.uint16)]
    return np.concatenate(parts)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _number_of(text: str) -> int:
    return int.from_bytes(_digest(text)[:8], "big")


def _describe(folder: Path) -> dict[str, object]:
    try:
        info = read_info(folder)
    except ShardError as error:
        print(f"{error}: `python tokens.py tokenize` makes them again", file=sys.stderr)
        info = None
    return {
        "present": info is not None,
        "path": str(folder),
        "n_train_tokens": info.n_train_tokens if info else None,
        "n_validation_tokens": info.n_validation_tokens if info else None,
        "data_hash": info.data_hash if info else None,
        "source": info.source if info else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Token shards of the Python standard library's source files.")
    parser.add_argument("action", choices=["tokenize", "info"])
    parser.add_argument("--out", type=Path, default=None, help="folder; default: in $ECOBENCH_DATA or the user's cache")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args()
    folder: Path = args.out or default_folder()
    try:
        if args.action == "tokenize":
            tokenize(folder)
    except ShardError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    described = _describe(folder)
    if args.json:
        print(json.dumps(described))
    elif described["present"]:
        print(f"{described['n_train_tokens']:,} train and {described['n_validation_tokens']:,} validation tokens")
        print(f"of {described['source']}\nin {described['path']}\ndata hash {described['data_hash']}")
    else:
        print(f"no shards in {described['path']}")


if __name__ == "__main__":
    main()
