"""The shape of the source tree."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parents[2]
PRODUCT = [CHECKOUT / "cli.py", *sorted(CHECKOUT.glob("ecobench/**/*.py")), *sorted(CHECKOUT.glob("workloads/**/*.py"))]
MAX_LINES = 400
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}

each_file = pytest.mark.parametrize("path", PRODUCT, ids=lambda path: str(path.relative_to(CHECKOUT)))


@pytest.fixture(scope="module")
def pyproject() -> dict[str, dict[str, object]]:
    """The parsed pyproject.toml."""
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))


@each_file
def test_file_is_short(path: Path) -> None:
    """One noun a file: what grows beyond 400 lines is two."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@each_file
def test_file_says_what_it_is(path: Path) -> None:
    """Every file opens with a docstring."""
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@each_file
def test_file_is_named_by_its_noun(path: Path) -> None:
    """A name that fits everything says nothing."""
    assert not EMPTY_NAMES & set(path.stem.split("_"))


@each_file
def test_file_is_finished(path: Path) -> None:
    """What is not there is an issue, not a remark in the code."""
    found = re.findall(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b", path.read_text(encoding="utf-8"))

    assert not found


def test_packages_are_those_of_the_tree(pyproject: dict[str, dict[str, object]]) -> None:
    """The list in pyproject.toml, which no finder can make, has not gone stale."""
    packages = {".".join(path.parent.relative_to(CHECKOUT).parts) for path in CHECKOUT.glob("ecobench/**/*.py")}
    listed = pyproject["tool"]["setuptools"]["packages"]  # type: ignore[index]

    assert listed == sorted(packages | {"ecobench.workloads"})


def test_constraints_pin_every_direct_dependency(pyproject: dict[str, dict[str, object]]) -> None:
    """Each dependency has one exact version in constraints.txt, which the lower bound admits."""
    lines = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {
        canonicalize_name(pin.name): pin
        for pin in map(Requirement, (line for line in lines if line and line[0] != "#"))
    }
    project = pyproject["project"]
    asked = [Requirement(text) for text in project["dependencies"]]  # type: ignore[attr-defined]
    asked += [Requirement(text) for text in project["optional-dependencies"]["test"]]  # type: ignore[index]

    for requirement in asked:
        (pin,) = pins[canonicalize_name(requirement.name)].specifier
        assert pin.operator == "=="
        assert requirement.specifier.contains(pin.version)
