"""Finds workloads: by path, in `./workloads`, or built in; and the data that they need."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import ecobench
from ecobench.config import DataSource, Manifest, expand_command, parse_manifest
from ecobench.errors import ManifestError, RequestError, WorkloadError
from ecobench.parameters import suggest
from ecobench.processes import die_with_parent

MANIFEST = "workload.toml"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload's folder and what its manifest declares."""

    path: Path
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class DataInfo:
    """What a workload's own `info` command says of its data.

    Attributes:
        data_hash: identity of the token streams; losses on different ones are never compared.
    """

    is_present: bool
    path: str
    n_train_tokens: int | None
    n_validation_tokens: int | None
    data_hash: str | None
    source: str | None


def find_workload(name_or_path: str) -> Workload:
    """The workload of that name, or in that folder.

    Raises:
        RequestError: there is none.
        ManifestError: its manifest is wrong.
    """
    as_path = Path(os.path.expanduser(name_or_path))  # as a shell does: `~nobody` stays as it is
    if as_path.name == MANIFEST and as_path.is_file():
        as_path = as_path.parent
    if os.sep in name_or_path or name_or_path in (".", ".."):
        if not as_path.is_dir():
            raise RequestError(
                f"no folder {as_path}", hint="a workload is a folder with a workload.toml, or a known name"
            )
        return read_workload(as_path)
    for root in search_roots():
        if (root / name_or_path / MANIFEST).is_file():
            return read_workload(root / name_or_path)
    if (as_path / MANIFEST).is_file():
        return read_workload(as_path)
    raise RequestError(f"no workload `{name_or_path}`", hint=suggest(name_or_path, known_workloads()))


def read_workload(path: Path) -> Workload:
    """The workload in the folder `path`.

    Raises:
        ManifestError: no manifest there, or a wrong one.
    """
    manifest = path / MANIFEST
    try:
        text = manifest.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{manifest}: {error}", hint="a workload is a folder with a workload.toml") from None
    return Workload(path=path.absolute(), manifest=parse_manifest(text, where=str(manifest)))


def known_workloads() -> list[str]:
    """Names that `find_workload` knows without a path."""
    return sorted({one.parent.name for root in search_roots() for one in root.glob(f"*/{MANIFEST}")})


def search_roots() -> list[Path]:
    """Folders of workloads, nearest first: `./workloads`, then what is built in."""
    roots = [Path("workloads").absolute()]
    spec = importlib.util.find_spec("ecobench.workloads")
    if spec is not None and spec.submodule_search_locations:
        roots += [Path(one) for one in spec.submodule_search_locations]
    else:  # run from a checkout that is not installed
        roots.append(Path(ecobench.__file__).absolute().parent.parent / "workloads")
    return roots


def read_data_info(workload: Workload, source: DataSource) -> DataInfo:
    """What the workload says of this data.

    Raises:
        WorkloadError: its command failed, or printed something else.
    """
    done = _run(workload, source.info, capture=True)
    try:
        said = json.loads(done.stdout)
        return DataInfo(
            is_present=bool(said["present"]),
            path=str(said["path"]),
            n_train_tokens=_optional(said, "n_train_tokens", int),
            n_validation_tokens=_optional(said, "n_validation_tokens", int),
            data_hash=_optional(said, "data_hash", str),
            source=_optional(said, "source", str),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise WorkloadError(
            f"{workload.manifest.name}: `{source.info}` did not print its data as JSON: {error!r}",
            hint="it prints one object with present, path, n_train_tokens, n_validation_tokens, data_hash, source",
        ) from None


def _optional(said: Mapping[str, object], key: str, kind: type[T]) -> T | None:
    value = said.get(key)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise TypeError(f"{key} is {value!r}")
    return value


def make_data(workload: Workload, source: DataSource) -> None:
    """Have the workload make its data, or fetch it; what it prints goes to stderr.

    Raises:
        WorkloadError: it failed.
    """
    _run(workload, source.get, capture=False)


def _run(workload: Workload, command: str, *, capture: bool) -> "subprocess.CompletedProcess[str]":
    argv = expand_command(command, python=sys.executable, ranks=1)
    try:
        done = subprocess.run(
            argv,
            cwd=workload.path,
            stdout=subprocess.PIPE if capture else sys.stderr.fileno(),
            stderr=subprocess.PIPE if capture else None,
            preexec_fn=die_with_parent,  # this process has one thread by now
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise WorkloadError(
            f"`{command}` does not start: {error}", hint=f"see [data] in {workload.path / MANIFEST}"
        ) from None
    if done.returncode != 0 and not capture:
        raise WorkloadError(
            f"{workload.manifest.name}: its data command failed with exit code {done.returncode}, see above",
            hint=f"it is `{command}`, run in {workload.path}",
        )
    if done.returncode != 0:
        last = (done.stderr or "").strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise WorkloadError(
            f"{workload.manifest.name}: `{command}`: {last[0]}", hint=f"run it in {workload.path} to see all"
        )
    return done
