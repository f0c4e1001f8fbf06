"""Parameters as typed and as declared, and the stop rule."""

import pytest

from ecobench.errors import RequestError
from ecobench.parameters import Parameter, parse_stop_rule, suggest
from ecobench.records import ParameterValue, StopReason, StopRule

STEPS = Parameter(name="steps", type="int", default=10, unit="steps", minimum=1, maximum=100, help="how many")
RATE = Parameter(name="rate", type="float", default=0.5, minimum=0.0)
MODE = Parameter(name="mode", type="text", default="plain", allowed=("plain", "fancy"))
EAGER = Parameter(name="eager", type="switch", default="off")


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        (STEPS, "7", 7),
        (STEPS, "100", 100),
        (RATE, "2", 2.0),
        (RATE, "1e-3", 0.001),
        (MODE, "fancy", "fancy"),
        (EAGER, "on", "on"),
    ],
)
def test_text_becomes_a_value_of_the_declared_type(parameter: Parameter, text: str, value: ParameterValue) -> None:
    """A whole number for an int, a float for a float."""
    parsed = parameter.parse(text)

    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        (STEPS, "0"),
        (STEPS, "101"),
        (STEPS, "1.5"),
        (STEPS, "1e2"),
        (STEPS, ""),
        (STEPS, "9" * 400),
        (RATE, "-1"),
        (RATE, "nan"),
        (RATE, "inf"),
        (RATE, "9" * 400),
        (RATE, "fast"),
        (MODE, "Fancy"),
        (MODE, "\udcff"),
        (EAGER, "true"),
        (EAGER, "1"),
    ],
)
def test_a_refused_value_names_the_parameter_and_what_it_takes(parameter: Parameter, text: str) -> None:
    """Out of range, of another type, not among the allowed ones: never clamped, never a default."""
    with pytest.raises(RequestError) as caught:
        parameter.parse(text)

    assert f"`{parameter.name}" in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"{parameter.name}: ")
    caught.value.message.encode()


@pytest.mark.parametrize(
    ("parameter", "value"), [(STEPS, True), (RATE, False), (STEPS, 1.0), (STEPS, "5"), (EAGER, True), (MODE, 1)]
)
def test_a_value_of_another_type_is_refused(parameter: Parameter, value: object) -> None:
    """`true` is no 1, "5" no 5, 1.0 no whole number."""
    with pytest.raises(RequestError):
        parameter.check(value)


def test_the_description_says_range_unit_and_default() -> None:
    """One line that answers what may be typed."""
    with pytest.raises(RequestError) as caught:
        STEPS.parse("0")

    assert caught.value.hint == "steps: a whole number from 1 up to 100 steps, default 10 (how many)"


@pytest.mark.parametrize(
    ("text", "reason", "limit"),
    [
        ("steps=100", StopReason.STEPS, 100),
        ("loss=3.28", StopReason.LOSS, 3.28),
        ("loss=-1", StopReason.LOSS, -1),
        ("time=10m", StopReason.TIME, 600),
        ("energy=2kWh", StopReason.ENERGY, 7.2e6),
    ],
)
def test_stop_rules_keep_what_was_typed(text: str, reason: StopReason, limit: float) -> None:
    """The limit in steps, loss, seconds or joules."""
    assert parse_stop_rule(text) == StopRule(reason=reason, limit=limit, text=text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "steps",
        "steps=",
        "steps=0",
        "steps=-1",
        "steps=1.5",
        f"steps={'9' * 400}",
        "loss=nan",
        "loss=inf",
        "time=10",
        "energy=5",
        "epochs=3",
        "STEPS=3",
    ],
)
def test_a_stop_rule_that_is_none_is_refused(text: str) -> None:
    """Never understood as something else."""
    with pytest.raises(RequestError) as caught:
        parse_stop_rule(text)

    assert caught.value.hint is not None


def test_suggestions_name_the_nearest_word_else_all() -> None:
    """`trails` is near `trials`; `x` is near nothing."""
    assert suggest("trails", ["trials", "steps"]) == "did you mean `trials`?"
    assert suggest("x", ["trials", "steps"]) == "known: steps, trials"
    assert suggest("x", []) == "there are none"
