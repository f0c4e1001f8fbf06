"""Records as JSON files: written whole or not at all, read strictly."""

import json
from pathlib import Path
from typing import Any

import pytest

from ecobench.errors import RecordError, StoreError
from ecobench.measurement import Interval, MeterAbsence, QualityFlag, Severity
from ecobench.records import RunRecord, RunSummary, StopReason, StopRule, TrialRecord
from ecobench.store import read_document, to_json, write_document
from ecobench.store.documents import write_text
from ecobench.summary import summarise
from records_for_tests import TARGET, but, run_record, run_spec, trial_record, trial_result

FULL_RUN = run_record(
    spec=run_spec(
        target=TARGET,
        parameters={"steps": 10**30, "rate": 1e-300, "mode": "a 'b' \"c\" é 漢"},
        stop_rule=StopRule(reason=StopReason.LOSS, limit=1.5, text="loss=1.5"),
    ),
    absences=(MeterAbsence(interface="nvml", domain=None, reason="no GPU", remedy=None),),
)
FLAGGED = trial_record(
    result=trial_result(flags=(QualityFlag(code="x", severity=Severity.INVALID, evidence="seen", remedy=None),))
)


@pytest.mark.parametrize(
    "record",
    [
        FULL_RUN,
        run_record(),
        trial_record(),
        trial_record(end=None, result=None),
        FLAGGED,
        summarise(FULL_RUN, [FLAGGED]),
    ],
)
def test_what_is_written_is_read_back_equal(tmp_path: Path, record: RunRecord | TrialRecord | RunSummary) -> None:
    """To the last bit of every float, with tuples, enums and None where they were."""
    write_document(tmp_path / "record.json", record)

    again = read_document(tmp_path / "record.json", type(record))
    assert again == record
    assert to_json(again) == to_json(record)


def test_only_the_document_is_left_after_writing(tmp_path: Path) -> None:
    """No half file beside it, and writing again replaces it."""
    write_document(tmp_path / "trial.json", trial_record(index=1))
    write_document(tmp_path / "trial.json", trial_record(index=2))

    assert [path.name for path in tmp_path.iterdir()] == ["trial.json"]
    assert read_document(tmp_path / "trial.json", TrialRecord).index == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_is_never_written(tmp_path: Path, value: float) -> None:
    """The old document stays."""
    path = tmp_path / "trial.json"
    write_document(path, trial_record())
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON compliant"):
        write_document(path, trial_record(result=trial_result(duration_s=value)))

    assert path.read_bytes() == before


def change(document: dict[str, Any], where: str, value: object) -> None:
    """Set the entry at a dotted path; numbers are places in a list."""
    *way, last = where.split(".")
    inside: Any = document
    for part in way:
        inside = inside[int(part)] if part.isdigit() else inside[part]
    inside[int(last) if last.isdigit() else last] = value


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("index", "0"),
        ("index", True),
        ("index", 1.5),
        ("status", "fine"),
        ("surprise", 1),
        ("end.surprise", 1),
        ("result.phases.0.surprise", 1),
        ("result.phases.0.domains.0.instrument.surprise", 1),
        ("result.duration_s", "10.0"),
        ("result.duration_s", float("nan")),
        ("result.duration_s", float("inf")),
        ("result.boundaries.0.evidence", "C9"),
        ("result.phases.0.domains", None),
        ("message", 3),
    ],
)
def test_a_document_that_says_something_else_is_refused(tmp_path: Path, where: str, value: object) -> None:
    """Unknown keys at every depth, other types, other words, NaN."""
    path = tmp_path / "trial.json"
    document = json.loads(to_json(trial_record()))
    change(document, where, value)
    path.write_text(json.dumps(document))

    with pytest.raises(RecordError) as caught:
        read_document(path, TrialRecord)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("schema", [0, 2, None, "1", 1.5])
def test_another_schema_is_refused_in_one_line(tmp_path: Path, schema: object) -> None:
    """Before anything else of the document is looked at."""
    path = tmp_path / "trial.json"
    path.write_text(json.dumps({"schema": schema, "from": "the future"}))

    with pytest.raises(RecordError, match=f"has schema {schema}, this ecobench reads 1"):
        read_document(path, TrialRecord)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"schema": 1'])
def test_what_is_no_record_is_refused(tmp_path: Path, data: bytes) -> None:
    """Empty, cut, of another shape, no text, nested beyond reason."""
    path = tmp_path / "trial.json"
    path.write_bytes(data)

    with pytest.raises(RecordError):
        read_document(path, TrialRecord)


def test_a_document_cut_anywhere_is_refused(tmp_path: Path) -> None:
    """A record is never read by half. (The last byte is the newline after it.)"""
    path = tmp_path / "trial.json"
    whole = to_json(trial_record(end=None, result=None)).encode()
    for size in range(len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(RecordError):
            read_document(path, TrialRecord)


def test_a_missing_document_is_a_record_error(tmp_path: Path) -> None:
    """With the path."""
    with pytest.raises(RecordError, match=r"nothing\.json"):
        read_document(tmp_path / "nothing.json", TrialRecord)


def test_a_full_disk_keeps_the_old_document_and_says_what_to_do(small_disk: Path) -> None:
    """And the half-written one is gone, so that its space is free again."""
    path = small_disk / "summary.json"
    write_document(path, trial_record())
    with pytest.raises(StoreError) as caught:
        write_text(path, "x" * 200_000)

    assert "No space left on device" in caught.value.message
    assert caught.value.hint is not None
    assert read_document(path, TrialRecord) == trial_record()
    assert [one.name for one in small_disk.iterdir()] == ["summary.json"]


def test_a_folder_that_is_a_file_is_a_store_error(tmp_path: Path) -> None:
    """Not a traceback."""
    (tmp_path / "file").touch()

    with pytest.raises(StoreError):
        write_document(tmp_path / "file" / "trial.json", trial_record())
    with pytest.raises(StoreError):
        write_document(tmp_path / "nowhere" / "trial.json", trial_record())


def test_a_path_that_is_no_utf8_does_not_cost_the_record(tmp_path: Path) -> None:
    """Linux paths and arguments are bytes; what cannot be written as text is replaced."""
    write_document(tmp_path / "run.json", run_record(argv=("ecobench", "run", "./caf\udce9")))

    assert read_document(tmp_path / "run.json", RunRecord).argv == ("ecobench", "run", "./caf?")


def test_records_hold_no_classes_that_act() -> None:
    """The JSON of an interval is its two numbers."""
    assert json.loads(to_json(Interval(low=-1.0, high=2.0))) == {"low": -1.0, "high": 2.0}
    assert but(Interval(low=0.0, high=1.0), high=2.0) == Interval(low=0.0, high=2.0)
