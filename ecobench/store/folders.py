"""Where runs live: one folder a run, found again by id.

$ECOBENCH_HOME, else ./ecobench-runs
└── 20260902-141503-nanogpt-k3f9/
    ├── run.json               what was asked for, the machine, the versions; written before the first trial
    ├── source/                the workload as run, as evidence
    ├── trials/000/            events/rank-00000.jsonl, samples.arrow, stdout, stderr, trial.json
    ├── summary.json           derived, rebuildable
    ├── report.html, *.png     derived, rebuildable
    └── SHA256SUMS             of everything that is not derived; `sha256sum -c` reads it too
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from ecobench.errors import RequestError
from ecobench.records import RunRecord, RunSummary, TrialRecord
from ecobench.store.documents import read_document, store_error, write_document
from ecobench.transcript import Transcript, read_transcript

HOME_VARIABLE = "ECOBENCH_HOME"
# Without 0, 1, i, l and o: an id is read aloud and typed.
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
_ID = re.compile(rf"[0-9]{{8}}-[0-9]{{6}}-.+-[{_ALPHABET}]{{4}}")
_RANK_FILE = re.compile(r"rank-([0-9]{5})\.jsonl")
_TRIAL = re.compile(r"[0-9]{3,}")
_ERROR = re.compile(r"(\[rank\d+\]: *)?[\w.]*(Error|Exception|Exit)\b.*")
# The source copy is evidence of code, not of data that lies beside it.
_LARGEST_SOURCE_BYTES = 1 << 20


class TrialFolder:
    """The files of one trial."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = path / "events"
        self.samples = path / "samples.arrow"
        self.stdout = path / "stdout"
        self.stderr = path / "stderr"
        self.record = path / "trial.json"

    @property
    def index(self) -> int:
        return int(self.path.name)

    def create(self) -> None:
        """Make the folder.

        Raises:
            StoreError: it cannot be made.
        """
        try:
            self.events.mkdir(parents=True)
        except OSError as error:
            raise store_error(error, self.path) from None

    def rank_files(self) -> list[Path]:
        """Event files by rank."""
        found = self.events.glob("rank-*.jsonl")
        return sorted(path for path in found if _RANK_FILE.fullmatch(path.name) and path.is_file())

    def read_transcripts(self) -> tuple[Transcript, ...]:
        """What each rank said, in order of ranks."""
        return tuple(
            read_transcript(path.read_bytes(), rank=int(path.stem.removeprefix("rank-"))) for path in self.rank_files()
        )

    def read(self) -> TrialRecord | None:
        """The record; None where the harness ended before it could write one."""
        return read_document(self.record, TrialRecord) if self.record.exists() else None

    def write(self, record: TrialRecord) -> None:
        write_document(self.record, record)


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = path / "source"
        self.run = path / "run.json"
        self.summary = path / "summary.json"
        self.report = path / "report.html"
        self.sums = path / "SHA256SUMS"
        self._lock_path = path / ".running"
        self._lock: IO[bytes] | None = None

    @property
    def id(self) -> str:
        return self.path.name

    def trial(self, index: int) -> TrialFolder:
        return TrialFolder(self.path / "trials" / f"{index:03d}")

    def trials(self) -> list[TrialFolder]:
        """Trials that were begun, in order."""
        found = [path for path in (self.path / "trials").glob("*") if _TRIAL.fullmatch(path.name) and path.is_dir()]
        return sorted(map(TrialFolder, found), key=lambda trial: trial.index)

    def hold(self) -> None:
        """Mark the run as running for as long as this process lives, however it ends.

        Raises:
            StoreError: the mark cannot be written.
        """
        try:
            self._lock = open(self._lock_path, "wb")  # noqa: SIM115  # held open until the process is gone
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise store_error(error, self._lock_path) from None

    def release(self) -> None:
        """The run has come to its end."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock_path.unlink()
            self._lock.close()
            self._lock = None

    def is_running(self) -> bool:
        """Whether a living harness holds this run."""
        try:
            with open(self._lock_path, "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def read(self) -> RunRecord:
        return read_document(self.run, RunRecord)

    def write(self, record: RunRecord) -> None:
        write_document(self.run, record)

    def read_summary(self) -> RunSummary | None:
        """The stored summary; None where the run ended before there was one."""
        return read_document(self.summary, RunSummary) if self.summary.exists() else None

    def write_summary(self, summary: RunSummary) -> None:
        write_document(self.summary, summary)

    def copy_source(self, workload: Path) -> None:
        """Keep the workload's own files, small ones, without caches, environments, runs, or what a link leads to.

        Raises:
            StoreError: they cannot be written.
        """

        def is_source(path: Path) -> bool:
            if path.name.startswith(".") or path.name == "__pycache__":
                return False
            if path.is_dir():
                # The store itself may lie in here: copied into itself, it would have no end.
                is_ours = (path / "run.json").exists() or path.samefile(self.path.parent)
                return not (path.is_symlink() or is_ours or (path / "pyvenv.cfg").exists())
            return path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST_SOURCE_BYTES

        def left_out(folder: str, names: list[str]) -> set[str]:
            return {name for name in names if not is_source(Path(folder, name))}

        try:
            shutil.copytree(workload, self.source, ignore=left_out)
        except shutil.Error as error:  # one for each file that could not be copied: the first says why
            raise store_error(OSError(0, error.args[0][0][2]), self.source) from None
        except OSError as error:
            raise store_error(error, self.source) from None


class Store:
    """The folder that all runs live in."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def from_environment(cls) -> "Store":
        """`$ECOBENCH_HOME`, else `./ecobench-runs`."""
        return cls(Path(os.environ.get(HOME_VARIABLE) or "ecobench-runs").absolute())

    def create(self, workload: str, *, now: datetime | None = None) -> RunFolder:
        """A new, empty run folder.

        Raises:
            StoreError: it cannot be made.
        """
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
        while True:
            path = self.root / f"{stamp}-{workload}-{''.join(secrets.choice(_ALPHABET) for _ in range(4))}"
            try:
                path.mkdir(parents=True)
                return RunFolder(path)
            except FileExistsError:
                if not self.root.is_dir():
                    raise store_error(NotADirectoryError(20, "not a folder"), self.root) from None
            except OSError as error:
                raise store_error(error, path) from None

    def runs(self) -> Iterator[RunFolder]:
        """Every run, oldest first.

        Raises:
            StoreError: the store's path is no folder.
        """
        if self.root.exists() and not self.root.is_dir():
            raise store_error(NotADirectoryError(20, "it is no folder"), self.root)
        if self.root.is_dir():
            for path in sorted(self.root.iterdir()):
                if (path / "run.json").exists():
                    yield RunFolder(path)

    def find(self, id_or_prefix: str) -> RunFolder:
        """The run of that id, the only one whose id starts so, the newest for `last`, or the one in that folder.

        Raises:
            RequestError: there is none, or more than one.
        """
        found = list(self.runs())
        if id_or_prefix == "last" and found:
            # A folder that someone renamed does not say when; any other is newer.
            return ([run for run in found if _ID.fullmatch(run.id)] or found)[-1]
        as_path = Path(id_or_prefix)
        if as_path.name != id_or_prefix and (as_path / "run.json").exists():
            return RunFolder(as_path.absolute())
        exact = [run for run in found if run.id == id_or_prefix]
        matching = exact or [run for run in found if run.id.startswith(id_or_prefix) and id_or_prefix]
        if len(matching) == 1:
            return matching[0]
        if matching:
            shown = ", ".join(run.id for run in matching[-3:])
            raise RequestError(f"`{id_or_prefix}` is the start of {len(matching)} runs", hint=f"for example {shown}")
        if not found:
            raise RequestError(
                f"no runs in {self.root}", hint=f"`ecobench run` makes one; {HOME_VARIABLE} names another folder"
            )
        raise RequestError(
            f"no run `{id_or_prefix}` in {self.root}", hint="`ecobench list` shows them; `last` is the newest"
        )


def last_words(path: Path) -> str | None:
    """The line of a stderr file that says best why the program ended: its last error, else its last line.

    (A launcher prints its own summary below the error of the process that it launched.)
    """
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 65536))
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    said = [line.strip() for line in text.splitlines() if line.strip(" =-")]
    errors = [line for line in said if _ERROR.match(line) and "ChildFailedError" not in line]
    return (errors or said)[-1][:300] if said else None
