"""GPUs through the command line: measured, and what a person sees of each fault of a board or its driver."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nvml_bed import DRIVER_MISMATCH, NvmlBed
from nvml_build import NvmlLibrary
from nvml_models import A100, GH200, H100, OLD_DRIVER_LACKS_FIELDS, GpuModel
from typed_command import Command, wait_for

MakeNode = Callable[..., NvmlBed]
TOY = ("run", "toy", "--no-report")
BRIEF = (*TOY, "--set", "steps=100", "--set", "step_time=0.01")


@pytest.fixture
def on(make_node: MakeNode, tmp_path: Path) -> Callable[..., tuple[NvmlBed, Command]]:
    """A node and a command on it."""

    def make(*models: GpuModel, **options: NvmlLibrary) -> tuple[NvmlBed, Command]:
        return make_node(*models, **options), Command(tmp_path / "home")

    return make


On = Callable[..., tuple[NvmlBed, Command]]


def codes(document: Any) -> set[str]:
    """Of all flags of the first trial."""
    return {flag["code"] for flag in document["trials"][0]["result"]["flags"]}


def test_gpus_are_measured_and_the_workload_gets_uuids(on: On) -> None:
    """600 and 500 W, chosen in another order than the driver's: within 5 % of the loads; only these are set."""
    bed, command = on(H100, H100, H100)
    for gpu, power_w in enumerate((600, 500, 400)):
        bed.set_load(gpu, power_w)
    command.environment["CUDA_VISIBLE_DEVICES"] = f"{bed.uuids[1]},0"
    document = command.document(*BRIEF, "--power-limit", "90%")
    result = document["trials"][0]["result"]
    (energy,) = result["boundaries"]

    assert (energy["boundary"], energy["evidence"]) == ("gpu", "G1")
    assert energy["energy_j"] / result["duration_s"] == pytest.approx(1100, rel=0.05)
    assert sorted(energy["domains"]) == ["gpu:0", "gpu:1"]
    environment = document["run"]["spec"]["environment"]
    assert environment["CUDA_VISIBLE_DEVICES"] == f"{bed.uuids[1]},{bed.uuids[0]}"
    assert [gpu["limit_enforced_w"] for gpu in document["summary"]["gpus"]] == [630, 630]
    assert [one["index"] for one in document["run"]["spec"]["settings"]] == [0, 1]
    assert command.run("verify").returncode == 0


def test_gpu_lost_in_the_middle_takes_the_sum_and_says_which(on: On) -> None:
    """The run ends, as invalid: its energy is missing with a reason, not a number without that GPU."""
    bed, command = on(H100, H100)
    harness = command.start(*TOY, "--set", "steps=200", "--set", "step_time=0.01", "--json")
    wait_for(lambda: list(command.home.glob("*/trials/000/events/*.jsonl")), timeout_s=60, why="a first event")
    bed.lose(1)
    stdout, stderr = harness.communicate(timeout=60)
    result = json.loads(stdout)["trials"][0]["result"]

    assert harness.returncode == 5, stderr
    assert {one["energy_j"] for one in result["boundaries"]} == {None}
    reasons = " ".join(one["reason"] for one in result["boundaries"])
    assert "gpu:1" in reasons
    assert "lost" in reasons
    assert "gpu:0:" not in reasons


def test_no_counter_on_one_board_answers_all_by_power_and_a_slow_pass_is_said(on: On) -> None:
    """G0 for both, 1,000 W; and at 25 ms a call two boards are not read every 40 ms."""
    bed, command = on(H100, H100)
    for gpu, power_w in enumerate((600, 400)):
        bed.set_load(gpu, power_w)
        bed.set_latency(gpu, 25_000_000)
    bed.remove_counter(1)
    document = command.document(*BRIEF)
    result = document["trials"][0]["result"]
    (energy,) = result["boundaries"]

    assert (energy["boundary"], energy["evidence"]) == ("gpu", "G0")
    assert energy["energy_j"] / result["duration_s"] == pytest.approx(1000, rel=0.05)
    assert "no energy counter" in document["run"]["absences"][0]["reason"]
    assert "slow_reading" in codes(document)


