"""Putting back what a journal says: at the end of a trial, by the supervisor, at the next start, and by hand.

Whoever holds a GPU's lock may do it, and it may be done twice: the snapshot is set, whatever is there now.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ecobench.clock import read_boot_id
from ecobench.controls.board import Board, close_driver, find_board, open_driver
from ecobench.controls.journal import GpuLock, JournalEntry, clear_journal, find_journals, read_journal
from ecobench.controls.ways import open_way
from ecobench.errors import ControlError, EcobenchError
from ecobench.records import LimitState

RETRY_EVERY_S = 0.005


class PutBack(NamedTuple):
    """What became of one journal: a line for the person, and what to do where it is still there."""

    line: str
    is_done: bool = True
    hint: str | None = None


@contextlib.contextmanager
def driver() -> Iterator[None]:
    """The driver, open meanwhile."""
    open_driver()
    try:
        yield
    finally:
        close_driver()


def put_back(board: Board, entry: JournalEntry) -> LimitState:
    """Set the board to what `entry` says, and read it.

    Raises:
        ControlError: it cannot be set, or is not what was set.
    """
    way = open_way(entry.way)
    if entry.locks_clock:
        way.reset_clock(board)
    if entry.limit_w is not None and _differs(board.state().requested_w, entry.limit_w):
        way.set_limit(board, entry.limit_w)
    if entry.persistence is not None and board.state().persistence is not entry.persistence:
        way.set_persistence(board, is_on=entry.persistence)
    state = board.state()
    if entry.limit_w is not None and _differs(state.requested_w, entry.limit_w):
        raise ControlError(
            f"GPU {entry.index}: {entry.limit_w:g} W was put back and {state.requested_w:g} W is read",
            hint=f"nvidia-smi -i {entry.uuid} -pl {entry.limit_w:g}",
        )
    return state


def _differs(one_w: float, other_w: float) -> bool:
    return abs(one_w - other_w) > 1e-3


def put_all_back(folder: Path) -> tuple[PutBack, ...]:
    """Put back what every journal says whose owner is gone; the others are left to theirs."""
    found = []
    for path in find_journals(folder):
        with GpuLock(folder, path.stem) as lock:
            if lock.take():
                found.append(put_one_back(path))
            else:
                pid, run = lock.owner()
                found.append(PutBack(f"in use    {path.stem}: by pid {pid}, run {run}; it is left alone"))
    return tuple(found)


def put_one_back(path: Path) -> PutBack:
    """Put back what one journal says; its lock is the caller's."""
    try:
        entry = read_journal(path)
        if entry is None:
            return PutBack(f"restored  {path.stem}: by another process")
        who = f"GPU {entry.index} ({entry.name})"
        if entry.boot_id != read_boot_id():
            clear_journal(path)
            return PutBack(f"restored  {who}: by a reboot since run {entry.run}")
        with driver():
            state = put_back(find_board(entry.uuid), entry)
        clear_journal(path)
    except EcobenchError as error:
        return PutBack(f"NOT restored: {error.message}", is_done=False, hint=error.hint)
    clock = ", its clock unlocked" if entry.locks_clock else ""
    why = f"run {entry.run} (pid {entry.pid}) had ended without doing so"
    return PutBack(f"restored  {who} to {state.requested_w:g} W{clock}: {why}")


class Guard:
    """Puts a run's journals back after the run's owner is gone. For the supervisor: the driver is open from the start,
    so that it is neither unloaded nor missing when it is needed.
    """

    def __init__(self, journals: Sequence[Path], *, run: str) -> None:
        self._journals = tuple(journals)
        self._run = run
        open_driver()

    def restore(self, *, within_s: float) -> bool:
        """Whether nothing of this run is left to put back.

        The owner's lock falls to us a moment after its pipe closes. Where it does not, either another ecobench has the
        GPU and puts back what it found, or the owner lives on and will: then it is done without the lock, since twice
        is as good as once.
        """
        deadline = time.monotonic() + within_s
        waiting = [path for path in self._journals if self._is_ours(path)]
        while waiting:
            is_late = time.monotonic() >= deadline
            for path in waiting:
                with GpuLock(path.parent, path.stem) as lock:
                    if lock.take() or is_late:
                        self._restore_one(path)
            waiting = [path for path in waiting if self._is_ours(path)]
            if is_late:
                break
            time.sleep(RETRY_EVERY_S)
        return not waiting

    def _restore_one(self, path: Path) -> None:
        # Without anybody to tell it to, what cannot be put back stays in the journal for the next start.
        with contextlib.suppress(EcobenchError, OSError):
            entry = read_journal(path)
            if entry is not None and entry.run == self._run:
                put_back(find_board(entry.uuid), entry)
                clear_journal(path)

    def _is_ours(self, path: Path) -> bool:
        try:
            entry = read_journal(path)
        except EcobenchError:
            return False
        return entry is not None and entry.run == self._run
