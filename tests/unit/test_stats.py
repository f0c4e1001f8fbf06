"""Means over trials and their intervals."""

import math

import pytest

from ecobench.stats import mean_with_interval


def test_interval_of_three_values_is_the_tabulated_t() -> None:
    """Of 1, 2, 3: mean 2, s = 1, t(0.975; 2) = 4.303 by the table, so half the interval is 4.303/sqrt 3."""
    mean = mean_with_interval([1.0, 2.0, 3.0])

    assert (mean.value, mean.n) == (2.0, 3)
    assert mean.interval is not None
    assert mean.interval.high - 2 == pytest.approx(4.303 / math.sqrt(3), abs=1e-3)
    assert 2 - mean.interval.low == pytest.approx(mean.interval.high - 2)


def test_two_values_have_an_interval_of_12_7_half_ranges() -> None:
    """Of 9 and 11: s/sqrt n = 1, and t(0.975; 1) = 12.706."""
    interval = mean_with_interval([9.0, 11.0]).interval

    assert interval is not None
    assert interval.high == pytest.approx(10 + 12.706, abs=1e-3)


def test_one_value_has_no_interval() -> None:
    """One trial says nothing about repeatability."""
    mean = mean_with_interval([5.0])

    assert (mean.value, mean.n, mean.interval) == (5.0, 1, None)


def test_equal_values_have_an_interval_without_width() -> None:
    """No spread, no width: 0 was measured."""
    interval = mean_with_interval([4.0, 4.0, 4.0]).interval

    assert interval is not None
    assert (interval.low, interval.high) == (4.0, 4.0)


def test_lower_confidence_gives_the_narrower_interval() -> None:
    """t(0.95; 2) = 2.920."""
    interval = mean_with_interval([1.0, 2.0, 3.0], confidence=0.9).interval

    assert interval is not None
    assert interval.high == pytest.approx(2 + 2.920 / math.sqrt(3), abs=1e-3)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_mean_of_nothing_or_of_what_is_not_finite(values: list[float]) -> None:
    """Missing values are taken out by whoever knows why they are missing."""
    with pytest.raises(ValueError, match="no mean of"):
        mean_with_interval(values)
