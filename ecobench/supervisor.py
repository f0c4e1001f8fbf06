"""The small process between harness and workload: parent of the workload, in a session of its own.

It exists so that nothing outlives the harness. It is a child sub-reaper, so the whole tree of the workload stays below
it; and it reads its orders from a pipe, so that it learns of the harness's end however that comes about. When the pipe
closes, it puts back what the run had set on the machine, ends and reaps every descendant and then itself, within 2 s.

    harness ── orders, one JSON object a line ──> supervisor ──> workload ──> its own children
            <── reports, likewise ───────────────

    order                                                       report
                                                                {"is": "ready"}
    {"do": "launch", "argv": [...], "directory": ...,           {"is": "launched", "time_ns": ...}
     "environment": {...}, "stdout": ..., "stderr": ...}        {"is": "exited", "exit_code": ..., "time_ns": ...,
    {"do": "stop", "grace_s": ...}                               "n_orphans_ended": ..., "error": ...}
    {"do": "guard", "journals": [...], "run": ...}              {"is": "guarding", "error": ...}

Started by `ecobench.launcher` as `python -m ecobench.supervisor`. It imports nothing heavy: it must be there in
milliseconds, and must not die of something that it does not need. The driver is loaded by the order to guard.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecobench.processes import become_subreaper, die_with_parent, end_descendants, reap_children

if TYPE_CHECKING:
    from ecobench.controls.recovery import Guard

# Before the workload's end and after it: the harness's lock on a GPU is free some milliseconds after its pipe closed.
RESTORE_AT_ONCE_S = 0.2
RESTORE_AT_LAST_S = 0.5
# The harness is gone: torchrun passes SIGTERM on within this time, and the whole end stays under 2 s.
GRACE_AFTER_HARNESS_S = 0.5


class Supervisor:
    """Runs at most one program at a time, and owns all of its descendants."""

    def __init__(self, *, orders_fd: int, reports_fd: int) -> None:
        self._orders_fd = orders_fd
        self._reports_fd = reports_fd
        self._pending = b""
        self._leader: int | None = None
        self._kill_at: float | None = None
        self._guard: Guard | None = None

    def serve(self) -> None:
        """Carry out orders until the pipe closes or a signal asks this process to end."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(wake_read, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        asked_to_end: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda signum, _: asked_to_end.append(signum))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(self._orders_fd, selectors.EVENT_READ)
            selector.register(wake_read, selectors.EVENT_READ)
            self._report({"is": "ready"})
            while not asked_to_end:
                ready = selector.select(timeout=self._wait_s())
                if any(key.fd == wake_read for key, _ in ready):
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                if any(key.fd == self._orders_fd for key, _ in ready) and not self._read_orders():
                    break
                self._reap()
                if self._kill_at is not None and time.monotonic() >= self._kill_at:
                    end_descendants(os.getpid(), grace_s=0)
                    self._reap()
        if self._guard is not None:
            self._guard.restore(within_s=RESTORE_AT_ONCE_S)
        end_descendants(os.getpid(), grace_s=GRACE_AFTER_HARNESS_S, reap="all")
        if self._guard is not None:
            self._guard.restore(within_s=RESTORE_AT_LAST_S)

    def _wait_s(self) -> float | None:
        return None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())

    def _read_orders(self) -> bool:
        data = os.read(self._orders_fd, 1 << 16)
        if not data:
            return False
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if order["do"] == "launch":
                self._launch(order)
            elif order["do"] == "guard":
                self._begin_to_guard(order)
            elif order["do"] == "stop" and self._leader is not None:
                kill_at = time.monotonic() + order["grace_s"]
                self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)
                # The leader alone: a launcher passes it on in its own order, and reports its workers' end.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._leader, signal.SIGTERM)
        return True

    def _begin_to_guard(self, order: dict[str, Any]) -> None:
        from ecobench.controls.recovery import Guard  # noqa: PLC0415  # a driver, for those who need one
        from ecobench.errors import ControlError  # noqa: PLC0415

        error = None
        if self._guard is None:
            try:
                self._guard = Guard([Path(path) for path in order["journals"]], run=order["run"])
            except ControlError as failure:
                error = failure.message
        self._report({"is": "guarding", "error": error})

    def _launch(self, order: dict[str, Any]) -> None:
        started_ns = time.monotonic_ns()
        try:
            with open(order["stdout"], "wb") as stdout, open(order["stderr"], "wb") as stderr:
                process = subprocess.Popen(
                    order["argv"],
                    cwd=order["directory"],
                    env=order["environment"],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    process_group=0,
                    preexec_fn=die_with_parent,  # noqa: PLW1509  # this process has one thread
                )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._report_exit(None, n_orphans_ended=0, error=str(error))
            return
        self._leader = process.pid
        process.returncode = 0  # `_reap` waits for it; Popen is not to
        self._report({"is": "launched", "time_ns": started_ns})

    def _reap(self) -> None:
        for pid, exit_code in reap_children():
            if pid == self._leader:
                time_ns = time.monotonic_ns()
                self._leader = self._kill_at = None
                n_orphans = end_descendants(os.getpid(), grace_s=0.2, reap="all")
                self._report_exit(exit_code, n_orphans_ended=n_orphans, error=None, time_ns=time_ns)

    def _report_exit(
        self, exit_code: int | None, *, n_orphans_ended: int, error: str | None, time_ns: int | None = None
    ) -> None:
        self._report(
            {
                "is": "exited",
                "exit_code": exit_code,
                "time_ns": time.monotonic_ns() if time_ns is None else time_ns,
                "n_orphans_ended": n_orphans_ended,
                "error": error,
            }
        )

    def _report(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._reports_fd, json.dumps(message).encode() + b"\n")


def main() -> None:
    """Serve on this process's own stdin and stdout."""
    become_subreaper()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    orders_fd, reports_fd = os.dup(0), os.dup(1)
    # The workload gets files of its own; nothing else may speak on the report pipe.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    Supervisor(orders_fd=orders_fd, reports_fd=reports_fd).serve()


if __name__ == "__main__":
    main()
