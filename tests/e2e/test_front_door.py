"""`cli.py` in a checkout of its own: a project as small as can be, installed by the real venv and the real pip.

The small project brings its own build backend and asks for nothing, so that no test needs a network.
"""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "cli.py"
TOOLS = ("pytest", "ruff", "mypy", "lint-imports", "playwright")
LIMIT_S = 60.0

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "ecobench"
version = "1.0"
dependencies = []

[project.optional-dependencies]
test = ["test-tools"]
"""

# Writes the wheel of an editable install by hand. While a file `hold` lies in the checkout, it does not get on.
BACKEND = """
import pathlib, time, tomllib, zipfile

HERE = pathlib.Path(__file__).parent

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    (HERE / "is_building").touch()
    while (HERE / "hold").exists():
        time.sleep(0.02)
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    needs = "".join(f"Requires-Dist: {name}\\n" for name in project["dependencies"])
    extras = "".join(f"Provides-Extra: {extra}\\n" + "".join(f'Requires-Dist: {name}; extra == "{extra}"\\n' for name in
                     names) for extra, names in project["optional-dependencies"].items())
    name = "ecobench-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w") as wheel:
        info = "ecobench-1.0.dist-info/"
        wheel.writestr("ecobench-checkout.pth", str(HERE / "source"))
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: ecobench\\nVersion: 1.0\\n" + needs + extras)
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "entry_points.txt", "[console_scripts]\\necobench = the_command:main\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""

# The installed command: says what it was given, and ends as it was told.
COMMAND = """
import json, os, sys

def main():
    print(json.dumps({"argv": sys.argv, "cwd": os.getcwd(), "python": sys.prefix, "stdin": sys.stdin.read()}))
    sys.exit(int(sys.argv[-1]) if sys.argv[-1].isdigit() else 0)
"""


