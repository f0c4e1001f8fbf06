"""Zeus beside a run on the NVML test bed: in the record, in the report, recomputed; and never in the way."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ecobench.cli.wiring import second_opinion
from ecobench.measurement import ReadingKind
from nvml_bed import NvmlBed
from nvml_models import H100
from records_for_tests import meter_info
from typed_command import Command, wait_for

MakeNode = Callable[..., NvmlBed]
BRIEF = ("toy", "--preset", "cpu", "--set", "steps=25", "--set", "step_time=0.04", "--no-report")


def test_run_ends_with_zeus_beside_our_counter_and_verify_makes_it_again(make_node: MakeNode, tmp_path: Path) -> None:
    """Two boards at 300 and 500 W: over about 2 s Zeus and we differ by a tick at each end, at most."""
    bed = make_node(H100, H100)
    bed.set_load(0, 300)
    bed.set_load(1, 500)
    command = Command(tmp_path / "home")
    done = command.run("run", *BRIEF, "--json")

    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    (trial,) = document["trials"]
    opinions = trial["result"]["second_opinions"]
    assert [(one["domain"], one["relation"]) for one in opinions] == [
        ("gpu:0", "same source"),
        ("gpu:1", "same source"),
    ]
    times = trial["end"]["times"]
    zeus = trial["end"]["zeus"]
    assert times["sampler_up_ns"] < zeus["start_ns"] < times["launch_ns"]
    assert times["exit_ns"] < zeus["stop_ns"] < times["sampler_down_ns"]
    assert [one["uuid"] for one in zeus["readings"]] == list(bed.uuids)
    for gpu, (one, power_w) in enumerate(zip(opinions, (300, 500), strict=True)):
        truth_j = bed.truth(gpu).energy_j(zeus["start_ns"], zeus["stop_ns"])
        assert one["ours_j"] == pytest.approx(truth_j, rel=0.01)
        assert one["theirs_j"] == pytest.approx(truth_j, abs=0.22 * power_w)
        assert one["note"] is None
    (line,) = document["summary"]["second_opinion"]
    assert line.startswith("Zeus 0.")
    assert line.endswith("over 2 GPU(s) (same source)")
    verified = command.run("verify", "last")
    assert verified.returncode == 0, verified.stdout
    assert command.run("report", "last", "--format", "html").returncode == 0
    assert 'id="second-opinion"' in (command.run_folder() / "report.html").read_text()
    assert not command.left_over()


def test_zeus_that_cannot_start_costs_a_note(
    make_node: MakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is lost to Zeus alone: a package of that name that breaks on import comes first on its path."""
    make_node(H100)
    broken = tmp_path / "path" / "zeus"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('half of it is missing')")
    monkeypatch.setenv("PYTHONPATH", str(broken.parent), prepend=":")
    done = Command(tmp_path / "home").run("run", *BRIEF, "--json")

    document = json.loads(done.stdout)
    (trial,) = document["trials"]
    assert trial["status"] == "done"
    assert trial["end"]["zeus"]["note"] == "ImportError: half of it is missing"
    assert trial["result"]["second_opinions"] == []
    assert document["summary"]["second_opinion"] == ["Zeus gave none: ImportError: half of it is missing"]


def test_board_without_a_counter_is_not_given_to_zeus() -> None:
    """It would poll power there, with processes that outlive it."""
    power = meter_info(domain="gpu:0", interface="nvml", kind=ReadingKind.INSTANT_POWER, device="GPU-0")
    with second_opinion([power, meter_info()]) as opinion:
        assert opinion is None


def test_killed_harness_leaves_no_zeus_behind(make_node: MakeNode, tmp_path: Path) -> None:
    make_node(H100)
    command = Command(tmp_path / "home")
    harness = command.start("run", "toy", "--preset", "cpu", "--set", "steps=100000", "--no-report")
    try:
        wait_for(lambda: command.process_with("zeus_window"), timeout_s=30, why="Zeus")
        wait_for(lambda: list(command.home.glob("*/trials/000/events/*.jsonl")), timeout_s=60, why="a first event")
    finally:
        harness.send_signal(signal.SIGKILL)
        harness.communicate(timeout=20)
    wait_for(lambda: not command.left_over(), timeout_s=4, why="every process to be gone")
