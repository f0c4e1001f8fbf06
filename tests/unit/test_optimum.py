"""The set that holds the best point, and what a target costs."""

import math

import numpy as np
import pytest
from scipy.stats import chi2, norm

from ecobench.optimum import Budget, dunnett_critical, is_certified, optimum_set, smallest_certified


@pytest.mark.parametrize(("comparisons", "df"), [(1, 10), (2, 10), (4, 20), (5, 60), (7, 28)])
def test_critical_value_leaves_5_percent_by_another_integral(comparisons: int, df: int) -> None:
    """Given the common mean z and the spread s, the differences are independent: E[Phi(z + sqrt 2 d s)^k] = 0.95."""
    d = dunnett_critical(comparisons, df)
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    quantiles = (np.arange(2000) + 0.5) / 2000
    s = np.sqrt(chi2.ppf(quantiles, df) / df)
    inside = norm.cdf(z[:, None] + math.sqrt(2) * d * s[None, :]) ** comparisons

    assert weights @ inside.mean(axis=1) / weights.sum() == pytest.approx(0.95, abs=5e-4)


def test_two_points_are_told_apart_by_the_one_sided_paired_t() -> None:
    """Differences 1, 2, 3: t = 2/(1/sqrt 3) = 3.46 over 2.92; with 0, 1, 2 it is 1.73, under it."""
    assert optimum_set([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]) == (0,)
    assert optimum_set([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]]) == (0, 1)


def test_what_a_block_does_to_all_its_points_does_not_count() -> None:
    """The same block effects on all points leave the set as it was."""
    rows = [[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]

    assert optimum_set([[value + shift for value in row] for row, shift in zip(rows, (50, -7, 9), strict=True)]) == (0,)


def test_equal_points_without_spread_are_all_the_best() -> None:
    """0 is not worse than 0."""
    assert optimum_set([[1.0, 1.0, 2.0], [1.0, 1.0, 2.0]]) == (0, 1)


@pytest.mark.parametrize("logs", [[], [[1.0, 2.0]], [[1.0], [2.0]], [[1.0, 2.0], [1.0]], [[1.0, np.nan], [1.0, 2.0]]])
def test_no_set_of_one_block_one_point_or_a_missing_value(logs: list[list[float]]) -> None:
    """Incomplete blocks are taken out by whoever knows why they are incomplete."""
    with pytest.raises(ValueError, match=r"blocks of|not finite"):
        optimum_set(logs)


def test_set_holds_the_true_best_in_95_percent_of_campaigns() -> None:
    """1,000 seeded campaigns of 6 equal points, the hardest case; CV 0.3 %, 5 blocks. 50 misses, and their chance."""
    generator = np.random.default_rng(3)
    missed = sum(0 not in optimum_set(generator.normal(0, 0.003, (5, 6)).tolist()) for _ in range(1000))

    assert missed <= 50 + 2 * math.sqrt(50)


def test_loss_is_certified_by_a_one_sided_t_at_1_percent() -> None:
    """Mean 0.01 under the target, s = 0.01: t = sqrt 3 = 1.73, and t(0.99; 2) = 6.96. Room of 0.05 does."""
    assert not is_certified([3.26, 3.27, 3.28], 3.28)
    assert is_certified([3.22, 3.23, 3.24], 3.28)
    assert not is_certified([3.0], 3.28)


def test_smallest_budget_is_sought_from_the_largest_down() -> None:
    """A smaller budget that passes beneath one that fails was luck, and is not taken."""
    good, bad = (3.20, 3.21, 3.22), (3.27, 3.28, 3.29)
    budgets = [
        Budget(steps=steps, losses=losses, energies_j=(1.0, 1.0, 1.0))
        for steps, losses in ((100, good), (200, bad), (300, good), (400, good))
    ]

    found = smallest_certified(budgets, 3.28)

    assert found is not None
    assert found.steps == 300
    assert smallest_certified(budgets[1:2], 3.28) is None
