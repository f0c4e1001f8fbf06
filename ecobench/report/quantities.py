"""How a figure reads: value, intervals, boundary and evidence as short text, the same in every place that shows it.

Nothing here computes a number. A value and the ends of its intervals share one SI prefix and one unit, so that they can
be compared by eye; a value whose repeatability interval is narrow gets the digits that the interval earns.
"""

import math

from ecobench.measurement import Boundary, Evidence, Interval
from ecobench.records import Figure, RunRecord
from ecobench.units import format_duration, format_number, format_si

_PREFIX_FACTOR = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_PREFIXED_UNITS = ("J", "W", "tokens/kWh")
_FEWEST_DIGITS, _MOST_DIGITS = 4, 6

# One line for each kind of evidence, for readers who do not know the letters (DESIGN section 1).
EVIDENCE_IN_WORDS = {
    Evidence.SIM: "simulated, not measured",
    Evidence.EST: "estimated from a model, not measured",
    Evidence.G0: "polled GPU power",
    Evidence.G1: "GPU energy counter, checked against polled power",
    Evidence.C1: "CPU energy counter (RAPL)",
    Evidence.N1: "node meter at 1 Hz or better",
    Evidence.N2: "node AC meter within 2 %",
    Evidence.N3: "integrating node meter within 1 %",
}
BOUNDARY_IN_WORDS = {
    Boundary.GPU: "the named GPU boards",
    Boundary.CPU: "CPU packages and memory",
    Boundary.NODE: "the whole node",
    Boundary.FACILITY: "the node and its share of the building",
}


def simulated_mark(run: RunRecord) -> str:
    """What stands before everything that is shown of a simulated run."""
    return f"SIMULATED ({run.spec.simulation}): " if run.spec.simulation is not None else ""


def scale_of(value: float, unit: str) -> tuple[float, str]:
    """`(factor, unit with prefix)`: divide by the factor to read a quantity of that size in that unit."""
    if not unit.startswith(_PREFIXED_UNITS) or value == 0:
        return 1.0, unit
    scaled_unit = format_si(value, unit).rpartition(" ")[2]
    return _PREFIX_FACTOR[scaled_unit.removesuffix(unit)], scaled_unit


def value_text(figure: Figure) -> str:
    """`2.917 mJ/token`; `not known` where there is no value (its reason stands in `figure.reason`)."""
    if figure.value is None:
        return "not known"
    if figure.unit == "s":
        return format_duration(figure.value)
    if figure.unit == "tokens" and figure.value == round(figure.value):
        return f"{figure.value:,.0f} tokens"
    factor, unit = scale_of(figure.value, figure.unit)
    text = f"{format_number(figure.value / factor, digits=_digits(figure))} {unit}"
    return f"{text} ({format_si(figure.value / 3600, 'Wh')})" if figure.unit == "J" else text


def repeatability_text(figure: Figure) -> str:
    """`[2.905, 2.929]` in the unit of the value; `none, n=1` where there is nothing to repeat."""
    if figure.value is None:
        return "-"
    if figure.repeatability is None:
        return f"none, n={figure.n}"
    return _interval(figure.repeatability, figure, decimals=_decimals(figure))


def instrument_text(figure: Figure) -> str:
    """`[0.96, 7.29]` in the unit of the value, k = 2; `-` where the instrument leaves nothing open."""
    if figure.value is None or figure.instrument is None:
        return "-"
    return _interval(figure.instrument, figure, decimals=None)


def scope_text(figure: Figure) -> str:
    """`cpu EST`: boundary and evidence; `-` for a figure that no meter is behind."""
    parts = [str(part.value) for part in (figure.boundary, figure.evidence) if part is not None]
    return " ".join(parts) or "-"


def evidence_mark(evidence: Evidence | None) -> str:
    """` (EST)` beside a number that was estimated or simulated; nothing beside one that was measured."""
    return f" ({evidence.value})" if evidence in (Evidence.EST, Evidence.SIM) else ""


def count_text(count: int, noun: str) -> str:
    """`1 trial`, `3 trials`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _interval(interval: Interval, figure: Figure, *, decimals: int | None) -> str:
    assert figure.value is not None
    factor, _ = scale_of(figure.value, figure.unit)
    ends = [
        format_number(end / factor, digits=3 if decimals is None else _digits_for(end / factor, decimals))
        for end in (interval.low, interval.high)
    ]
    return f"[{ends[0]}, {ends[1]}]"


def _digits(figure: Figure) -> int:
    """Significant digits: two of the interval's half width, at least 4, at most 6."""
    # A duration prints in its own form, which no interval lengthens.
    if figure.repeatability is None or not figure.value or figure.unit == "s":
        return _FEWEST_DIGITS
    half_width = (figure.repeatability.high - figure.repeatability.low) / 2
    if half_width <= 0:
        return _FEWEST_DIGITS
    earned = _magnitude(figure.value) - _magnitude(half_width) + 2
    return min(_MOST_DIGITS, max(_FEWEST_DIGITS, earned))


def _decimals(figure: Figure) -> int:
    assert figure.value is not None
    if not figure.value:
        return _FEWEST_DIGITS
    factor, _ = scale_of(figure.value, figure.unit)
    return max(0, _digits(figure) - 1 - _magnitude(figure.value / factor))


def _digits_for(value: float, decimals: int) -> int:
    return max(1, decimals + 1 + _magnitude(value)) if value else 1


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value)))
