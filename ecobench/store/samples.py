"""The samples of a trial: an Arrow IPC stream, a batch a second, so that SIGKILL costs at most a second.

(Parquet and the Arrow file format keep their index at the end: killed, they lose everything.) At the end of the trial
the stream is written again, as zstd with large batches: one format, one reader.

One row is one reading of one meter: when (middle of the call), which meter (its place in the table that the stream's
metadata carries), the raw counts, how long the call took, and, where there are no counts, why.
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, TypeAdapter

from ecobench.errors import RecordError
from ecobench.measurement import MeterInfo
from ecobench.records import SCHEMA
from ecobench.seams import Sample
from ecobench.store.documents import as_file, as_plain, store_error
from ecobench.trace import Trace

_KEY = b"ecobench"
_FIELDS = [
    pa.field("time_ns", pa.int64(), nullable=False),
    pa.field("meter", pa.int16(), nullable=False),
    pa.field("raw", pa.int64()),
    pa.field("call_ns", pa.int64(), nullable=False),
    pa.field("error", pa.string()),
]
_METERS = TypeAdapter(tuple[MeterInfo, ...], config=ConfigDict(extra="forbid"))


class SampleWriter:
    """Appends samples to a new stream; each `append` is one batch, on its way to the disk when it returns."""

    def __init__(self, path: Path, meters: Sequence[MeterInfo]) -> None:
        self._path = path
        metadata = {_KEY: json.dumps({"schema": SCHEMA, "meters": [as_plain(meter) for meter in meters]})}
        self._schema = pa.schema(_FIELDS, metadata=metadata)
        try:
            self._file = open(path, "xb", buffering=0)  # noqa: SIM115  # closed by `__exit__`
        except OSError as error:
            raise store_error(error, path) from None
        try:
            self._stream = pa.ipc.new_stream(self._file, self._schema)
            # The stream's header goes out with its first batch: now, so that a kill never leaves a file without one.
            self._stream.write_batch(pa.record_batch([[] for _ in _FIELDS], schema=self._schema))
        except OSError as error:
            self._file.close()
            raise store_error(error, path) from None

    def append(self, rows: Sequence[tuple[int, Sample]]) -> None:
        """Write `(meter, sample)` rows.

        Raises:
            StoreError: the disk is full.
        """
        if not rows:
            return
        columns = [
            pa.array([sample.time_ns for _, sample in rows], pa.int64()),
            pa.array([meter for meter, _ in rows], pa.int16()),
            pa.array([sample.raw for _, sample in rows], pa.int64()),
            pa.array([sample.call_ns for _, sample in rows], pa.int64()),
            pa.array([sample.error for _, sample in rows], pa.string()),
        ]
        try:
            self._stream.write_batch(pa.record_batch(columns, schema=self._schema))
        except OSError as error:
            raise store_error(error, self._path) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stream.close()
        except OSError as full:
            raise store_error(full, self._path) from None
        finally:
            self._file.close()


def read_traces(path: Path) -> tuple[Trace, ...]:
    """One trace for each meter of the stream, in the order of its table. A torn last batch is left out.

    Raises:
        RecordError: there is no such file, or it is no stream of samples of a schema that is known.
    """
    table, meters = _read(path)
    try:
        return _traces(table, meters)
    except ValueError as error:
        raise RecordError(f"{path}: {error}", hint="was the file changed? `ecobench verify` tells") from None


def _traces(table: pa.Table, meters: Sequence[MeterInfo]) -> tuple[Trace, ...]:
    meter = table["meter"].to_numpy()
    time_ns = table["time_ns"].to_numpy()
    has_value = np.asarray(table["raw"].is_valid().to_numpy(), dtype=bool)
    raw = table["raw"].fill_null(0).to_numpy()
    traces = []
    for index, info in enumerate(meters):
        here = meter == index
        good = here & has_value
        failed = np.flatnonzero(here & ~has_value)
        errors = table["error"].take(pa.array(failed)).unique().to_pylist() if len(failed) else []
        traces.append(
            Trace(
                info=info,
                time_ns=time_ns[good],
                raw=raw[good],
                n_failed=len(failed),
                errors=tuple(str(error) for error in errors),
            )
        )
    return tuple(traces)


def compact(path: Path) -> None:
    """Write the stream again, compressed; the old one stays until the new one is whole.

    Raises:
        StoreError: the disk is full (the samples themselves are safe then).
    """
    table, _ = _read(path)
    beside = path.with_name(f".{path.name}.compact")
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    try:
        with open(beside, "wb") as file, pa.ipc.new_stream(file, table.schema, options=options) as stream:
            stream.write_table(table.combine_chunks(), max_chunksize=1 << 16)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise store_error(error, path) from None


def _read(path: Path) -> tuple[pa.Table, tuple[MeterInfo, ...]]:
    batches: list[pa.RecordBatch] = []
    try:
        with open(as_file(path), "rb") as file:
            reader = pa.ipc.open_stream(file)
            schema = reader.schema
            # The end, or a batch that was being written when the harness was killed.
            with contextlib.suppress(StopIteration, pa.ArrowException, OSError, MemoryError):
                batches.extend(iter(reader.read_next_batch, None))
        table = pa.Table.from_batches(batches, schema=schema)
        table.validate(full=True)
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise RecordError(f"{path} cannot be read: {error}", hint="the trial has no samples") from None
    if not schema.equals(pa.schema(_FIELDS)):
        raise RecordError(f"{path} holds {', '.join(schema.names)}", hint="was it written by ecobench?")
    try:
        about = json.loads((schema.metadata or {})[_KEY])
        if about["schema"] != SCHEMA:
            raise RecordError(f"{path} has schema {about['schema']}, this ecobench reads {SCHEMA}")
        meters = _METERS.validate_json(json.dumps(about["meters"]), strict=True)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(
            f"{path} does not say what its samples are: {error}", hint="was it written by ecobench?"
        ) from None
    return table, meters
