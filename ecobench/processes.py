"""Process trees on Linux: who descends from whom, and how to leave nothing of them behind.

A child sub-reaper inherits the orphans of its descendants, so that a whole tree stays below it however its members
double-fork, detach or die. Elsewhere than on Linux the two `prctl` calls do nothing and only the tree that still hangs
together is ended.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from typing import Literal

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Make this process inherit its descendants' orphans."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel send SIGKILL to this process once its parent is gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def living_descendants(pid: int, *, keep: Collection[int] = ()) -> list[psutil.Process]:
    """Descendants of `pid` that still run, without the children in `keep` and what is below them."""
    found: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(pid).children(recursive=not keep)
        found = [child for child in children if child.pid not in keep]
        for child in found[:] if keep else ():
            with contextlib.suppress(psutil.NoSuchProcess):
                found += child.children(recursive=True)
    return [process for process in found if _runs(process)]


def end_descendants(
    pid: int, *, grace_s: float, keep: Collection[int] = (), reap: Literal["all", "ended", "none"] = "none"
) -> int:
    """End every descendant of `pid`: SIGTERM, and SIGKILL for what is left after `grace_s`.

    Looks again until none is left, since a process may fork while it is being ended; gives up 2 s after the grace (a
    process in an uninterruptible call cannot be ended by anybody).

    Args:
        pid: root of the tree; not ended itself.
        grace_s: time between SIGTERM and SIGKILL; 0 for SIGKILL at once.
        keep: pids of children that are not to be touched.
        reap: whose exit codes to collect: of any child of this process (for one that has no other use for them), of
            the processes that were ended, or of none (the caller waits for its children itself).

    Returns:
        How many different processes were running and were ended.
    """
    ended: set[int] = set()
    kill_at = time.monotonic() + grace_s
    while time.monotonic() < kill_at + 2.0:
        living = living_descendants(pid, keep=keep)
        # One look can miss a process that forks and dies between two entries of it; the kernel knows of every child.
        if not living and not (reap == "all" and _has_children()):
            break
        number = signal.SIGTERM if time.monotonic() < kill_at else signal.SIGKILL
        for process in living:
            if number is signal.SIGKILL or process.pid not in ended:
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    process.send_signal(number)
            ended.add(process.pid)
        time.sleep(0.01)
        _reap(ended, which=reap)
    _reap(ended, which=reap)
    return len(ended)


def _has_children() -> bool:
    """Whether this process still has a child, running or not; reaps one that is not."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def reap_children() -> list[tuple[int, int]]:
    """(pid, exit code) of every child that has ended since; the code of a signal is negative."""
    reaped = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            reaped.append((pid, os.waitstatus_to_exitcode(status)))
    return reaped


def _reap(pids: Collection[int], *, which: Literal["all", "ended", "none"]) -> None:
    if which == "all":
        reap_children()
    elif which == "ended":
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    except psutil.NoSuchProcess:
        return False


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
