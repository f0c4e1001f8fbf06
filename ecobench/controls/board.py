"""One NVIDIA board as its driver shows it: what may be set, what is set, and the setting of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

from ecobench import nvml
from ecobench.errors import ControlError, MeterError
from ecobench.hardware import Gpu
from ecobench.limits import LimitRange
from ecobench.nvml import close_driver
from ecobench.records import LimitState

__all__ = ["REMEDIES", "Board", "close_driver", "describe_boards", "find_board", "find_boards", "open_driver"]

T = TypeVar("T")

REMEDIES = (
    "run ecobench as root (sudo -E ecobench ...); or let zeusd do it and set ZEUSD_SOCK_PATH; or set "
    "ECOBENCH_POWER_COMMAND='sudo -n nvidia-smi -i {uuid} -pl {watts}' where you may; in a container, start it with "
    "--cap-add SYS_ADMIN; or ask the machine's administrator. Without --power-limit and --sm-clock nothing is set"
)


def open_driver() -> None:
    """Load the driver's library; each call wants one `close_driver`.

    Raises:
        ControlError: there is none, or it does not work.
    """
    try:
        nvml.open_driver()
    except MeterError as error:
        raise ControlError(
            f"there is no NVIDIA driver to set anything with: {error.message}",
            hint=f"leave out --power-limit and --sm-clock, or: {error.hint}",
        ) from error


@dataclass(frozen=True, slots=True)
class Board:
    """A handle on one board; the driver must be open."""

    index: int
    uuid: str
    name: str
    handle: Any

    def range(self) -> LimitRange:
        """What may be set.

        Raises:
            ControlError: the board has no power limit that can be set.
        """
        low_mw, high_mw = self._ask(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, self.handle)
        default_mw = self._ask(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, self.handle)
        try:
            clock_mhz = int(pynvml.nvmlDeviceGetMaxClockInfo(self.handle, pynvml.NVML_CLOCK_SM))
        except pynvml.NVMLError:
            clock_mhz = None
        return LimitRange(
            index=self.index,
            uuid=self.uuid,
            name=self.name,
            min_w=low_mw / 1000,
            default_w=default_mw / 1000,
            max_w=high_mw / 1000,
            max_clock_mhz=clock_mhz,
        )

    def state(self) -> LimitState:
        """What is set: requested, and enforced by all limiters, out-of-band ones too.

        Raises:
            ControlError: the board does not answer.
        """
        requested_mw = self._ask(pynvml.nvmlDeviceGetPowerManagementLimit, self.handle)
        enforced_mw = self._ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, self.handle)
        try:
            persistence = bool(pynvml.nvmlDeviceGetPersistenceMode(self.handle))
        except pynvml.NVMLError:
            persistence = None
        return LimitState(requested_w=requested_mw / 1000, enforced_w=enforced_mw / 1000, persistence=persistence)

    def set_limit(self, watts: float) -> None:
        self._ask(pynvml.nvmlDeviceSetPowerManagementLimit, self.handle, round(watts * 1000))

    def lock_clock(self, clock_mhz: int) -> None:
        self._ask(pynvml.nvmlDeviceSetGpuLockedClocks, self.handle, clock_mhz, clock_mhz)

    def reset_clock(self) -> None:
        self._ask(pynvml.nvmlDeviceResetGpuLockedClocks, self.handle)

    def set_persistence(self, *, is_on: bool) -> None:
        self._ask(pynvml.nvmlDeviceSetPersistenceMode, self.handle, int(is_on))

    def _ask(self, function: Callable[..., T], *arguments: object) -> T:
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            who = f"GPU {self.index} ({self.name})"
            if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
                raise ControlError(f"no permission to set {who}", hint=REMEDIES) from error
            what = function.__name__.removeprefix("nvmlDevice")
            raise ControlError(f"{who}: {what}: {error}", hint=f"see `nvidia-smi -i {self.index} -q`") from error


def find_boards() -> tuple[Board, ...]:
    """Every board that answers, in the driver's order. One that is lost hides no other."""
    return tuple(Board(one.index, one.uuid, one.name, one.handle) for one in nvml.find_boards().found)


def find_board(uuid: str) -> Board:
    """The board of that UUID, wherever it stands now.

    Raises:
        ControlError: it is not there.
    """
    for board in find_boards():
        if board.uuid == uuid:
            return board
    raise ControlError(f"GPU {uuid} does not answer", hint="see `nvidia-smi -L`; a lost GPU wants a reset or a reboot")


def describe_boards(uuids: Sequence[str] | None = None) -> tuple[Gpu, ...]:
    """What the GPUs with these UUIDs are (None: all of this machine); none where there is no driver. Loads the driver,
    and lets go of it.
    """
    try:
        nvml.open_driver()
    except MeterError:
        return ()
    try:
        gpus = []
        for board in (one for one in find_boards() if uuids is None or one.uuid in uuids):
            try:
                memory_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(board.handle).total)
                capability = tuple(pynvml.nvmlDeviceGetCudaComputeCapability(board.handle))
            except pynvml.NVMLError:
                continue
            gpus.append(Gpu(name=board.name, memory_bytes=memory_bytes, capability=(capability[0], capability[1])))
        return tuple(gpus)
    finally:
        close_driver()
