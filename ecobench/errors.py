"""Every error that a user can act on, each with a remedy (`hint`) and an exit code.

    EcobenchError
    ├── RequestError          2  what was asked for cannot be: a typo, a value out of range, an unknown id
    │   ├── ManifestError        workload.toml is wrong
    │   └── RecordError          a stored record is of an unknown schema, or cannot be read
    ├── MeterError            3  no usable meter, or no permission
    │   └── ControlError         a setting of the machine cannot be made, proved or put back
    ├── WorkloadError         4  the workload could not be started, failed, or fell silent
    └── StoreError            2  the run store cannot be written or read (disk full, no permission)

Programmer mistakes stay built-in exceptions (`ValueError`). Exit code 5 (measured but invalid) is no exception: the
trial ran to its end and its record says what is wrong. 130 and 143 belong to signals.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What `ecobench` ends with; the workload's own code stands in the record and in the message."""

    DONE = 0
    REQUEST = 2
    METER = 3
    WORKLOAD = 4
    INVALID = 5
    INTERRUPTED = 130
    TERMINATED = 143


class EcobenchError(Exception):
    """An error with one line that says what happened, and a hint that says what to do."""

    exit_code: ExitCode = ExitCode.REQUEST

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RequestError(EcobenchError):
    """What was asked for cannot be done as asked."""


class ManifestError(RequestError):
    """A workload.toml is missing, unreadable, or says something that is not understood."""


class RecordError(RequestError):
    """A stored record cannot be read by this version."""


class MeterError(EcobenchError):
    """No usable meter, or no permission to use it."""

    exit_code = ExitCode.METER


class ControlError(MeterError):
    """A setting of the machine cannot be made, proved or put back."""


class WorkloadError(EcobenchError):
    """The workload could not be started, failed, or fell silent."""

    exit_code = ExitCode.WORKLOAD


class StoreError(EcobenchError):
    """The run store cannot be written or read."""
