"""Who may import whom."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
WORKLOAD_FILES = sorted(CHECKOUT.glob("workloads/**/*.py"))
HEAVY = ("torch", "matplotlib", "pandas", "zeus", "bokeh", "numpy", "pyarrow", "scipy", "sklearn")


def imported_names(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # `from ecobench import events` imports a module too.
            module = node.module or ""
            names |= {f"{module}.{alias.name}" for alias in node.names} if module == "ecobench" else {module}
    return names


def test_imports_point_down() -> None:
    """The contracts in pyproject.toml hold, and every module of the harness has its place in them."""
    tool = Path(sys.executable).with_name("lint-imports")
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(
        [tool, "--no-cache"], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKLOAD_FILES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_workload_imports_only_events_of_the_harness(path: Path) -> None:
    """A workload speaks through `ecobench.events` and knows nothing else of ecobench."""
    ours = {name for name in imported_names(path) if name.split(".")[0] == "ecobench"}

    assert ours <= {"ecobench.events"}


def test_help_loads_nothing_heavy() -> None:
    """`ecobench --help` answers at once, since nothing heavy is imported until a command runs."""
    program = (
        "import sys\n"
        "from ecobench.cli import main\n"
        "sys.argv = ['ecobench', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    code = end.code\n"
        f"print(code, *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stderr == "0\n"
