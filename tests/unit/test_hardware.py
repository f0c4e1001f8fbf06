"""Which preset a machine gets by default."""

from pathlib import Path

import pytest

from ecobench.config import Manifest, choose, parse_manifest
from ecobench.errors import ManifestError, RequestError
from ecobench.hardware import GIB, Gpu, describe_gpus, ranks_for

H100 = Gpu(name="NVIDIA H100 80GB HBM3", memory_bytes=79 * GIB, capability=(9, 0))
A100 = Gpu(name="NVIDIA A100-SXM4-80GB", memory_bytes=80 * GIB, capability=(8, 0))
RTX_4090 = Gpu(name="NVIDIA GeForce RTX 4090", memory_bytes=int(23.99 * GIB), capability=(8, 9))
RTX_4070 = Gpu(name="NVIDIA GeForce RTX 4070", memory_bytes=12 * GIB, capability=(8, 9))


@pytest.fixture
def nanogpt(checkout: Path) -> Manifest:
    """The main workload's own manifest."""
    path = checkout / "workloads" / "nanogpt" / "workload.toml"
    return parse_manifest(path.read_text(encoding="utf-8"), where=str(path))


@pytest.mark.parametrize(
    ("gpus", "preset", "ranks"),
    [
        ([H100] * 8, "speedrun", 8),
        ([H100] * 10, "speedrun", 8),
        ([H100] * 4, "speedrun-short", 4),
        ([H100] * 3, "speedrun-short", 2),
        ([H100], "speedrun-short", 1),
        ([A100] * 8, "speedrun-short", 8),
        ([RTX_4090], "speedrun-short", 1),
    ],
)
def test_gpus_choose_the_preset(nanogpt: Manifest, gpus: list[Gpu], preset: str, ranks: int) -> None:
    """Eight Hoppers run the speedrun, others with 24 GB the short one, one rank a GPU as far as lanes divide."""
    choice = choose(nanogpt, preset=None, hardware="gpu", gpus=gpus)

    assert (choice.preset.name, choice.ranks) == (preset, ranks)


@pytest.mark.parametrize("gpus", [[RTX_4070], [RTX_4090, RTX_4070]])
def test_a_smaller_gpu_wants_a_preset_by_name(nanogpt: Manifest, gpus: list[Gpu]) -> None:
    """The message tells which GPUs there are and which presets."""
    with pytest.raises(RequestError, match="RTX 4070") as caught:
        choose(nanogpt, preset=None, hardware="gpu", gpus=gpus)

    assert "speedrun-short" in (caught.value.hint or "")
    assert choose(nanogpt, preset="cpu", hardware="gpu", gpus=gpus).preset.name == "cpu"
    assert choose(nanogpt, preset="speedrun-short", hardware="gpu", gpus=gpus).ranks == len(gpus)


def test_no_gpu_runs_on_the_cpu(nanogpt: Manifest) -> None:
    """Without any download."""
    choice = choose(nanogpt, preset=None, hardware="cpu")

    assert (choice.preset.name, choice.ranks) == ("cpu", 1)


def test_ranks_divide_eight_lanes() -> None:
    """One a GPU, and none too many."""
    assert [ranks_for([H100] * n) for n in (0, 1, 2, 3, 4, 7, 8, 16)] == [1, 1, 2, 2, 4, 4, 8, 8]
    assert describe_gpus([H100, A100, H100]) == "2 x NVIDIA H100 80GB HBM3, 1 x NVIDIA A100-SXM4-80GB"
    assert describe_gpus([]) == "no GPU"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('needs = { architecture = "hoper" }', "did you mean `hopper`"),
        ("needs = { gpu = 8 }", "did you mean `gpus`"),
        ("ranks = -1", "at least 1"),
    ],
)
def test_needs_that_are_not_known_are_refused(line: str, says: str) -> None:
    """With a suggestion, as everything in a manifest."""
    text = f"""
    name = "w"
    summary = "s"
    command = "{{python}} w.py"
    measured_phase = "train"
    token_rule = "one a step"
    [presets.big]
    hardware = "gpu"
    {line}
    """
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, where="w")

    assert says in f"{caught.value.message} {caught.value.hint}"
