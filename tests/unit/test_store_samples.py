"""The sample stream: what a kill, a full disk or a changed byte leaves of it."""

import contextlib
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ecobench.errors import RecordError, StoreError
from ecobench.seams import Sample
from ecobench.store.samples import SampleWriter, compact, read_traces
from records_for_tests import meter_info, sample

PACKAGE = meter_info()
DRAM = meter_info(domain="cpu:0/dram")
Rows = Sequence[tuple[int, Sample]]


def batch(second: int) -> Rows:
    """Two meters, two readings each in one second; one of DRAM's failed."""
    ns = second * 1_000_000_000
    return [
        (0, sample(ns, 100 * second)),
        (1, sample(ns, 10 * second)),
        (0, sample(ns + 500_000_000, 100 * second + 50)),
        (1, sample(ns + 500_000_000, None, error="EIO")),
    ]


def write(path: Path, n_batches: int) -> list[int]:
    """A stream of some batches; its size after the header and after each batch."""
    with SampleWriter(path, [PACKAGE, DRAM]) as writer:
        sizes = [path.stat().st_size]
        for second in range(n_batches):
            writer.append(batch(second))
            sizes.append(path.stat().st_size)
    return sizes


def samples_schema(folder: Path) -> pa.Schema:
    """The schema of a stream of ours."""
    path = folder / "of-ours"
    if not path.exists():
        write(path, 1)
    with open(path, "rb") as file:
        return pa.ipc.open_stream(file).schema


def raws(path: Path) -> list[list[int]]:
    """Readings of each meter."""
    return [trace.raw.tolist() for trace in read_traces(path)]


def test_samples_come_back_by_meter_with_their_failures(tmp_path: Path) -> None:
    """Counts as integers; a failed reading is counted and named, not a zero."""
    write(tmp_path / "samples.arrow", 2)
    package, dram = read_traces(tmp_path / "samples.arrow")

    assert package.info == PACKAGE
    assert package.time_ns.tolist() == [0, 500_000_000, 1_000_000_000, 1_500_000_000]
    assert package.raw.tolist() == [0, 50, 100, 150]
    assert (package.n_failed, package.errors) == (0, ())
    assert dram.raw.tolist() == [0, 10]
    assert (dram.n_failed, dram.errors) == (2, ("EIO",))


def test_counts_keep_all_their_bits(tmp_path: Path) -> None:
    """63 bits, beyond what a float holds."""
    with SampleWriter(tmp_path / "s", [PACKAGE]) as writer:
        writer.append([(0, sample(2**63 - 2, 2**63 - 1))])

    (trace,) = read_traces(tmp_path / "s")
    assert (trace.time_ns.tolist(), trace.raw.tolist()) == ([2**63 - 2], [2**63 - 1])


def test_a_meter_without_one_sample_still_has_its_trace(tmp_path: Path) -> None:
    """Empty, so that its absence of numbers is seen."""
    write(tmp_path / "s", 0)

    assert [trace.info.domain for trace in read_traces(tmp_path / "s")] == ["cpu:0/package", "cpu:0/dram"]
    assert raws(tmp_path / "s") == [[], []]


def test_no_meters_give_no_traces(tmp_path: Path) -> None:
    """`--meter none`."""
    with SampleWriter(tmp_path / "s", []) as writer:
        writer.append([])
    compact(tmp_path / "s")

    assert read_traces(tmp_path / "s") == ()


def test_every_batch_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    """A harness that is killed then has lost nothing of it; so is the header, before the first batch."""
    path = tmp_path / "s"
    with SampleWriter(path, [PACKAGE, DRAM]) as writer:
        assert raws(path) == [[], []]
        writer.append(batch(0))
        assert raws(path) == [[0, 50], [0]]
        writer.append(batch(1))
        assert raws(path) == [[0, 50, 100, 150], [0, 10]]


def test_a_stream_torn_at_any_byte_of_its_last_batch_keeps_those_before(tmp_path: Path) -> None:
    """Every offset, from the end of the second batch to the last byte of the third."""
    path = tmp_path / "s"
    _, _, second, third = write(path, 3)
    data = path.read_bytes()
    torn = tmp_path / "torn"

    for size in range(second, third):
        torn.write_bytes(data[:size])
        assert raws(torn) == [[0, 50, 100, 150], [0, 10]], size
    assert raws(path) == [[0, 50, 100, 150, 200, 250], [0, 10, 20]]


