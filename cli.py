#!/usr/bin/env python3
"""The front door of a fresh checkout. Needs a Python of 3.11 or newer, and nothing else.

    python3 cli.py run             the same as `ecobench run`, on a machine where nothing is installed yet
    python3 cli.py test [ARGS...]  the whole test suite; ARGS go to pytest

The first start makes `.venv` beside this file, installs the checkout into it with the versions of constraints.txt,
and hands over to the installed command; later starts only hand over. `test` adds what the tests need on top. pip's
own settings (index, proxy, certificate, cache) count. In an activated environment that already has ecobench, that one
is used and nothing is installed.

A stamp in `.venv` says what is installed there; it says so only while that is true:

    none, unfinished, moved, its Python gone or another, files lost ─▶ made anew
    whole, but pyproject.toml, constraints.txt or the extra changed ─▶ pip installs on top
    whole, and just what is wanted                                  ─▶ hand over

Standard library only. The syntax is that of Python 3.6, so that an older Python prints the error below and no
SyntaxError.
"""

import sys

if sys.version_info < (3, 11):
    import shutil
    import subprocess

    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    names = [name for name in (f"python3.{minor}" for minor in range(20, 10, -1)) if shutil.which(name)]
    newer = [name for name in names if subprocess.call([name, "-c", ""], **quiet) == 0]
    remedy = f"this machine has it: {newer[0]} cli.py ..." if newer else "for example: apt install python3.11"
    have = "{}.{}".format(*sys.version_info[:2])
    sys.stderr.write(f"error: ecobench needs Python 3.11 or newer, this is {have}\n\nhint: {remedy}\n")
    sys.exit(2)

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

CHECKOUT = os.path.dirname(os.path.realpath(__file__))
VENV = os.path.realpath(os.path.join(CHECKOUT, ".venv"))  # real: it may be a link to a bigger disk
STAMP = os.path.join(VENV, "ecobench-setup.json")
BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)  # not that of a .venv which may have to go
LOG = os.path.join(VENV, "install.log")
LOCK = os.path.join(CHECKOUT, ".venv.lock")

TEST_TOOLS = ("pytest", "ruff", "mypy", "lint-imports", "playwright")  # the commands that the extra `test` brings
UNFINISHED = {"fingerprint": None}
PIP_CHANGES_FILES = "Installing collected packages"  # pip prints this before it touches what is installed
NOTE_EVERY_S = 15.0
EXIT_SETUP, EXIT_INTERRUPTED = 2, 130

NETWORK_TROUBLE = (
    *("CERTIFICATE_VERIFY_FAILED", "Connection refused", "Connection reset", "ConnectTimeoutError"),
    *("Max retries exceeded", "Name or service not known", "Network is unreachable", "NewConnectionError"),
    *("ProxyError", "Read timed out", "ReadTimeoutError", "SSLError", "Temporary failure in name resolution"),
)
DISK_TROUBLE = ("No space left on device", "Disk quota exceeded")


