"""A rank's transcript: what one process of the workload said, as typed events, and what it said wrongly.

Pure: bytes in, events and problems out. The rules are those of `ecobench.events`. An event that breaks one is left out
and named in `problems`; a broken line never hides the lines after it. A last line without its newline is no problem:
its writer was killed in the middle of it (`is_torn`).

The harness tails the files while they grow (`TranscriptReader.feed`); `read_transcript` reads a whole one with the same
code.
"""

import json
from dataclasses import dataclass
from typing import Any, TypeAlias

from ecobench.events import PROTOCOL
from ecobench.records import MetricValue, TrialStatus

# A workload that writes nothing but broken lines must not fill the harness's memory with descriptions of them.
MOST_PROBLEMS = 100

# Names, units and hashes; a phase's name stands in tables and legends.
LONGEST_TEXT = 200

# Sums and axes of larger values leave the range of float64.
LARGEST_METRIC = 1e300

_INT64_END = 2**63
_GOODBYES = (TrialStatus.DONE, TrialStatus.STOPPED, TrialStatus.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First line of a rank. `parameters` as the workload understood them; None where it does not say."""

    time_ns: int
    protocol: int
    rank: int
    world_size: int
    pid: int
    boot_id: str
    wall_ns: int
    parameters: dict[str, object] | None
    data_hash: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMark:
    """A phase starts or stops."""

    time_ns: int
    phase: str
    is_start: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An optimizer step was taken. `n_tokens` over all ranks, since the start of the program."""

    time_ns: int
    step: int
    n_tokens: int
    is_synced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodbye:
    """Last line of a rank that was not killed. `status`: done, stopped or failed."""

    time_ns: int
    status: TrialStatus


Event: TypeAlias = Hello | PhaseMark | Step | MetricValue | Goodbye


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A line that is no event, or an event that breaks a rule. Lines count from 1."""

    line: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Everything that one rank said, in order.

    Attributes:
        problems: the first `MOST_PROBLEMS` of them, in order of lines.
        n_problems: all of them.
        is_torn: the last line has no end: its writer was killed, or is still writing.
    """

    rank: int
    hello: Hello | None
    events: tuple[Event, ...]
    goodbye: Goodbye | None
    problems: tuple[Problem, ...]
    n_problems: int
    is_torn: bool

    @property
    def marks(self) -> tuple[PhaseMark, ...]:
        return tuple(event for event in self.events if isinstance(event, PhaseMark))

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(event for event in self.events if isinstance(event, Step))

    @property
    def metrics(self) -> tuple[MetricValue, ...]:
        return tuple(event for event in self.events if isinstance(event, MetricValue))

    @property
    def last_time_ns(self) -> int | None:
        """When the rank was last heard of; None where it said nothing."""
        return self.events[-1].time_ns if self.events else None


def read_transcript(data: bytes | str, *, rank: int) -> Transcript:
    """The transcript of rank `rank` whose file holds `data`."""
    reader = TranscriptReader(rank=rank)
    reader.feed(data.encode() if isinstance(data, str) else data)
    return reader.transcript()


class TranscriptReader:
    """Reads one rank's lines as they come, in pieces of any size."""

    def __init__(self, *, rank: int) -> None:
        self._rank = rank
        self._rest = b""
        self._n_lines = 0
        self._events: list[Event] = []
        self._problems: list[Problem] = []
        self._n_problems = 0
        self._rules = _Rules(rank)

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes of the file; the events that they complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        fresh: list[Event] = []
        for line in lines:
            self._n_lines += 1
            try:
                event = _parse(line)
                for what in self._rules.complaints(event):
                    self._complain(what)
                self._rules.admit(event)
            except _BrokenError as broken:
                self._complain(str(broken))
            else:
                fresh.append(event)
        self._events += fresh
        return fresh

    def transcript(self) -> Transcript:
        """What was read so far."""
        return Transcript(
            rank=self._rank,
            hello=self._rules.hello,
            events=tuple(self._events),
            goodbye=self._rules.goodbye,
            problems=tuple(self._problems),
            n_problems=self._n_problems,
            is_torn=bool(self._rest),
        )

    def _complain(self, what: str) -> None:
        self._n_problems += 1
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(Problem(line=self._n_lines, what=what))


class _BrokenError(Exception):
    """The line is no event, or its event has no place here; it is left out."""


class _Rules:
    """What must hold from one event to the next."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._n_admitted = 0
        self._time_ns = 0
        self._open_phases: list[str] = []
        self._step = 0
        self._n_tokens = 0
        self.hello: Hello | None = None
        self.goodbye: Goodbye | None = None

    def complaints(self, event: Event) -> list[str]:
        """What is wrong about an event that is nevertheless understood."""
        found = []
        if isinstance(event, Hello):
            if event.protocol != PROTOCOL:
                found.append(f"`hello` speaks protocol {event.protocol}, this version reads {PROTOCOL}")
            if event.rank != self._rank:
                found.append(f"`hello` of rank {event.rank} in the file of rank {self._rank}")
        if self._n_admitted == 0 and not isinstance(event, Hello):
            found.append("the first event is not `hello`")
        return found

    def admit(self, event: Event) -> None:
        """Move on to `event`.

        Raises:
            _BrokenError: the event has no place after those before it.
        """
        if self.goodbye is not None:
            raise _BrokenError("an event after `goodbye`")
        if event.time_ns < self._time_ns:
            raise _BrokenError(f"time goes back by {self._time_ns - event.time_ns} ns")
        if isinstance(event, Hello):
            if self.hello is not None:
                raise _BrokenError("a second `hello`")
            self.hello = event
        elif isinstance(event, PhaseMark):
            self._admit_mark(event)
        elif isinstance(event, Step):
            self._admit_step(event)
        elif isinstance(event, Goodbye):
            self.goodbye = event
        self._time_ns = event.time_ns
        self._n_admitted += 1

    def _admit_mark(self, mark: PhaseMark) -> None:
        if mark.is_start:
            self._open_phases.append(mark.phase)
        elif self._open_phases and self._open_phases[-1] == mark.phase:
            self._open_phases.pop()
        else:
            inside = f"inside `{self._open_phases[-1]}`" if self._open_phases else "outside of every phase"
            raise _BrokenError(f"`phase_stop` of `{mark.phase}` {inside}")

    def _admit_step(self, step: Step) -> None:
        if step.step < self._step:
            raise _BrokenError(f"step goes back from {self._step} to {step.step}")
        if step.n_tokens < self._n_tokens:
            raise _BrokenError(f"tokens go back from {self._n_tokens} to {step.n_tokens}")
        self._step, self._n_tokens = step.step, step.n_tokens


def _parse(line: bytes) -> Event:
    try:
        fields = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _BrokenError(f"no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise _BrokenError("no JSON object")
    name = fields.get("event")
    time_ns = _count(fields, "time_ns")
    match name:
        case "hello":
            return _parse_hello(fields, time_ns)
        case "phase_start" | "phase_stop":
            return PhaseMark(time_ns=time_ns, phase=_text(fields, "phase"), is_start=name == "phase_start")
        case "step":
            return Step(
                time_ns=time_ns,
                step=_count(fields, "step"),
                n_tokens=_count(fields, "tokens"),
                is_synced=_truth(fields, "synced"),
            )
        case "metric":
            return MetricValue(
                name=_text(fields, "name"),
                value=_finite(fields, "value"),
                unit=_text(fields, "unit", may_be_empty=True),
                step=_count(fields, "step"),
                time_ns=time_ns,
            )
        case "goodbye":
            status = _text(fields, "status")
            if status not in _GOODBYES:
                raise _BrokenError(f"`goodbye` with status `{status}`, not {', '.join(_GOODBYES)}")
            return Goodbye(time_ns=time_ns, status=TrialStatus(status))
        case _:
            raise _BrokenError(f"unknown event {json.dumps(name)[:80]}")


def _parse_hello(fields: dict[str, Any], time_ns: int) -> Hello:
    parameters = fields.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise _BrokenError("`parameters` is no JSON object")
    return Hello(
        time_ns=time_ns,
        protocol=_count(fields, "protocol"),
        rank=_count(fields, "rank"),
        world_size=_count(fields, "world_size"),
        pid=_count(fields, "pid"),
        boot_id=_text(fields, "boot_id"),
        wall_ns=_count(fields, "wall_ns"),
        parameters=parameters,
        data_hash=None if fields.get("data_hash") is None else _text(fields, "data_hash"),
    )


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _field(fields: dict[str, Any], key: str) -> Any:
    if key not in fields:
        raise _BrokenError(f"`{fields.get('event')}` without `{key}`")
    return fields[key]


def _count(fields: dict[str, Any], key: str) -> int:
    value = _field(fields, key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _INT64_END:
        raise _BrokenError(f"`{key}` is no count: {str(value)[:40]}")
    return value


def _finite(fields: dict[str, Any], key: str) -> float:
    value = _field(fields, key)
    # Also false for an integer beyond the range of float64, and for the infinity that JSON's 1e999 becomes.
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= LARGEST_METRIC:
        raise _BrokenError(f"`{key}` is no finite number: {str(value)[:40]}")
    return float(value)


def _text(fields: dict[str, Any], key: str, *, may_be_empty: bool = False) -> str:
    value = _field(fields, key)
    if not isinstance(value, str) or not (value or may_be_empty) or not value.isprintable():
        raise _BrokenError(f"`{key}` is no text: {ascii(value)[:40]}")
    if len(value) > LONGEST_TEXT:
        raise _BrokenError(f"`{key}` has {len(value):,} characters, more than {LONGEST_TEXT}: {value[:40]}...")
    return value


def _truth(fields: dict[str, Any], key: str) -> bool:
    value = _field(fields, key)
    if not isinstance(value, bool):
        raise _BrokenError(f"`{key}` is neither true nor false: {str(value)[:40]}")
    return value
