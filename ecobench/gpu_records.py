"""What is recorded of GPUs beside their energy: conditions of a trial, and their means over a run."""

from dataclasses import dataclass
from enum import StrEnum


class CapState(StrEnum):
    """Whether the power limit held GPUs back."""

    BOUND = "bound"
    PARTLY = "partly"
    NEVER_BOUND = "never bound"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConditions:
    """Under which conditions one GPU ran in the measured phase; None for what it does not tell.

    Attributes:
        mean_power_w: of its energy over the window.
        temperature_c: mean of the readings; `hottest_c` the highest of them.
        warming_c: mean of the last tenth of the readings less that of the first.
        limit_requested_w: the last reading; `limit_lowest_w` and `limit_highest_w` are of what was in force.
        cap_share: share of the time in which the power limit held its clocks down, 0 to 1.
        thermal_share, brake_share: the same for heat and for the power brake.
    """

    domain: str
    uuid: str | None
    energy_j: float | None
    mean_power_w: float | None
    sm_clock_mhz: float | None
    temperature_c: float | None
    hottest_c: float | None
    warming_c: float | None
    limit_requested_w: float | None
    limit_lowest_w: float | None
    limit_highest_w: float | None
    cap_share: float | None
    cap_state: CapState
    thermal_share: float | None
    brake_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSummary:
    """One GPU in the measured phase, means over the `n` trials that tell; None for what it does not tell.

    Attributes:
        limit_requested_w, limit_enforced_w: None also where trials differ.
        limited_share: share of the time in which the power limit held its clocks down, 0 to 1.
        check_ratio: integral of its instant power over its energy counter.
    """

    domain: str
    uuid: str | None
    n: int
    energy_j: float | None
    mean_power_w: float | None
    sm_clock_mhz: float | None
    temperature_c: float | None
    hottest_c: float | None
    limit_requested_w: float | None
    limit_enforced_w: float | None
    limited_share: float | None
    cap_state: CapState
    check_ratio: float | None
