"""What may be typed for a power limit: understood, resolved for each board, or refused with the way to write it."""

from pathlib import Path

import pytest

from ecobench.controls.nvml import NvmlControl
from ecobench.errors import RequestError
from ecobench.limits import LimitRange, check_limit_text, parse_clock, resolve_limits

H100 = LimitRange(index=0, uuid="GPU-a", name="H100", min_w=200, default_w=700, max_w=700, max_clock_mhz=1980)
A40 = LimitRange(index=1, uuid="GPU-b", name="A40", min_w=100, default_w=300, max_w=300, max_clock_mhz=1740)
RTX4090 = LimitRange(index=2, uuid="GPU-c", name="RTX 4090", min_w=150, default_w=450, max_w=600)


def watts(typed: str, *boards: LimitRange) -> dict[str, float]:
    return {uuid: limit.watts for uuid, limit in resolve_limits(typed, boards or (H100,)).items()}


@pytest.mark.parametrize(
    ("typed", "expected_w"),
    [
        ("85%", 595),
        ("57%", 399),
        ("87.5 %", 612.5),
        ("595W", 595),
        ("595 w", 595),
        ("0.6kW", 600),
        (".25kW", 250),
        ("200W", 200),
        ("default", 700),
        ("Max", 700),
        ("min", 200),
    ],
)
def test_every_way_to_write_a_limit_comes_to_its_watts(typed: str, expected_w: float) -> None:
    """On a board of 200 to 700 W, default 700 W; watts by hand."""
    assert watts(typed) == {"GPU-a": expected_w}


@pytest.mark.parametrize("typed", ["85", "0:85", "0:85%,1:foo", "max,", "85%%", "", "0:"])
def test_what_is_no_limit_on_any_board_is_refused_before_there_is_one(typed: str) -> None:
    """A machine without a driver says what is wrong with the text, not that it has no driver."""
    with pytest.raises(RequestError, match="--power-limit"):
        check_limit_text(typed)


def test_text_says_how_the_watts_came_about() -> None:
    """What a person sees before anything starts."""
    (limit,) = resolve_limits("85%", [H100]).values()

    assert limit.text == "85 % of default 700 W = 595 W, range 200 to 700 W"


def test_percent_is_of_each_boards_own_default() -> None:
    """50 % on 700, 300 and 450 W boards."""
    assert watts("50%", H100, A40, RTX4090) == {"GPU-a": 350, "GPU-b": 150, "GPU-c": 225}


def test_default_and_max_differ_where_the_board_says_so() -> None:
    """A board of 450 W default may be set to 600 W: 133 % of the default is in range, 134 % is not."""
    assert watts("default", RTX4090) == {"GPU-c": 450}
    assert watts("max", RTX4090) == {"GPU-c": 600}
    assert watts("133%", RTX4090) == {"GPU-c": 598.5}
    with pytest.raises(RequestError, match="603 W is out of range"):
        resolve_limits("134%", [RTX4090])


def test_list_goes_by_order_of_index_or_by_index() -> None:
    """300W,280W is for GPU 0 and GPU 1, in whatever order they come; by index, others are left alone."""
    assert watts("300W,280W", A40, H100) == {"GPU-a": 300, "GPU-b": 280}
    assert watts("1:280W", H100, A40) == {"GPU-b": 280}
    assert watts("0:50%, 1:min", H100, A40) == {"GPU-a": 350, "GPU-b": 100}


@pytest.mark.parametrize(
    ("typed", "says", "hint"),
    [
        ("300", "300 what", "300W for watts or 300% for a share"),
        ("199W", "199 W is out of range on GPU 0 .H100.: 200 to 700 W", "29% to 100%"),
        ("701W", "701 W is out of range", "200 to 700 W"),
        ("105%", "735 W is out of range", "200 to 700 W"),
        ("0%", "0 W is out of range", "200 to 700 W"),
        ("-300W", "not a limit", "write 85%"),
        ("nanW", "not a limit", "write 85%"),
        ("300J", "not a limit", "write 85%"),
        ("", "empty part", "write 85%"),
        ("300W,", "empty part", "write 85%"),
        ("300W,280W", "2 limits for 1 GPU", "by index"),
        ("1:300W", "there is no GPU 1", "there are: 0"),
        ("0:300W,0:280W", "GPU 0 twice", "write 85%"),
        ("0:300W,280W", "is not INDEX:LIMIT", "write 85%"),
        ("0:300", "300 what", "300W for watts"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_to_write_it(typed: str, says: str, hint: str) -> None:
    """Never clamped, never guessed."""
    with pytest.raises(RequestError, match=says) as refusal:
        resolve_limits(typed, [H100])

    assert hint in str(refusal.value.hint)


def test_clock_is_whole_megahertz_that_every_board_can_do() -> None:
    """1,740 MHz is the most of the slower board."""
    assert parse_clock("1500", [H100, A40]) == parse_clock("1500 MHz", [H100, A40]) == 1500
    assert parse_clock("1740", [H100, A40]) == 1740
    for typed in ("1741", "0", "1.5", "fast", "1.5GHz"):
        with pytest.raises(RequestError):
            parse_clock(typed, [H100, A40])


@pytest.mark.parametrize(("power_limit", "sm_clock"), [(None, "fast"), ("85", None), ("300W", "0")])
def test_control_refuses_what_was_typed_before_it_asks_for_a_driver(
    power_limit: str | None, sm_clock: str | None, tmp_path: Path
) -> None:
    """Where there is no driver that would be another error, with another exit code."""
    with pytest.raises(RequestError):
        NvmlControl.open(power_limit, sm_clock, environment={"XDG_RUNTIME_DIR": str(tmp_path)})
