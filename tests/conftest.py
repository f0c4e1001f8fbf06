"""What every test gets: a place of its own, and a way to say what it needs of the machine."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

# Before anything loads OpenMP: busy-waiting threads slow each other many times over on a loaded machine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# A runner in the background of a script has Ctrl-C and hang-up ignored; what is tested here would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

CHECKOUT = Path(__file__).resolve().parents[1]
PROGRAMS = {"chromium": ("chromium", "chromium-browser", "google-chrome"), "gcc": ("gcc", "cc")}

Require = Callable[..., str]


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the source tree."""
    return CHECKOUT


@pytest.fixture(scope="session")
def require() -> Require:
    """Asks for something that not every machine has: `require("chromium")` returns its path, or skips the test.

    `require("root", os.geteuid() == 0)` asks for what is no program. What `$ECOBENCH_REQUIRE` names (with commas
    between) may not be missing: its tests fail instead of being skipped.
    """

    def ask(name: str, found: object = None, *, why: str = "") -> str:
        if found is None:
            found = next(filter(None, map(shutil.which, PROGRAMS.get(name, (name,)))), None)
        if not found:
            message = f"needs {name}" + (f": {why}" if why else "")
            if name in os.environ.get("ECOBENCH_REQUIRE", "").split(","):
                pytest.fail(f"{message} (named in ECOBENCH_REQUIRE)", pytrace=False)
            pytest.skip(message)
        return str(found)

    return ask


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What may be made once for all tests: home, caches, data shards."""
    folder = tmp_path_factory.mktemp("session")
    for name in ("home", "cache", "config", "runtime", "data", "matplotlib"):
        (folder / name).mkdir(mode=0o700)
    return folder


@pytest.fixture(autouse=True)
def _isolated(tmp_path: Path, session_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test works in a fresh folder; nothing of it reaches the user's home, runs or data, nor theirs the test."""
    for name in list(os.environ):
        is_ours = name.startswith("ECOBENCH_") and name != "ECOBENCH_REQUIRE"
        if is_ours or name in {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}:
            monkeypatch.delenv(name)
    for name, folder in {
        "HOME": session_folder / "home",
        "XDG_CACHE_HOME": session_folder / "cache",
        "XDG_CONFIG_HOME": session_folder / "config",
        "XDG_RUNTIME_DIR": session_folder / "runtime",
        "MPLCONFIGDIR": session_folder / "matplotlib",
        "ECOBENCH_DATA": session_folder / "data",
        "ECOBENCH_HOME": tmp_path / "ecobench-runs",
    }.items():
        monkeypatch.setenv(name, str(folder))
    monkeypatch.chdir(tmp_path)
