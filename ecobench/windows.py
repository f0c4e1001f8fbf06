"""From what the ranks said to the windows that energy is asked for, and the work done in a phase. Pure.

    rank 0   |train---------------[eval--]------|
    rank 1     |train--------------[eval---]------|
    windows  |train---------------|eval-----|train|job
             ^launch                                  ^exit

Rank 0 defines the phases. The k-th instance of a phase runs from the earliest rank's start to the latest rank's stop.
The innermost phase owns each instant; where two phases side by side overlap because the ranks are apart, the earlier
one keeps it until its last rank is out. What no phase owns between launch and exit is the phase `job`.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ecobench.measurement import Segment, Window
from ecobench.transcript import PhaseMark, Step, Transcript
from ecobench.units import seconds

JOB = "job"

# Nothing trains in these, by the definition of a token: a step stamped inside one of them is the report of work done
# before it, and belongs to the phase around it.
PHASES_WITHOUT_STEPS = frozenset({"eval", "checkpoint"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSkew:
    """How far the ranks were apart in a phase: the largest difference over its instances."""

    phase: str
    start_s: float
    stop_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialWindows:
    """The windows of one trial, in order of their first instants, and what was odd about the phases.

    Attributes:
        unfinished: phases that started on rank 0 and never stopped there; their windows end with the trial.
        silent_ranks: ranks that named no phase while rank 0 did; nothing is wrong with that.
        skews: of the phases that more than one rank named.
    """

    windows: tuple[Window, ...]
    unfinished: tuple[str, ...]
    silent_ranks: tuple[int, ...]
    skews: tuple[RankSkew, ...]
    problems: tuple[str, ...]

    def window(self, phase: str) -> Window | None:
        """The window of `phase`; None where it owns no time."""
        return next((window for window in self.windows if window.phase == phase), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Optimizer steps and tokens of one phase; None where the workload reported no step in it."""

    n_steps: int | None
    n_tokens: int | None


def trial_windows(transcripts: Sequence[Transcript], *, launch_ns: int, exit_ns: int | None) -> TrialWindows:
    """The windows of a trial that ran from `launch_ns` to `exit_ns` (None, not known: to the last event seen).

    Raises:
        ValueError: two transcripts of one rank.
    """
    by_rank = {transcript.rank: transcript for transcript in transcripts}
    if len(by_rank) != len(transcripts):
        raise ValueError("two transcripts of one rank")
    heard = [transcript.last_time_ns for transcript in transcripts if transcript.last_time_ns is not None]
    end_ns = max(heard, default=launch_ns) if exit_ns is None else exit_ns

    spans = {rank: _spans(transcript) for rank, transcript in sorted(by_rank.items())}
    first = spans.pop(0, [])
    silent = tuple(rank for rank, others in spans.items() if first and not others)
    problems = [problem for rank, others in spans.items() if others for problem in _differences(rank, others, first)]
    merged, skews = _merge(first, [others for others in spans.values() if others], end_ns=end_ns)
    return TrialWindows(
        windows=_paint(merged, launch_ns=launch_ns, end_ns=end_ns),
        unfinished=tuple(dict.fromkeys(span.phase for span in first if span.stop_ns is None)),
        silent_ranks=silent,
        skews=skews,
        problems=tuple(problems),
    )


def count_work(transcript: Transcript, *, phase: str) -> Work:
    """Steps and tokens that rank 0 reported in `phase`: each step is worth what it adds to the cumulative counts.

    A step belongs to the innermost phase that is open in the order of events, whatever its stamp lies next to; inside
    `eval` and `checkpoint`, to the phase around them. Before the first step event both counts are 0: a workload that
    resumes says where it stands with a step event before it trains.
    """
    open_phases: list[str] = []
    step, n_tokens = 0, 0
    n_steps_in, n_tokens_in, is_any = 0, 0, False
    for event in transcript.events:
        if isinstance(event, PhaseMark):
            if event.is_start:
                open_phases.append(event.phase)
            else:
                open_phases.pop()
        elif isinstance(event, Step):
            if _owner(open_phases, asked=phase) == phase:
                n_steps_in += event.step - step
                n_tokens_in += event.n_tokens - n_tokens
                is_any = True
            step, n_tokens = event.step, event.n_tokens
    return Work(n_steps=n_steps_in, n_tokens=n_tokens_in) if is_any else Work(n_steps=None, n_tokens=None)


def trim_window(window: Window, *, margin_ns: int) -> Window | None:
    """`window` without the first and last `margin_ns` of each segment; None where nothing is left.

    For readings that average over the past: their edges belong to what came before.
    """
    segments = tuple(
        Segment(start_ns=segment.start_ns + margin_ns, stop_ns=segment.stop_ns - margin_ns)
        for segment in window.segments
        if segment.duration_ns > 2 * margin_ns
    )
    return Window(phase=window.phase, segments=segments) if segments else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """One instance of a phase on one rank; `depth` phases are open around it."""

    phase: str
    ordinal: int
    depth: int
    start_ns: int
    stop_ns: int | None

    @property
    def key(self) -> tuple[str, int]:
        return self.phase, self.ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """The time that one instance of a phase takes over all ranks; the deeper claim wins, then the earlier `order`."""

    phase: str
    depth: int
    order: int
    start_ns: int
    stop_ns: int


