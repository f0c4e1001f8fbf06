"""NVIDIA GPUs: energy counter (`G1`), polled power (`G0`), and under which conditions they run.

    50 Hz   energy counter, instant power               one call a board
    2 Hz    1 s average, limits, time held back, ...    one call a board; twice within the second that is averaged
    1 Hz    clock, temperature, utilisation, memory, other people's processes

A board with neither counter nor power, one cut into MIG instances and a virtual one are refused by name: a `gpu` figure
without one of its GPUs is none. On a module (Grace) the counter counts the processor too; there the GPU's own power is
the answer, and the counter is left out.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pynvml

from ecobench.errors import MeterError
from ecobench.measurement import Boundary, Evidence, Interval, MeterAbsence, MeterInfo, ReadingKind
from ecobench.meters.nvml_reading import Field, FieldPass, ForeignProcesses, call_reader, supported
from ecobench.nvml import FoundBoard, ask, close_driver, find_boards, has_mig, is_virtual, open_driver
from ecobench.seams import Meter, Sample

INTERFACE = "nvml"
FAST_NS, SLOW_NS, SLOWEST_NS = 20_000_000, 500_000_000, 1_000_000_000

# +-5 % rectangular, k = 2: 5 % x 2/sqrt 3. Source: DESIGN, section 6; no accuracy is stated for these boards.
INSTRUMENT_SHARE = 0.05 * 2 / 3**0.5
_BASIS = "uncalibrated GPU sensor: +-5 % rectangular, k = 2, fully correlated over boards"

_BOARD, _MODULE, _MEMORY = 0, 1, 2
COUNTER: Field = (83, _BOARD)
INSTANT, AVERAGE = 186, 185
_MEMORY_POWER: Field = (AVERAGE, _MEMORY)
# Quantity, its field, and what one count of it is in SI (limits come in mW, times in ns).
_SLOW_FIELDS: tuple[tuple[str, Field, float], ...] = (
    ("limit_requested_w", (192, _BOARD), 1e-3),
    ("limit_enforced_w", (190, _BOARD), 1e-3),
    ("power_cap_ns", (74, _BOARD), 1e-9),
    ("sw_thermal_ns", (269, _BOARD), 1e-9),
    ("hw_thermal_ns", (270, _BOARD), 1e-9),
    ("power_brake_ns", (271, _BOARD), 1e-9),
    ("memory_temperature_c", (82, _BOARD), 1.0),
    ("memory_power_w", _MEMORY_POWER, 1e-3),
)
# GA100 and older: `GetPowerUsage` is of now; any newer one gives the mean of a second.
_LAST_INSTANT_CAPABILITY = (8, 0)
_MIG_REMEDY = (
    "turn it off (sudo nvidia-smi -i {index} -mig 0), choose others with --gpus, or use --meter rapl, estimate or none"
)


class NvmlFound(NamedTuple):
    """Open meters, and why others are not."""

    meters: tuple[Meter, ...]
    absences: tuple[MeterAbsence, ...]


class _Session:
    """The driver held open for several meters; closed with the last of them."""

    def __init__(self) -> None:
        open_driver()
        self._n_users = 1

    def join(self) -> None:
        self._n_users += 1

    def leave(self) -> None:
        self._n_users -= 1
        if self._n_users == 0:
            close_driver()


class NvmlMeter:
    """One reading of one board. `Meter`."""

    def __init__(self, info: MeterInfo, read: Callable[[int], Sample], session: _Session) -> None:
        self._info = info
        self._read = read
        self._session = session
        self._is_open = True
        session.join()

    @property
    def info(self) -> MeterInfo:
        return self._info

    def read(self, times_ns: Sequence[int]) -> Sequence[Sample]:
        """One reading for each instant asked for, all of them now; meters of a board asked for one instant share it."""
        return [self._read(time_ns) for time_ns in times_ns]

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._session.leave()


def find_nvml(uuids: Sequence[str] | None, *, root_pid: int) -> NvmlFound:
    """The meters of the boards with these UUIDs (None: of all that answer); none where there is no driver or GPU.

    Raises:
        MeterError: a board that is meant cannot be measured.
    """
    try:
        session = _Session()
    except MeterError as error:
        return NvmlFound((), (_absence(None, error.message, error.hint),))
    meters: list[Meter] = []
    try:
        boards = find_boards()
        absences = [
            _absence(f"gpu:{lost.index}", lost.reason, "see `nvidia-smi`; a lost GPU wants a reset or a reboot")
            for lost in boards.lost
            if uuids is None
        ]
        meant = [board for board in boards.found if uuids is None or board.uuid in uuids]
        if not meant:
            absences.append(_absence(None, "no GPU is chosen" if boards.found else "the driver knows no GPU", None))
        for board in meant:
            of_board = _Board(board, session, root_pid)
            meters += of_board.meters()
            absences += of_board.absences
    except BaseException:
        for meter in meters:
            meter.close()
        raise
    finally:
        session.leave()
    return NvmlFound(tuple(meters), tuple(absences))


class _Board:
    """What one board can tell, probed once."""

    def __init__(self, board: FoundBoard, session: _Session, root_pid: int) -> None:
        self._board = board
        self._handle = board.handle
        self._session = session
        self._root_pid = root_pid
        self.absences: list[MeterAbsence] = []
        _refuse_shares(board)
        probed = [COUNTER, *((which, scope) for which in (INSTANT, AVERAGE) for scope in (_BOARD, _MODULE))]
        self._there = supported(self._handle, [*probed, *(field for _, field, _ in _SLOW_FIELDS)])
        has_own_power = bool({(INSTANT, _BOARD), (AVERAGE, _BOARD)} & self._there)
        has_module_power = bool({(INSTANT, _MODULE), (AVERAGE, _MODULE)} & self._there)
        self._is_module = has_module_power and _is_linked_to_processor(board)
        # GPU scope first: that is what the boundary `gpu` means.
        self._scope = _BOARD if has_own_power or not has_module_power else _MODULE
        limits_mw = ask(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, self._handle)
        self._max_power_w = limits_mw[1] / 1000 if limits_mw is not None and self._scope == _BOARD else None

    def meters(self) -> list[Meter]:
        energy = [*self._counter(), *self._power()]
        if not energy:
            raise MeterError(
                f"GPU {self._board.index} ({self._board.name}) has neither an energy counter nor a power reading",
                hint="choose others with --gpus, or use --meter rapl, estimate or none",
            )
        fast = FieldPass(self._handle, [one for one, _, _, period in energy if one is not None and period == FAST_NS])
        slow_powers = [one for one, _, _, period in energy if one is not None and period == SLOW_NS]
        slow_fields = [entry for entry in _SLOW_FIELDS if entry[1] in self._there]
        slow = FieldPass(self._handle, [*slow_powers, *(field for _, field, _ in slow_fields)])
        meters: list[Meter] = []
        for field, kind, call, period_ns in energy:
            read = call_reader(call) if field is None else (fast if period_ns == FAST_NS else slow).reader(field)
            meters.append(NvmlMeter(self._energy_info(kind, period_ns), read, self._session))
        for quantity, field, si_per_count in slow_fields:
            info = self._gauge_info(quantity, si_per_count, SLOW_NS)
            meters.append(NvmlMeter(info, slow.reader(field), self._session))
        return meters + self._calls()

    def _counter(self) -> list[tuple[Field | None, ReadingKind, Callable[[], int], int]]:
        kind = ReadingKind.ENERGY_COUNTER
        if self._is_module and self._scope == _BOARD:
            self._lacks("its energy counter counts the whole module, its processor too; the GPU's own power is used")
            return []
        if COUNTER in self._there:
            return [(COUNTER, kind, self._count, FAST_NS)]
        if ask(self._count) is not None:
            return [(None, kind, self._count, FAST_NS)]
        self._lacks("no energy counter (before Volta, or a virtual GPU): polled power is used")
        return []

    def _power(self) -> list[tuple[Field | None, ReadingKind, Callable[[], int], int]]:
        kinds = ((INSTANT, ReadingKind.INSTANT_POWER, FAST_NS), (AVERAGE, ReadingKind.AVERAGE_POWER, SLOW_NS))
        found: list[tuple[Field | None, ReadingKind, Callable[[], int], int]] = [
            ((which, self._scope), kind, self._usage, period_ns)
            for which, kind, period_ns in kinds
            if (which, self._scope) in self._there
        ]
        if found:
            return found
        if ask(self._usage) is None:
            self._lacks("no power reading: nothing checks its energy counter")
            return []
        capability = ask(pynvml.nvmlDeviceGetCudaComputeCapability, self._handle)
        is_instant = capability is not None and tuple(capability) <= _LAST_INSTANT_CAPABILITY
        kind = ReadingKind.INSTANT_POWER if is_instant else ReadingKind.AVERAGE_POWER
        return [(None, kind, self._usage, FAST_NS if is_instant else SLOW_NS)]

    def _calls(self) -> list[Meter]:
        handle = self._handle
        calls: dict[str, Callable[[], int]] = {
            "sm_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "utilisation_percent": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "memory_used_bytes": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used,
        }
        if (192, _BOARD) not in self._there:
            calls["limit_requested_w"] = lambda: pynvml.nvmlDeviceGetPowerManagementLimit(handle)
        if (190, _BOARD) not in self._there:
            calls["limit_enforced_w"] = lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)
        if ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) is not None:
            calls["foreign_processes"] = ForeignProcesses(handle, self._root_pid).count
        return [
            NvmlMeter(
                self._gauge_info(quantity, 1e-3 if quantity.endswith("_w") else 1.0, SLOWEST_NS),
                call_reader(call),
                self._session,
            )
            for quantity, call in calls.items()
            if ask(call) is not None
        ]

    def _count(self) -> int:
        return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))

    def _usage(self) -> int:
        return int(pynvml.nvmlDeviceGetPowerUsage(self._handle))

    def _energy_info(self, kind: ReadingKind, period_ns: int) -> MeterInfo:
        scope = "the board with its memory" if self._scope == _BOARD else "the whole module, its processor too"
        return MeterInfo(
            domain=f"gpu:{self._board.index}",
            kind=kind,
            interface=INTERFACE,
            boundary=Boundary.GPU,
            evidence=Evidence.G1 if kind is ReadingKind.ENERGY_COUNTER else Evidence.G0,
            si_per_count=1e-3,
            period_ns=period_ns,
            wraps_at_count=None,
            max_power_w=self._max_power_w,
            instrument_share=Interval(low=-INSTRUMENT_SHARE, high=INSTRUMENT_SHARE),
            counted=f"{self._board.name}: {scope}",
            basis=_BASIS,
            device=self._board.uuid,
        )

    def _gauge_info(self, quantity: str, si_per_count: float, period_ns: int) -> MeterInfo:
        return MeterInfo(
            domain=f"gpu:{self._board.index}",
            kind=ReadingKind.TIME_COUNTER if quantity.endswith("_ns") else ReadingKind.GAUGE,
            interface=INTERFACE,
            boundary=Boundary.GPU,
            evidence=Evidence.G0,
            si_per_count=si_per_count,
            period_ns=period_ns,
            wraps_at_count=None,
            max_power_w=None,
            instrument_share=Interval(low=0.0, high=0.0),
            counted=f"{self._board.name}: {quantity}",
            basis="as the driver says; its accuracy is not stated",
            quantity=quantity,
            device=self._board.uuid,
        )

    def _lacks(self, reason: str) -> None:
        self.absences.append(_absence(f"gpu:{self._board.index}", reason, None))


def _refuse_shares(board: FoundBoard) -> None:
    """Refuse a board whose power is not that of what runs on it."""
    remedy = _MIG_REMEDY.format(index=board.index)
    if has_mig(board):
        raise MeterError(
            f"GPU {board.index} ({board.name}) is cut into MIG instances: only the whole board has an energy",
            hint=remedy,
        )
    if is_virtual(board):
        raise MeterError(
            f"GPU {board.index} ({board.name}) is a virtual GPU: its power is not its own",
            hint="measure on the host, choose others with --gpus, or use --meter rapl, estimate or none",
        )


def _is_linked_to_processor(board: FoundBoard) -> bool:
    """By NVLink-C2C; a driver too old to tell leaves it to the module's power, which answered."""
    link = ask(pynvml.nvmlDeviceGetC2cModeInfoV, board.handle)
    return link is None or bool(link.isC2cEnabled)


def _absence(domain: str | None, reason: str, remedy: str | None) -> MeterAbsence:
    return MeterAbsence(interface=INTERFACE, domain=domain, reason=reason, remedy=remedy)
