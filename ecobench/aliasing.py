"""Whether a power sensor and a training step keep time with each other. Pure.

A sensor that looks for 25 ms in every 100 ms sees a load whose steps take 100 ms always at the same place of the step:
its mean is then not that of the load, and no length helps. Next to such a time the place wanders, once through the step
in a *beat*:

    steps of 98.08 ms, sensor every 100 ms      1 / (1/0.09808 - 1/0.1) = 5.1 s

Harmonics do the same: a beat is 1 / |m/step - n/sensor|, for m and n up to 4; the longest of them counts. Over three
beats or more a sensor has seen all of the step about equally; over fewer it has not, and its mean decides nothing.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from ecobench.measurement import Window
from ecobench.trace import Int64s, Trace
from ecobench.transcript import Step, Transcript
from ecobench.units import NS_PER_S, seconds

# Source of both: DESIGN, section 6.
MOST_HARMONICS = 4
FEWEST_BEATS = 3.0

# A period is observed from this many changes on: it is then known to a reading over as many periods.
_FEWEST_CHANGES = 20
_MOST_PERIODS = 10
# A period that was observed in the few seconds in which a meter was opened.
_UNSURE_SHARE = 0.01
# Steps that took a fifth more or less than the median had something else in them (a validation, a checkpoint).
_LIKE_THE_MEDIAN = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorPeriod:
    """How often a sensor updates, and by what share of it that may be wrong."""

    period_s: float
    unsure_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """How a sensor's period stands to the steps of one window.

    Attributes:
        beat_s: the longest beat; None where step and sensor keep time exactly.
        harmonics: (m, n) of it: m steps' harmonic against n of the sensor's.
        n_beats: beats that the window holds for certain, however the period is wrong.
    """

    step_s: float
    sensor_s: float
    beat_s: float | None
    harmonics: tuple[int, int]
    n_beats: float

    @property
    def is_aliased(self) -> bool:
        return self.n_beats < FEWEST_BEATS


def observed_period(trace: Trace) -> SensorPeriod | None:
    """How often a meter's value changes, from the trace itself; None where it changes too rarely to tell.

    Of a meter that changes at nearly every reading no more is known than that it is not slower than it is read: the
    time between readings is then its period, for what was read is all that was seen.
    """
    moves = np.flatnonzero(np.diff(trace.raw) != 0) + 1
    if len(moves) < _FEWEST_CHANGES:
        return None
    reading_ns = float(np.median(np.diff(trace.time_ns)))
    if np.median(np.diff(moves)) < 2:
        span_ns = float(trace.time_ns[-1] - trace.time_ns[0])
        return SensorPeriod(period_s=reading_ns / NS_PER_S, unsure_share=reading_ns / span_ns)
    between_ns = np.diff(trace.time_ns[moves])
    # Some updates say the same as the one before, so some times are two or three periods: the short ones are one.
    shortest_ns = np.quantile(between_ns, 0.1)
    one_ns = np.median(between_ns[between_ns <= 1.5 * shortest_ns])
    n_periods = np.maximum(1, np.round(between_ns / one_ns))
    # Over a longer stretch without a change nobody can say how many periods it was.
    is_counted = n_periods <= _MOST_PERIODS
    counted_ns = float(between_ns[is_counted].sum())
    if counted_ns == 0:
        return None
    period_ns = counted_ns / float(n_periods[is_counted].sum())
    return SensorPeriod(period_s=period_ns / NS_PER_S, unsure_share=reading_ns / counted_ns)


def sensor_period(trace: Trace) -> SensorPeriod | None:
    """A power meter's period: as observed in the trace, else as observed when the meter was opened; None where neither
    could be.
    """
    observed = observed_period(trace)
    told_ns = trace.info.update_period_ns
    if observed is not None or told_ns is None:
        return observed
    return SensorPeriod(period_s=told_ns / NS_PER_S, unsure_share=_UNSURE_SHARE)


def mean_step_s(transcript: Transcript | None, window: Window) -> float | None:
    """Mean time of the window's ordinary steps, from their stamps; None with fewer than three."""
    stamps_ns = [event.time_ns for event in transcript.events if isinstance(event, Step)] if transcript else []
    times_ns: Int64s = np.array(stamps_ns, dtype=np.int64)
    between_ns = np.concatenate(
        [
            np.diff(times_ns[(times_ns >= segment.start_ns) & (times_ns <= segment.stop_ns)])
            for segment in window.segments
        ]
    )
    if len(between_ns) < 2:
        return None
    typical_ns = np.median(between_ns)
    ordinary_ns = between_ns[np.abs(between_ns - typical_ns) <= _LIKE_THE_MEDIAN * typical_ns]
    return float(ordinary_ns.mean()) / NS_PER_S if len(ordinary_ns) and typical_ns > 0 else None


def beat_of(*, step_s: float, sensor: SensorPeriod, window: Window) -> Beat:
    """The longest beat of steps and sensor, and how many of it the window holds."""
    harmonics = range(1, MOST_HARMONICS + 1)
    sensor_hz = 1 / sensor.period_s
    m, n = min(itertools.product(harmonics, harmonics), key=lambda pair: abs(pair[0] / step_s - pair[1] * sensor_hz))
    apart_hz = abs(m / step_s - n * sensor_hz)
    duration_s = seconds(window.duration_ns)
    # Less than a thousandth of a turn over the whole window is no beat that any clock could tell from none.
    keeps_time = apart_hz * duration_s < 1e-3
    return Beat(
        step_s=step_s,
        sensor_s=sensor.period_s,
        beat_s=None if keeps_time else 1 / apart_hz,
        harmonics=(m, n),
        n_beats=max(0.0, apart_hz - n * sensor_hz * sensor.unsure_share) * duration_s,
    )
