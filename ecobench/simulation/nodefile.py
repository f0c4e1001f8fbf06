"""Node files: the constants of a simulated node, each with its source or the word `assumed`.

A constant is `name = { value = 1980, source = "..." }`. What has no source is refused, and so is what is not known.
"""

import math
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from ecobench.errors import RequestError
from ecobench.parameters import suggest
from ecobench.simulation.node import Board, Host, Load

NODES = Path(__file__).parent / "nodes"

T = TypeVar("T", Board, Host, Load)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A simulated node.

    Attributes:
        host: None where only the boards are modelled.
        loads: by name, what workloads ask of a board.
        sources: where each constant comes from, by `table.name`.
    """

    name: str
    summary: str
    n_boards: int
    capability: tuple[int, int]
    memory_gib: int
    board: Board
    host: Host | None
    loads: dict[str, Load]
    sources: dict[str, str]


def known_nodes() -> list[str]:
    """Names of the nodes that are built in."""
    return sorted(path.stem for path in NODES.glob("*.toml"))


def find_node(name_or_path: str) -> Node:
    """The node of that name, or in that file.

    Raises:
        RequestError: there is none, or its file is wrong.
    """
    path = NODES / f"{name_or_path}.toml"
    if name_or_path not in known_nodes():
        path = Path(name_or_path)
        if path.suffix != ".toml":
            raise RequestError(f"no simulated node `{name_or_path}`", hint=suggest(name_or_path, known_nodes()))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: {error}", hint="a node file is TOML, as the built-in ones are") from None
    return parse_node(text, where=str(path) if path.parent != NODES else path.name)


def parse_node(text: str, *, where: str) -> Node:
    """The node that `text` describes.

    Raises:
        RequestError: a constant is missing, unknown, or without a source.
    """
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where}: {error}", hint="it is not TOML") from None
    sources: dict[str, str] = {}
    known = {"name", "summary", "n_boards", "capability", "memory_gib", "board", "host", "loads"}
    _refuse_unknown(set(table), known, where=where)
    name, summary, n_boards = table.get("name"), table.get("summary", ""), table.get("n_boards")
    if not isinstance(name, str) or not isinstance(summary, str) or type(n_boards) is not int or n_boards < 1:
        raise RequestError(f"{where}: a node has a name, a summary and n_boards from 1", hint="see the built-in nodes")
    capability, memory_gib = table.get("capability"), table.get("memory_gib")
    is_capability = isinstance(capability, list) and [type(one) for one in capability] == [int, int]
    if not is_capability or not isinstance(capability, list) or type(memory_gib) is not int or memory_gib < 1:
        raise RequestError(f"{where}: a node has a capability and memory_gib", hint="capability = [9, 0]")
    board = table.get("board")
    model = board.pop("name", None) if isinstance(board, dict) else None
    if not isinstance(model, str):
        raise RequestError(f"{where}: [board] has no name", hint='name = "NVIDIA H100 80GB HBM3"')
    return Node(
        name=name,
        summary=summary,
        n_boards=n_boards,
        capability=(int(capability[0]), int(capability[1])),
        memory_gib=memory_gib,
        board=_parse(Board, board, sources, where=where, table="board", name=model),
        host=_parse(Host, table["host"], sources, where=where, table="host") if "host" in table else None,
        loads={
            key: _parse(Load, value, sources, where=where, table=f"loads.{key}")
            for key, value in table.get("loads", {}).items()
        },
        sources=sources,
    )


def _parse(kind: type[T], raw: object, sources: dict[str, str], *, where: str, table: str, **given: str) -> T:
    if not isinstance(raw, dict):
        raise RequestError(f"{where}: no [{table}]", hint="see the built-in nodes")
    names = [one.name for one in fields(kind) if one.name not in given]
    _refuse_unknown(set(raw), set(names), where=f"{where}: [{table}]")
    values: dict[str, Any] = dict(given)
    for name in names:
        constant = raw.get(name)
        if not isinstance(constant, dict) or set(constant) != {"value", "source"} or not constant["source"]:
            raise RequestError(
                f"{where}: [{table}] {name} is not a value with its source",
                hint=f'{name} = {{ value = 1.0, source = "assumed" }}',
            )
        value = constant["value"]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise RequestError(f"{where}: [{table}] {name} = {value!r}", hint="it is a finite number")
        if value < 0:
            raise RequestError(f"{where}: [{table}] {name} = {value!r}", hint="it is a number from 0")
        values[name] = float(value)
        sources[f"{table}.{name}"] = str(constant["source"])
    try:
        return kind(**values)
    except ValueError as error:
        raise RequestError(
            f"{where}: [{table}] {error}", hint="clock, memory and communication make all of it"
        ) from None


def _refuse_unknown(found: set[str], known: set[str], *, where: str) -> None:
    for name in sorted(found - known):
        raise RequestError(f"{where}: unknown `{name}`", hint=suggest(name, known))
