"""What may be typed for a power limit or a clock, and what it comes to on each GPU. Pure.

    85%             of each GPU's own default limit        595W, 0.6kW      watts
    default         min             max                    what the board says of itself
    0:300W,1:280W   by index, the others stay              300W,280W        one for each GPU, in order of index

A bare number is refused: 300 may be watts or a typing error for 30 %. What is out of range is refused, never clamped:
a limit that silently became another one would be measured under the wrong name.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ecobench.errors import RequestError
from ecobench.records import GpuSetting

WAYS = "write 85% (of the default limit), 300W or 0.6kW, default, min or max; by GPU: 0:300W,1:280W"
WORDS = ("default", "min", "max")
_NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(%|w|kw)?", re.IGNORECASE)
_MHZ = re.compile(r"(\d+)\s*(?:mhz)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRange:
    """What one board says of its own power limit, and of its clock where it does."""

    index: int
    uuid: str
    name: str
    min_w: float
    default_w: float
    max_w: float
    max_clock_mhz: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedLimit:
    """A limit that was asked for, in watts on one board.

    Attributes:
        text: how it came about: `85 % of default 700 W = 595 W, range 200 to 700 W`.
    """

    watts: float
    text: str


def resolve_limits(typed: str, boards: Sequence[LimitRange]) -> dict[str, ResolvedLimit]:
    """The limit of each board that `typed` names, by UUID.

    Raises:
        RequestError: it cannot be understood, names a GPU that is not there, or is out of a board's range.
    """
    return {board.uuid: _resolve(one, board) for board, one in _pair(typed, boards)}


def resolve_settings(
    power_limit: str | None, sm_clock: str | None, boards: Sequence[LimitRange]
) -> tuple[GpuSetting, ...]:
    """What a run sets on each board that it sets anything on.

    Raises:
        RequestError: it cannot be understood, names a GPU that is not there, or is out of a board's range.
    """
    limits = resolve_limits(power_limit, boards) if power_limit is not None else {}
    clock_mhz = parse_clock(sm_clock, boards) if sm_clock is not None else None
    settings = []
    for board in boards:
        limit = limits.get(board.uuid)
        if limit is None and clock_mhz is None:
            continue
        texts = [limit.text] if limit is not None else []
        texts += [f"SM clock locked to {clock_mhz} MHz"] if clock_mhz is not None else []
        settings.append(
            GpuSetting(
                uuid=board.uuid,
                index=board.index,
                name=board.name,
                limit_w=limit.watts if limit is not None else None,
                sm_clock_mhz=clock_mhz,
                text="; ".join(texts),
            )
        )
    return tuple(settings)


def check_limit_text(typed: str) -> None:
    """Refuse what is no limit on any board, before there is one to ask.

    Raises:
        RequestError: it cannot be understood.
    """
    for part in _split(typed):
        text = part.rpartition(":")[2].strip()
        if text.lower() not in WORDS:
            _parse_amount(text)


def parse_clock(typed: str, boards: Sequence[LimitRange]) -> int:
    """The SM clock that `typed` names, in MHz.

    Raises:
        RequestError: it is no whole number of MHz, or more than a board can do.
    """
    match = _MHZ.fullmatch(typed.strip())
    if match is None or int(match[1]) == 0:
        raise RequestError(f"--sm-clock {typed}: not a clock", hint="write whole MHz: --sm-clock 1500")
    clock_mhz = int(match[1])
    for board in boards:
        if board.max_clock_mhz is not None and clock_mhz > board.max_clock_mhz:
            raise RequestError(
                f"--sm-clock {typed}: GPU {board.index} ({board.name}) goes up to {board.max_clock_mhz} MHz",
                hint=f"ask for {board.max_clock_mhz} MHz or less",
            )
    return clock_mhz


def _split(typed: str) -> list[str]:
    parts = [part.strip() for part in typed.split(",")]
    if not all(parts):
        raise RequestError(f"--power-limit {typed}: an empty part", hint=WAYS)
    return parts


def _pair(typed: str, boards: Sequence[LimitRange]) -> list[tuple[LimitRange, str]]:
    parts = _split(typed)
    if any(":" in part for part in parts):
        return _pair_by_index(typed, parts, {board.index: board for board in boards})
    if len(parts) == 1:
        return [(board, parts[0]) for board in boards]
    if len(parts) != len(boards):
        raise RequestError(
            f"--power-limit {typed}: {len(parts)} limits for {len(boards)} GPU{'s' if len(boards) != 1 else ''}",
            hint="give one limit for all, one for each, or by index: 0:300W,1:280W",
        )
    return list(zip(sorted(boards, key=lambda board: board.index), parts, strict=True))


def _pair_by_index(typed: str, parts: Sequence[str], boards: Mapping[int, LimitRange]) -> list[tuple[LimitRange, str]]:
    pairs: dict[int, tuple[LimitRange, str]] = {}
    for part in parts:
        index_text, _, limit_text = part.partition(":")
        if not index_text.strip().isdecimal() or not limit_text.strip():
            raise RequestError(f"--power-limit {typed}: `{part}` is not INDEX:LIMIT", hint=WAYS)
        index = int(index_text)
        if index not in boards:
            there = ", ".join(map(str, sorted(boards))) or "none"
            raise RequestError(f"--power-limit {typed}: there is no GPU {index}", hint=f"there are: {there}")
        if index in pairs:
            raise RequestError(f"--power-limit {typed}: GPU {index} twice", hint=WAYS)
        pairs[index] = (boards[index], limit_text.strip())
    return list(pairs.values())


def _resolve(typed: str, board: LimitRange) -> ResolvedLimit:
    word = typed.lower()
    limits = f"range {board.min_w:g} to {board.max_w:g} W"
    if word in WORDS:
        watts = {"default": board.default_w, "min": board.min_w, "max": board.max_w}[word]
        return ResolvedLimit(watts=watts, text=f"{word} = {watts:g} W, {limits}")
    number, unit = _parse_amount(typed)
    if unit == "%":
        watts = _to_milliwatts(number / 100 * board.default_w)
        text = f"{number:g} % of default {board.default_w:g} W = {watts:g} W, {limits}"
    else:
        watts = _to_milliwatts(number * (1000 if unit == "kw" else 1))
        text = f"{watts:g} W, {limits}"
    if not board.min_w <= watts <= board.max_w:
        raise RequestError(
            f"--power-limit {typed}: {watts:g} W is out of range on GPU {board.index} ({board.name}): "
            f"{board.min_w:g} to {board.max_w:g} W",
            hint=f"ask for {board.min_w:g} to {board.max_w:g} W ({math.ceil(100 * board.min_w / board.default_w)}% to "
            f"{math.floor(100 * board.max_w / board.default_w)}% of the default {board.default_w:g} W)",
        )
    return ResolvedLimit(watts=watts, text=text)


def _parse_amount(typed: str) -> tuple[float, str]:
    """A number and its unit: `w`, `kw` or `%`."""
    match = _NUMBER.fullmatch(typed.lower())
    if match is None:
        raise RequestError(f"--power-limit {typed}: not a limit", hint=WAYS)
    if match[2] is None:
        raise RequestError(
            f"--power-limit {typed}: {typed} what?",
            hint=f"write {typed}W for watts or {typed}% for a share of the default limit",
        )
    return float(match[1]), match[2]


def _to_milliwatts(watts: float) -> float:
    """To whole milliwatts, as the driver takes them: 0.57 * 700 is 398.99999999999994 in binary."""
    return round(watts, 3)
