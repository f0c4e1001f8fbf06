"""The speedrun's own data: FineWeb in GPT-2's tokens, ready as shards on the hub.

    python fineweb.py download [--shards=9] [--out=DIR]          the validation shard and the first training shards
    python fineweb.py info     [--shards=9] [--out=DIR] [--json] what is there; exit code 0 also where nothing is

Shard 000000 is for validation, 000001 to 000103 are for training; each has 100,000,000 tokens in 200 MB, and every
document opens with token 50,256. The hub's own client downloads: it shows progress, goes on where a cut connection left
off, and takes another endpoint from $HF_ENDPOINT. Every file is checked against the checksum that the hub states.

Shards that were brought here by hand serve as well: what is used is hashed once, and `data_hash` covers exactly that.
"""

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokens import ShardError, cache_root, read_shard

REPOSITORY = "kjj0/fineweb10B-gpt2"
VALIDATION = "fineweb_val_000000.bin"
N_SHARDS = 103
SHARD_TOKENS = 100_000_000
SUMS = "sha256.json"
# What aligned lanes skip, and what is left over at the end of a shard.
SPARE = 1.25


def default_folder() -> Path:
    """Where the shards belong: `$ECOBENCH_DATA`, else the user's cache."""
    return cache_root() / "fineweb10B-gpt2"


def shards_for(n_tokens: int) -> int:
    """Training shards that so many tokens of training go through."""
    return min(N_SHARDS, math.ceil(n_tokens * SPARE / SHARD_TOKENS))


def shard_names(n_shards: int) -> list[str]:
    """The validation shard and the first training shards."""
    return [VALIDATION, *(f"fineweb_train_{number:06d}.bin" for number in range(1, n_shards + 1))]


def find_files(folder: Path, n_shards: int) -> list[Path]:
    """Paths of those shards.

    Raises:
        ShardError: some are missing.
    """
    missing = [name for name in shard_names(n_shards) if not (folder / name).is_file()]
    if missing:
        raise ShardError(f"{folder}: {len(missing)} of {n_shards + 1} shards are missing, {missing[0]} first: {_WAYS}")
    return [folder / name for name in shard_names(n_shards)]


def hash_shards(folder: Path, n_shards: int) -> str:
    """Identity of those shards: sha256 over the checksums of all, each read once and remembered beside it.

    Raises:
        ShardError: some are missing or damaged.
    """
    sums = _read_sums(folder)
    digest = hashlib.sha256()
    for path in find_files(folder, n_shards):
        read_shard(path)
        if _stamp(path) != sums.get(path.name, {}).get("stamp"):
            sums[path.name] = {"sha256": _hash_file(path), "stamp": _stamp(path)}
            _write_sums(folder, sums)
        digest.update(bytes.fromhex(str(sums[path.name]["sha256"])))
    return digest.hexdigest()


def download(folder: Path, n_shards: int) -> None:
    """Bring the shards here that are not; what is here already is not fetched again.

    Raises:
        ShardError: the hub cannot be reached, or a file is not what it states.
    """
    missing = [name for name in shard_names(n_shards) if not (folder / name).is_file()]
    if not missing:
        return
    try:
        from huggingface_hub import HfApi, hf_hub_download  # noqa: PLC0415  # only who downloads needs it
    except ImportError:
        raise ShardError(f"downloading needs huggingface_hub (pip install huggingface_hub): {_WAYS}") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stated = _stated_sums(HfApi(), missing)
        for number, name in enumerate(missing, start=1):
            print(f"{name} ({number} of {len(missing)})", file=sys.stderr, flush=True)
            path = Path(hf_hub_download(REPOSITORY, name, repo_type="dataset", local_dir=folder))
            _check(path, stated.get(name))
    except ShardError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever its layers raise: no network, no such host, a full disk
        first_line = str(error).strip().splitlines()[:1]
        raise ShardError(f"no download ({type(error).__name__}: {' '.join(first_line)}): {_WAYS}") from None


_WAYS = (
    "`ecobench data download` fetches them where there is a network ($HF_ENDPOINT names a mirror); else copy "
    f"{VALIDATION} and fineweb_train_*.bin into $ECOBENCH_DATA/fineweb10B-gpt2, or use --preset cpu, which needs none"
)


def _stated_sums(api: object, names: Sequence[str]) -> dict[str, str]:
    """Checksums that the hub states for files."""
    found = api.get_paths_info(REPOSITORY, list(names), repo_type="dataset")  # type: ignore[attr-defined]
    return {one.path: one.lfs.sha256 for one in found if getattr(one, "lfs", None) is not None}


def _check(path: Path, stated: str | None) -> None:
    read_shard(path)
    found = _hash_file(path)
    if stated is not None and found != stated:
        path.unlink()
        raise ShardError(f"{path}: sha256 {found}, the hub states {stated}; deleted, download it again")
    sums = _read_sums(path.parent)
    sums[path.name] = {"sha256": found, "stamp": _stamp(path)}
    _write_sums(path.parent, sums)


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(path: Path) -> list[int]:
    """What tells that a file has changed."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _read_sums(folder: Path) -> dict[str, dict[str, object]]:
    try:
        found = json.loads((folder / SUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_sums(folder: Path, sums: Mapping[str, object]) -> None:
    temporary = folder / f".{SUMS}"
    temporary.write_text(json.dumps(sums, indent=1) + "\n", encoding="utf-8")
    temporary.replace(folder / SUMS)


def _describe(folder: Path, n_shards: int) -> dict[str, object]:
    try:
        data_hash = hash_shards(folder, n_shards)
    except ShardError as error:
        print(error, file=sys.stderr)
        return {"present": False, "path": str(folder)}
    validation, *train = (len(read_shard(path)) for path in find_files(folder, n_shards))
    return {
        "present": True,
        "path": str(folder),
        "n_train_tokens": sum(train),
        "n_validation_tokens": validation,
        "data_hash": data_hash,
        "source": f"the first {n_shards} training shards of {REPOSITORY} and its validation shard",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="FineWeb in GPT-2's tokens, from the hub.")
    parser.add_argument("action", choices=["download", "info"])
    parser.add_argument("--shards", type=int, default=9, metavar="N", help=f"training shards, up to {N_SHARDS}")
    parser.add_argument("--out", type=Path, default=None, help="folder; default: in $ECOBENCH_DATA or the user's cache")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args()
    if not 1 <= args.shards <= N_SHARDS:
        parser.error(f"--shards={args.shards}: from 1 to {N_SHARDS}")
    folder: Path = args.out or default_folder()
    try:
        if args.action == "download":
            download(folder, args.shards)
    except ShardError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    described = _describe(folder, args.shards)
    print(json.dumps(described) if args.json else "\n".join(f"{key}: {value}" for key, value in described.items()))


if __name__ == "__main__":
    main()
