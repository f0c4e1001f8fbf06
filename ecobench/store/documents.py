"""Records as JSON files: written whole or not at all, read strictly."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ecobench.errors import RecordError, StoreError
from ecobench.records import SCHEMA

T = TypeVar("T")

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


def to_json(record: object) -> str:
    """A record as indented JSON. NaN and infinity are refused: missing is null, with a reason beside it. Bytes of a
    path or an argument that are no UTF-8 become `?`.

    Raises:
        ValueError: a number in it is not finite.
    """
    text = json.dumps(as_plain(record), allow_nan=False, indent=1, ensure_ascii=False)
    return text.encode(errors="replace").decode() + "\n"


def as_plain(record: object) -> Any:
    """Dataclasses as dictionaries, and collections as lists and dictionaries of them, all the way down."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {field.name: as_plain(getattr(record, field.name)) for field in dataclasses.fields(record)}
    if isinstance(record, Mapping):
        return {str(key): as_plain(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [as_plain(value) for value in record]
    return record


def write_document(path: Path, record: object) -> None:
    """Write `record` to `path` by way of a file beside it, so that a reader sees the old one or the new one.

    Raises:
        StoreError: the disk is full, or the folder cannot be written.
    """
    write_text(path, to_json(record))


def write_text(path: Path, text: str) -> None:
    """`write_document` for text that is made already; names of files may be any bytes."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise store_error(error, path) from None


def read_document(path: Path, kind: type[T]) -> T:
    """The record of type `kind` in `path`.

    Raises:
        RecordError: there is none, it is not JSON, of another schema number, or not of that type.
    """
    try:
        text = as_file(path).read_text(encoding="utf-8")
        plain = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(
            f"{path} cannot be read: {error}", hint="`ecobench verify` tells what is left of a run"
        ) from None
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if schema != SCHEMA:
        raise RecordError(
            f"{path} has schema {schema}, this ecobench reads {SCHEMA}", hint="read it with the version that wrote it"
        )
    try:
        # pydantic takes no config for a dataclass itself; within a tuple it reaches all that are nested.
        adapter = TypeAdapter(tuple[kind], config=_STRICT)  # type: ignore[valid-type]
        (record,) = adapter.validate_json(f"[{text}]", strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        raise RecordError(
            f"{path}: {where}: {first['msg']}", hint="the file was changed or cut; `ecobench verify` tells more"
        ) from None
    return record


def as_file(path: Path) -> Path:
    """`path`, unless it is something else than a file: to read a pipe would never end.

    Raises:
        OSError: it is a pipe, a folder, a device.
    """
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is no file")
    return path


def store_error(error: OSError, path: Path) -> StoreError:
    """An `OSError` on `path` in the words of someone who has to mend it."""
    reason = error.strerror or str(error)
    return StoreError(
        f"{path} cannot be written: {reason}", hint="free some space, or set ECOBENCH_HOME to a folder on another disk"
    )