class SetupError(Exception):
    """What keeps ecobench from being installed or started, and what to do about it."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def main(arguments: Sequence[str]) -> int:
    """Start ecobench, or its tests, in an environment that has it. Returns only where that cannot be."""
    try:
        if arguments[:1] == ["test"]:
            environment = find_environment(scripts=("ecobench", *TEST_TOOLS), extras=["test"])
            hand_over(environment, "pytest", enter_checkout(arguments[1:]))
        hand_over(find_environment(scripts=("ecobench",), extras=[]), "ecobench", arguments)
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted before ecobench was installed\n\nhint: start again\n")
        return EXIT_INTERRUPTED
    except (SetupError, OSError) as error:
        trouble = error if isinstance(error, SetupError) else explain_system(error)
        sys.stderr.write(f"error: {trouble}\n\nhint: {trouble.hint}\n")
        return EXIT_SETUP


def hand_over(environment: str, script: str, arguments: Sequence[str]) -> NoReturn:
    """Become the installed command: same process, same streams, its exit code."""
    command = os.path.join(environment, "bin", script)
    try:
        os.execv(command, [command, *arguments])
    except OSError as error:
        raise SetupError(
            f"{command} does not start: {error.strerror}",
            hint=f"deactivate or remove {environment}, then start again",
        ) from error


def enter_checkout(arguments: Sequence[str]) -> Sequence[str]:
    """Make the checkout the working directory, where pytest finds its configuration; paths keep their meaning."""

    def absolute(argument: str) -> str:
        path, colons, rest = argument.partition("::")
        is_path = (os.sep in path or path.endswith(".py")) and os.path.exists(path)
        return os.path.abspath(path) + colons + rest if is_path else argument

    arguments = [absolute(argument) for argument in arguments]
    os.chdir(CHECKOUT)
    return arguments


def find_environment(*, scripts: Sequence[str], extras: Sequence[str]) -> str:
    """Folder of an environment with all of `scripts`: the active one, else `.venv`, made or mended first if need be."""
    active = [sys.prefix if sys.prefix != sys.base_prefix else None]
    active += [os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX")]
    for folder in active:
        if not folder or os.path.realpath(folder) == VENV or not has_script(folder, "ecobench"):
            continue
        missing = [script for script in scripts if not has_script(folder, script)]
        if not missing:
            say(f"using the active environment {folder}")
            return folder
        say(f"the active environment {folder} lacks {', '.join(missing)}: using {VENV}")
        break
    if is_foreign():
        missing = [script for script in scripts if not has_script(VENV, script)]
        if missing:
            raise SetupError(
                f"{VENV} was not made by cli.py, and lacks {', '.join(missing)}",
                hint=f"remove it, or install into it: {VENV}/bin/pip install -c constraints.txt -e '.[test]'",
            )
    elif not is_ready(extras):
        with exclusive_lock() as lock:
            if not is_ready(extras):  # whoever held the lock may have done it
                set_up(extras, lock)
    return VENV


def has_script(environment: str, script: str) -> bool:
    """Whether the environment has the command `script`."""
    return os.access(os.path.join(environment, "bin", script), os.X_OK)


def is_foreign() -> bool:
    """Whether `.venv` is somebody else's and works: never to be removed by this program, which stamps its own first."""
    return not os.path.exists(STAMP) and os.path.exists(os.path.join(VENV, "bin", "python"))


def is_ready(extras: Sequence[str]) -> bool:
    """Whether `.venv` is whole and has just what is wanted. Some ten file look-ups: every start pays for them."""
    stamp = read_stamp()
    return (
        why_unusable(stamp) is None
        and stamp["fingerprint"] == fingerprint()
        and set(extras) <= set(stamp["extras"])
        and has_script(VENV, "ecobench")
    )


def why_unusable(stamp: dict[str, Any]) -> str | None:
    """Why nothing can be installed on top of the `.venv` that this stamp is of; None where it is sound."""
    if stamp.get("fingerprint") is None:
        return "is of a set-up that did not finish"
    if stamp["place"] != VENV:
        return f"was moved here from {stamp['place']}"
    if stamp["interpreter"] != os.path.realpath(os.path.join(VENV, "bin", "python")):
        return f"was made with {stamp['interpreter']}, which its Python no longer is"
    if not os.path.exists(stamp["interpreter"]):
        return f"was made with {stamp['interpreter']}, which is gone"
    if stamp["python"] != list(sys.version_info[:2]):
        return "was made with another version of Python"
    if not all(os.path.exists(path) for path in stamp["installed"]):
        return "has lost files"
    return None


