"""Which meters a trial uses, and which it could have used and does not, with the reason."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from ecobench.errors import MeterError, RequestError
from ecobench.measurement import MeterAbsence
from ecobench.meters.estimate import EstimateMeter
from ecobench.meters.powercap import find_powercap
from ecobench.seams import Meter

CHOICES = ("auto", "nvml", "rapl", "estimate", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """Meters that are open, and those that are absent."""

    meters: tuple[Meter, ...]
    absences: tuple[MeterAbsence, ...]


def discover(choice: str, *, root_pid: int, gpu_uuids: Sequence[str] | None = None) -> Discovery:
    """The meters of `choice`: `auto` (GPUs where a driver answers, and RAPL; without either the estimate), `nvml`,
    `rapl`, `estimate` or `none`.

    Args:
        choice: one of `CHOICES`.
        root_pid: root of the process tree that the workload is in or will be in; it is not counted itself.
        gpu_uuids: the GPUs that the run is about; None: all that answer.

    Raises:
        RequestError: no such choice.
        MeterError: the meter that was asked for is not there, or may not be used.
    """
    if choice not in CHOICES:
        close = difflib.get_close_matches(choice, CHOICES, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"one of {', '.join(CHOICES)}"
        raise RequestError(f"no meter is called `{choice}`", hint=hint)
    if choice == "none":
        return Discovery(meters=(), absences=())
    if choice == "estimate":
        return Discovery(meters=(_open_estimate(root_pid),), absences=())
    gpus = _find_gpus(gpu_uuids, root_pid) if choice in ("auto", "nvml") else Discovery(meters=(), absences=())
    if choice == "nvml":
        return _only("NVML", gpus.meters, gpus.absences)
    found = find_powercap()
    if choice == "rapl":
        return _only("RAPL", found.meters, found.absences)
    absences = (*gpus.absences, *found.absences)
    return Discovery(meters=(*gpus.meters, *found.meters) or (_open_estimate(root_pid),), absences=absences)


def _only(name: str, meters: tuple[Meter, ...], absences: tuple[MeterAbsence, ...]) -> Discovery:
    """The meters that were asked for by name, which must be there."""
    if meters:
        return Discovery(meters=meters, absences=absences)
    cause = next((absence for absence in absences if absence.remedy is not None), absences[0])
    raise MeterError(
        f"{name} cannot be used: {cause.reason}",
        hint=cause.remedy or "`--meter estimate` counts CPU time instead, `--meter none` nothing",
    )


def _find_gpus(uuids: Sequence[str] | None, root_pid: int) -> Discovery:
    try:
        from ecobench.meters.nvml import find_nvml  # noqa: PLC0415  # a driver is loaded only where GPUs are meant
    except ImportError as error:
        reason = f"its package cannot be used: {error}"
        absence = MeterAbsence(interface="nvml", domain=None, reason=reason, remedy="pip install nvidia-ml-py")
        return Discovery(meters=(), absences=(absence,))
    found = find_nvml(uuids, root_pid=root_pid)
    return Discovery(meters=found.meters, absences=found.absences)


def _open_estimate(root_pid: int) -> Meter:
    try:
        return EstimateMeter(root_pid)
    except psutil.Error as error:
        raise MeterError(f"CPU time of process {root_pid} cannot be read: {type(error).__name__}") from error
