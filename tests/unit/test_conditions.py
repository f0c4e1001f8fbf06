"""What held GPUs back, and how warm and fast they ran, by hand arithmetic."""

import pytest

from board_traces import held, steadily, told, window
from ecobench.conditions import cap_state, cap_state_of_share, counted_share, gpu_conditions
from ecobench.gpu_records import CapState
from ecobench.measurement import Boundary
from records_for_tests import DOMAIN_ENERGY, but

GPU = but(DOMAIN_ENERGY, domain="gpu:0", boundary=Boundary.GPU, energy_j=36_000.0)


def test_a_counter_of_time_is_interpolated_at_the_edges() -> None:
    """0.7 s counted each second from 10.25 to 70.5 s: 70 %. Counting only from 40 s on: 30.5 x 0.7 of 60.25 s."""
    always = held("power_cap_ns", share=0.7)
    late = told("power_cap_ns", {float(at): 0.7 * max(0, at - 40) for at in range(81)})

    assert counted_share(always, window((10.25, 70.5))) == pytest.approx(0.7)
    assert counted_share(late, window((10.25, 70.5))) == pytest.approx(30.5 * 0.7 / 60.25)


def test_segments_add_and_what_lies_between_does_not_count() -> None:
    """Held back all of the time but from 20 to 30 s, which no segment holds."""
    values = {float(at): float(min(at, 20) + max(0, at - 30)) for at in range(81)}

    assert counted_share(told("power_cap_ns", values), window((10, 20), (30, 40))) == pytest.approx(1.0)


def test_a_counter_of_time_that_was_set_back_or_not_read_tells_nothing() -> None:
    """Set back at 40 s: unknown for a window over it, known beside it. Lost at 50 s: unknown for one to 70 s."""
    back = told("power_cap_ns", {float(at): float(at if at < 40 else at - 40) for at in range(81)})

    assert counted_share(back, window((10, 70))) is None
    assert counted_share(back, window((45, 70))) == pytest.approx(1.0)
    assert counted_share(held("power_cap_ns", share=1, until_s=50), window((10, 70))) is None
    with pytest.raises(ValueError, match="counts no time"):
        counted_share(steadily("temperature_c", 40), window((10, 70)))


@pytest.mark.parametrize(
    ("share", "state"),
    [
        (1.0, CapState.BOUND),
        (0.5, CapState.BOUND),
        (0.499, CapState.PARTLY),
        (0.01, CapState.PARTLY),
        (0.0099, CapState.NEVER_BOUND),
        (0.0, CapState.NEVER_BOUND),
        (None, CapState.UNKNOWN),
    ],
)
def test_half_and_a_hundredth_are_where_the_cap_state_turns(share: float | None, state: CapState) -> None:
    """From 50 % on bound, under 1 % never; no counter, unknown, which is not never."""
    assert cap_state_of_share(share) is state


def test_over_gpus_all_must_say_the_same() -> None:
    """One that is bound partly, or not, makes it partly; one unknown makes it unknown; no GPU is no state."""
    assert cap_state([CapState.BOUND] * 8) is CapState.BOUND
    assert cap_state([CapState.BOUND] * 7 + [CapState.NEVER_BOUND]) is CapState.PARTLY
    assert cap_state([CapState.NEVER_BOUND] * 8) is CapState.NEVER_BOUND
    assert cap_state([CapState.BOUND, CapState.UNKNOWN]) is CapState.UNKNOWN
    assert cap_state([]) is None


def test_conditions_are_of_the_window_alone() -> None:
    """Before 10 s 300 MHz and 30 C, after it 1,500 MHz and 30 C rising by 0.5 C/s: over 10 to 70 s 60 C hottest, from
    31.25 C (mean of 10 to 15 s) to 58.75 C (65 to 70 s); 36,000 J over 60 s are 600 W.
    """
    clocks = told("sm_clock_mhz", {float(at): 300 if at < 10 else 1500 for at in range(81)})
    temperatures = told("temperature_c", {float(at): 30 + max(0, at - 10) / 2 for at in range(81)}, si_per_count=0.5)
    limits = told("limit_enforced_w", {float(at): 595 if at < 40 else 450 for at in range(81)}, si_per_count=1e-3)
    traces = [clocks, temperatures, limits, held("hw_thermal_ns", share=0.2), held("sw_thermal_ns", share=0.1)]

    (found,) = gpu_conditions(traces, [GPU], window((10, 70)))

    assert found.uuid == "GPU-0"
    assert found.mean_power_w == 600
    assert found.sm_clock_mhz == 1500
    assert found.temperature_c == pytest.approx(45)
    assert found.hottest_c == 60
    assert found.warming_c == pytest.approx(27.5)
    assert (found.limit_lowest_w, found.limit_highest_w) == (450, 595)
    assert found.limit_requested_w is None
    assert found.thermal_share == pytest.approx(0.2)
    assert (found.cap_share, found.cap_state, found.brake_share) == (None, CapState.UNKNOWN, None)


def test_processors_and_parts_of_boards_have_no_conditions() -> None:
    """`cpu:0/package` is no GPU; `gpu:0/memory` is in `gpu:0`."""
    memory = but(GPU, domain="gpu:0/memory")

    assert gpu_conditions([], [DOMAIN_ENERGY, memory], window((10, 70))) == ()
