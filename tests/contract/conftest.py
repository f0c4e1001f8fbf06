"""The NVML test bed for contract tests: built once, and a node for each test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from nvml_bed import NvmlBed
from nvml_build import NvmlLibrary, build_nvml
from nvml_models import H100, MS, OLD_DRIVER_LACKS, GpuModel

Require = Callable[..., str]
MakeBed = Callable[..., NvmlBed]


@pytest.fixture(scope="session")
def nvml_library(require: Require, session_folder: Path) -> NvmlLibrary:
    """The driver library of the bed."""
    return build_nvml(require("gcc"), session_folder / "nvml")


@pytest.fixture(scope="session")
def old_nvml_library(require: Require, session_folder: Path) -> NvmlLibrary:
    """The same as an old driver would have it: later functions are not there."""
    return build_nvml(require("gcc"), session_folder / "nvml", without=OLD_DRIVER_LACKS)


@pytest.fixture
def make_bed(tmp_path: Path, nvml_library: NvmlLibrary) -> Iterator[MakeBed]:
    """Makes the node of a test and loads its driver here; time is held at a multiple of 100 ms, GPU 0's update."""
    opened: list[Any] = []

    def make(*models: GpuModel, library: NvmlLibrary = nvml_library) -> NvmlBed:
        bed = NvmlBed.create(tmp_path / "node.state", library, models)
        bed.hold(bed.now_ns // (100 * MS) * 100 * MS)
        loaded = bed.loaded()
        loaded.__enter__()
        opened.append((bed, loaded))
        return bed

    yield make
    for bed, loaded in opened:
        loaded.__exit__(None, None, None)
        bed.close()


@pytest.fixture
def h100(make_bed: MakeBed) -> NvmlBed:
    """One H100, initialised."""
    bed = make_bed(H100)
    pynvml.nvmlInit()
    return bed
