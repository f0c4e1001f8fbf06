"""What blocks say of one setting against the reference: effects, verdicts, and how many blocks more. Pure.

In each block every point is measured once and the reference twice, so what a block does to all of them alike cancels
in ln(point / reference) of that block. These log-ratios are the values; their count is the number of blocks.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ecobench.measurement import Interval
from ecobench.stats import CONFIDENCE, mean_with_interval

ALPHA = 1 - CONFIDENCE
EQUIVALENCE_CONFIDENCE = 0.90
VERDICT_BLOCKS = 5  # fewer are exploratory
SIGN_FLIP_BLOCKS = 9  # with 8 and fewer its smallest p, 2/2^8, is too coarse to show beside the t-test
SIGN_FLIP_DRAWS = 2**16
POWER = 0.80
MOST_BLOCKS = 1000
DRIFT = 0.01


class Verdict(StrEnum):
    """What may be said of a point against the reference, where less is better."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    EXPLORATORY = "exploratory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One point against the reference.

    Attributes:
        ratio: geometric mean over blocks of point / reference.
        interval: 95 % of the ratio, adjusted for the number of points as its p-value is; it excludes 1 exactly where
            the Holm procedure rejects.
        p: of the two-sided paired t-test, adjusted by Holm.
        sign_flip_p: of the sign-flip test, not adjusted; shown, never decides. None under 9 blocks.
        blocks_to_settle: blocks in all that would settle it with a power of 80 %, if the spread and the effect are as
            seen; None where it is settled, or where 1,000 would not do.
    """

    ratio: float
    n: int
    interval: Interval
    p: float
    sign_flip_p: float | None
    verdict: Verdict
    blocks_to_settle: int | None


def compare_with_reference(log_ratios: Sequence[Sequence[float]], *, margin: float) -> tuple[Effect, ...]:
    """The effect of each point, whose log-ratios to the reference are given by block.

    Source: paired t-test (df = blocks - 1); S. Holm, A simple sequentially rejective multiple test procedure, 1979;
    equivalence by two one-sided tests at 5 % (the 90 % interval within the margin), D. J. Schuirmann, 1987.

    Raises:
        ValueError: fewer than two blocks, a value that is not finite, or a margin outside of (0, 1).
    """
    if not 0 < margin < 1:
        raise ValueError(f"margin {margin} is not between 0 and 1")
    raw = [paired_t_p(values) for values in log_ratios]
    adjusted, alphas = _holm(raw)
    return tuple(
        _judge(values, p=p, alpha=alpha, margin=margin)
        for values, p, alpha in zip(log_ratios, adjusted, alphas, strict=True)
    )


def paired_t_p(log_ratios: Sequence[float]) -> float:
    """Two-sided p of the hypothesis that the true mean is 0.

    Raises:
        ValueError: fewer than two values, or one that is not finite.
    """
    mean, spread, n = _moments(log_ratios)
    if spread == 0:
        return 1.0 if mean == 0 else 0.0
    from scipy.special import stdtr  # noqa: PLC0415  (a third of the start of scipy.stats)

    return 2 * float(stdtr(n - 1, -abs(mean) * math.sqrt(n) / spread))


def sign_flip_p(log_ratios: Sequence[float]) -> float | None:
    """Two-sided p of the sign-flip test, all flips up to 16 blocks; None under 9 blocks."""
    if len(log_ratios) < SIGN_FLIP_BLOCKS:
        return None
    import numpy as np  # noqa: PLC0415
    from scipy.stats import permutation_test  # noqa: PLC0415

    result = permutation_test(
        (np.asarray(log_ratios),),
        lambda values, axis: np.mean(values, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=SIGN_FLIP_DRAWS,
        batch=4096,
        random_state=0,
    )
    return float(result.pvalue)


def total_blocks_for(log_ratios: Sequence[float], *, half_width: float) -> int:
    """Blocks in all after which the 95 % interval is mean +- `half_width` or narrower, by the first blocks' spread.

    The interval at the end keeps this first spread and its degrees of freedom, which is what makes it hold.

    Source: C. Stein, A two-sample test for a linear hypothesis whose power is independent of the variance, 1945.

    Raises:
        ValueError: fewer than two values, or a width that is not above 0.
    """
    if not half_width > 0:
        raise ValueError(f"half width {half_width} is not above 0")
    _, spread, n = _moments(log_ratios)
    return max(n, math.ceil((_t(n - 1, ALPHA / 2) * spread / half_width) ** 2))


def two_stage_interval(log_ratios: Sequence[float], *, first: int) -> Interval:
    """95 % interval of the mean where the spread of the `first` blocks has fixed how many there are.

    Raises:
        ValueError: fewer than two first blocks, or fewer blocks than that.
    """
    if len(log_ratios) < first:
        raise ValueError(f"{len(log_ratios)} blocks, of which {first} the first")
    _, spread, _ = _moments(log_ratios[:first])
    mean, n = statistics.fmean(log_ratios), len(log_ratios)
    half = _t(first - 1, ALPHA / 2) * spread / math.sqrt(n)
    return Interval(low=mean - half, high=mean + half)


def has_drifted(first: float, second: float, *, reference_spread: float | None) -> bool:
    """Whether the two readings of the reference in one block differ by more than chance and 1 %.

    Attributes:
        reference_spread: standard deviation of ln(reference) within blocks; None where it is not known yet.

    Raises:
        ValueError: a reading that is not above 0.
    """
    if not (first > 0 and second > 0):
        raise ValueError(f"no log-ratio of {second} to {first}")
    return abs(math.log(second / first)) > max(DRIFT, 3 * math.sqrt(2) * (reference_spread or 0.0))


def _judge(values: Sequence[float], *, p: float, alpha: float, margin: float) -> Effect:
    mean, spread, n = _moments(values)
    adjusted = mean_with_interval(values, confidence=1 - alpha).interval
    narrow = mean_with_interval(values, confidence=EQUIVALENCE_CONFIDENCE).interval
    assert adjusted is not None
    assert narrow is not None
    low, high = math.log1p(-margin), math.log1p(margin)
    if n < VERDICT_BLOCKS:
        verdict = Verdict.EXPLORATORY
    elif low < narrow.low and narrow.high < high:
        verdict = Verdict.EQUIVALENT
    elif p < ALPHA:
        verdict = Verdict.BETTER if mean < 0 else Verdict.WORSE
    else:
        verdict = Verdict.INCONCLUSIVE
    is_open = verdict in (Verdict.INCONCLUSIVE, Verdict.EXPLORATORY)
    return Effect(
        ratio=math.exp(mean),
        n=n,
        interval=Interval(low=math.exp(adjusted.low), high=math.exp(adjusted.high)),
        p=p,
        sign_flip_p=sign_flip_p(values),
        verdict=verdict,
        blocks_to_settle=_blocks_to_settle(mean, spread, n, alpha, (low, high)) if is_open else None,
    )


def _blocks_to_settle(mean: float, spread: float, n: int, alpha: float, margin: tuple[float, float]) -> int | None:
    """The smallest number of blocks above `n` with a power of 80 % for a difference or for equivalence."""
    from scipy.special import nctdtr  # noqa: PLC0415

    def settles(blocks: int) -> bool:
        if spread == 0:
            return True
        scale, df = spread / math.sqrt(blocks), blocks - 1
        difference = 1 - float(nctdtr(df, abs(mean) / scale, _t(df, alpha / 2)))
        one_sided = _t(df, (1 - EQUIVALENCE_CONFIDENCE) / 2)
        sides = [1 - float(nctdtr(df, room / scale, one_sided)) for room in (mean - margin[0], margin[1] - mean)]
        return difference >= POWER or sum(sides) - 1 >= POWER

    candidates = range(max(n + 1, VERDICT_BLOCKS), MOST_BLOCKS + 1)
    first = bisect_left(candidates, True, key=settles)  # noqa: FBT003  (more blocks never have less power)
    return candidates[first] if first < len(candidates) else None


def _holm(raw: Sequence[float]) -> tuple[list[float], list[float]]:
    """Adjusted p-values, and the level at which each interval excludes 0 exactly where its p is below 5 %.

    All that is not rejected shares the level of the first that was not: its p is the smallest of theirs.
    """
    order = sorted(range(len(raw)), key=lambda index: raw[index])
    adjusted, alphas = [0.0] * len(raw), [0.0] * len(raw)
    highest, level, stopped = 0.0, ALPHA, False
    for rank, index in enumerate(order):
        remaining = len(raw) - rank
        highest = max(highest, min(1.0, raw[index] * remaining))
        if not stopped:
            level = ALPHA / remaining
            stopped = highest >= ALPHA
        adjusted[index], alphas[index] = highest, level
    return adjusted, alphas


def _moments(values: Sequence[float]) -> tuple[float, float, int]:
    if len(values) < 2 or not all(math.isfinite(value) for value in values):
        raise ValueError(f"no spread of {list(values)}")
    return statistics.fmean(values), statistics.stdev(values), len(values)


def _t(df: int, tail: float) -> float:
    """The value that Student's t exceeds with probability `tail`."""
    from scipy.special import stdtrit  # noqa: PLC0415

    return float(stdtrit(df, 1 - tail))