def test_a_stream_torn_before_its_first_sample_has_none(tmp_path: Path) -> None:
    """Every offset of the header: an error until the meters are known, empty traces after."""
    path = tmp_path / "s"
    header, _ = write(path, 1)
    data = path.read_bytes()

    path.write_bytes(b"")
    with pytest.raises(RecordError):
        read_traces(path)
    for size in range(1, header):
        path.write_bytes(data[:size])
        try:
            assert raws(path) == [[], []]
        except RecordError:
            continue


@pytest.mark.parametrize("is_compact", [False, True])
def test_a_changed_byte_gives_numbers_or_an_error_and_nothing_worse(tmp_path: Path, *, is_compact: bool) -> None:
    """The seal tells that a byte was changed; reading such a stream must end in a way that `verify` can report."""
    path = tmp_path / "s"
    write(path, 2)
    if is_compact:
        compact(path)
    data = path.read_bytes()
    chance = random.Random(1)

    for place in range(0, len(data), 4):
        changed = bytearray(data)
        changed[place] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(changed))
        try:
            read_traces(path)
        except RecordError:
            continue


def test_compacting_changes_no_sample(tmp_path: Path) -> None:
    """Nor meters, failures and metadata; and a second time neither."""
    path = tmp_path / "s"
    write(path, 50)
    before = read_traces(path)
    size = path.stat().st_size
    compact(path)
    compact(path)

    for old, new in zip(before, read_traces(path), strict=True):
        assert new.info == old.info
        assert np.array_equal(new.time_ns, old.time_ns)
        assert np.array_equal(new.raw, old.raw)
        assert (new.n_failed, new.errors) == (old.n_failed, old.errors)
    assert path.stat().st_size < size / 4
    assert [one.name for one in tmp_path.iterdir()] == ["s"]


def test_compacting_on_a_full_disk_keeps_the_samples(small_disk: Path) -> None:
    """The error is the store's, and nothing is left beside them."""
    path = small_disk / "s"
    write(path, 3)
    with open(small_disk / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(b"x" * 4096):
            pass
    with pytest.raises(StoreError):
        compact(path)

    assert raws(path) == [[0, 50, 100, 150, 200, 250], [0, 10, 20]]
    assert sorted(one.name for one in small_disk.iterdir()) == ["filler", "s"]


def test_a_full_disk_is_a_store_error_and_keeps_what_was_written(small_disk: Path) -> None:
    """Every batch whose append returned can be read; the one that failed raised."""
    path = small_disk / "s"
    n_written = 0

    def write_until_full() -> None:
        nonlocal n_written
        with SampleWriter(path, [PACKAGE, DRAM]) as writer:
            for second in range(1000):
                writer.append(batch(second))
                n_written += 1

    with pytest.raises(StoreError, match="No space left"):
        write_until_full()
    assert n_written > 10
    assert len(raws(path)[0]) in (2 * n_written, 2 * n_written + 2)


def test_a_stream_is_never_written_over(tmp_path: Path) -> None:
    """A second writer of the same trial is an error."""
    write(tmp_path / "s", 1)
    with pytest.raises(StoreError, match="File exists"):
        SampleWriter(tmp_path / "s", [PACKAGE])

    assert raws(tmp_path / "s") == [[0, 50], [0]]


def test_a_stream_of_something_else_is_refused(tmp_path: Path) -> None:
    """No file, no Arrow, Arrow without our words, another schema number."""
    path = tmp_path / "s"
    with pytest.raises(RecordError):
        read_traces(path)
    path.write_bytes(b"hello")
    with pytest.raises(RecordError):
        read_traces(path)
    fields = [(one.name, one.type, one.nullable) for one in samples_schema(tmp_path)]
    ours = pa.schema([pa.field(*one) for one in fields])
    foreign = pa.schema([pa.field("x", pa.int64())], metadata=samples_schema(tmp_path).metadata)
    metadatas: list[dict[bytes, bytes] | None] = [None, {b"ecobench": b"{}"}, {b"ecobench": b"[]"}, {b"ecobench": b"?"}]
    for schema in (foreign, *(ours.with_metadata(metadata) for metadata in metadatas)):
        with pa.ipc.new_stream(path, schema):
            pass
        with pytest.raises(RecordError):
            read_traces(path)
    with pa.ipc.new_stream(path, ours.with_metadata({b"ecobench": b'{"schema": 9, "meters": []}'})):
        pass
    with pytest.raises(RecordError, match="schema 9"):
        read_traces(path)
