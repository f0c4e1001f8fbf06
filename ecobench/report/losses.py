"""The loss against what it cost: energy, time and tokens of the measured phase up to each value. Pure.

Energy counts only inside the measured phase, as the figures do: a validation between two training segments moves the
curve by nothing, and its end stands at the energy that the result prints.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ecobench.energy import Trace, cumulative_energy_j
from ecobench.measurement import ReadingKind, Window
from ecobench.records import MetricValue, Target
from ecobench.transcript import Transcript
from ecobench.units import NS_PER_S

# More lines than this cannot be told apart.
MOST_LINES = 6
# More points than this are thinned evenly; first and last stay.
_MOST_POINTS = 1000
# What to look at where the manifest names no target, best first.
_USUAL_METRICS = ("val_loss", "train_loss", "loss")

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossLine:
    """One metric of one trial, and what had been spent at each of its values.

    Attributes:
        is_main: the metric of the target, or where there is none, the usual one.
        time_s: time in the measured phase.
        energy_j: energy in the measured phase; None where no meter covers it.
    """

    metric: str
    unit: str
    is_main: bool
    step: tuple[int, ...]
    value: tuple[float, ...]
    time_s: tuple[float, ...]
    n_tokens: tuple[int, ...]
    energy_j: tuple[float, ...] | None


def loss_lines(
    transcript: Transcript | None, *, measured: Window | None, traces: Sequence[Trace], target: Target | None
) -> tuple[LossLine, ...]:
    """The main metric and those in the same unit, main first, at most `MOST_LINES`; empty where there is
    none.

    `transcript` is rank 0's; `traces` are those of the domains whose energies add up to the scope of the report.
    """
    metrics = transcript.metrics if transcript is not None else ()
    main = _main_metric(metrics, target)
    if transcript is None or measured is None or main is None:
        return ()
    unit = next(metric.unit for metric in metrics if metric.name == main)
    # A value that is stamped before the measured phase begins (a warm-up's) has cost it nothing and says nothing of it.
    begin_ns = measured.segments[0].start_ns
    lines = []
    for name in _names(metrics, main=main, unit=unit)[:MOST_LINES]:
        found = _thinned([one for one in metrics if (one.name, one.unit) == (name, unit) and one.time_ns >= begin_ns])
        if not found:
            continue
        times_ns = np.array([metric.time_ns for metric in found], dtype=np.int64)
        energy_j = spent_j(traces, measured, times_ns)
        lines.append(
            LossLine(
                metric=name,
                unit=unit,
                is_main=name == main,
                step=tuple(metric.step for metric in found),
                value=tuple(metric.value for metric in found),
                time_s=tuple(float(time) for time in _within(measured, times_ns) / NS_PER_S),
                n_tokens=_tokens_at(transcript, times_ns),
                energy_j=None if energy_j is None else tuple(float(energy) for energy in energy_j),
            )
        )
    return tuple(lines)


def spent_j(traces: Sequence[Trace], window: Window, times_ns: NDArray[np.int64]) -> FloatArray | None:
    """Energy inside `window` up to each of `times_ns`, summed over domains; None where a domain does not say.

    A domain that has a counter and polled power is counted once, by its counter.
    """
    by_domain: dict[str, Trace] = {}
    for trace in traces:
        if trace.info.kind is ReadingKind.ENERGY_COUNTER or trace.info.domain not in by_domain:
            by_domain[trace.info.domain] = trace
    if not by_domain:
        return None
    starts_ns = [segment.start_ns for segment in window.segments]
    stops_ns = [segment.stop_ns for segment in window.segments]
    inside_ns = np.clip(times_ns, starts_ns[0], stops_ns[-1])
    n = len(starts_ns)
    total = np.zeros(len(times_ns))
    for trace in by_domain.values():
        found_j = cumulative_energy_j(trace, [*starts_ns, *stops_ns, *(int(time_ns) for time_ns in inside_ns)])
        known_j = np.array([energy_j for energy_j in found_j if energy_j is not None])
        if len(known_j) < len(found_j):
            return None
        for start_j, stop_j in zip(known_j[:n], known_j[n : 2 * n], strict=True):
            total += np.clip(known_j[2 * n :], start_j, stop_j) - start_j
    return total


def n_undrawn(transcript: Transcript | None, target: Target | None) -> int:
    """How many metrics `loss_lines` leaves out, since there are too many."""
    metrics = transcript.metrics if transcript is not None else ()
    main = _main_metric(metrics, target)
    unit = next((metric.unit for metric in metrics if metric.name == main), "")
    return max(0, len(_names(metrics, main=main, unit=unit)) - MOST_LINES)


def _names(metrics: Sequence[MetricValue], *, main: str | None, unit: str) -> list[str]:
    names = dict.fromkeys(metric.name for metric in metrics if metric.unit == unit)
    return sorted(names, key=lambda one: one != main)


def _main_metric(metrics: Sequence[MetricValue], target: Target | None) -> str | None:
    names = dict.fromkeys(metric.name for metric in metrics)
    wanted = (*((target.metric,) if target is not None else ()), *_USUAL_METRICS)
    return next((name for name in wanted if name in names), next(iter(names), None))


def _within(window: Window, times_ns: NDArray[np.int64]) -> FloatArray:
    total = np.zeros(len(times_ns))
    for segment in window.segments:
        total += np.clip(times_ns, segment.start_ns, segment.stop_ns) - segment.start_ns
    return total


def _tokens_at(transcript: Transcript, times_ns: NDArray[np.int64]) -> tuple[int, ...]:
    steps = transcript.steps
    if not steps:
        return (0,) * len(times_ns)
    step_ns = np.array([step.time_ns for step in steps], dtype=np.int64)
    counts = [0, *(step.n_tokens for step in steps)]
    return tuple(counts[int(place)] for place in np.searchsorted(step_ns, times_ns, side="right"))


def _thinned(metrics: Sequence[MetricValue]) -> list[MetricValue]:
    if len(metrics) <= _MOST_POINTS:
        return list(metrics)
    return [metrics[round(place)] for place in np.linspace(0, len(metrics) - 1, _MOST_POINTS)]