class Checkout:
    """A small checkout with `cli.py` in it, and a way to start that."""

    def __init__(self, folder: Path, packages: Path) -> None:
        self.folder = folder
        self.packages = packages
        self.first_start: subprocess.CompletedProcess[str] | None = None
        (folder / "source").mkdir(parents=True)
        shutil.copy(SOURCE, folder / "cli.py")
        (folder / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
        (folder / "constraints.txt").write_text("# none\n", encoding="utf-8")
        (folder / "backend.py").write_text(BACKEND, encoding="utf-8")
        (folder / "source" / "the_command.py").write_text(COMMAND, encoding="utf-8")

    @property
    def venv(self) -> Path:
        """Where the environment is to be."""
        return self.folder / ".venv"

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start `python3 cli.py ARGUMENTS` without an index, unless `variables` say otherwise."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
        for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            environment.pop(name, None)
        environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.packages)}
        environment = {name: value for name, value in (environment | variables).items() if value}
        return subprocess.Popen(
            [base_python(), str(self.folder / "cli.py"), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Start it, and wait for its end."""
        process = self.start(*arguments, **variables)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def require(self, *dependencies: str) -> None:
        """Let these be the project's dependencies."""
        text = PYPROJECT.replace("dependencies = []", f"dependencies = {json.dumps(dependencies)}")
        (self.folder / "pyproject.toml").write_text(text, encoding="utf-8")

    def hold(self) -> None:
        """Let the next installation stop in the middle."""
        (self.folder / "is_building").unlink(missing_ok=True)
        (self.folder / "hold").touch()

    def wait_until_held(self) -> None:
        """Return when an installation has come to the middle."""
        wait_for((self.folder / "is_building").exists)

    def let_go(self) -> None:
        """Let the installation that is held go on."""
        (self.folder / "hold").unlink()


def base_python() -> str:
    """The Python behind the environment that runs the tests: a start from outside of any environment."""
    return str(getattr(sys, "_base_executable", sys.executable))


def wait_for(condition: Callable[[], bool]) -> None:
    """Return once the condition holds."""
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "waited too long"
        time.sleep(0.02)


def processes_of(folder: Path) -> list[int]:
    """Processes whose command line names the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder) in entry.read_bytes().decode(errors="replace"):
                found.append(int(entry.parent.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def assert_error(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    """One `error:` line, an empty line and a hint at the end of stderr, and nothing on stdout."""
    assert done.returncode == code, done.stderr
    assert not done.stdout
    *_, error, empty, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert not empty
    assert hint.startswith("hint: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in error + hint


def assert_works(done: subprocess.CompletedProcess[str], checkout: Checkout) -> None:
    """The installed command of the checkout ran."""
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["python"] == str(checkout.venv)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the one wheel that the extra `test` asks for; each of its tools tells how it was called."""
    folder = tmp_path_factory.mktemp("packages")
    info = "test_tools-1.0.dist-info/"
    scripts = "".join(f"{tool} = the_command:main\n" for tool in TOOLS)
    with zipfile.ZipFile(folder / "test_tools-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: test-tools\nVersion: 1.0\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "entry_points.txt", "[console_scripts]\n" + scripts)
        wheel.writestr(info + "RECORD", "")
    return folder


@pytest.fixture
def fresh(tmp_path: Path, packages: Path) -> Checkout:
    """A checkout that nobody has started yet."""
    return Checkout(tmp_path / "check out", packages)  # with a space in its path


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory, packages: Path) -> Checkout:
    """A checkout whose environment is there; for tests that leave it whole, or mended."""
    checkout = Checkout(tmp_path_factory.mktemp("lived") / "in", packages)
    checkout.first_start = checkout.run()
    return checkout


def test_syntax_is_that_of_python_3_6() -> None:
    """An old Python can read the file, else it prints a SyntaxError where the remedy should be."""
    ast.parse(SOURCE.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_old_python_is_told_the_remedy(fresh: Checkout) -> None:
    """The version is looked at before anything else happens."""
    program = f"import runpy, sys; sys.version_info = (3, 8, 10); runpy.run_path({str(fresh.folder / 'cli.py')!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert_error(done, "needs Python 3.11 or newer, this is 3.8")
    assert not fresh.venv.exists()


@pytest.mark.parametrize("minor", range(6, 11))
def test_real_old_python_is_told_the_remedy(minor: int, fresh: Checkout, require: Callable[..., str]) -> None:
    """As above, with the real thing where there is one."""
    beside = Path(base_python()).resolve().parents[2]  # where pyenv has the others
    pythons = [*beside.glob(f"3.{minor}.*/bin/python3.{minor}"), *Path("/usr/bin").glob(f"python3.{minor}")]
    old = require(f"python3.{minor}", pythons[0] if pythons else "")
    done = subprocess.run([old, str(fresh.folder / "cli.py")], capture_output=True, text=True, check=False)

    assert_error(done, f"needs Python 3.11 or newer, this is 3.{minor}")


def test_first_start_installs_and_tells_its_progress(lived_in: Checkout) -> None:
    """What happens, where, and that it happens once; stdout stays clean for the command."""
    first = lived_in.first_start
    assert first is not None

    assert_works(first, lived_in)
    assert f"first start: installing into {lived_in.venv}, once" in first.stderr
    assert "installed after" in first.stderr
    assert "Successfully installed ecobench" in (lived_in.venv / "install.log").read_text(encoding="utf-8")


def test_later_start_only_hands_over(lived_in: Checkout, tmp_path: Path) -> None:
    """Arguments, working directory and exit code pass through, and nothing else is printed."""
    done = lived_in.run("run", "two words", "--flag=*", "7")
    heard = json.loads(done.stdout)

    assert done.returncode == 7
    assert heard["argv"] == [str(lived_in.venv / "bin" / "ecobench"), "run", "two words", "--flag=*", "7"]
    assert heard["cwd"] == str(tmp_path)
    assert not done.stderr


def test_tests_get_their_extra_on_top(lived_in: Checkout, tmp_path: Path) -> None:
    """`test` adds to the environment that is there, runs in the checkout, and paths keep their meaning."""
    (tmp_path / "test_x.py").touch()
    done = lived_in.run("test", "-k", "word", "test_x.py::test_y", "5")
    heard = json.loads(done.stdout)

    assert done.returncode == 5
    assert heard["argv"] == [
        str(lived_in.venv / "bin" / "pytest"), "-k", "word", f"{tmp_path}/test_x.py::test_y", "5",
    ]  # fmt: skip
    assert heard["cwd"] == str(lived_in.folder)
    assert "anew" not in done.stderr
    assert not lived_in.run("run").stderr  # and the extra is no reason to install again


def test_missing_ensurepip_is_told_with_its_package(fresh: Checkout, tmp_path: Path) -> None:
    """Debian's Python without python3-venv: the remedy is named, and what is there stays."""
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "ensurepip.py").write_text("raise ImportError(name='ensurepip')", encoding="utf-8")
    (fresh.venv / "kept").mkdir(parents=True)
    done = fresh.run(PYTHONPATH=str(tmp_path / "stub"))

    assert_error(done, "no `ensurepip` module", f"python3.{sys.version_info.minor}-venv")
    assert (fresh.venv / "kept").exists()


def test_no_network_is_told(fresh: Checkout) -> None:
    """An index that does not answer is named as that, with the remedy and pip's log."""
    fresh.require("test-tools")
    done = fresh.run(PIP_NO_INDEX="", PIP_FIND_LINKS="", PIP_INDEX_URL="http://127.0.0.1:9/", PIP_RETRIES="1")

    assert_error(done, "no network", "pip config list", str(fresh.venv / "install.log"))


def test_missing_package_is_no_network_trouble(lived_in: Checkout) -> None:
    """Where an index answers and lacks something, the error quotes pip."""
    lived_in.require("surely-nowhere")
    done = lived_in.run()
    lived_in.require()

    assert_error(done, "No matching distribution found for surely-nowhere", "pip config list")
    assert "no network" not in done.stderr


def test_failed_extra_leaves_what_worked(fresh: Checkout, tmp_path: Path) -> None:
    """Tests that cannot be installed for want of a network do not cost the user the environment."""
    assert_works(fresh.run(), fresh)
    done = fresh.run("test", PIP_FIND_LINKS=str(tmp_path))
    again = fresh.run()

    assert_error(done, "No matching distribution found for test-tools")
    assert_works(again, fresh)
    assert not again.stderr


def test_changed_dependencies_are_installed_on_top(lived_in: Checkout) -> None:
    """A pull that changes what is needed costs an installation; one that changes a linter's settings none."""
    with (lived_in.folder / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("\n[tool.ruff]\nline-length = 120\n")
    after_settings = lived_in.run()
    (lived_in.folder / "constraints.txt").write_text("test-tools==1.0\n", encoding="utf-8")
    after_pin = lived_in.run()

    assert not after_settings.stderr
    assert_works(after_pin, lived_in)
    assert "up to date" in after_pin.stderr
    assert "anew" not in after_pin.stderr


@pytest.mark.parametrize("damage", ["moved", "interpreter gone", "files lost"])
def test_broken_environment_is_made_anew(damage: str, lived_in: Checkout) -> None:
    """Whatever makes the environment unusable is noticed, named and mended."""
    if damage == "moved":
        lived_in.folder = lived_in.folder.rename(lived_in.folder.with_name("elsewhere"))
    elif damage == "interpreter gone":
        for link in (lived_in.venv / "bin").glob("python*"):
            link.unlink()
            link.symlink_to("/nowhere/python3")
    else:
        shutil.rmtree(lived_in.venv / "lib")
    done = lived_in.run()

    assert_works(done, lived_in)
    assert "making it anew" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_installation_leaves_no_process(number: signal.Signals, fresh: Checkout) -> None:
    """Ctrl-C and SIGTERM end pip too, and the exit code tells which."""
    fresh.hold()
    process = fresh.start()
    fresh.wait_until_held()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 128 + number
    assert "Traceback" not in stderr
    assert not processes_of(fresh.folder)


def test_killed_installation_is_made_anew(fresh: Checkout) -> None:
    """SIGKILL leaves a pip behind: the next start waits for its end, and does not trust what it made."""
    fresh.hold()
    process = fresh.start()
    fresh.wait_until_held()
    process.kill()
    process.communicate(timeout=LIMIT_S)
    process = fresh.start()
    assert process.stderr is not None
    waiting = process.stderr.readline()
    fresh.let_go()
    stdout, stderr = process.communicate(timeout=LIMIT_S)

    assert "another start is setting up .venv; waiting for it" in waiting
    assert "did not finish: making it anew" in stderr
    assert_works(subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr), fresh)


def test_two_starts_at_once_install_once(fresh: Checkout) -> None:
    """The second waits, says so, and finds everything done."""
    fresh.hold()
    first = fresh.start()
    fresh.wait_until_held()
    second = fresh.start()
    assert second.stderr is not None
    waiting = second.stderr.readline()
    fresh.let_go()
    outputs = [process.communicate(timeout=LIMIT_S) for process in (first, second)]

    assert "another start is setting up .venv; waiting for it" in waiting
    assert [process.returncode for process in (first, second)] == [0, 0]
    assert ["installed after" in stderr for _, stderr in outputs] == [True, False]


@pytest.fixture
def small_disk(tmp_path: Path, require: Callable[..., str]) -> Iterator[Path]:
    """A disk of 12 MiB: less than an environment takes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)]
    can_mount = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    require("mount", can_mount, why="only root may mount a small disk")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_full_disk_is_told_and_given_back(small_disk: Path, packages: Path) -> None:
    """A disk that fills half-way is named as that; the half-made environment goes, and with more room it works."""
    checkout = Checkout(small_disk / "checkout", packages)
    done = checkout.run()
    was_left = checkout.venv.exists()
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    again = checkout.run()

    assert_error(done, "disk full", "MiB free")
    assert not was_left
    assert_works(again, checkout)


def test_checkout_that_cannot_be_written_is_told(fresh: Checkout) -> None:
    """A place for the environment that cannot be made is an error with a remedy."""
    (fresh.folder / ".venv.lock").mkdir()  # binds root too, as missing permissions do not
    done = fresh.run()

    assert_error(done, ".venv.lock", "copy of the checkout")


def test_active_environment_with_ecobench_is_used(fresh: Checkout, tmp_path: Path) -> None:
    """Who has activated an environment that has ecobench wants that one; nothing is installed."""
    script = tmp_path / "active" / "bin" / "ecobench"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\necho active $*\nexit 3\n", encoding="utf-8")
    script.chmod(0o755)
    done = fresh.run("run", VIRTUAL_ENV=str(tmp_path / "active"))

    assert done.returncode == 3
    assert done.stdout == "active run\n"
    assert not fresh.venv.exists()


def test_active_environment_without_test_tools_is_not_used_for_tests(lived_in: Checkout, tmp_path: Path) -> None:
    """`test` needs its tools: without them it goes to `.venv`, and says so."""
    script = tmp_path / "active" / "bin" / "ecobench"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n", encoding="utf-8")
    script.chmod(0o755)
    done = lived_in.run("test", VIRTUAL_ENV=str(tmp_path / "active"))

    assert_works(done, lived_in)
    assert "lacks pytest, ruff, mypy, lint-imports, playwright" in done.stderr


def test_environment_of_somebody_else_is_never_removed(fresh: Checkout) -> None:
    """A working `.venv` that this program did not make is refused, not replaced."""
    python = fresh.venv / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(base_python())
    done = fresh.run()

    assert_error(done, "was not made by cli.py, and lacks ecobench")
    assert python.exists()
    assert sorted(path.name for path in fresh.venv.iterdir()) == ["bin"]
