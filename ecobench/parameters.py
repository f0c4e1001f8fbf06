"""One parameter of a workload, and the stop rule of a run: what may be typed, and what it means."""

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ecobench.errors import RequestError
from ecobench.records import ParameterValue, StopReason, StopRule
from ecobench.units import parse_duration_s, parse_energy_j

ParameterType = Literal["int", "float", "text", "switch"]
SWITCH = ("on", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a workload; arrives at its command line as `--name=value`."""

    name: str
    type: ParameterType
    default: ParameterValue
    unit: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    allowed: tuple[ParameterValue, ...] | None = None
    help: str = ""

    def parse(self, text: str) -> ParameterValue:
        """The value that `text` writes.

        Raises:
            RequestError: not of this parameter's type, or not among what it allows.
        """
        if self.type in ("text", "switch"):
            return self.check(text)
        try:
            return self.check(int(text) if self.type == "int" else float(text))
        except ValueError:
            kind = "a whole number" if self.type == "int" else "a number"
            raise RequestError(f"`{self.name}={text}`: `{self.name}` is {kind}", hint=self._describe()) from None

    def check(self, value: object) -> ParameterValue:
        """`value`, once it is of the right type and within the bounds.

        Raises:
            RequestError: it is not.
        """
        shown = f"`{self.name}={value}`"
        if self.type in ("text", "switch"):
            # What a command line cannot carry (NUL) or a record cannot (half of a surrogate pair) is no text either.
            if not isinstance(value, str) or not value.isprintable():
                raise RequestError(f"`{self.name}={value!a}`: `{self.name}` is text on one line", hint=self._describe())
        elif isinstance(value, bool) or not isinstance(value, (int,) if self.type == "int" else (int, float)):
            kind = "a whole number" if self.type == "int" else "a number"
            raise RequestError(f"{shown}: `{self.name}` is {kind}", hint=self._describe())
        else:
            if not _is_finite(value):
                raise RequestError(f"{shown[:60]} is not finite", hint=self._describe())
            value = value if self.type == "int" else float(value)
            is_low = self.minimum is not None and value < self.minimum
            if is_low or (self.maximum is not None and value > self.maximum):
                raise RequestError(f"{shown} is out of range", hint=self._describe())
        choices = SWITCH if self.type == "switch" else self.allowed
        if choices is not None and value not in choices:
            raise RequestError(f"{shown} is not among its values", hint=self._describe())
        return value

    def _describe(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if self.type == "switch":
            what = "on or off"
        elif self.allowed is not None:
            what = "one of " + ", ".join(str(value) for value in self.allowed)
        else:
            low = "" if self.minimum is None else f" from {self.minimum:g}"
            high = "" if self.maximum is None else f" up to {self.maximum:g}"
            what = {"int": "a whole number", "float": "a number", "text": "text"}[self.type] + low + high
        about = f" ({self.help})" if self.help else ""
        return f"{self.name}: {what}{unit}, default {self.default}{about}"


def parse_stop_rule(text: str) -> StopRule:
    """`steps=N`, `loss=3.28`, `time=10m` or `energy=2kWh`.

    Raises:
        RequestError: anything else.
    """
    name, equals, value = text.partition("=")
    hint = "write it as steps=100, loss=3.28, time=10m or energy=2kWh"
    if not equals or name not in set(StopReason):
        raise RequestError(f"`--until {text}`", hint=hint)
    reason = StopReason(name)
    try:
        if reason is StopReason.TIME:
            limit = parse_duration_s(value)
        elif reason is StopReason.ENERGY:
            limit = parse_energy_j(value)
        else:
            limit = float(int(value)) if reason is StopReason.STEPS else float(value)
    except (ValueError, OverflowError):
        raise RequestError(f"`--until {text}`", hint=hint) from None
    if not math.isfinite(limit) or (reason is StopReason.STEPS and limit < 1):
        raise RequestError(f"`--until {text}`", hint=hint)
    return StopRule(reason=reason, limit=limit, text=text)


def _is_finite(value: float) -> bool:
    """Whether float64 can hold `value`; a whole number of TOML may have any number of digits."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean ...?` where something known is near, else a list of what is known."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    return f"known: {', '.join(names)}" if names else "there are none"
