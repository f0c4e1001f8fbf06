"""GPUs measured through the command line, against what their boards really drew."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nvml_bed import NvmlBed
from nvml_models import H100
from typed_command import Command, wait_for

MakeNode = Callable[..., NvmlBed]
# 3 s of train in steps of 60 ms: against updates of 100 ms that is ten beats. One validation, at the end.
TOY = ("run", "toy", "--set", "steps=49", "--set", "step_time=0.06", "--no-report")


@pytest.fixture
def command(tmp_path: Path, pair: NvmlBed) -> Command:
    """`ecobench` in a store of its own, on the node that `pair` made."""
    return Command(tmp_path / "home")


@pytest.fixture
def pair(make_node: MakeNode) -> NvmlBed:
    """Two H100 that would draw 900 and 500 W, and may draw 700 W."""
    bed = make_node(H100, H100)
    bed.set_load(0, 900)
    bed.set_load(1, 500)
    return bed


def train_ns(command: Command) -> tuple[int, int]:
    """From the start of `train` to that of the validation in it, from the workload's events."""
    text = (command.run_folder() / "trials/000/events/rank-00000.jsonl").read_text(encoding="utf-8")
    events = [json.loads(line) for line in text.splitlines()]
    starts = {event["phase"]: event["time_ns"] for event in events if event["event"] == "phase_start"}
    return starts["train"], starts["eval"]


def has_stepped(command: Command) -> bool:
    """Whether the workload of the first trial has said a step."""
    return any('"step"' in path.read_text() for path in command.home.glob("*/trials/000/events/*.jsonl"))


def flags_of(document: Any) -> dict[str, dict[str, Any]]:
    """The summary's flags by code."""
    return {flag["code"]: flag for flag in document["summary"]["flags"]}


def test_energy_cap_and_clock_of_each_gpu_are_those_of_the_bed(command: Command, pair: NvmlBed) -> None:
    """GPU 0 sits at its limit all of the time, GPU 1 never: told apart, flagged, in joules as the bed knows them."""
    document = command.document(*TOY)

    (energy,) = [one for one in document["summary"]["figures"] if one["key"] == "energy_j" and one["boundary"] == "gpu"]
    truths_j = [pair.truth(gpu).energy_j(*train_ns(command)) for gpu in (0, 1)]
    assert energy["evidence"] == "G1"
    assert energy["value"] == pytest.approx(sum(truths_j), rel=0.01)
    first, second = document["summary"]["gpus"]
    assert first["energy_j"] == pytest.approx(truths_j[0], rel=0.01)
    assert (first["limit_requested_w"], first["limit_enforced_w"]) == (700, 700)
    assert first["limited_share"] == pytest.approx(1, abs=0.02)
    assert second["limited_share"] == pytest.approx(0, abs=0.02)
    assert [first["cap_state"], second["cap_state"]] == ["bound", "never bound"]
    assert document["summary"]["cap_state"] == "partly"
    assert first["check_ratio"] == pytest.approx(1, abs=0.02)
    assert "gpu:0 100 %" in flags_of(document)["unequal_caps"]["evidence"]
    assert command.run("verify").returncode == 0
    block = command.run("show", "last").stdout
    assert "power limit: bound partly" in block
    assert "gpu G1" in block


def test_a_node_with_one_board_without_counter_is_polled_as_a_whole(command: Command, pair: NvmlBed) -> None:
    """The sum of both is G0, by the integral; the counter that there is agrees, and nothing says G1."""
    pair.remove_counter(0)

    document = command.document(*TOY)

    gpu_figures = [one for one in document["summary"]["figures"] if one["boundary"] == "gpu"]
    assert {one["evidence"] for one in gpu_figures} == {"G0"}
    truth_j = sum(pair.truth(gpu).energy_j(*train_ns(command)) for gpu in (0, 1))
    (energy,) = [one for one in gpu_figures if one["key"] == "energy_j"]
    assert energy["value"] == pytest.approx(truth_j, rel=0.02)


def test_a_counter_that_nothing_checks_is_no_g1(command: Command, pair: NvmlBed) -> None:
    """Power is not to be had: the counter's energy stands as G0, with a flag."""
    for gpu in (0, 1):
        pair.remove_power(gpu)

    document = command.document(*TOY)

    assert {one["evidence"] for one in document["summary"]["figures"] if one["boundary"] == "gpu"} == {"G0"}
    assert flags_of(document)["counter_unchecked"]["severity"] == "warning"


def test_a_gpu_lost_in_the_middle_takes_the_sum_and_is_named(command: Command, pair: NvmlBed) -> None:
    """Exit 5: measured but invalid; GPU 0 keeps its number."""
    harness = command.start(*TOY, "--json")
    wait_for(lambda: has_stepped(command), timeout_s=60, why="a first step")
    pair.lose(1)
    output, _ = harness.communicate(timeout=120)
    document = json.loads(output)

    assert harness.returncode == 5
    assert flags_of(document)["no_energy"]["evidence"].startswith("no energy at boundary gpu: gpu:1: samples miss")
    first, second = document["summary"]["gpus"]
    assert first["energy_j"] is not None
    assert second["energy_j"] is None


def test_heat_and_a_reset_are_flagged_by_name(command: Command, pair: NvmlBed) -> None:
    """GPU 1 too hot from the start; GPU 0's counter starts again in the middle."""
    pair.throttle(1, "hw_thermal", clock_mhz=600)
    harness = command.start(*TOY, "--json")
    wait_for(lambda: has_stepped(command), timeout_s=60, why="a first step")
    pair.reset_counter(0)
    output, _ = harness.communicate(timeout=120)

    flags = flags_of(json.loads(output))
    assert flags["throttled"]["evidence"].startswith("gpu:1: held back by heat for 100 %")
    assert flags["counter_reset"]["evidence"].startswith("gpu:0: the counter did not count on")
