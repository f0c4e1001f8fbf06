"""What several trials say together. Pure.

An interval between trials says how repeatable a figure is. It says nothing about how right the instrument is.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ecobench.measurement import Interval

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Mean of `n` values with its two-sided t-interval; None for the interval where n < 2."""

    value: float
    n: int
    interval: Interval | None


def mean_with_interval(values: Sequence[float], *, confidence: float = CONFIDENCE) -> Mean:
    """Mean of independent, nearly normal values, one a trial, and the interval that holds the true mean.

    Source: Student's t with n - 1 degrees of freedom; mean +- t x s/sqrt(n).

    Raises:
        ValueError: no values, a value that is not finite, or a confidence outside of (0, 1).
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"no mean of {list(values)}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return Mean(value=mean, n=n, interval=None)
    # Here, and not from scipy.stats: the import costs 0.3 s instead of over 1 s, and a run of one trial nothing.
    from scipy.special import stdtrit  # noqa: PLC0415

    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * statistics.stdev(values) / math.sqrt(n)
    return Mean(value=mean, n=n, interval=Interval(low=mean - half, high=mean + half))
