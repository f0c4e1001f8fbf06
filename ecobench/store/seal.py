"""The seal of a run: SHA-256 of every file that is not derived, in the format that `sha256sum -c` reads."""

import hashlib
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
    problems = []
    sealed = {}
    for line in run.sums.read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        sealed[name] = digest
    for name, digest in sealed.items():
        path = run.path / name
        if not path.is_file():
            problems.append(f"{name} is gone")
        elif _sha256(path) != digest:
            problems.append(f"{name} was changed")
    problems += [f"{name} was added" for name in _sealed_names(run) if name not in sealed]
    return problems


def _sealed_names(run: RunFolder) -> list[str]:
    paths = [run.run, *run.source.rglob("*"), *(run.path / "trials").rglob("*")]
    return sorted(
        path.relative_to(run.path).as_posix() for path in paths if path.is_file() and not path.name.startswith(".")
    )


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
