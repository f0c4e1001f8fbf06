"""What the machine's GPUs are, from the driver, and the preset that follows."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ecobench.config import choose, parse_manifest
from ecobench.controls.board import describe_boards
from ecobench.hardware import GIB
from nvml_bed import NvmlBed
from nvml_models import A40, H100, RTX4090, GpuModel

MakeBed = Callable[..., NvmlBed]


@pytest.mark.parametrize(
    ("models", "preset", "ranks"),
    [
        ((H100,) * 8, "speedrun", 8),
        ((H100,) * 2, "speedrun-short", 2),
        ((A40,) * 8, "speedrun-short", 8),
        ((RTX4090,), "speedrun-short", 1),
    ],
)
def test_boards_choose_the_preset(
    make_bed: MakeBed, checkout: Path, models: tuple[GpuModel, ...], preset: str, ranks: int
) -> None:
    """Name, memory and compute capability come from the driver; eight Hoppers and only they run the speedrun."""
    make_bed(*models)
    manifest = parse_manifest((checkout / "workloads/nanogpt/workload.toml").read_text(encoding="utf-8"), where="w")

    gpus = describe_boards()

    assert [gpu.name for gpu in gpus] == [model.name for model in models]
    assert all(gpu.memory_bytes > 20 * GIB for gpu in gpus)
    choice = choose(manifest, preset=None, hardware="gpu", gpus=gpus)
    assert (choice.preset.name, choice.ranks) == (preset, ranks)


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has a driver")
def test_without_a_driver_there_are_no_boards() -> None:
    """Nor an error: most machines have none."""
    assert describe_boards() == ()
