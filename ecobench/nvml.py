"""The one opener of NVIDIA's driver library (NVML), and the boards that it knows. Nothing is set here.

Boards are numbered as the driver numbers them (PCI order); what stays is the UUID. One that is lost hides no other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pynvml

from ecobench.errors import MeterError

T = TypeVar("T")

_REMEDIES = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "no NVIDIA driver: there is no libnvidia-ml.so.1",
        "where there is an NVIDIA GPU, install its driver; in a container, start it with --gpus all",
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA driver is installed but not loaded",
        "sudo modprobe nvidia; `nvidia-smi` and `dmesg` say why where that fails",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA driver and its library are of different versions",
        "the driver was updated under a running one: reboot, or reload its modules; restart a container",
    ),
}


class DriverVersions(NamedTuple):
    """What the open driver says of itself; None for what it does not tell."""

    driver: str | None
    nvml: str | None
    cuda: str | None


@dataclass(frozen=True, slots=True)
class FoundBoard:
    """A board that answers; its handle holds as long as the driver is open."""

    index: int
    uuid: str
    name: str
    handle: Any


@dataclass(frozen=True, slots=True)
class LostBoard:
    """A board that is there and does not answer."""

    index: int
    reason: str


class Limits(NamedTuple):
    """Power limits of a board in W; None for what it does not tell."""

    requested_w: float | None
    enforced_w: float | None
    default_w: float | None
    min_w: float | None
    max_w: float | None


class Boards(NamedTuple):
    """All boards in the driver's order."""

    found: tuple[FoundBoard, ...]
    lost: tuple[LostBoard, ...]


def open_driver() -> None:
    """Load the driver's library, or count one user more; each call wants one `close_driver`.

    Raises:
        MeterError: there is none, or it does not work.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        default = (f"the NVIDIA driver does not work: {reason_of(error)}", "`nvidia-smi` may say more")
        message, hint = _REMEDIES.get(error.value, default)
        raise MeterError(message, hint=hint) from error


def close_driver() -> None:
    """Let go of the driver once."""
    try:
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:  # lost with its last board: there is nothing left to let go of
        return


def read_versions() -> DriverVersions:
    """Of the open driver."""
    cuda = ask(pynvml.nvmlSystemGetCudaDriverVersion)
    return DriverVersions(
        driver=ask(pynvml.nvmlSystemGetDriverVersion),
        nvml=ask(pynvml.nvmlSystemGetNVMLVersion),
        cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
    )


def find_boards() -> Boards:
    """Every board of the open driver, those that answer and those that do not."""
    found, lost = [], []
    for index in range(ask(pynvml.nvmlDeviceGetCount) or 0):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
        except pynvml.NVMLError as error:
            lost.append(LostBoard(index, reason_of(error)))
        else:
            found.append(FoundBoard(index, uuid, name, handle))
    return Boards(tuple(found), tuple(lost))


def read_limits(board: FoundBoard) -> Limits:
    """As they stand now."""
    low_mw, high_mw = ask(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, board.handle) or (None, None)
    single = (
        ask(pynvml.nvmlDeviceGetPowerManagementLimit, board.handle),
        ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, board.handle),
        ask(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, board.handle),
    )
    return Limits(*(None if one is None else one / 1000 for one in (*single, low_mw, high_mw)))


def has_mig(board: FoundBoard) -> bool:
    """Whether the board is cut into instances now."""
    modes = ask(pynvml.nvmlDeviceGetMigMode, board.handle)
    return modes is not None and bool(modes[0] == pynvml.NVML_DEVICE_MIG_ENABLE)


def is_virtual(board: FoundBoard) -> bool:
    """Whether this is a share of a board that a hypervisor hands out."""
    mode = ask(pynvml.nvmlDeviceGetVirtualizationMode, board.handle)
    return bool(mode == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU)


def compute_pids(board: FoundBoard) -> tuple[int, ...] | None:
    """Processes that compute on the board, by their number on the host; None where it does not tell."""
    processes = ask(pynvml.nvmlDeviceGetComputeRunningProcesses, board.handle)
    return None if processes is None else tuple(process.pid for process in processes)


def ask(function: Callable[..., T], *arguments: object) -> T | None:
    """What the driver answers; None where it gives no answer."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None


def reason_of(error: pynvml.NVMLError) -> str:
    """In the driver's words."""
    return str(error)
