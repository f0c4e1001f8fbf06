"""Units: SI without prefix inside the program; prefixes exist only in the `format_*` functions here.

Parsing refuses bare numbers where a unit is needed: `10` is no duration, `10m` is.
"""

import math
import re

from ecobench.errors import RequestError

NS_PER_S = 1_000_000_000
J_PER_KWH = 3.6e6

_DURATION_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_ENERGY_J = {"J": 1.0, "kJ": 1e3, "MJ": 1e6, "Wh": 3600.0, "kWh": J_PER_KWH}
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z%]*)\s*")


def parse_duration_s(text: str) -> float:
    """Seconds of `90s`, `10m`, `1.5h`, `250ms`.

    Raises:
        RequestError: no unit, an unknown unit, or not a positive number.
    """
    return _parse(text, units=_DURATION_S, what="duration", examples="90s, 10m, 1.5h")


def parse_energy_j(text: str) -> float:
    """Joules of `500J`, `2kWh`, `1.5MJ`, `30Wh`.

    Raises:
        RequestError: no unit, an unknown unit, or not a positive number.
    """
    return _parse(text, units=_ENERGY_J, what="energy", examples="500J, 30Wh, 2kWh")


def seconds(duration_ns: int) -> float:
    """Seconds of a difference of two monotonic instants."""
    return duration_ns / NS_PER_S


def tokens_per_kwh(energy_per_token_j: float) -> float:
    """Tokens per kilowatt-hour. 1 kWh = 3.6e6 J, so 3 mJ/token is 1.2e9 tokens/kWh."""
    return J_PER_KWH / energy_per_token_j


def format_si(value: float, unit: str, *, digits: int = 4) -> str:
    """`0.00055 J` as `550.0 uJ`-like text with an SI prefix, `digits` significant digits.

    Prefixes from nano to giga; zero and values outside print plainly. ASCII only (`u` for micro), so that it is legible
    in any terminal and log.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    # Rounded before the prefix is chosen: 999.96 J with four digits is 1.000 kJ.
    rounded = float(f"{value:.{digits - 1}e}")
    exponent = max(-9, min(9, 3 * (_magnitude(value, digits=digits) // 3)))
    prefix = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G"}[exponent]
    return f"{format_number(rounded / 10.0**exponent, digits=digits)} {prefix}{unit}"


def format_number(value: float, *, digits: int = 4) -> str:
    """`digits` significant digits without exponent from 1e-4 to under 1e7, thousands separated; else `1.234e+09`."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else f"{value:g}"
    magnitude = _magnitude(value, digits=digits)
    if magnitude < -4 or magnitude >= 7:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def format_duration(duration_s: float) -> str:
    """`0.35 s`, `42.1 s`, `3 min 20 s`, `2 h 05 min`."""
    if round(duration_s, 1) < 60:
        return f"{duration_s:.2f} s" if round(duration_s, 2) < 10 else f"{duration_s:.1f} s"
    whole_s = round(duration_s)
    if whole_s < 3600:
        return f"{whole_s // 60} min {whole_s % 60:02d} s"
    return f"{whole_s // 3600} h {whole_s % 3600 // 60:02d} min"


def format_bytes(size_bytes: int) -> str:
    """`512 B`, `1.5 MiB`, `20.3 GiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if round(size, 1) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _magnitude(value: float, *, digits: int) -> int:
    """Exponent of the first digit of `value` rounded to `digits` significant digits: 9.9996 is 1e1 with four."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2])


def _parse(text: str, *, units: dict[str, float], what: str, examples: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None or match.group(2) not in units:
        raise RequestError(f"`{text}` is no {what}", hint=f"write it with its unit, for example {examples}")
    value = float(match.group(1)) * units[match.group(2)]
    if not (0 < value < math.inf):
        raise RequestError(f"`{text}` is no positive {what}", hint=f"for example {examples}")
    return value
