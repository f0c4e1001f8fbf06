"""What workloads speak: phases, steps and metrics, one JSON object a line. Standard library only.

Three lines in any training script give tokens, loss and phases:

    from ecobench.events import emit, phase, should_stop

    with phase("train", sync=torch.cuda.synchronize):
        for step in range(1, n_steps + 1):
            ...
            emit("step", step=step, tokens=n_tokens_so_far, synced=False)
            emit("metric", name="train_loss", value=loss, unit="nats/token", step=step)
            if should_stop():
                break

Where `$ECOBENCH_EVENTS` is not set, every call does nothing. Where it names a folder, this process appends to
`rank-00000.jsonl` there (its rank from `$RANK`, else 0): a file, since launchers close inherited pipes. Each line is
stamped with `time.monotonic_ns()`.

    event                      fields                                             rule
    hello                      protocol rank world_size pid boot_id wall_ns       first line; written by itself if the
                               parameters data_hash                               program does not
    phase_start, phase_stop    phase                                              nested like brackets
    step                       step tokens synced                                 tokens: all ranks, cumulative
    metric                     name value unit step                               finite; names up to 200 characters
    goodbye                    status: done, stopped, failed                      last line; written at a normal exit

A program that is killed leaves no goodbye, and that is how it is known to have crashed. A second process that writes
the same rank is an error at its first event; threads of one process may all emit. A full disk never stops a training:
the first line that cannot be written is reported on stderr, nothing is written after it, and the missing goodbye tells.
"""

import atexit
import errno
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROTOCOL = 1
VARIABLE = "ECOBENCH_EVENTS"
STOP_FILE = "stop"


def emit(event: str, **fields: Any) -> None:
    """Append one event of this rank; nothing where `$ECOBENCH_EVENTS` is not set.

    Raises:
        RuntimeError: another process already writes this rank's events.
        ValueError: a field is NaN, infinite, or cannot be written as JSON.
    """
    speaker = _speaker()
    if speaker is not None:
        speaker.emit(event, fields)


@contextmanager
def phase(name: str, *, sync: Callable[[], object] | None = None) -> Iterator[None]:
    """Mark an interval of the program. `sync` drains the device just before each stamp, so that work queued before
    the edge does not spend its energy behind it.
    """
    if sync is not None:
        sync()
    emit("phase_start", phase=name)
    try:
        yield
    finally:
        try:
            if sync is not None:
                sync()
        finally:  # a device that fails to drain has left the phase all the same
            emit("phase_stop", phase=name)


def should_stop() -> bool:
    """Whether the harness asks this run to end early. Ask on rank 0 and tell the others: ranks that look for
    themselves can see the answer in different steps.
    """
    folder = os.environ.get(VARIABLE)
    return bool(folder) and os.path.exists(os.path.join(str(folder), STOP_FILE))


class _Speaker:
    """The open event file of this process."""

    def __init__(self, folder: Path) -> None:
        self.pid = os.getpid()
        self.rank = int(os.environ.get("RANK", "0"))
        path = folder / f"rank-{self.rank:05d}.jsonl"
        self._said_hello = False
        self._said_goodbye = False
        self._is_broken = False
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            raise RuntimeError(f"another process already writes the events of rank {self.rank} ({path})") from None
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._give_up(str(error))

    def emit(self, event: str, fields: dict[str, Any]) -> None:
        if os.getpid() != self.pid:
            raise RuntimeError(f"a child process of rank {self.rank} emits events; only the rank's own process may")
        with _lock:
            if event == "hello":
                fields = {**_hello_fields(self.rank), **fields}
            elif not self._said_hello:
                self.emit("hello", {})
            self._write({"event": event, "time_ns": time.monotonic_ns(), **fields})
            self._said_hello = True
            self._said_goodbye = self._said_goodbye or event == "goodbye"

    def close(self) -> None:
        if os.getpid() == self.pid and self._said_hello and not self._said_goodbye:
            # `sys.last_value` is what the interpreter leaves behind after an uncaught exception.
            self.emit("goodbye", {"status": "failed" if getattr(sys, "last_value", None) is not None else "done"})

    def _write(self, line: dict[str, Any]) -> None:
        try:
            data = json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        except TypeError as error:
            raise ValueError(f"{line['event']}: {error}") from None
        if self._is_broken:
            return
        try:
            if os.write(self._fd, data) == len(data):
                return
            reason = "short write, is the disk full?"
        except OSError as error:
            reason = str(error)
        self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        self._is_broken = True
        print(f"ecobench.events: {reason}; no further events of rank {self.rank} are written", file=sys.stderr)


_the_speaker: _Speaker | None = None
# Stamp and line belong together, else another thread's later stamp could stand above. Re-entrant: a signal handler may
# emit too.
_lock = threading.RLock()


def _speaker() -> _Speaker | None:
    global _the_speaker
    folder = os.environ.get(VARIABLE)
    if _the_speaker is None and folder:
        with _lock:
            if _the_speaker is None:
                _the_speaker = _Speaker(Path(folder))
                atexit.register(_the_speaker.close)
    return _the_speaker


def _hello_fields(rank: int) -> dict[str, Any]:
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot_id = "unknown"
    return {
        "protocol": PROTOCOL,
        "rank": rank,
        "world_size": int(os.environ.get("WORLD_SIZE", "1")),
        "pid": os.getpid(),
        "boot_id": boot_id,
        "wall_ns": time.time_ns(),
        "parameters": None,
        "data_hash": None,
    }
