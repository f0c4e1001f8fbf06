"""Which points may be the best, and what reaching a target costs. Pure."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ecobench.stats import CONFIDENCE

CERTIFY_P = 0.01


def optimum_set(logs: Sequence[Sequence[float]], *, confidence: float = CONFIDENCE) -> tuple[int, ...]:
    """Indexes of the points that are not worse than the best, where less is better; `logs[block][point]`.

    The set holds the true best with the given confidence. The spread is that of the residuals after block and point
    are taken out, common to all points, with (blocks - 1)(points - 1) degrees of freedom.

    Source: multiple comparisons with the best, J. C. Hsu, Multiple Comparisons, 1996, chapter 4; the critical value is
    Dunnett's one-sided one (equal correlations of 1/2).

    Raises:
        ValueError: fewer than two blocks or points, blocks of unequal length, a value that is not finite.
    """
    blocks, points = len(logs), len(logs[0]) if logs else 0
    if blocks < 2 or points < 2 or any(len(row) != points for row in logs):
        raise ValueError(f"{blocks} blocks of {[len(row) for row in logs]} points")
    if not all(math.isfinite(value) for row in logs for value in row):
        raise ValueError("a value that is not finite")
    block_means = [statistics.fmean(row) for row in logs]
    means = [statistics.fmean(column) for column in zip(*logs, strict=True)]
    total = statistics.fmean(means)
    residual = sum(
        (value - block_mean - mean + total) ** 2
        for row, block_mean in zip(logs, block_means, strict=True)
        for value, mean in zip(row, means, strict=True)
    )
    df = (blocks - 1) * (points - 1)
    allowance = dunnett_critical(points - 1, df, confidence=confidence) * math.sqrt(residual / df * 2 / blocks)
    best = min(means)
    return tuple(index for index, mean in enumerate(means) if mean - best <= allowance)


@cache
def dunnett_critical(comparisons: int, df: int, *, confidence: float = CONFIDENCE) -> float:
    """One-sided critical value of `comparisons` differences to one mean, t-distributed with correlations of 1/2."""
    import numpy as np  # noqa: PLC0415
    from scipy.optimize import brentq  # noqa: PLC0415
    from scipy.special import stdtrit  # noqa: PLC0415
    from scipy.stats import multivariate_t  # noqa: PLC0415

    single = float(stdtrit(df, confidence))
    if comparisons == 1:
        return single
    shape = np.full((comparisons, comparisons), 0.5) + np.eye(comparisons) / 2
    bonferroni = float(stdtrit(df, 1 - (1 - confidence) / comparisons))

    def excess(value: float) -> float:
        at = np.full(comparisons, value)
        return float(multivariate_t.cdf(at, shape=shape, df=df, random_state=0, maxpts=20_000)) - confidence

    # The integral is a quadrature with noise of about 1e-4: a root to 1e-3 is all there is.
    return float(brentq(excess, single * 0.99, bonferroni * 1.01, xtol=1e-3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """All completed runs of one step budget: their final losses and their train energies."""

    steps: int
    losses: tuple[float, ...]
    energies_j: tuple[float, ...]


def is_certified(losses: Sequence[float], target: float) -> bool:
    """Whether a one-sided t-test says at p < 0.01 that the mean loss is at or under `target`; two runs at least."""
    n = len(losses)
    if n < 2 or not all(math.isfinite(loss) for loss in losses):
        return False
    room, spread = target - statistics.fmean(losses), statistics.stdev(losses)
    if spread == 0:
        return room >= 0
    from scipy.special import stdtr  # noqa: PLC0415

    return float(stdtr(n - 1, -room * math.sqrt(n) / spread)) < CERTIFY_P


def smallest_certified(budgets: Sequence[Budget], target: float) -> Budget | None:
    """The smallest budget whose loss is certified, tested from the largest down until one is not.

    None where not even the largest is: the target was not reached, and costs more than the largest budget's energy.
    """
    found = None
    for budget in sorted(budgets, key=lambda one: one.steps, reverse=True):
        if not is_certified(budget.losses, target):
            break
        found = budget
    return found
