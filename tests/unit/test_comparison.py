"""Effects against the reference, and what may be said of them: by known answers, and by campaigns of known truth."""

import math

import numpy as np
import pytest

from ecobench.comparison import (
    Verdict,
    compare_with_reference,
    has_drifted,
    paired_t_p,
    sign_flip_p,
    total_blocks_for,
    two_stage_interval,
)


def around(mean: float, spread: float, n: int = 5) -> list[float]:
    """`n` values, odd, with exactly this mean and standard deviation."""
    base = np.arange(n) - n // 2
    return list(mean + spread * base / base.std(ddof=1))


def test_one_point_is_a_paired_t_test() -> None:
    """Of 1, 2, 3, 4, 5 %: mean 3, s = 1.5811, t = 3/(1.5811/sqrt 5) = 4.243; p(t; 4) = 0.0132 by the table."""
    (effect,) = compare_with_reference([[0.01, 0.02, 0.03, 0.04, 0.05]], margin=0.01)

    assert effect.p == pytest.approx(0.0132, abs=1e-4)
    assert effect.ratio == pytest.approx(math.exp(0.03))
    half = 2.776 * 0.015811 / math.sqrt(5)
    assert math.log(effect.interval.low) == pytest.approx(0.03 - half, abs=1e-5)
    assert math.log(effect.interval.high) == pytest.approx(0.03 + half, abs=1e-5)
    assert (effect.verdict, effect.blocks_to_settle) == (Verdict.WORSE, None)


def test_holm_takes_the_smallest_p_times_all_and_the_next_times_the_rest() -> None:
    """Three points: p(1) x 3, p(2) x 2, p(3) x 1, and never falling."""
    values = [around(-0.05, 0.01), around(-0.03, 0.01), around(0.002, 0.02)]
    raw = [paired_t_p(point) for point in values]

    effects = compare_with_reference(values, margin=0.01)

    assert [effect.p for effect in effects] == pytest.approx([raw[0] * 3, raw[1] * 2, raw[2]])
    assert [effect.verdict for effect in effects] == [Verdict.BETTER, Verdict.BETTER, Verdict.INCONCLUSIVE]


def test_interval_excludes_1_exactly_where_holm_rejects() -> None:
    """Also where a point that fails stops those behind it, which would pass on their own level."""
    generator = np.random.default_rng(1)
    for _ in range(60):
        values = generator.normal(generator.normal(0, 0.01, (4, 1)), 0.01, (4, 5))
        for effect in compare_with_reference([list(row) for row in values], margin=1e-6):
            assert (not effect.interval.low <= 1 <= effect.interval.high) == (effect.p < 0.05)


def test_within_the_margin_at_90_percent_is_equivalent_even_where_a_difference_is_sure() -> None:
    """0.1 % with s = 0.05 %: surely not 0, and surely under 1 %."""
    (effect,) = compare_with_reference([around(0.001, 0.0005)], margin=0.01)

    assert effect.p < 0.05
    assert effect.verdict is Verdict.EQUIVALENT


def test_three_blocks_are_exploratory_however_clear_they_look() -> None:
    """No verdict under 5 blocks, but how many it takes."""
    (effect,) = compare_with_reference([around(-0.2, 0.001, n=3)], margin=0.01)

    assert (effect.verdict, effect.blocks_to_settle) == (Verdict.EXPLORATORY, 5)


def test_inconclusive_says_how_many_blocks_would_settle_it() -> None:
    """An effect of d = mean/s = 0.5 needs 34 pairs for a power of 80 % at 5 % two-sided, by Cohen's table."""
    (effect,) = compare_with_reference([around(0.01, 0.02)], margin=0.0001)

    assert (effect.verdict, effect.blocks_to_settle) == (Verdict.INCONCLUSIVE, 34)


def test_sign_flip_of_nine_equal_signs_is_2_in_512() -> None:
    """Only the two flips that keep all signs equal are as extreme: 2/2^9."""
    assert sign_flip_p([0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09]) == pytest.approx(2 / 512)
    assert sign_flip_p([0.01] * 8) is None


def test_stein_takes_the_square_of_t_s_over_the_width() -> None:
    """With s = 2 %, half width 1 %, 5 blocks: (2.776 x 2)^2 = 30.8, so 31; a wide one asks for no more."""
    assert total_blocks_for(around(0.0, 0.02), half_width=0.01) == 31
    assert total_blocks_for(around(0.0, 0.02), half_width=0.5) == 5


def test_interval_after_two_stages_keeps_the_first_spread_and_its_t() -> None:
    """First five: s = 2 %; with 20 blocks the half is 2.776 x 2 %/sqrt 20, whatever the others spread."""
    interval = two_stage_interval([*around(0.0, 0.02), *[0.0] * 15], first=5)

    assert interval.high == pytest.approx(2.776 * 0.02 / math.sqrt(20), abs=1e-5)


@pytest.mark.parametrize(
    ("second", "spread", "drifted"),
    [(100.9, None, False), (101.1, None, True), (98.9, 0.0, True), (103.0, 0.01, False), (104.5, 0.01, True)],
)
def test_block_is_flagged_by_1_percent_or_by_chance_whichever_is_more(
    second: float, spread: float | None, *, drifted: bool
) -> None:
    """3 sqrt 2 x 1 % = 4.24 %."""
    assert has_drifted(100.0, second, reference_spread=spread) is drifted


@pytest.mark.parametrize("values", [[], [0.1], [0.1, math.nan]])
def test_no_effect_of_one_block_or_of_what_is_not_finite(values: list[float]) -> None:
    """A spread takes two values."""
    with pytest.raises(ValueError, match="no spread of"):
        compare_with_reference([values], margin=0.01)


@pytest.mark.parametrize("blocks", [3, 5, 10])
@pytest.mark.parametrize("is_skewed", [False, True])
def test_intervals_of_ratios_cover_the_truth_in_95_percent(blocks: int, *, is_skewed: bool) -> None:
    """1,000 seeded campaigns of one point 3 % better, CV 1 %; 93 to 97 %."""
    generator = np.random.default_rng(blocks)
    covered = 0
    for _ in range(1000):
        noise = generator.gamma(4, 0.5, (3, blocks)) - 2 if is_skewed else generator.normal(size=(3, blocks))
        trial, first, second = 0.01 * noise
        logs = math.log(0.97) + trial - (first + second) / 2
        interval = two_stage_interval(list(logs), first=blocks)
        covered += interval.low <= math.log(0.97) <= interval.high

    assert 930 <= covered <= 970


def test_eight_equal_points_are_called_different_in_at_most_5_percent_of_campaigns() -> None:
    """400 seeded campaigns, 7 points that share one reference: any better or worse among them is an error."""
    generator = np.random.default_rng(2)
    wrong = 0
    for _ in range(400):
        noise = 0.01 * generator.normal(size=(9, 5))
        logs = noise[:7] - noise[7:].mean(axis=0)
        effects = compare_with_reference([list(row) for row in logs], margin=0.001)
        wrong += any(effect.verdict in (Verdict.BETTER, Verdict.WORSE) for effect in effects)

    assert wrong <= 20 + 2 * math.sqrt(20)  # 5 % and twice its own chance
