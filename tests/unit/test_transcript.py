"""A rank's event lines: typed events, broken rules as data."""

import json
from typing import Any

import pytest

from ecobench import events
from ecobench.records import MetricValue, TrialStatus
from ecobench.transcript import (
    MOST_PROBLEMS,
    Goodbye,
    Hello,
    PhaseMark,
    Step,
    Transcript,
    TranscriptReader,
    read_transcript,
)

HELLO: dict[str, Any] = {
    "event": "hello",
    "time_ns": 1,
    "protocol": 1,
    "rank": 0,
    "world_size": 1,
    "pid": 7,
    "boot_id": "b",
    "wall_ns": 99,
    "parameters": {"steps": 3},
    "data_hash": None,
}


def line(event: str, time_ns: int, **fields: Any) -> dict[str, Any]:
    """One event."""
    return {"event": event, "time_ns": time_ns, **fields}


def read(*lines: dict[str, Any] | str, end: str = "\n") -> Transcript:
    """The transcript of rank 0 that said these lines."""
    texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
    return read_transcript("\n".join(texts) + end, rank=0)


def whats(transcript: Transcript) -> list[tuple[int, str]]:
    """Lines and problems."""
    return [(problem.line, problem.what) for problem in transcript.problems]


def test_a_whole_transcript_is_read_as_typed_events_in_order() -> None:
    """Every event of the protocol once, without a problem."""
    transcript = read(
        HELLO,
        line("phase_start", 2, phase="train"),
        line("step", 3, step=1, tokens=1024, synced=True),
        line("metric", 4, name="loss", value=2, unit="nats/token", step=1),
        line("phase_stop", 5, phase="train"),
        line("goodbye", 6, status="stopped"),
    )

    assert transcript.problems == ()
    assert not transcript.is_torn
    assert transcript.events == (
        Hello(
            time_ns=1,
            protocol=1,
            rank=0,
            world_size=1,
            pid=7,
            boot_id="b",
            wall_ns=99,
            parameters={"steps": 3},
            data_hash=None,
        ),
        PhaseMark(time_ns=2, phase="train", is_start=True),
        Step(time_ns=3, step=1, n_tokens=1024, is_synced=True),
        MetricValue(name="loss", value=2.0, unit="nats/token", step=1, time_ns=4),
        PhaseMark(time_ns=5, phase="train", is_start=False),
        Goodbye(time_ns=6, status=TrialStatus.STOPPED),
    )
    assert transcript.hello == transcript.events[0]
    assert transcript.goodbye == transcript.events[-1]
    assert transcript.last_time_ns == 6