def fingerprint() -> str:
    """Hash of all that decides what gets installed; the settings of ruff, mypy and pytest are not among it."""
    with open(os.path.join(CHECKOUT, "pyproject.toml"), "rb") as file:
        project = tomllib.load(file)
    with open(os.path.join(CHECKOUT, "constraints.txt"), encoding="utf-8") as file:
        pins = file.read()
    parts = [project.get("build-system"), project.get("project"), project.get("tool", {}).get("setuptools"), pins]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read_stamp() -> dict[str, Any]:
    """The stamp of `.venv`; that of an unfinished set-up where there is none that can be read."""
    try:
        with open(STAMP, encoding="utf-8") as file:
            stamp = json.load(file)
        known = {"fingerprint", "extras", "place", "interpreter", "python", "installed"}
        return stamp if known <= set(stamp) else UNFINISHED
    except (OSError, ValueError, TypeError):
        return UNFINISHED


def write_stamp(stamp: dict[str, Any]) -> None:
    """Replace the stamp in one step."""
    with open(STAMP + ".new", "w", encoding="utf-8") as file:
        json.dump(stamp, file)
    os.replace(STAMP + ".new", STAMP)


@contextlib.contextmanager
def exclusive_lock() -> Iterator[int]:
    """Hold the lock on `.venv`; says so where another start has it. Yields its descriptor."""
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another start is setting up .venv; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:  # a file system without locks: two first starts at once are the user's to avoid
            pass
        yield lock
    finally:
        os.close(lock)


def set_up(extras: Sequence[str], lock: int) -> None:
    """Make or mend `.venv`, and stamp it."""
    for number in (signal.SIGHUP, signal.SIGTERM):  # they must end pip too, and leave by the same door as Ctrl-C
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    started_s = time.monotonic()
    before = read_stamp()
    unusable = why_unusable(before)
    if unusable is None:
        say(f"bringing {VENV} up to date; usually under a minute")
        extras = sorted(set(extras) | set(before["extras"]))
    else:
        require_venv_module()
        if os.path.lexists(VENV):
            say(f"{VENV} {unusable}: making it anew")
            shutil.rmtree(VENV) if os.path.isdir(VENV) else os.unlink(VENV)
        say(f"first start: installing into {VENV}, once; one to three minutes, longer where CUDA libraries are fetched")
        os.makedirs(VENV)
    write_stamp(UNFINISHED)
    with open(LOG, "w", encoding="utf-8"):
        pass
    python = os.path.join(VENV, "bin", "python")
    target = CHECKOUT + (f"[{','.join(extras)}]" if extras else "")
    pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    pip += ["-c", os.path.join(CHECKOUT, "constraints.txt"), "-e", target]
    try:
        if unusable is not None:
            run_logged([BASE_PYTHON, "-m", "venv", VENV], "making the environment", lock)
        run_logged(pip, "asking for packages", lock)
    except BaseException as error:
        if unusable is None and PIP_CHANGES_FILES not in read_log():
            write_stamp(before)  # pip gave up before it changed anything: what worked before still does
        elif isinstance(error, SetupError) and is_disk_full(read_log()):
            shutil.rmtree(VENV, ignore_errors=True)  # give back the space
        raise
    installed = glob.glob(os.path.join(glob.escape(VENV), "lib", "python*", "site-packages", "ecobench-*.dist-info"))
    stamp = {"fingerprint": fingerprint(), "extras": list(extras), "installed": installed, "place": VENV}
    write_stamp({**stamp, "interpreter": os.path.realpath(python), "python": list(sys.version_info[:2])})
    say(f"installed after {time.monotonic() - started_s:.0f} s")


