"""What has to be put back, on the disk before anything is set; and the lock that says who sets it.

One journal and one lock for each GPU, named by its UUID, in a folder that is gone at reboot, as the limits are:
`$XDG_RUNTIME_DIR/ecobench`, else `/run/ecobench` for root, else a folder of the user's own among the temporary files.

The lock is `flock`: the kernel lets go of it with its owner, however that ends. So a journal whose lock is free has
lost its owner, and whoever holds the lock may put back what it says. The lock file stays where it is: to remove it
would let two owners hold two files of one name.
"""

import contextlib
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from ecobench.errors import ControlError, StoreError

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One GPU as it was found, by the run that is about to change it.

    Attributes:
        boot_id: limits do not outlive a boot, and neither does what is said here.
        way: how settings are made, as `ecobench.controls.ways` writes it.
        limit_w: requested limit; None where the run changes none.
        persistence: None where the board does not tell.
        locks_clock: the run locks the SM clock. No reading tells a lock that was there before.
    """

    uuid: str
    index: int
    name: str
    run: str
    pid: int
    boot_id: str
    way: str
    limit_w: float | None
    persistence: bool | None
    locks_clock: bool


def runtime_folder(environment: Mapping[str, str]) -> Path:
    """Where journals and locks are, made if need be.

    Raises:
        StoreError: it cannot be made, or is somebody else's.
    """
    own = environment.get("XDG_RUNTIME_DIR")
    if own and Path(own).is_dir():
        folder = Path(own) / "ecobench"
    elif os.geteuid() == 0:
        folder = Path("/run/ecobench")
    else:
        folder = Path(tempfile.gettempdir()) / f"ecobench-{os.geteuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}", hint="set XDG_RUNTIME_DIR to a folder of your own") from error
    # A journal may name a command: nobody else may write one.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise StoreError(
            f"{folder} belongs to somebody else or can be written by others",
            hint="set XDG_RUNTIME_DIR to a folder of your own with mode 700",
        )
    return folder


def journal_path(folder: Path, uuid: str) -> Path:
    """Where the journal of that GPU is, if there is one."""
    return folder / f"{uuid}.json"


def find_journals(folder: Path) -> tuple[Path, ...]:
    """What has not been put back, or not yet."""
    return tuple(sorted(folder.glob("*.json")))


def write_journal(folder: Path, entry: JournalEntry) -> Path:
    """On the disk, whole, when this returns."""
    path = journal_path(folder, entry.uuid)
    draft = path.with_suffix(".new")
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump({"schema": SCHEMA, **asdict(entry)}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        _sync_folder(folder)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}", hint="nothing was set; make room there") from error
    return path


def read_journal(path: Path) -> JournalEntry | None:
    """What it says; None where there is none.

    Raises:
        StoreError: it cannot be understood.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        schema = document.pop("schema")
        return JournalEntry(**document) if schema == SCHEMA else _refuse_schema(schema)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(
            f"{path} cannot be read: {error}",
            hint=f"see `nvidia-smi -q -d POWER`, set the limits by hand, then remove {path}",
        ) from error


def _refuse_schema(schema: object) -> NoReturn:
    raise ValueError(f"schema {schema} is of another version")


def clear_journal(path: Path) -> None:
    """Everything that it says has been put back."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class GpuLock:
    """Held while a run may change one GPU. A process that forks passes it to no program that it starts."""

    def __init__(self, folder: Path, uuid: str) -> None:
        self.path = folder / f"{uuid}.lock"
        self._handle: int | None = None

    def take(self) -> bool:
        """Whether it is ours now."""
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        self._handle = handle
        self.say("")
        return True

    def say(self, run: str) -> None:
        """Leave the owner's pid and run for whoever finds it taken."""
        assert self._handle is not None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()} {run}\n".encode(), 0)

    def owner(self) -> tuple[int | None, str]:
        """Pid and run of who holds it, or did last."""
        words = self.path.read_text(encoding="utf-8").split()
        return (int(words[0]) if words else None, words[1] if len(words) > 1 else "")

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def refuse_taken(lock: GpuLock, *, index: int) -> ControlError:
    """What the second ecobench on one GPU is told."""
    pid, run = lock.owner()
    who = f"pid {pid}" + (f", run {run}" if run else "")
    return ControlError(
        f"GPU {index} is in use by another ecobench ({who})", hint=f"wait for it, or end it: kill {pid}"
    )
