"""The journal and the lock of a GPU: on the disk before anything is set, and free once the owner is gone."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ecobench.clock import read_boot_id
from ecobench.controls.board import close_driver, find_board, open_driver
from ecobench.controls.journal import (
    GpuLock,
    JournalEntry,
    clear_journal,
    read_journal,
    refuse_taken,
    runtime_folder,
    write_journal,
)
from ecobench.controls.recovery import Guard, put_all_back
from ecobench.errors import StoreError
from ecobench.launcher import SupervisedLauncher
from nvml_bed import NvmlBed

ENTRY = JournalEntry(
    uuid="GPU-1",
    index=0,
    name="H100",
    run="run-a",
    pid=1,
    boot_id=read_boot_id(),
    way="nvml",
    limit_w=450.0,
    persistence=True,
    locks_clock=True,
)


def entry_of(bed: NvmlBed) -> JournalEntry:
    return dataclasses.replace(ENTRY, uuid=bed.uuids[0])


def test_journal_reads_back_what_was_written_until_it_is_cleared(tmp_path: Path) -> None:
    """To the last field; a second clearing is no error."""
    path = write_journal(tmp_path, ENTRY)

    assert read_journal(path) == ENTRY
    assert [one.name for one in tmp_path.iterdir()] == ["GPU-1.json"]
    clear_journal(path)
    clear_journal(path)
    assert read_journal(path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2}', '{"schema": 1, "uuid": "GPU-1"}'])
def test_journal_that_cannot_be_understood_is_kept_and_named(text: str, tmp_path: Path) -> None:
    """It may be all that tells of a limit: a person looks at it."""
    path = tmp_path / "GPU-1.json"
    path.write_text(text)
    with pytest.raises(StoreError, match="cannot be read"):
        read_journal(path)
    (found,) = put_all_back(tmp_path)

    assert not found.is_done
    assert path.exists()


def test_journal_of_another_boot_is_cleared_since_the_limits_are_gone(tmp_path: Path) -> None:
    """No driver is asked."""
    write_journal(tmp_path, dataclasses.replace(ENTRY, boot_id="another"))
    (found,) = put_all_back(tmp_path)

    assert found.is_done
    assert "reboot" in found.line
    assert not list(tmp_path.glob("*.json"))


def test_lock_is_the_first_owners_until_it_is_killed(tmp_path: Path) -> None:
    """The second is told pid and run; SIGKILL frees it."""
    program = (
        "import sys, time; from pathlib import Path; from ecobench.controls.journal import GpuLock\n"
        "lock = GpuLock(Path(sys.argv[1]), 'GPU-1'); print(lock.take(), flush=True); lock.say('run-b')\n"
        "print('said', flush=True); time.sleep(60)"
    )
    first = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert [first.stdout.readline(), first.stdout.readline()] == ["True\n", "said\n"]
    second = GpuLock(tmp_path, "GPU-1")
    was_taken = second.take()
    refusal = refuse_taken(second, index=3)
    first.kill()
    first.wait()
    first.stdout.close()

    assert not was_taken
    assert refusal.message == f"GPU 3 is in use by another ecobench (pid {first.pid}, run run-b)"
    with second:
        assert second.take()
        assert second.owner() == (os.getpid(), "")
        assert not GpuLock(tmp_path, "GPU-1").take()
    with GpuLock(tmp_path, "GPU-1") as third:
        assert third.take()


def test_runtime_folder_is_the_users_own(tmp_path: Path) -> None:
    """One that others may write to, or a link, is refused: a journal may name a command."""
    folder = runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert folder == tmp_path / "ecobench"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(StoreError, match="written by others"):
        runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)})
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(StoreError, match="belongs to somebody else"):
        runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)})


def test_guard_restores_its_own_runs_journal_and_no_other(h100: NvmlBed, tmp_path: Path) -> None:
    """Limit, lock and persistence of run A; the journal of run B, which has the GPU now, is B's."""
    h100.set_limit(0, 300)
    h100.set_persistence(0, is_on=False)
    path = write_journal(tmp_path, entry_of(h100))
    open_driver()
    find_board(h100.uuids[0]).lock_clock(1200)
    guard = Guard([path], run="run-b")

    assert guard.restore(within_s=0.0)
    assert h100.limits_w(0) == (300, 300)
    guard = Guard([path], run="run-a")
    assert guard.restore(within_s=0.0)
    assert h100.limits_w(0) == (450, 450)
    assert (h100.has_persistence(0), h100.lock_mhz(0)) == (True, None)
    assert not path.exists()
    for _ in range(3):
        close_driver()


@pytest.mark.parametrize("ending", ["pipe closes", "SIGTERM"])
def test_supervisor_restores_before_it_ends(
    ending: str, h100: NvmlBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the harness is gone or it is asked to: within 2 s, also with the lock held by a harness that lives on."""
    for name, value in h100.environment.items():
        monkeypatch.setenv(name, value)
    launcher = SupervisedLauncher()
    path = write_journal(tmp_path, entry_of(h100))
    with GpuLock(tmp_path, h100.uuids[0]) as lock:
        assert lock.take()
        launcher.guard([path], run="run-a")
        h100.set_limit(0, 300)
        started_s = time.monotonic()
        if ending == "SIGTERM":
            os.kill(launcher.pid, signal.SIGTERM)
            while path.exists() and time.monotonic() < started_s + 2:
                time.sleep(0.01)
        launcher.close()
        took_s = time.monotonic() - started_s

    assert h100.limits_w(0) == (450, 450)
    assert not path.exists()
    assert took_s < 2.0


def test_supervisor_that_guards_nothing_loads_no_driver(h100: NvmlBed) -> None:
    """It stays as light as it was: neither the driver's library nor its bindings are in it."""
    launcher = SupervisedLauncher()
    try:
        maps = Path(f"/proc/{launcher.pid}/maps").read_text()
    finally:
        launcher.close()

    assert "libnvidia-ml" not in maps
