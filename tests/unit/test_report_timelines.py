"""Power over time: what is thinned, and what stays."""

import numpy as np

from ecobench.report.timelines import power_line, thin_steps
from ecobench.trace import trace_of
from records_for_tests import S, meter_info, sample


def test_power_of_a_counter_is_its_slope() -> None:
    """A counter at 20 W, read each 0.1 s for 2 s: 20 W from -1 s to 1 s around the origin."""
    trace = trace_of(meter_info(), [sample(k * S // 10, k * 2_000_000) for k in range(21)])
    line = power_line(trace, origin_ns=1 * S)

    assert line is not None
    assert (line.time_s[0], line.time_s[-1]) == (-1.0, 1.0)
    assert np.allclose(line.power_w, 20.0)
    assert len(line.time_s) == len(line.power_w)


def test_counter_with_one_reading_has_no_power() -> None:
    """One reading is no difference."""
    assert power_line(trace_of(meter_info(), [sample(0, 5)]), origin_ns=0) is None


def test_short_line_comes_back_unchanged() -> None:
    """Twelve points in six buckets are few enough already."""
    time_s, power_w = np.arange(12.0), np.arange(12.0)

    assert thin_steps(time_s, power_w, n_buckets=6) == (time_s, power_w)


def test_thinning_keeps_every_bucket_s_peak_and_dip() -> None:
    """One spike of 900 W and one dip to 1 W in 100,000 samples of 300 W are both still there."""
    power_w = np.full(100_000, 300.0)
    power_w[12_345], power_w[67_890] = 900.0, 1.0
    time_s, thinned_w = thin_steps(np.arange(100_000.0), power_w, n_buckets=600)

    assert len(thinned_w) <= 2 * 600 + 2
    assert (thinned_w.max(), thinned_w.min()) == (900.0, 1.0)
    assert time_s[thinned_w.argmax()] == 12_345.0
    assert (time_s[0], time_s[-1]) == (0.0, 99_999.0)
    assert np.all(np.diff(time_s) > 0)
