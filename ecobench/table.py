"""A table of a TOML file, read key by key: what is missing, of another type, or not known is an error with a remedy."""

import math
from collections.abc import Mapping
from typing import TypeVar

from ecobench.errors import ManifestError
from ecobench.parameters import suggest

T = TypeVar("T")


class TableReader:
    """A TOML table that is emptied key by key; what is left over at the end was not understood."""

    def __init__(self, table: Mapping[str, object], *, where: str) -> None:
        self._table = dict(table)
        self._taken: list[str] = []
        self.where = where

    def take(self, key: str, kind: type[T]) -> T:
        if key not in self._table:
            near = suggest(key, self._table) if self._table else "the table is empty"
            raise ManifestError(
                f"{self.where}: `{key}` is missing", hint=near.replace("did you mean", "is it written as")
            )
        value = self.take_or(key, kind, None)
        assert value is not None
        return value

    def take_or(self, key: str, kind: type[T], default: T | None) -> T | None:
        self._taken.append(key)
        if key not in self._table:
            return default
        value = self._table.pop(key)
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            value = finite_float(value, where=f"{self.where}: `{key}`")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ManifestError(f"{self.where}: `{key}` is {value!r}", hint=f"it is a {kind.__name__}")
        return value

    def table(self, key: str) -> "TableReader":
        return TableReader(self.take_or(key, dict, {}) or {}, where=f"{self.where}: {key}")

    def table_or_none(self, key: str) -> "TableReader | None":
        is_there = key in self._table
        found = self.table(key)
        return found if is_there else None

    def tables(self, key: str) -> dict[str, "TableReader"]:
        found = {}
        for name, value in (self.take_or(key, dict, {}) or {}).items():
            if not isinstance(value, dict):
                raise ManifestError(f"{self.where}: {key}.{name} is {value!r}", hint=f"it is a table, [{key}.{name}]")
            found[name] = TableReader(value, where=f"{self.where}: {key}.{name}")
        return found

    def rest(self) -> dict[str, object]:
        return dict(self._table)

    def close(self) -> None:
        for key in self._table:
            raise ManifestError(f"{self.where}: unknown key `{key}`", hint=suggest(key, self._taken))


def finite_float(value: float, *, where: str) -> float:
    """A number that float64 holds.

    Raises:
        ManifestError: it does not.
    """
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ManifestError(f"{where} is {str(value)[:40]}", hint="it is a finite number")
    return number
