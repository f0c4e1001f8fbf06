"""Which GPUs a run is about."""

import pytest

from ecobench.errors import RequestError
from ecobench.gpus import GpuId, select_gpus, visible

ALIKE = [GpuId(index, f"GPU-{letter}{letter}00-1", "H100") for index, letter in enumerate("cab")]
MIXED = [ALIKE[0], GpuId(1, "GPU-aa00-1", "A100")]


def chosen(typed: str | None, *, boards: list[GpuId] = ALIKE, **environment: str) -> list[int]:
    return [gpu.index for gpu in select_gpus(typed, environment, boards).gpus]


@pytest.mark.parametrize(
    ("typed", "indices"), [("all", [0, 1, 2]), ("2,0", [2, 0]), ("GPU-bb00-1,1", [2, 1]), ("gpu-bb", [2])]
)
def test_gpus_are_chosen_by_index_uuid_or_its_start(typed: str, indices: list[int]) -> None:
    """In the order that they are named in, whatever CUDA would see."""
    assert chosen(typed, CUDA_VISIBLE_DEVICES="1") == indices


@pytest.mark.parametrize(
    ("value", "indices"),
    [("2, 1", [2, 1]), ("", []), ("-1", []), ("NoDevFiles", []), ("1,-1,0", [1]), ("GPU-bb00,0", [2, 0])],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(value: str, indices: list[int]) -> None:
    """Empty and -1 hide all; -1 ends the list."""
    assert chosen(None, CUDA_VISIBLE_DEVICES=value) == indices


def test_without_a_word_all_are_meant() -> None:
    """Neither the option nor the variable."""
    assert chosen(None) == [0, 1, 2]


@pytest.mark.parametrize("entry", ["7", "GPU-dd", "GPU", "x", "MIG-1234", ""])
def test_what_is_not_there_is_refused_by_name(entry: str) -> None:
    """Also a start of a UUID that is all UUIDs', and an instance of a board that is cut up."""
    with pytest.raises(RequestError) as refused:
        chosen(f"0,{entry}")

    assert f"--gpus 0,{entry}" in refused.value.message
    assert ("MIG" in refused.value.message) == entry.startswith("MIG")


def test_gpu_named_twice_is_refused() -> None:
    """By index and by UUID."""
    with pytest.raises(RequestError, match="GPU 0 is named twice"):
        chosen("0,GPU-cc00-1")


def test_indices_of_unlike_boards_need_an_order() -> None:
    """Fastest first or by bus: nobody can tell from outside; UUIDs, and an order, can."""
    with pytest.raises(RequestError, match="own order"):
        chosen(None, boards=MIXED, CUDA_VISIBLE_DEVICES="1")
    assert chosen(None, boards=MIXED, CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID") == [1]
    assert chosen(None, boards=MIXED, CUDA_VISIBLE_DEVICES="GPU-aa00-1") == [1]


def test_workload_is_given_uuids_in_order() -> None:
    """cuda:0 is then the first that was named."""
    assert visible([ALIKE[2], ALIKE[0]])["CUDA_VISIBLE_DEVICES"] == "GPU-bb00-1,GPU-cc00-1"