def test_frozen_missing_and_foreign_are_told_apart(on: On) -> None:
    """GPU 0 says 72 W and counts 600 W, GPU 1 has somebody else's process, GPU 2 says no power at all."""
    bed, command = on(H100, H100, H100)
    bed.freeze_power(0)
    bed.set_load(0, 600)
    bed.list_processes(1, {os.getpid(): 1 << 30})
    bed.remove_power(2)
    result = command.document(*BRIEF)["trials"][0]["result"]
    flags = {flag["code"]: flag["evidence"] for flag in result["flags"]}
    (phase,) = [one for one in result["phases"] if one["phase"] == "train"]
    (frozen,) = [one for one in phase["checks"] if (one["domain"], one["kind"]) == ("gpu:0", "instant_power")]

    assert frozen["ratio"] == pytest.approx(72 / 600, rel=0.1)
    assert frozen["verdict"] != "agrees"
    assert "gpu:1" in flags["foreign_process"]
    assert "gpu:2" in flags["counter_unchecked"]


def test_driver_of_another_version_is_named_with_its_remedy(on: On) -> None:
    """Asked for, it is exit 3; by default the processor is measured and the reason stands beside it."""
    bed, command = on(H100)
    bed.fail_init(DRIVER_MISMATCH)
    refused = command.run(*BRIEF, "--meter", "nvml")
    doctor = command.run("doctor", "--observe", "0")

    assert refused.returncode == 3
    assert "of different versions" in refused.stderr
    assert "reboot" in refused.stderr
    assert doctor.returncode == 0
    assert "no meter  nvml: the NVIDIA driver and its library are of different versions" in doctor.stdout
    assert "cpu/workload" in doctor.stdout


def test_mig_is_refused_by_name_and_another_board_is_not(on: On) -> None:
    """Before anything starts; an instance in CUDA_VISIBLE_DEVICES too."""
    bed, command = on(H100, H100)
    bed.set_mig(0)
    refused = command.run(*BRIEF)
    instance = command.run(*BRIEF, CUDA_VISIBLE_DEVICES="MIG-0a1b2c3d")

    assert refused.returncode == 3
    assert "GPU 0 (NVIDIA H100 80GB HBM3) is cut into MIG instances" in refused.stderr
    assert instance.returncode == 2
    assert "a MIG instance has no energy of its own" in instance.stderr
    absent = command.run(*BRIEF, "--gpus", "4")
    assert (absent.returncode, "no GPU `4` answers" in absent.stderr) == (2, True)
    assert not command.home.exists()
    assert "MIG is on" in command.run("doctor", "--observe", "0").stdout


def test_unlike_boards_are_not_chosen_by_a_number_that_cuda_reads_otherwise(on: On) -> None:
    """Index 1 of an A100 and an H100 depends on CUDA's order; with the order it is measured."""
    bed, command = on(A100, H100)
    refused = command.run(*BRIEF, CUDA_VISIBLE_DEVICES="0")
    doctor = command.run("doctor", "--observe", "0", CUDA_VISIBLE_DEVICES="1,0", CUDA_DEVICE_ORDER="PCI_BUS_ID")

    assert refused.returncode == 2
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in refused.stderr
    assert f"GPU 0     {A100.name}, cuda:1, {bed.uuids[0]}" in doctor.stdout
    assert f"GPU 1     {H100.name}, cuda:0, {bed.uuids[1]}" in doctor.stdout


def test_doctor_shows_scope_limits_and_what_a_module_lacks(on: On) -> None:
    """A Grace module, a lost board, and one that its operator holds at 450 W."""
    bed, command = on(GH200, H100, H100)
    bed.set_limit(1, 450)
    bed.lose(2)
    bed.set_square_wave(1, high_w=400, low_w=200, period_ns=170_000_000)
    shown = command.run("doctor").stdout

    assert "observed  gpu:1: energy counter changes every 100 ms; instant power changes every 100 ms" in shown
    assert "control   power limits and SM clocks" in shown
    assert "no meter  nvml gpu:0: its energy counter counts the whole module" in shown
    assert "meter     gpu:0 by nvml (G0" in shown
    assert "meter     gpu:1 by nvml (G1" in shown
    assert "limit 450 W asked, 450 W in force, default 700 W, 200 W to 700 W" in shown
    assert "GPU 2: GPU is lost" in shown


def test_old_driver_is_measured_too(on: On, old_nvml_library: NvmlLibrary) -> None:
    """Without later functions and fields: a counter, and the power that there is."""
    bed, command = on(H100, library=old_nvml_library)
    bed.lack_fields(OLD_DRIVER_LACKS_FIELDS)

    assert "energy counter 50 Hz, average power 2 Hz" in command.run("doctor", "--observe", "0").stdout
