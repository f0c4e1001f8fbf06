"""A trace: what one meter said over one trial, and how well that covers a window. Pure.

A failed reading leaves no sample: it shows as a gap, and in `n_failed` and `errors`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ecobench.measurement import MeterInfo, Segment, Window
from ecobench.seams import Sample
from ecobench.units import NS_PER_S

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]

# A stretch without a sample that is longer than this is a gap: covered by nothing. For a meter that is asked so rarely
# that this is no gap, 2.5 of its periods (one sample missed, and some jitter).
GAP_NS = NS_PER_S // 2
GAP_PERIODS = 2.5

# More of a window than this must not be uncovered, else it has no energy. Source: DESIGN, section 6.
MOST_UNCOVERED_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """The samples that one meter gave, in order of time.

    Attributes:
        time_ns: instants of the samples, `(n_samples,)`.
        raw: what was read, in counts, `(n_samples,)`.
        n_failed: readings that gave nothing.
        errors: why, each reason once.
    """

    info: MeterInfo
    time_ns: Int64s
    raw: Int64s
    n_failed: int = 0
    errors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.time_ns.ndim != 1 or self.time_ns.shape != self.raw.shape:
            raise ValueError(f"times of shape {self.time_ns.shape} with readings of shape {self.raw.shape}")
        if self.time_ns.dtype != np.int64 or self.raw.dtype != np.int64:
            raise ValueError(f"times and readings are int64, not {self.time_ns.dtype} and {self.raw.dtype}")
        if np.any(np.diff(self.time_ns) < 0):
            raise ValueError(f"samples of {self.info.domain} are not in order of time")

    @property
    def is_still(self) -> bool:
        """Whether it was read more than once and never changed."""
        return len(self.raw) > 1 and bool(self.raw.min() == self.raw.max())

    @property
    def gap_ns(self) -> int:
        """A longer stretch between two samples of this trace is a gap."""
        return max(GAP_NS, round(GAP_PERIODS * self.info.period_ns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How well samples cover a window.

    Attributes:
        share: of the window's time that lies between samples which are not a gap apart, 0 to 1.
        edges_missing_share: of the window's time in gaps that reach over an edge of a segment, 0 to 1.
        largest_gap_s: longest time without a sample that touches the window; None without any sample.
    """

    share: float
    edges_missing_share: float
    largest_gap_s: float | None


def trace_of(info: MeterInfo, samples: Iterable[Sample]) -> Trace:
    """The trace of a meter's samples. Of samples with one stamp the first is kept."""
    times: list[int] = []
    raws: list[int] = []
    errors: dict[str, None] = {}
    n_failed = 0
    for sample in samples:
        if sample.raw is None:
            n_failed += 1
            errors.setdefault(sample.error or "no reason given")
        elif not times or sample.time_ns != times[-1]:
            times.append(sample.time_ns)
            raws.append(sample.raw)
    return Trace(
        info=info,
        time_ns=np.array(times, dtype=np.int64),
        raw=np.array(raws, dtype=np.int64),
        n_failed=n_failed,
        errors=tuple(errors),
    )


def coverage(time_ns: Int64s, window: Window, *, gap_ns: int) -> Coverage:
    """How samples at `time_ns` cover `window`, where more than `gap_ns` between two is a gap."""
    if len(time_ns) == 0:
        return Coverage(share=0.0, edges_missing_share=1.0, largest_gap_s=None)
    gap_indices = np.flatnonzero(np.diff(time_ns) > gap_ns)
    gap_starts, gap_stops = time_ns[gap_indices], time_ns[gap_indices + 1]
    missing_ns, edges_missing_ns, largest_ns = 0, 0, 0
    for segment in window.segments:
        start_ns, stop_ns = segment.start_ns, segment.stop_ns
        before_ns = min(max(int(time_ns[0]) - start_ns, 0), segment.duration_ns)
        after_ns = min(max(stop_ns - int(time_ns[-1]), 0), segment.duration_ns)
        inside_ns = np.minimum(gap_stops, stop_ns) - np.maximum(gap_starts, start_ns)
        is_at_edge = (gap_starts < start_ns) | (gap_stops > stop_ns)
        missing_ns += before_ns + after_ns + int(inside_ns[inside_ns > 0].sum())
        edges_missing_ns += before_ns + after_ns + int(inside_ns[(inside_ns > 0) & is_at_edge].sum())
        largest_ns = max(largest_ns, _largest_gap_ns(time_ns, segment))
    return Coverage(
        share=1 - missing_ns / window.duration_ns,
        edges_missing_share=edges_missing_ns / window.duration_ns,
        largest_gap_s=largest_ns / NS_PER_S,
    )


def has_sample_on_both_sides(time_ns: Int64s, window: Window) -> bool:
    """Whether each edge of `window` lies between two samples, or on one."""
    return len(time_ns) > 0 and bool(
        time_ns[0] <= window.segments[0].start_ns and window.segments[-1].stop_ns <= time_ns[-1]
    )


def _largest_gap_ns(time_ns: Int64s, segment: Segment) -> int:
    first = max(0, int(np.searchsorted(time_ns, segment.start_ns, side="right")) - 1)
    last = int(np.searchsorted(time_ns, segment.stop_ns, side="left"))
    gaps = [max(0, int(time_ns[0]) - segment.start_ns), max(0, segment.stop_ns - int(time_ns[-1]))]
    between = np.diff(time_ns[first : last + 1])
    return max(*gaps, int(between.max()) if len(between) else 0)
