"""Linters and types, as configured in pyproject.toml."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
WORKLOADS = sorted(path.parent.name for path in CHECKOUT.glob("workloads/*/workload.toml"))


def run_tool(*command: str, folder: Path = CHECKOUT) -> None:
    """Run a tool of the test environment; its output is the failure message."""
    environment = {**os.environ, "MYPYPATH": str(CHECKOUT), "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def test_ruff_finds_nothing() -> None:
    """The rules selected in pyproject.toml hold everywhere."""
    run_tool("ruff", "check", "--no-fix", "--quiet")


def test_everything_is_formatted() -> None:
    """One layout, the formatter's."""
    run_tool("ruff", "format", "--check", "--quiet")


def test_harness_is_strictly_typed() -> None:
    """The strict rules of mypy find nothing in the harness and its front door."""
    run_tool("mypy", "ecobench", "cli.py")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_workload_is_typed(workload: str) -> None:
    """A workload is strictly typed too, but for what torch leaves untyped, which differs by version.

    Each one apart, from within its folder: that is how its files import each other.
    """
    folder = CHECKOUT / "workloads" / workload
    files = sorted(path.name for path in folder.glob("*.py"))
    loose = ("--no-warn-return-any", "--allow-untyped-calls", "--no-warn-unused-ignores")
    options = ("--config-file", str(CHECKOUT / "pyproject.toml"), "--no-namespace-packages", *loose)
    run_tool("mypy", *options, "--cache-dir", str(CHECKOUT / ".mypy_cache" / workload), *files, folder=folder)