def test_what_the_speaker_writes_the_reader_understands(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ecobench.events` and this module speak one protocol."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    speaker = events._Speaker(tmp_path)
    speaker.emit("step", {"step": 1, "tokens": 8, "synced": False})
    speaker.emit("metric", {"name": "loss", "value": 1.5, "unit": "", "step": 1})
    speaker.close()

    transcript = read_transcript((tmp_path / "rank-00003.jsonl").read_bytes(), rank=3)

    assert transcript.problems == ()
    assert transcript.hello is not None
    assert (transcript.hello.rank, transcript.hello.world_size) == (3, 4)
    assert transcript.goodbye is not None
    assert transcript.goodbye.status is TrialStatus.DONE


def test_pieces_of_any_size_give_the_same_transcript() -> None:
    """The harness tails a growing file: a line comes in pieces, or many lines at once."""
    data = "\n".join(json.dumps(each) for each in (HELLO, line("phase_start", 2, phase="träin"))).encode() + b"\n"
    for size in (1, 2, 7, len(data)):
        reader = TranscriptReader(rank=0)

        fresh = [event for at in range(0, len(data), size) for event in reader.feed(data[at : at + size])]

        assert reader.transcript() == read_transcript(data, rank=0)
        assert tuple(fresh) == reader.transcript().events


def test_a_torn_last_line_is_no_problem() -> None:
    """A writer that is killed leaves half a line: the crash is told by the missing goodbye."""
    transcript = read(HELLO, '{"event": "st', end="")

    assert transcript.is_torn
    assert transcript.problems == ()
    assert len(transcript.events) == 1
    assert transcript.goodbye is None


def test_nothing_said_is_an_empty_transcript() -> None:
    """A rank that was killed before its first event."""
    transcript = read_transcript(b"", rank=0)

    assert (transcript.events, transcript.hello, transcript.last_time_ns) == ((), None, None)
    assert not transcript.is_torn


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        ("", "no JSON"),
        ("step 3", "no JSON"),
        ("[1]", "no JSON object"),
        ("[" * 100_000, "no JSON"),
        ('{"event":"metric","time_ns":2,"name":"l","value":NaN,"unit":"","step":1}', "NaN is not JSON"),
        ('{"event":"metric","time_ns":2,"name":"l","value":1e999,"unit":"","step":1}', "no finite number"),
        ('{"event":"metric","time_ns":2,"name":"l","value":"1","unit":"","step":1}', "no finite number"),
        ('{"event":"metric","time_ns":2,"name":"","value":1,"unit":"","step":1}', "`name` is no text"),
        ('{"event":"step","time_ns":2,"step":1,"synced":true}', "`step` without `tokens`"),
        ('{"event":"step","time_ns":2,"step":true,"tokens":1,"synced":true}', "`step` is no count"),
        ('{"event":"step","time_ns":2,"step":-1,"tokens":1,"synced":true}', "`step` is no count"),
        ('{"event":"step","time_ns":2,"step":1.5,"tokens":1,"synced":true}', "`step` is no count"),
        ('{"event":"step","time_ns":2,"step":1,"tokens":9223372036854775808,"synced":true}', "`tokens` is no count"),
        ('{"event":"step","time_ns":2,"step":1,"tokens":1,"synced":1}', "neither true nor false"),
        ('{"event":"phase_start","phase":"train"}', "without `time_ns`"),
        ('{"event":"phase_start","time_ns":2,"phase":"a\\nb"}', "`phase` is no text"),
        ('{"event":"goodbye","time_ns":2,"status":"lost"}', "`goodbye` with status `lost`"),
        ('{"event":"stpe","time_ns":2}', 'unknown event "stpe"'),
        ('{"time_ns":2}', "unknown event null"),
    ],
)
def test_a_broken_line_is_named_and_hides_nothing_after_it(broken: str, what: str) -> None:
    """Problems are data: the line, what is wrong, and reading goes on."""
    transcript = read(HELLO, broken, line("phase_start", 3, phase="train"))

    assert [problem.line for problem in transcript.problems] == [2]
    assert what in transcript.problems[0].what
    assert transcript.marks == (PhaseMark(time_ns=3, phase="train", is_start=True),)


def test_bytes_that_are_no_text_are_a_broken_line() -> None:
    """A file that something else wrote into."""
    transcript = read_transcript(json.dumps(HELLO).encode() + b"\n\xff\xfe{\n", rank=0)

    assert [problem.line for problem in transcript.problems] == [2]


def test_events_that_break_the_order_are_left_out_and_named() -> None:
    """Counts and time do not go back, phases nest, hello comes once, nothing follows goodbye."""
    transcript = read(
        HELLO,
        line("step", 10, step=5, tokens=50, synced=False),
        line("step", 11, step=4, tokens=60, synced=False),
        line("step", 12, step=6, tokens=40, synced=False),
        line("step", 9, step=6, tokens=60, synced=False),
        HELLO | {"time_ns": 13},
        line("phase_stop", 14, phase="train"),
        line("phase_start", 15, phase="train"),
        line("phase_stop", 16, phase="eval"),
        line("step", 17, step=5, tokens=50, synced=False),
        line("goodbye", 18, status="done"),
        line("step", 19, step=7, tokens=70, synced=False),
    )

    assert whats(transcript) == [
        (3, "step goes back from 5 to 4"),
        (4, "tokens go back from 50 to 40"),
        (5, "time goes back by 1 ns"),
        (6, "a second `hello`"),
        (7, "`phase_stop` of `train` outside of every phase"),
        (9, "`phase_stop` of `eval` inside `train`"),
        (12, "an event after `goodbye`"),
    ]
    assert [(step.step, step.n_tokens) for step in transcript.steps] == [(5, 50), (5, 50)]


def test_a_missing_hello_is_named_once_and_the_events_count() -> None:
    """The first line is lost: the trial is in doubt, its events are not."""
    transcript = read(line("phase_start", 2, phase="train"), line("phase_stop", 3, phase="train"))

    assert whats(transcript) == [(1, "the first event is not `hello`")]
    assert len(transcript.marks) == 2


def test_another_protocol_and_another_rank_are_named() -> None:
    """What is understood is kept, and doubted."""
    transcript = read(HELLO | {"protocol": 2, "rank": 1})

    assert whats(transcript) == [
        (1, "`hello` speaks protocol 2, this version reads 1"),
        (1, "`hello` of rank 1 in the file of rank 0"),
    ]
    assert transcript.hello is not None


def test_endless_broken_lines_are_counted_and_not_all_kept() -> None:
    """A workload that writes only noise does not fill the harness's memory."""
    transcript = read(HELLO, *["?"] * 500)

    assert transcript.n_problems == 500
    assert len(transcript.problems) == MOST_PROBLEMS


def test_name_of_a_novel_is_refused_and_named_by_its_beginning() -> None:
    """A phase's name stands in tables and legends: 200 characters are the most."""
    said = read(HELLO, line("phase_start", 2, phase="p" * 200), line("phase_start", 3, phase="q" * 201))

    assert [mark.phase for mark in said.marks] == ["p" * 200]
    assert said.problems[0].what == f"`phase` has 201 characters, more than 200: {'q' * 40}..."
