"""Runs the installed command as a person types it, in a store of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

ECOBENCH = str(Path(sys.executable).parent / "ecobench")


class Command:
    """`ecobench` with a run store in `home`; every process that it starts carries a mark, to find what is left."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.mark = f"ECOBENCH_TEST_MARK={home}"
        name, _, value = self.mark.partition("=")
        self.environment = {
            **os.environ,
            "ECOBENCH_HOME": str(home),
            "OMP_WAIT_POLICY": "passive",
            name: value,
        }

    def run(self, *arguments: str, cwd: Path | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run to the end."""
        return subprocess.run(
            [ECOBENCH, *arguments],
            env={**self.environment, **environment},
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start in a process group of its own, as a shell with job control does."""
        return subprocess.Popen(
            [ECOBENCH, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def document(self, *arguments: str) -> Any:
        """What `--json` prints; the command must have succeeded or measured."""
        done = self.run(*arguments, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def run_folder(self) -> Path:
        """The only run in the store."""
        (folder,) = [path for path in self.home.iterdir() if (path / "run.json").exists()]
        return folder

    def left_over(self) -> list[psutil.Process]:
        """Processes that carry this store's mark."""
        name, _, value = self.mark.partition("=")
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.AccessDenied, psutil.NoSuchProcess):
                continue
        return found

    def process_with(self, *words: str) -> psutil.Process | None:
        """One of this command's processes whose command line holds all of `words`."""
        for process in self.left_over():
            try:
                line = " ".join(process.cmdline())
            except (psutil.AccessDenied, psutil.NoSuchProcess):
                continue
            if all(word in line for word in words):
                return process
        return None


def wait_for(what: Callable[[], Any], *, timeout_s: float, why: str) -> Any:
    """The first true answer of `what`, asked every 10 ms."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        answer = what()
        if answer:
            return answer
        time.sleep(0.01)
    raise AssertionError(f"not within {timeout_s} s: {why}")
