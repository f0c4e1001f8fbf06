"""Zeus as a second opinion on the GPUs' energy: started with the run, asked for a window a trial, given up if slow.

It reads the very counter that our own meter reads, so it checks our reading and our arithmetic, not the board's sensor:
whatever stands beside it is labelled `same source`. Whatever goes wrong with it is a note in the record.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ecobench.measurement import ZeusReading, ZeusWindow

# Its import takes 2 to 5 s, and runs while the harness reads its request; no trial waits longer than this for it.
READY_WITHIN_S = 15.0
# One call a board, one board after the other.
ANSWER_WITHIN_S = 5.0
MODULE = "ecobench.meters.zeus_window"
# Where it finds a daemon it asks that instead of the driver; which boards it sees is said to it otherwise.
LEFT_OUT = ("CUDA_VISIBLE_DEVICES", "ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT", "ZEUSD_TOKEN")


class _NoAnswerError(Exception):
    """Why Zeus is given up."""


class ZeusProcess:
    """A Zeus that runs beside the run. No call raises for what Zeus does or does not do."""

    def __init__(
        self,
        gpus: Mapping[str, str],
        *,
        ready_within_s: float = READY_WITHIN_S,
        program: Sequence[str] = ("-m", MODULE),
    ) -> None:
        """Start it; `gpus` are UUIDs, or NVML indices, by domain. It gets ready while the caller goes on."""
        self._gpus = dict(gpus)
        self._pending = b""
        self._version: str | None = None
        self._uuids: list[str] = []
        self._begun: dict[str, Any] | None = None
        self._note: str | None = None
        self._deadline = time.monotonic() + ready_within_s
        environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        self._process = subprocess.Popen(
            [sys.executable, "-P", *program, str(os.getpid()), *self._gpus.values()],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is for the run, which ends it
            bufsize=0,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_ready(self) -> None:
        """Return once it is ready, or once it is given up: its import must not run beside what is measured."""
        if self._version is None and self._note is None:
            answer = self._answer("ready", within_s=self._deadline - time.monotonic())
            if answer is not None:
                self._version, self._uuids = answer["version"], answer["uuids"]

    def begin(self) -> None:
        self._begun = self._ask("begin", "begun")

    def end(self) -> ZeusWindow:
        """The window since `begin`, or a note on why there is none."""
        begun, self._begun = self._begun, None
        ended = self._ask("end", "ended") if begun is not None else None
        if begun is None or ended is None:
            return ZeusWindow(
                version=self._version,
                start_ns=None,
                stop_ns=None,
                start_call_ns=None,
                stop_call_ns=None,
                readings=(),
                note=self._note or "no window was opened",
            )
        return ZeusWindow(
            version=self._version,
            start_ns=(begun["start_ns"] + begun["stop_ns"]) // 2,
            stop_ns=(ended["start_ns"] + ended["stop_ns"]) // 2,
            start_call_ns=begun["stop_ns"] - begun["start_ns"],
            stop_call_ns=ended["stop_ns"] - ended["start_ns"],
            readings=tuple(
                ZeusReading(domain=domain, uuid=uuid, energy_j=energy_j)
                for domain, uuid, energy_j in zip(self._gpus, self._uuids, ended["energy_j"], strict=True)
            ),
            note=None,
        )

    def close(self) -> None:
        """End it. May be called twice."""
        self._give_up("it was ended")
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _ask(self, order: str, kind: str) -> dict[str, Any] | None:
        if self._note is not None or self._version is None:
            return None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": order}).encode() + b"\n")
        except OSError:
            self._give_up("its process was gone")
            return None
        return self._answer(kind, within_s=ANSWER_WITHIN_S)

    def _answer(self, kind: str, *, within_s: float) -> dict[str, Any] | None:
        """Its next report, which has to be of that kind; else it is given up."""
        try:
            line = self._next_line(kind, within_s=within_s)
            report = json.loads(line)
            if report["is"] == kind:
                return dict(report)
            self._give_up(str(report.get("reason", report["is"])))
        except _NoAnswerError as error:
            self._give_up(str(error))
        except (ValueError, KeyError, TypeError):
            self._give_up("what it said is no report")
        return None

    def _next_line(self, kind: str, *, within_s: float) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + max(0.0, within_s)
        while b"\n" not in self._pending:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise _NoAnswerError(f"it did not answer in time ({kind})")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise _NoAnswerError("its process ended without a word")
            self._pending += data
        line, self._pending = self._pending.split(b"\n", 1)
        return line

    def _give_up(self, note: str) -> None:
        self._note = self._note or note
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
