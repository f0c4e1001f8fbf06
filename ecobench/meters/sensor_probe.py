"""The energy readings of every NVIDIA board, polled as quickly as calibration wants them.

They are the very readings of a run, by the same calls in the same scope, so that what is found is true of those. Only
the pace differs: calibration looks for the instants at which a sensor updates.
"""

import dataclasses
import os
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ecobench.errors import MeterError
from ecobench.measurement import MeterInfo, ReadingKind
from ecobench.meters.nvml import find_nvml
from ecobench.nvml import close_driver, find_boards, open_driver, read_versions
from ecobench.seams import Meter, Sample

QUICK_NS = 4_000_000
# An average over a second moves little meanwhile, and is read in one call with much else.
AVERAGE_NS = 20_000_000


class ProbedBoard(NamedTuple):
    """One board, and the readings that it gives."""

    uuid: str
    name: str
    meters: tuple["QuickMeter", ...]


class QuickMeter:
    """A meter that is asked more often."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        period_ns = AVERAGE_NS if meter.info.kind is ReadingKind.AVERAGE_POWER else QUICK_NS
        self._info = dataclasses.replace(meter.info, period_ns=period_ns)

    @property
    def info(self) -> MeterInfo:
        return self._info

    def read(self, times_ns: Sequence[int]) -> Sequence[Sample]:
        return self._meter.read(times_ns)

    def close(self) -> None:
        """Each wave closes its meters; these serve all waves."""

    def end(self) -> None:
        self._meter.close()


def driver_version() -> str | None:
    """The driver that is loaded; None where there is none."""
    try:
        open_driver()
    except MeterError:
        return None
    try:
        return read_versions().driver
    finally:
        close_driver()


def open_probes() -> list[ProbedBoard]:
    """Every board that tells its power or energy.

    Raises:
        MeterError: there is no driver, or no such board.
    """
    open_driver()
    try:
        names = {board.uuid: board.name for board in find_boards().found}
        found = find_nvml(None, root_pid=os.getpid())
    finally:
        close_driver()
    by_uuid: defaultdict[str, list[QuickMeter]] = defaultdict(list)
    for meter in found.meters:
        if meter.info.kind.carries_energy and meter.info.device is not None:
            by_uuid[meter.info.device].append(QuickMeter(meter))
        else:
            meter.close()
    if not by_uuid:
        raise MeterError("no GPU here tells its power or energy", hint="`ecobench doctor` shows each")
    return [ProbedBoard(uuid, names.get(uuid, "GPU"), tuple(meters)) for uuid, meters in by_uuid.items()]


def close_probes(boards: Sequence[ProbedBoard]) -> None:
    """Let go of them."""
    for board in boards:
        for meter in board.meters:
            meter.end()
