"""How values come out of a board: field values many at a time, and single calls; each with the stamp of its call.

One pass over a board's field values serves several meters. The sampler asks all meters that are due for the same
instant; the first of a board's meters makes the pass, the others take their value from it.

NVML stamps field values itself, in wall-clock microseconds. Those stamps are not kept: whether they are of the call or
of the sensor's update differs between drivers, and the wall clock is set back and forth.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pynvml

from ecobench.seams import Sample

Field = tuple[int, int]
"""Field id and scope."""

_VALUE_OF_TYPE = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}
# The processes that a driver lists have this machine's numbers only in the first namespace.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"


class FieldPass:
    """Several field values of one board, read in one call."""

    def __init__(self, handle: Any, fields: Sequence[Field]) -> None:
        self._handle = handle
        self._fields = list(fields)
        self._asked_ns: int | None = None
        self._samples: dict[Field, Sample] = {}

    def reader(self, field: Field) -> Callable[[int], Sample]:
        """Reads one of them: the value for the instant asked for, by a new pass where there has been none for it."""
        return lambda asked_ns: self._read(field, asked_ns)

    def _read(self, field: Field, asked_ns: int) -> Sample:
        if asked_ns != self._asked_ns:
            self._pass()
            self._asked_ns = asked_ns
        return self._samples[field]

    def _pass(self) -> None:
        before_ns = time.monotonic_ns()
        values, error = None, None
        try:
            values = pynvml.nvmlDeviceGetFieldValues(self._handle, self._fields)
        except pynvml.NVMLError as problem:
            error = str(problem)
        call_ns = time.monotonic_ns() - before_ns
        middle_ns = before_ns + call_ns // 2
        for place, field in enumerate(self._fields):
            raw, why = (None, error) if values is None else _value(values[place])
            self._samples[field] = Sample(middle_ns, raw, call_ns, why)


def supported(handle: Any, fields: Sequence[Field]) -> set[Field]:
    """Those of `fields` that the board answers."""
    one = FieldPass(handle, fields)
    return {field for field in fields if one.reader(field)(0).raw is not None}


def call_reader(read: Callable[[], int]) -> Callable[[int], Sample]:
    """A reader of a single call; `asked_ns` is now."""

    def sample(asked_ns: int) -> Sample:  # noqa: ARG001  # live: it is now, whatever is asked for
        before_ns = time.monotonic_ns()
        raw, error = None, None
        try:
            raw = read()
        except pynvml.NVMLError as problem:
            error = str(problem)
        call_ns = time.monotonic_ns() - before_ns
        return Sample(before_ns + call_ns // 2, raw, call_ns, error)

    return sample


class ForeignProcesses:
    """How many of a board's processes are not the run's: what was there before it, and what is not under its root."""

    def __init__(self, handle: Any, root_pid: int) -> None:
        self._handle = handle
        self._root_pid = root_pid
        self._before = set(self._pids())
        self._is_numbered_alike = _is_first_namespace()
        self._known: dict[int, bool] = {}

    def count(self) -> int:
        return sum(1 for pid in self._pids() if self._is_foreign(pid))

    def _pids(self) -> list[int]:
        return [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)]

    def _is_foreign(self, pid: int) -> bool:
        if pid in self._before:
            return True
        if not self._is_numbered_alike:
            return False
        if pid not in self._known:
            try:
                ancestors = {parent.pid for parent in psutil.Process(pid).parents()}
            except psutil.Error:  # gone meanwhile, or hidden from us: nothing is known of it
                return False
            self._known[pid] = self._root_pid not in ancestors
        return self._known[pid]


def _value(field: Any) -> tuple[int | None, str | None]:
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        return None, str(pynvml.NVMLError(field.nvmlReturn))
    name = _VALUE_OF_TYPE.get(field.valueType)
    if name is None:
        return None, f"value of unknown type {field.valueType}"
    return round(getattr(field.value, name)), None


def _is_first_namespace() -> bool:
    try:
        return os.readlink(Path("/proc/self/ns/pid")) == _FIRST_PID_NAMESPACE
    except OSError:
        return False
