"""The three energy readings of every NVIDIA board, polled as quickly as calibration wants it.

A run polls what it needs; calibration looks for the very instants at which a sensor updates, so it asks every 4 ms and
for nothing else. What a board does not tell is not opened.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pynvml

from ecobench.errors import MeterError
from ecobench.measurement import Boundary, Evidence, Interval, MeterInfo, ReadingKind
from ecobench.seams import Sample

PERIOD_NS = 4_000_000
UNCALIBRATED = Interval(low=-0.05, high=0.05)

Read = Callable[[Any], int]


class ProbedBoard(NamedTuple):
    """One board, and the readings that it gives."""

    uuid: str
    name: str
    meters: tuple["ProbeMeter", ...]


class ProbeMeter:
    """One reading of one board."""

    def __init__(self, handle: Any, read: Read, info: MeterInfo) -> None:
        self._handle = handle
        self._read = read
        self._info = info

    @property
    def info(self) -> MeterInfo:
        return self._info

    def read(self, times_ns: Sequence[int]) -> list[Sample]:  # noqa: ARG002  # a live meter reads the present
        start_ns = time.monotonic_ns()
        raw, error = None, None
        try:
            raw = self._read(self._handle)
        except pynvml.NVMLError as failure:
            error = str(failure)
        stop_ns = time.monotonic_ns()
        return [Sample(time_ns=(start_ns + stop_ns) // 2, raw=raw, call_ns=stop_ns - start_ns, error=error)]

    def close(self) -> None:
        """Nothing of its own to let go of."""


def driver_version() -> str | None:
    """The driver that is loaded; None where there is none."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def open_probes() -> list[ProbedBoard]:
    """Every board that answers, with its readings; the driver stays open.

    Raises:
        MeterError: there is no driver, or no board.
    """
    try:
        pynvml.nvmlInit()
        n = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise MeterError(f"there is no NVIDIA driver to calibrate with: {error}", hint="see `nvidia-smi`") from error
    boards = []
    for index in range(n):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid, name = str(pynvml.nvmlDeviceGetUUID(handle)), str(pynvml.nvmlDeviceGetName(handle))
        except pynvml.NVMLError:  # off the bus: the others go on
            continue
        boards.append(ProbedBoard(uuid=uuid, name=name, meters=_meters(index, uuid, handle)))
    if not any(board.meters for board in boards):
        raise MeterError("no GPU here tells its power or energy", hint="`ecobench doctor` shows each")
    return boards


def close_probes() -> None:
    """Let go of the driver."""
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def _meters(index: int, uuid: str, handle: Any) -> tuple[ProbeMeter, ...]:
    ways: tuple[tuple[ReadingKind, Read, str], ...] = (
        (
            ReadingKind.ENERGY_COUNTER,
            lambda one: int(pynvml.nvmlDeviceGetTotalEnergyConsumption(one)),
            "energy counter",
        ),
        (ReadingKind.INSTANT_POWER, lambda one: _field(one, pynvml.NVML_FI_DEV_POWER_INSTANT), "instant power"),
        (ReadingKind.AVERAGE_POWER, lambda one: _field(one, pynvml.NVML_FI_DEV_POWER_AVERAGE), "average power"),
    )
    meters = []
    for kind, read, counted in ways:
        info = MeterInfo(
            domain=f"gpu:{index}",
            kind=kind,
            interface="nvml",
            boundary=Boundary.GPU,
            evidence=Evidence.G1 if kind is ReadingKind.ENERGY_COUNTER else Evidence.G0,
            si_per_count=0.001,
            period_ns=PERIOD_NS,
            wraps_at_count=None,
            max_power_w=None,
            instrument_share=UNCALIBRATED,
            counted=f"{counted} of the board",
            basis="polled for calibration",
            device=uuid,
        )
        meter = ProbeMeter(handle, read, info)
        if meter.read((0,))[0].raw is not None:
            meters.append(meter)
    return tuple(meters)


def _field(handle: Any, field: int) -> int:
    (value,) = pynvml.nvmlDeviceGetFieldValues(handle, [field])
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(value.nvmlReturn)
    return int(value.value.uiVal)
