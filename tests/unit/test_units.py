"""Text from quantities, and quantities from text."""

import pytest

from ecobench.errors import RequestError
from ecobench.units import (
    format_bytes,
    format_duration,
    format_number,
    format_si,
    parse_duration_s,
    parse_energy_j,
    seconds,
    tokens_per_kwh,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1.000"),
        (12.345, "12.35"),
        (1234.5, "1,234"),  # half to even, as Python rounds
        (123456, "123,456"),
        (-0.5, "-0.5000"),
        (0.0001, "0.0001000"),
        (0.00001, "1.000e-05"),
        (9_999_999, "1.000e+07"),
        (9_999_000, "9,999,000"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_print_with_four_significant_digits(value: float, text: str) -> None:
    """Without an exponent from 1e-4 to under 1e7."""
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.9996, "10.00"),
        (99.996, "100.0"),
        (999.96, "1,000"),
        (-999.96, "-1,000"),
        (0.99996, "1.000"),
        (0.00099999, "0.001000"),
        (0.000099996, "0.0001000"),
    ],
)
def test_rounding_up_to_the_next_digit_adds_none(value: float, text: str) -> None:
    """What rounds up to a power of ten still prints four digits, not five."""
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 J"),
        (0.00055, "550.0 uJ"),
        (0.003, "3.000 mJ"),
        (1, "1.000 J"),
        (999.94, "999.9 J"),
        (1000, "1.000 kJ"),
        (1e6, "1.000 MJ"),
        (1e9, "1.000 GJ"),
        (2.5e-9, "2.500 nJ"),
        (1.2e13, "12,000 GJ"),
        (1e-12, "0.001000 nJ"),
        (-1234, "-1.234 kJ"),
        (float("inf"), "inf J"),
    ],
)
def test_si_prefixes_go_from_nano_to_giga(value: float, text: str) -> None:
    """Four digits and a prefix; outside of that range the outermost prefix."""
    assert format_si(value, "J") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999.96, "1.000 kJ"),
        (-999.96, "-1.000 kJ"),
        (0.00099999, "1.000 mJ"),
        (999_960, "1.000 MJ"),
        (0.99996, "1.000 J"),
    ],
)
def test_prefix_is_chosen_after_rounding(value: float, text: str) -> None:
    """999.96 J is 1.000 kJ, neither 1000.0 J nor 1.0000 kJ."""
    assert format_si(value, "J") == text


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0, "0.00 s"),
        (0.346, "0.35 s"),
        (9.996, "10.0 s"),
        (42.14, "42.1 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (60, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations_never_show_sixty_of_a_unit(duration_s: float, text: str) -> None:
    """59.96 s is a minute, 3599.6 s an hour."""
    assert format_duration(duration_s) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (1 << 40, "1.0 TiB"),
    ],
)
def test_sizes_never_show_1024_of_a_unit(size_bytes: int, text: str) -> None:
    """A byte less than a MiB is 1.0 MiB, not 1024.0 KiB."""
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("text", "duration_s"), [("250ms", 0.25), ("90s", 90), ("10m", 600), ("2 min", 120), ("1.5h", 5400), ("1e2s", 100)]
)
def test_durations_are_read_with_their_unit(text: str, duration_s: float) -> None:
    """Milliseconds to hours."""
    assert parse_duration_s(text) == duration_s


@pytest.mark.parametrize(("text", "energy_j"), [("500J", 500), ("1.5MJ", 1.5e6), ("30Wh", 108_000), ("2kWh", 7.2e6)])
def test_energies_are_read_with_their_unit(text: str, energy_j: float) -> None:
    """1 Wh is 3600 J."""
    assert parse_energy_j(text) == energy_j


@pytest.mark.parametrize("text", ["", "10", "s", "-5s", "0s", "1e999s", "nan s", "10S", "10d", "1 0s", "10s x"])
def test_a_bare_or_senseless_duration_is_refused(text: str) -> None:
    """With an example of what is meant."""
    with pytest.raises(RequestError) as caught:
        parse_duration_s(text)

    assert caught.value.hint is not None
    assert "90s" in caught.value.hint


def test_three_millijoules_a_token_are_1_2e9_tokens_per_kwh() -> None:
    """3.6e6 J over 3e-3 J."""
    assert tokens_per_kwh(3e-3) == pytest.approx(1.2e9, rel=1e-12)
    assert seconds(1_500_000_000) == 1.5
