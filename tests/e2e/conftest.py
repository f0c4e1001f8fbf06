"""The NVML test bed for what is typed: built once, and a node for each test that lives on the monotonic clock."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nvml_bed import NvmlBed
from nvml_build import NvmlLibrary, build_nvml
from nvml_models import OLD_DRIVER_LACKS, GpuModel

Require = Callable[..., str]
MakeNode = Callable[..., NvmlBed]


@pytest.fixture(scope="session")
def nvml_library(require: Require, session_folder: Path) -> NvmlLibrary:
    """The driver library of the bed."""
    return build_nvml(require("gcc"), session_folder / "nvml")


@pytest.fixture(scope="session")
def old_nvml_library(require: Require, session_folder: Path) -> NvmlLibrary:
    """The same as an old driver would have it: later functions are not there."""
    return build_nvml(require("gcc"), session_folder / "nvml", without=OLD_DRIVER_LACKS)


@pytest.fixture
def make_node(tmp_path: Path, nvml_library: NvmlLibrary, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeNode]:
    """Makes the node of a test, which every process started from here finds; its journals are the test's own."""
    opened = []

    def make(*models: GpuModel, library: NvmlLibrary = nvml_library) -> NvmlBed:
        bed = NvmlBed.create(tmp_path / "node.state", library, models)
        opened.append(bed)
        for name, value in bed.environment.items():
            monkeypatch.setenv(name, value)
        runtime = tmp_path / "runtime"
        runtime.mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        return bed

    yield make
    for bed in opened:
        bed.close()
