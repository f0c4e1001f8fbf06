"""`ecobench run` on a machine whose RAPL can be read: a fake powercap tree with known watts."""

from pathlib import Path

import pytest

from powercap_tree import TURN_UJ, PowercapTree
from typed_command import Command

QUICK = ("--set", "steps=100", "--set", "step_time=0.01", "--no-report")


def test_energy_of_two_packages_and_dram_is_their_watts_times_the_time(tmp_path: Path) -> None:
    """40 W (over a wrap), 20 W and 5 W of DRAM make 65 W at boundary `cpu`, evidence C1."""
    tree = PowercapTree(tmp_path / "powercap")
    tree.add_package(0, energy_uj=TURN_UJ - 60_000_000)
    tree.add_part(0, 0, "dram")
    tree.add_package(1)
    command = Command(tmp_path / "home")
    with tree.running({"intel-rapl:0": 40.0, "intel-rapl:0:0": 5.0, "intel-rapl:1": 20.0}):
        done = command.run("run", "toy", *QUICK, ECOBENCH_POWERCAP_ROOT=str(tree.root))

    assert done.returncode == 0, done.stderr
    assert "C1" in done.stdout
    assert "EST" not in done.stdout
    shown = command.document("show")
    power = next(figure for figure in shown["summary"]["figures"] if figure["key"] == "mean_power_w")
    assert (power["boundary"], power["evidence"]) == ("cpu", "C1")
    # The measured second has edges that the fake tree writes up to some 10 ms late on a busy machine.
    assert power["value"] == pytest.approx(65.0, rel=0.05)
    (result,) = [trial["result"] for trial in shown["trials"]]
    train = next(phase for phase in result["phases"] if phase["phase"] == "train")
    assert {domain["domain"] for domain in train["domains"]} == {"cpu:0/package", "cpu:0/dram", "cpu:1/package"}
    assert not [flag for flag in result["flags"] if flag["code"].startswith("counter_")]
    assert command.run("verify").returncode == 0


def test_rapl_that_was_asked_for_and_is_not_there_is_exit_code_3(tmp_path: Path) -> None:
    """Before anything starts, with the reason."""
    command = Command(tmp_path / "home")
    done = command.run("run", "toy", "--meter", "rapl", ECOBENCH_POWERCAP_ROOT=str(tmp_path / "none"))

    assert done.returncode == 3
    assert "hint:" in done.stderr
    assert not (tmp_path / "home").exists()
