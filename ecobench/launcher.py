"""Starts the workload under a supervisor, and takes over its duty if the supervisor itself is killed."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from ecobench.errors import ControlError, WorkloadError
from ecobench.processes import become_subreaper, end_descendants
from ecobench.seams import LaunchExit, LaunchRequest

# A fresh interpreter needs 0.05 s; a machine under heavy load or with a cold disk many times that.
ANSWER_WITHIN_S = 20.0


class SupervisedLauncher:
    """`Launcher` over `ecobench.supervisor`. One program at a time; `close` may be called twice.

    The harness itself becomes a child sub-reaper: should the supervisor be killed, the workload's processes fall to the
    harness, which ends them. So it takes the end of both at the same instant to leave one behind.
    """

    def __init__(self) -> None:
        become_subreaper()
        self._others = {child.pid for child in psutil.Process().children()}
        self._supervisor = subprocess.Popen(
            [sys.executable, "-P", "-m", "ecobench.supervisor"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self._pending = b""
        self._exit: LaunchExit | None = None
        self._is_closed = False
        self._await("ready")

    @property
    def pid(self) -> int:
        return self._supervisor.pid

    def guard(self, journals: Sequence[Path], *, run: str) -> None:
        """Have the supervisor put back what `journals` say, should the harness end without doing so.

        Raises:
            ControlError: it cannot.
        """
        self._order({"do": "guard", "journals": [str(path) for path in journals], "run": run})
        answer = self._await("guarding")
        if answer["error"] is not None:
            raise ControlError(f"the supervisor cannot put settings back: {answer['error']}", hint="nothing was set")

    def launch(self, request: LaunchRequest) -> int:
        """Start the program; returns its start in monotonic ns.

        Raises:
            WorkloadError: the program cannot be started (no such file, no permission), or the supervisor is gone.
        """
        self._exit = None
        self._order(
            {
                "do": "launch",
                "argv": list(request.argv),
                "directory": str(request.directory),
                "environment": dict(request.environment),
                "stdout": str(request.stdout_path),
                "stderr": str(request.stderr_path),
            }
        )
        answer = self._await("launched", "exited")
        if answer["is"] == "exited":
            raise WorkloadError(
                f"`{request.argv[0]}` does not start: {answer['error']}",
                hint="check `command` in workload.toml; {python} stands for the interpreter that runs ecobench",
            )
        return int(answer["time_ns"])

    def poll(self) -> LaunchExit | None:
        while self._exit is None and not self._is_closed and (message := self._next_report(timeout_s=0)) is not None:
            self._take(message)
        return self._exit

    def stop(self, *, grace_s: float) -> None:
        if self._exit is None and self._supervisor.poll() is None:
            self._order({"do": "stop", "grace_s": grace_s})

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._supervisor.stdin.close()
        try:
            self._supervisor.wait(timeout=4.0)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        self._supervisor.stdout.close()
        self._end_orphans()

    def _take(self, message: dict[str, Any]) -> None:
        if message["is"] == "exited":
            self._exit = LaunchExit(
                exit_code=message["exit_code"],
                time_ns=message["time_ns"],
                n_orphans_ended=message["n_orphans_ended"],
                error=message["error"],
            )
        elif message["is"] == "gone":
            self._exit = LaunchExit(
                exit_code=None,
                time_ns=time.monotonic_ns(),
                n_orphans_ended=self._end_orphans(),
                error="the supervisor process was killed",
            )

    def _end_orphans(self) -> int:
        return end_descendants(os.getpid(), grace_s=0.2, keep=self._others | {self._supervisor.pid}, reap="ended")

    def _order(self, order: dict[str, Any]) -> None:
        assert self._supervisor.stdin is not None
        try:
            self._supervisor.stdin.write(json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            if order["do"] == "launch":
                raise WorkloadError("the supervisor process was killed", hint="run again") from None

    def _await(self, *kinds: str) -> dict[str, Any]:
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while (remaining_s := deadline - time.monotonic()) > 0:
            message = self._next_report(timeout_s=remaining_s)
            if message is not None and message["is"] in kinds:
                return message
            if message is not None and message["is"] == "gone":
                self._end_orphans()
                raise WorkloadError("the supervisor process was killed", hint="run again")
        raise WorkloadError(
            f"the supervisor process did not answer within {ANSWER_WITHIN_S:.0f} s", hint="is the machine overloaded?"
        )

    def _next_report(self, *, timeout_s: float) -> dict[str, Any] | None:
        """The next report; `{"is": "gone"}` once the supervisor has closed its end; None where none comes in time."""
        assert self._supervisor.stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            readable, _, _ = select.select([self._supervisor.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                return None
            data = os.read(self._supervisor.stdout.fileno(), 1 << 16)
            if not data:
                return {"is": "gone"}
            self._pending += data
        line, self._pending = self._pending.split(b"\n", 1)
        report: dict[str, Any] = json.loads(line)
        return report
