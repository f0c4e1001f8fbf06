"""`Control` of NVIDIA GPUs: power limits and SM clocks of one run, set for each trial and put back after it.

open → refuse what cannot be → locks → what others left behind put back → permission tried
each trial:  prepare (snapshot, journal) → [supervisor guards] → apply (set, read back) → check … → restore (verify)
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ecobench.clock import read_boot_id
from ecobench.controls.board import Board, close_driver, find_boards, open_driver
from ecobench.controls.journal import (
    GpuLock,
    JournalEntry,
    clear_journal,
    journal_path,
    refuse_taken,
    runtime_folder,
    write_journal,
)
from ecobench.controls.recovery import PutBack, put_all_back, put_back, put_one_back
from ecobench.controls.ways import choose_way, open_way
from ecobench.errors import ControlError, EcobenchError
from ecobench.limits import check_limit_text, parse_clock, resolve_settings
from ecobench.records import ControlRecord, GpuSetting, LimitChange, LimitState

# A limit is in force some moments after it was set.
IN_FORCE_WITHIN_S = 2.0
# Boards round to tenths of a watt at most; other people's limits differ by more.
SAME_W = 0.5
MAX_CHANGES = 20
PUT_BACK_WITHIN_S = 3.0


@dataclass
class _Gpu:
    """One GPU, and what is known of it in this trial."""

    board: Board
    setting: GpuSetting
    lock: GpuLock
    before: LimitState | None = None
    during: LimitState | None = None
    at_end: LimitState | None = None
    changes: list[LimitChange] = field(default_factory=list)


class NvmlControl:
    """Open from before the run until after it; the driver is held open, so that no limit is forgotten meanwhile."""

    def __init__(self, *, folder: Path, way: str) -> None:
        self._folder = folder
        self._way_text = way
        self._way = open_way(way)
        self._gpus: list[_Gpu] = []
        self._run = ""
        self._is_open = True

    @classmethod
    def open(
        cls,
        power_limit: str | None,
        sm_clock: str | None,
        *,
        environment: Mapping[str, str],
        uuids: Sequence[str] | None = None,
    ) -> tuple[Self, tuple[PutBack, ...]]:
        """Everything that can be refused is refused here; nothing has been changed when this returns, but what a run
        that was killed had left behind has been put back.

        Raises:
            RequestError: what was typed cannot be.
            ControlError: no driver, no permission, or another ecobench has a GPU.
        """
        if power_limit is not None:
            check_limit_text(power_limit)
        if sm_clock is not None:
            parse_clock(sm_clock, ())
        folder = runtime_folder(environment)
        open_driver()
        control = cls(folder=folder, way=choose_way(environment))
        try:
            control._gpus = _choose(power_limit, sm_clock, folder=folder, uuids=uuids)
            control._take_locks()
            left = _put_left_back(control._gpus, folder)
            control._try_permission()
        except BaseException:
            control.close()
            raise
        return control, left

    @property
    def settings(self) -> tuple[GpuSetting, ...]:
        return tuple(gpu.setting for gpu in self._gpus)

    @property
    def run(self) -> str:
        return self._run

    def name_run(self, run: str) -> None:
        """Whose journals and locks these are from now on."""
        self._run = run
        for gpu in self._gpus:
            gpu.lock.say(run)

    def prepare(self) -> tuple[Path, ...]:
        """Snapshot every GPU into its journal, on the disk before this returns; gives the journals.

        Raises:
            ControlError: a GPU does not answer.
            StoreError: the journal cannot be written.
        """
        journals = []
        for gpu in self._gpus:
            if gpu.before is not None:  # an earlier trial's, that could not be put back then
                put_back(gpu.board, self._entry(gpu, gpu.before))
            gpu.before, gpu.during, gpu.at_end = gpu.board.state(), None, None
            gpu.changes = []
            journals.append(write_journal(self._folder, self._entry(gpu, gpu.before)))
        return tuple(journals)

    def apply(self) -> None:
        """Set what was asked for, and see that it is in force.

        Raises:
            ControlError: it cannot be set, or something else is in force.
        """
        for gpu in self._gpus:
            if gpu.setting.sm_clock_mhz is not None:
                self._way.lock_clock(gpu.board, gpu.setting.sm_clock_mhz)
            if gpu.setting.limit_w is not None:
                self._way.set_limit(gpu.board, gpu.setting.limit_w)
        deadline = time.monotonic() + IN_FORCE_WITHIN_S
        for gpu in self._gpus:
            gpu.during = gpu.board.state()
            while not _is_in_force(gpu.setting, gpu.during) and time.monotonic() < deadline:
                time.sleep(0.02)
                gpu.during = gpu.board.state()
            _refuse_another_limit(gpu.setting, gpu.during)

    def check(self) -> None:
        """Look whether somebody else has changed something, and note it. Never raises: a GPU may be lost."""
        for gpu in self._gpus:
            try:
                state = gpu.board.state()
            except ControlError:
                gpu.at_end = None
                continue
            last = gpu.changes[-1] if gpu.changes else gpu.during
            gpu.at_end = state
            is_full = len(gpu.changes) == MAX_CHANGES
            if last is not None and gpu.setting.limit_w is not None and _differs(last, state) and not is_full:
                now_ns = time.monotonic_ns()
                gpu.changes.append(
                    LimitChange(time_ns=now_ns, requested_w=state.requested_w, enforced_w=state.enforced_w)
                )

    def restore(self) -> tuple[ControlRecord, ...]:
        """Put back every GPU as it was found, and see that it is. Never raises: one that is lost keeps no other from
        coming back, and its journal stays.
        """
        return tuple(self._restore_one(gpu, gpu.before) for gpu in self._gpus if gpu.before is not None)

    def close(self) -> None:
        """Let go of locks and driver. Settings stay as they are: `restore` puts them back."""
        if self._is_open:
            self._is_open = False
            for gpu in self._gpus:
                gpu.lock.release()
            close_driver()

    def _restore_one(self, gpu: _Gpu, before: LimitState) -> ControlRecord:
        path = journal_path(self._folder, gpu.board.uuid)
        after = problem = None
        try:
            after = put_back(gpu.board, self._entry(gpu, before))
            clear_journal(path)
            gpu.before = None
        except (EcobenchError, OSError) as error:
            problem = str(error)
        return ControlRecord(
            setting=gpu.setting,
            before=before,
            during=gpu.during,
            at_end=gpu.at_end,
            after=after,
            changes=tuple(gpu.changes),
            problem=problem,
        )

    def _entry(self, gpu: _Gpu, state: LimitState) -> JournalEntry:
        return JournalEntry(
            uuid=gpu.board.uuid,
            index=gpu.board.index,
            name=gpu.board.name,
            run=self._run,
            pid=os.getpid(),
            boot_id=read_boot_id(),
            way=self._way_text,
            limit_w=state.requested_w if gpu.setting.limit_w is not None else None,
            persistence=state.persistence,
            locks_clock=gpu.setting.sm_clock_mhz is not None,
        )

    def _take_locks(self) -> None:
        # In one order for all: two that want the same GPUs do not each take half of them.
        for gpu in sorted(self._gpus, key=lambda gpu: gpu.board.uuid):
            deadline = time.monotonic() + PUT_BACK_WITHIN_S
            while not gpu.lock.take():
                # Whoever only puts back what a killed run left names no run, and is done in a moment.
                if gpu.lock.owner()[1] or time.monotonic() >= deadline:
                    raise refuse_taken(gpu.lock, index=gpu.board.index)
                time.sleep(0.02)

    def _try_permission(self) -> None:
        """Set what is set already: it changes nothing, and needs the permission that a change needs."""
        for gpu in self._gpus:
            if gpu.setting.limit_w is not None:
                self._way.set_limit(gpu.board, gpu.board.state().requested_w)
            if gpu.setting.sm_clock_mhz is not None:
                # No reading tells a lock that is there. To try one is to set one, which the trial will do anyway.
                self._way.reset_clock(gpu.board)


def _put_left_back(gpus: Sequence[_Gpu], folder: Path) -> tuple[PutBack, ...]:
    """Put back what killed runs left on these GPUs, whose locks we hold, and on any other that nobody holds.

    Raises:
        ControlError: one of `gpus` cannot be put back: its snapshot would be of a leftover.
    """
    paths = [journal_path(folder, gpu.board.uuid) for gpu in gpus]
    found = [put_one_back(path) for path in paths if path.exists()]
    for one in found:
        if not one.is_done:
            raise ControlError(one.line, hint=one.hint)
    return (*found, *put_all_back(folder))


def _choose(power_limit: str | None, sm_clock: str | None, *, folder: Path, uuids: Sequence[str] | None) -> list[_Gpu]:
    boards = [board for board in find_boards() if uuids is None or board.uuid in uuids]
    if not boards:
        raise ControlError(
            "no NVIDIA GPU answers", hint="leave out --power-limit and --sm-clock, or see `nvidia-smi -L`"
        )
    by_uuid = {board.uuid: board for board in boards}
    return [
        _Gpu(board=by_uuid[setting.uuid], setting=setting, lock=GpuLock(folder, setting.uuid))
        for setting in resolve_settings(power_limit, sm_clock, [board.range() for board in boards])
    ]


def _is_in_force(setting: GpuSetting, state: LimitState) -> bool:
    return setting.limit_w is None or (
        abs(state.requested_w - setting.limit_w) <= SAME_W and abs(state.enforced_w - setting.limit_w) <= SAME_W
    )


def _refuse_another_limit(setting: GpuSetting, state: LimitState) -> None:
    if setting.limit_w is None or _is_in_force(setting, state):
        return
    who = f"GPU {setting.index} ({setting.name}): {setting.limit_w:g} W was set"
    if abs(state.requested_w - setting.limit_w) > SAME_W:
        raise ControlError(
            f"{who}, and {state.requested_w:g} W is read back",
            hint="something else on this machine sets limits (a fan or power daemon?): stop it and run again",
        )
    raise ControlError(
        f"{who} and read back, but {state.enforced_w:g} W is in force",
        hint="the machine's own controller holds another limit: ask for that one or less, see `nvidia-smi -q -d POWER`",
    )


def _differs(one: LimitState | LimitChange, other: LimitState) -> bool:
    return abs(one.requested_w - other.requested_w) > SAME_W or abs(one.enforced_w - other.enforced_w) > SAME_W
