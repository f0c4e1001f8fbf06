"""Which GPUs a run is about: from what was typed, or from what CUDA would see. Pure.

`CUDA_VISIBLE_DEVICES` holds indices or UUIDs (or the start of one), and ends at -1. Its indices are the driver's own
only where `CUDA_DEVICE_ORDER=PCI_BUS_ID`, or where all boards are alike: CUDA otherwise puts the fastest first.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ecobench.errors import RequestError

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_INDEX = re.compile(r"\d{1,4}")
_HIDDEN = ("-1", "nodevfiles", "none", "void")


@dataclass(frozen=True, slots=True)
class GpuId:
    """One board: the driver's index, its UUID and its name."""

    index: int
    uuid: str
    name: str


class Selection(NamedTuple):
    """The GPUs of a run in the order of cuda:0, cuda:1, ...; and how they came about."""

    gpus: tuple[GpuId, ...]
    text: str


def select_gpus(typed: str | None, environment: Mapping[str, str], boards: Sequence[GpuId]) -> Selection:
    """The GPUs of `--gpus` (`0,1`, UUIDs, `all`), else those of `CUDA_VISIBLE_DEVICES`, else all.

    Raises:
        RequestError: one that is named is not there, is named twice, or cannot be told.
    """
    if typed is not None:
        if typed.strip().lower() == "all":
            return Selection(tuple(boards), "--gpus all")
        return Selection(_named(_split(typed), boards, option=f"--gpus {typed}"), f"--gpus {typed}")
    value = environment.get(VISIBLE)
    if value is None:
        return Selection(tuple(boards), "all there are")
    option = f"{VISIBLE}={value}"
    entries: list[str] = []
    for entry in _split(value):
        if entry.lower() in _HIDDEN or not entry:
            break
        entries.append(entry)
    is_by_index = any(_INDEX.fullmatch(entry) for entry in entries)
    is_pci_order = environment.get(ORDER, "").strip().upper() == "PCI_BUS_ID"
    if is_by_index and not is_pci_order and len({board.name for board in boards}) > 1:
        raise RequestError(
            f"{option}: which GPUs these are depends on CUDA's own order, fastest first, and the boards here differ",
            hint=f"set {ORDER}=PCI_BUS_ID, or name UUIDs (`ecobench doctor` lists them), or use --gpus",
        )
    return Selection(_named(entries, boards, option=option), option)


def visible(gpus: Sequence[GpuId]) -> dict[str, str]:
    """The environment in which a program sees these GPUs, in this order, whatever their indices."""
    return {VISIBLE: ",".join(gpu.uuid for gpu in gpus), ORDER: "PCI_BUS_ID"}


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _named(entries: Sequence[str], boards: Sequence[GpuId], *, option: str) -> tuple[GpuId, ...]:
    chosen: list[GpuId] = []
    for entry in entries:
        one = _find(entry, boards, option=option)
        if one in chosen:
            raise RequestError(f"{option}: GPU {one.index} is named twice", hint="name each once")
        chosen.append(one)
    return tuple(chosen)


def _find(entry: str, boards: Sequence[GpuId], *, option: str) -> GpuId:
    there = ", ".join(str(board.index) for board in boards) or "none"
    if entry.upper().startswith("MIG-"):
        raise RequestError(
            f"{option}: a MIG instance has no energy of its own, only its whole board has",
            hint="turn MIG off (sudo nvidia-smi -i INDEX -mig 0) and name the board, or use --meter rapl or none",
        )
    if _INDEX.fullmatch(entry):
        found = [board for board in boards if board.index == int(entry)]
    else:
        found = [board for board in boards if len(entry) > 4 and board.uuid.lower().startswith(entry.lower())]
    if len(found) > 1:
        raise RequestError(f"{option}: `{entry}` begins several UUIDs", hint="write more of it")
    if not found:
        raise RequestError(
            f"{option}: no GPU `{entry}` answers",
            hint=f"there are {there}; write indices like 0,1, UUIDs, or all; `ecobench doctor` lists them",
        )
    return found[0]