def _spans(transcript: Transcript) -> list[_Span]:
    """The phases of one rank in order of their starts. The marks of a transcript are nested, by its own rules."""
    starts: list[PhaseMark] = []
    depths: list[int] = []
    stops: list[int | None] = []
    open_indices: list[int] = []
    for mark in transcript.marks:
        if mark.is_start:
            depths.append(len(open_indices))
            open_indices.append(len(starts))
            starts.append(mark)
            stops.append(None)
        else:
            stops[open_indices.pop()] = mark.time_ns
    n_seen: defaultdict[str, int] = defaultdict(int)
    spans = []
    for start, depth, stop_ns in zip(starts, depths, stops, strict=True):
        ordinal = n_seen[start.phase]
        n_seen[start.phase] += 1
        spans.append(_Span(phase=start.phase, ordinal=ordinal, depth=depth, start_ns=start.time_ns, stop_ns=stop_ns))
    return spans


def _differences(rank: int, spans: Sequence[_Span], first: Sequence[_Span]) -> Iterable[str]:
    counts: defaultdict[str, int] = defaultdict(int)
    for span in spans:
        counts[span.phase] += 1
    first_counts: defaultdict[str, int] = defaultdict(int)
    for span in first:
        first_counts[span.phase] += 1
    for phase in dict.fromkeys((*first_counts, *counts)):
        if counts[phase] != first_counts[phase]:
            yield f"rank {rank} started `{phase}` {counts[phase]} times, rank 0 {first_counts[phase]} times"
    finished = {span.key for span in first if span.stop_ns is not None}
    for phase in dict.fromkeys(span.phase for span in spans if span.stop_ns is None and span.key in finished):
        yield f"rank {rank} never stopped `{phase}`, rank 0 did"


def _merge(
    first: Sequence[_Span], others: Sequence[Sequence[_Span]], *, end_ns: int
) -> tuple[list[_Claim], tuple[RankSkew, ...]]:
    """Rank 0's phases, each from the earliest rank's start to the latest rank's stop."""
    matches: defaultdict[tuple[str, int], list[_Span]] = defaultdict(list)
    for span in itertools.chain(first, *others):
        matches[span.key].append(span)
    claims = []
    skews: dict[str, tuple[int, int]] = {}
    for order, span in enumerate(first):
        group = matches[span.key]
        starts = [member.start_ns for member in group]
        stops = [member.stop_ns for member in group if member.stop_ns is not None]
        # A rank 0 that never stopped the phase was in it to the end, whatever the others did.
        stop_ns = end_ns if span.stop_ns is None else max(stops)
        claims.append(_Claim(phase=span.phase, depth=span.depth, order=order, start_ns=min(starts), stop_ns=stop_ns))
        if len(group) > 1:
            start_skew, stop_skew = skews.get(span.phase, (0, 0))
            skews[span.phase] = (
                max(start_skew, max(starts) - min(starts)),
                max(stop_skew, max(stops) - min(stops)) if stops else stop_skew,
            )
    return claims, tuple(
        RankSkew(phase=phase, start_s=seconds(start), stop_s=seconds(stop)) for phase, (start, stop) in skews.items()
    )


def _paint(claims: Sequence[_Claim], *, launch_ns: int, end_ns: int) -> tuple[Window, ...]:
    """Give each instant between launch and end to the deepest claim on it, else to `job`."""
    edges = {launch_ns, end_ns}
    for claim in claims:
        edges.update((claim.start_ns, claim.stop_ns))
    waiting = sorted(claims, key=lambda claim: claim.start_ns, reverse=True)
    active: list[tuple[int, int, _Claim]] = []
    stretches: list[tuple[str, int, int]] = []
    for start_ns, stop_ns in itertools.pairwise(sorted(edge for edge in edges if launch_ns <= edge <= end_ns)):
        while waiting and waiting[-1].start_ns <= start_ns:
            claim = waiting.pop()
            heapq.heappush(active, (-claim.depth, claim.order, claim))
        while active and active[0][2].stop_ns <= start_ns:
            heapq.heappop(active)
        phase = active[0][2].phase if active else JOB
        if stretches and stretches[-1][0] == phase:
            stretches[-1] = (phase, stretches[-1][1], stop_ns)
        else:
            stretches.append((phase, start_ns, stop_ns))
    segments: defaultdict[str, list[Segment]] = defaultdict(list)
    for phase, start_ns, stop_ns in stretches:
        segments[phase].append(Segment(start_ns=start_ns, stop_ns=stop_ns))
    return tuple(Window(phase=phase, segments=tuple(found)) for phase, found in segments.items())


def _owner(open_phases: Sequence[str], *, asked: str) -> str:
    for phase in reversed(open_phases):
        if phase == asked or phase not in PHASES_WITHOUT_STEPS:
            return phase
    return JOB
