"""What may be typed for an axis, the grid it makes, and the order of a block."""

from collections import Counter

import pytest

from ecobench.errors import RequestError
from ecobench.parameters import Parameter
from ecobench.plan import Axis, grid, parse_axis, plan_block

PARAMETERS = {
    "batch_size": Parameter(name="batch_size", type="int", default=8, minimum=1, maximum=64),
    "optimizer": Parameter(name="optimizer", type="text", default="muon", allowed=("muon", "adamw")),
}
DEFAULTS = {"batch_size": (8, 7, 6)}


def parse(typed: str) -> Axis:
    return parse_axis(typed, parameters=PARAMETERS, defaults=DEFAULTS)


@pytest.mark.parametrize(
    ("typed", "name", "values"),
    [
        ("batch-size", "batch_size", ("8", "7", "6")),
        ("batch_size=4,2", "batch_size", ("4", "2")),
        ("batch-size=8:4:-2", "batch_size", ("8", "6", "4")),
        ("optimizer=muon,adamw", "optimizer", ("muon", "adamw")),
        ("power-limit=50%:70%:10%", "power-limit", ("50%", "60%", "70%")),
        ("power-limit=0.3kW:0.5kW:0.1kW", "power-limit", ("0.3kW", "0.4kW", "0.5kW")),
        ("sm-clock=1200:1500:200", "sm-clock", ("1200", "1400")),
    ],
)
def test_axis_is_a_name_with_values_a_range_or_the_preset_s_own(typed: str, name: str, values: tuple[str, ...]) -> None:
    """Ranges are decimal: 0.3 + 2 x 0.1 is 0.5. A stop between two steps is not reached."""
    assert parse(typed) == Axis(name=name, values=values)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("batch-sise", "no axis `batch_sise`"),
        ("power-limit", "no points of its own"),
        ("batch-size=", "empty value"),
        ("batch-size=8,,6", "empty value"),
        ("batch-size=8,8", "8 twice"),
        ("batch-size=8,08", "8 twice"),
        ("batch-size=8,65", "out of range"),
        ("batch-size=eight", "a whole number"),
        ("optimizer=sgd", "not among"),
        ("batch-size=8:4:1", "never comes to"),
        ("batch-size=8:4:0", "never comes to"),
        ("batch-size=8:4", "not a range"),
        ("batch-size=1:2:3:4", "not a range"),
        ("batch-size=a:b:c", "not a range"),
        ("power-limit=50%:400W:10%", "more than one unit"),
        ("power-limit=1W:9999W:1W", "9,999 values"),
    ],
)
def test_what_is_no_axis_is_refused_before_anything_runs(typed: str, says: str) -> None:
    """In one line that says what is wrong."""
    with pytest.raises(RequestError, match=says):
        parse(typed)


def test_unknown_axis_comes_with_a_suggestion() -> None:
    """A typing error is near what was meant."""
    with pytest.raises(RequestError) as caught:
        parse("batch-sise=8")

    assert caught.value.hint == "did you mean `batch_size`?"


def test_grid_is_every_combination() -> None:
    """Two by two."""
    points = grid([parse("optimizer=muon,adamw"), parse("power-limit=70%,100%")])

    assert points == (
        (("optimizer", "muon"), ("power-limit", "70%")),
        (("optimizer", "muon"), ("power-limit", "100%")),
        (("optimizer", "adamw"), ("power-limit", "70%")),
        (("optimizer", "adamw"), ("power-limit", "100%")),
    )


def test_grid_refuses_one_point_and_one_axis_twice() -> None:
    """Neither compares anything."""
    with pytest.raises(RequestError, match="fewer than two points"):
        grid([parse("batch-size=8")])
    with pytest.raises(RequestError, match="`batch_size` twice"):
        grid([parse("batch-size=8,7"), parse("batch-size=6,5")])


def test_block_soaks_then_has_every_point_once_and_the_reference_twice() -> None:
    """Positions count from the soak."""
    trials = plan_block(points=4, reference=2, block=1, seed=7)

    assert [trial.is_soak for trial in trials] == [True] + [False] * 5
    assert Counter(trial.point for trial in trials[1:]) == {0: 1, 1: 1, 2: 2, 3: 1}
    assert [trial.position for trial in trials] == list(range(6))
    assert trials[0].point == 2


def test_order_depends_on_seed_and_block_alone() -> None:
    """What a resumed sweep relies on; blocks and seeds differ from each other."""
    one = plan_block(points=8, reference=0, block=3, seed=7)

    assert one == plan_block(points=8, reference=0, block=3, seed=7)
    assert [trial.point for trial in one] != [
        trial.point for trial in plan_block(points=8, reference=0, block=4, seed=7)
    ]
    assert [trial.point for trial in one] != [
        trial.point for trial in plan_block(points=8, reference=0, block=3, seed=8)
    ]


def test_every_point_visits_every_position() -> None:
    """600 blocks of 3 points: point 1 is at each of the 4 places in 150 of them, +- 4 x 10.6 by chance."""
    places = Counter(
        next(
            trial.position
            for trial in plan_block(points=3, reference=0, block=block, seed=1)
            if trial.point == 1 and not trial.is_soak
        )
        for block in range(600)
    )

    assert sorted(places) == [1, 2, 3, 4]
    assert all(abs(count - 150) < 43 for count in places.values())
