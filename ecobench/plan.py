"""What a sweep will measure, and in which order: axes, points, blocks. Pure.

    batch-size                 the points that the workload's preset has for this axis
    batch-size=8,7,6           these values
    power-limit=50%:100%:10%   from, to (included) and step

The same seed gives the same order, wherever a sweep is taken up again.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ecobench.errors import RequestError
from ecobench.parameters import Parameter, suggest

CONTROLS = ("power-limit", "sm-clock")
MOST_VALUES = 1000
WAYS = "write AXIS, AXIS=a,b,c or AXIS=start:stop:step"
_AMOUNT = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([A-Za-z%]*)")

Point = tuple[tuple[str, str], ...]  # (axis, value as typed), in the order of the axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What a sweep varies, with its values as they may be typed."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrial:
    """One trial of a plan: a point by its index. A soak trial warms the machine and is discarded."""

    block: int
    position: int
    point: int
    is_soak: bool


def parse_axis(typed: str, *, parameters: Mapping[str, Parameter], defaults: Mapping[str, Sequence[object]]) -> Axis:
    """The axis that `typed` names: a control, or a parameter of the workload, whose values are checked.

    Attributes:
        defaults: the preset's own points, by parameter.

    Raises:
        RequestError: an unknown name, no values, a value twice, or one that the parameter does not allow.
    """
    name, equals, text = typed.partition("=")
    is_control = name in CONTROLS
    if not is_control:
        name = name.replace("-", "_")
        if name not in parameters:
            raise RequestError(f"`{typed}`: no axis `{name}`", hint=suggest(name, (*CONTROLS, *parameters)))
    if equals:
        values = _expand(typed, text)
    elif name in defaults:
        values = tuple(str(value) for value in defaults[name])
    else:
        raise RequestError(f"`{typed}`: this axis has no points of its own here", hint=f"name them: {name}=a,b,c")
    if not is_control:
        values = tuple(str(parameters[name].parse(value)) for value in values)
    twice = {value for value in values if values.count(value) > 1}
    if twice:
        raise RequestError(f"`{typed}`: {min(twice)} twice", hint="name each value once")
    return Axis(name=name, values=values)


def grid(axes: Sequence[Axis]) -> tuple[Point, ...]:
    """Every combination of the axes' values, the last axis fastest.

    Raises:
        RequestError: no axis, one twice, or fewer than two points.
    """
    names = [axis.name for axis in axes]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"axis `{name}` twice", hint=f"write all its values at once: {name}=a,b,c")
    pairs = [[(axis.name, value) for value in axis.values] for axis in axes]
    points = tuple(itertools.product(*pairs)) if pairs else ()
    if len(points) < 2:
        raise RequestError("a sweep of fewer than two points compares nothing", hint=WAYS)
    return points


def plan_block(*, points: int, reference: int, block: int, seed: int) -> tuple[PlannedTrial, ...]:
    """One block: a soak trial of the reference, then every point once and the reference twice, in random order.

    A block depends on the seed and on its own number only, so that a sweep resumed or extended keeps its order.

    Raises:
        ValueError: the reference is no point.
    """
    if not 0 <= reference < points:
        raise ValueError(f"point {reference} of {points}")
    import numpy as np  # noqa: PLC0415

    order = np.random.default_rng((seed, block)).permutation([*range(points), reference])
    soak = PlannedTrial(block=block, position=0, point=reference, is_soak=True)
    rest = (
        PlannedTrial(block=block, position=position, point=int(point), is_soak=False)
        for position, point in enumerate(order, start=1)
    )
    return (soak, *rest)


def _expand(typed: str, text: str) -> tuple[str, ...]:
    if ":" not in text:
        values = tuple(value.strip() for value in text.split(","))
        if not all(values):
            raise RequestError(f"`{typed}`: an empty value", hint=WAYS)
        return values
    matches = [_AMOUNT.fullmatch(part.strip()) for part in text.split(":")]
    found = [match for match in matches if match is not None]
    if len(found) != 3 or len(matches) != 3:
        raise RequestError(f"`{typed}`: not a range", hint=WAYS)
    units = {match[2] for match in found}
    if len(units) != 1:
        raise RequestError(f"`{typed}`: a range in more than one unit", hint="write 50%:100%:10%")
    start, stop, step = (Decimal(match[1]) for match in found)
    if step == 0 or (stop - start) / step < 0:
        raise RequestError(f"`{typed}`: from {start} in steps of {step} never comes to {stop}", hint=WAYS)
    count = int((stop - start) / step) + 1
    if count > MOST_VALUES:
        raise RequestError(f"`{typed}`: {count:,} values", hint=f"at most {MOST_VALUES:,}; take a larger step")
    unit = units.pop()
    return tuple(f"{start + index * step:f}{unit}" for index in range(count))
