"""The contract of a meter as a function that anyone can run over theirs: `check_meter(meter)`.

It holds for a live meter. Asserts, with what is wrong as the message.
"""

import itertools
import math
import time

from ecobench.measurement import ReadingKind
from ecobench.seams import Meter, Sample


def check_meter(meter: Meter, *, n_readings: int = 5, every_s: float = 0.01) -> list[Sample]:
    """Read `meter` `n_readings` times; its samples, for what else is to be said of them.

    Raises:
        AssertionError: it breaks the contract.
    """
    _check_info(meter)
    samples: list[Sample] = []
    for _ in range(n_readings):
        before_ns = time.monotonic_ns()
        answer = meter.read([before_ns])
        after_ns = time.monotonic_ns()
        assert len(answer) == 1, f"{len(answer)} samples for one instant"
        _check_sample(answer[0], before_ns=before_ns, after_ns=after_ns)
        samples.append(answer[0])
        time.sleep(every_s)
    assert len(meter.read([])) == 0, "samples for no instant"
    for earlier, later in itertools.pairwise(samples):
        assert earlier.time_ns < later.time_ns, "stamps do not move on"
    meter.close()
    meter.close()
    return samples


def _check_info(meter: Meter) -> None:
    info = meter.info
    assert info == meter.info, "what a meter says of itself changes"
    for name in ("domain", "interface", "counted", "basis"):
        assert getattr(info, name), f"no {name}"
    assert info.si_per_count > 0, f"{info.si_per_count} of a unit per count"
    assert info.period_ns > 0, f"a period of {info.period_ns} ns"
    assert info.max_power_w is None or info.max_power_w > 0, f"at most {info.max_power_w} W"
    if info.wraps_at_count is not None:
        assert info.kind is ReadingKind.ENERGY_COUNTER, f"{info.kind} that wraps"
        assert info.wraps_at_count > 1, f"wraps at {info.wraps_at_count}"
    share = info.instrument_share
    assert math.isfinite(share.low), f"instrument interval from {share.low}"
    assert math.isfinite(share.high), f"instrument interval to {share.high}"
    assert -1 <= share.low <= 0 <= share.high, f"the reading is outside of its own interval {share}"


def _check_sample(sample: Sample, *, before_ns: int, after_ns: int) -> None:
    assert (sample.raw is None) != (sample.error is None), f"a reading or a reason, not {sample}"
    assert sample.raw is None or -(2**63) <= sample.raw < 2**63, f"{sample.raw} does not fit in int64"
    assert sample.raw is None or isinstance(sample.raw, int), f"{type(sample.raw).__name__} is no count"
    assert sample.call_ns >= 0, f"a call of {sample.call_ns} ns"
    first_ns, last_ns = sample.time_ns - sample.call_ns // 2, sample.time_ns + sample.call_ns // 2
    assert before_ns <= first_ns, "the call is said to begin before it did"
    assert last_ns <= after_ns, "the call is said to end after it did"
