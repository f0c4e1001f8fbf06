"""Which meters a trial uses, and which it could have used and does not, with the reason."""

import difflib
from dataclasses import dataclass

import psutil

from ecobench.errors import MeterError, RequestError
from ecobench.measurement import MeterAbsence
from ecobench.meters.estimate import EstimateMeter
from ecobench.meters.powercap import find_powercap
from ecobench.seams import Meter

CHOICES = ("auto", "rapl", "estimate", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """Meters that are open, and those that are absent."""

    meters: tuple[Meter, ...]
    absences: tuple[MeterAbsence, ...]


def discover(choice: str, *, root_pid: int) -> Discovery:
    """The meters of `choice`: `auto` (RAPL where it is readable, else the estimate), `rapl`, `estimate` or `none`.

    Args:
        choice: one of `CHOICES`.
        root_pid: root of the process tree that the workload is in or will be in; it is not counted itself.

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
    found = find_powercap()
    if found.meters or choice == "auto":
        return Discovery(meters=found.meters or (_open_estimate(root_pid),), absences=found.absences)
    cause = next((absence for absence in found.absences if absence.remedy is not None), found.absences[0])
    raise MeterError(
        f"RAPL cannot be used: {cause.reason}",
        hint=cause.remedy or "`--meter estimate` counts CPU time instead, `--meter none` nothing",
    )


def _open_estimate(root_pid: int) -> Meter:
    try:
        return EstimateMeter(root_pid)
    except psutil.Error as error:
        raise MeterError(f"CPU time of process {root_pid} cannot be read: {type(error).__name__}") from error