def require_venv_module() -> None:
    """Refuse where this Python cannot make environments, before anything is removed."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        version = "{}.{}".format(*sys.version_info[:2])
        raise SetupError(
            f"this Python has no `{error.name or 'venv'}` module, so it cannot make an environment",
            hint=f"apt install python{version}-venv (Debian, Ubuntu), or start with another Python",
        ) from error


def run_logged(command: Sequence[str], doing: str, lock: int) -> None:
    """Run a step of the set-up with its output in the log, telling on stderr how far it is.

    The step keeps the lock open: should this process be killed, the next start waits until the step is gone too.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PIP_USER"] = "0"  # a `user = true` in pip's settings has no meaning inside an environment
    started_s = noted_s = time.monotonic()
    with open(LOG, "ab") as log:
        streams: Any = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        process = subprocess.Popen(command, env=environment, pass_fds=[lock], start_new_session=True, **streams)
    is_terminal = sys.stderr.isatty()
    try:
        while True:
            try:
                code = process.wait(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                now_s = time.monotonic()
                note = f"{now_s - started_s:4.0f} s, {latest_activity() or doing}"
                if is_terminal:
                    say(note[:70], end="\r")
                elif now_s - noted_s > NOTE_EVERY_S:
                    say(note.strip())
                    noted_s = now_s
    finally:
        end_group(process)
    if code:
        raise explain(read_log(), code)


def end_group(process: Any) -> None:
    """End what is left of a step: Ctrl-C first, so that pip clears its temporary files away."""
    for number, grace_s in ((signal.SIGINT, 15.0), (signal.SIGKILL, 5.0)):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(Exception):
            process.wait(timeout=grace_s)


def read_log() -> str:
    """What venv and pip printed during this set-up."""
    try:
        with open(LOG, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def latest_activity() -> str | None:
    """What pip last said that it is doing, in a few words."""
    for line in reversed(read_log().splitlines()):
        words = line.split()
        if words[:1] in (["Collecting"], ["Downloading"]):
            return " ".join([words[0].lower(), *words[1:4]])
        if line.startswith(PIP_CHANGES_FILES):
            return f"unpacking {len(words) - 3} packages"
    return None


def explain(log: str, code: int) -> SetupError:
    """The error behind a failed step, told by what it printed."""
    errors = [line.strip() for line in log.splitlines() if line.lstrip().startswith(("ERROR:", "Error:"))]
    said = errors[-1].split(":", 1)[1].strip()[:200] if errors else f"exit code {code}"
    if is_disk_full(log):
        return disk_trouble()
    what, remedy = "the installation failed", "see what pip says, and its settings (`pip config list`)"
    if any(trouble in log for trouble in NETWORK_TROUBLE):
        what = "no network: the package index cannot be reached"
        remedy = "check the network, and the index, proxy and certificate in pip's settings (`pip config list`)"
    return SetupError(f"{what} ({said})", hint=f"{remedy}, then start again; all that was printed: {LOG}")


def is_disk_full(log: str) -> bool:
    """Whether a step ended for lack of space; a full disk may have swallowed the message."""
    return any(trouble in log for trouble in DISK_TROUBLE) or free_bytes(os.path.dirname(VENV)) < 1 << 20


def disk_trouble() -> SetupError:
    """The error for a full disk; names the fuller one of the two that an installation writes to."""
    folder = min(os.path.dirname(VENV), os.environ.get("TMPDIR", "/tmp"), key=free_bytes)
    return SetupError(
        f"disk full: {free_bytes(folder) / 2**20:,.0f} MiB free where {folder} lies",
        hint="free about 2 GB (7 GB where CUDA libraries are fetched), or set TMPDIR, then start again",
    )


def explain_system(error: OSError) -> SetupError:
    """The error behind a file that cannot be read or written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_trouble()
    return SetupError(
        f"{error.filename or CHECKOUT}: {error.strerror}",
        hint="work in a copy of the checkout that you may write to, or activate an environment that has ecobench",
    )


def free_bytes(folder: str) -> float:
    """Room on the disk of `folder`; infinite where there is no such folder."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return float("inf")


def say(line: str, *, end: str = "\n") -> None:
    """Tell on stderr; stdout belongs to the command that is started. On a terminal, over what stood there."""
    with contextlib.suppress(OSError):  # a closed stderr must not stop an installation
        sys.stderr.write(("\033[K" if sys.stderr.isatty() else "") + f"ecobench: {line}{end}")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
