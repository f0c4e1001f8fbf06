"""The seal of a run: SHA-256 of every file that is not derived, in the format that `sha256sum -c` reads."""

import hashlib
import os
from pathlib import Path

from ecobench.store.documents import write_text
from ecobench.store.folders import RunFolder


def write_seal(run: RunFolder) -> None:
    """Hash what there is and write `SHA256SUMS`.

    Raises:
        StoreError: it cannot be written.
    """
    lines = [f"{_sha256(run.path / name)}  {name}\n" for name in _sealed_names(run)]
    write_text(run.sums, "".join(lines))


def broken_seals(run: RunFolder) -> list[str]:
    """One line for each file that is not as it was when the run was sealed; empty where all are."""
    if not run.sums.is_file():
        return [f"{run.sums.name} is no file"]
    problems = []
    sealed = {}
    # As bytes: names of files may be any, and a line ends nowhere but at its newline.
    for line in run.sums.read_bytes().removesuffix(b"\n").split(b"\n"):
        digest, _, name = line.decode("utf-8", "surrogateescape").partition("  ")
        sealed[name] = digest
    for name, digest in sealed.items():
        path = run.path / name
        if not os.path.isfile(path):  # false, where `Path.is_file` raises, for a name that no file can have
            problems.append(f"{name} is gone")
        elif _sha256(path) != digest:
            problems.append(f"{name} was changed")
    problems += [f"{name} was added" for name in _sealed_names(run) if name not in sealed]
    return problems


def _sealed_names(run: RunFolder) -> list[str]:
    paths = [run.run, *run.source.rglob("*"), *(run.path / "trials").rglob("*")]
    names = [path.relative_to(run.path).as_posix() for path in paths if path.is_file() and path.name[0] != "."]
    return sorted(name for name in names if "\n" not in name)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
