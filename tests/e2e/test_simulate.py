"""The whole command on a node that does not exist: the same store and report, and SIMULATED everywhere."""

import json
from pathlib import Path

from typed_command import Command


def test_a_simulated_run_says_so_everywhere(tmp_path: Path) -> None:
    command = Command(tmp_path)

    done = command.run("run", "--simulate", "8xh100", "--power-limit", "85%")

    assert done.returncode == 0, done.stderr
    assert "SIMULATED (8xh100, seed 0): nanogpt" in done.stdout
    assert "SIMULATED 8xh100, seed 0: nothing here is measured" in done.stderr
    assert "85 % of default 700 W = 595 W" in done.stderr
    energies = [line for line in done.stdout.splitlines() if line.startswith(("efficiency", "energy", "mean power"))]
    assert energies
    assert all("SIM" in line for line in energies)
    (folder,) = (path.parent for path in tmp_path.glob("*/run.json"))
    assert json.loads((folder / "run.json").read_text())["spec"]["simulation"] == "8xh100, seed 0"
    assert "<strong>SIMULATED.</strong> These numbers" in (folder / "report.html").read_text()
    assert sorted(path.name for path in folder.glob("*.png")) >= ["energy.png", "loss.png", "power.png"]
    verified = command.run("verify", "last")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_what_cannot_be_simulated_is_refused_in_one_line(tmp_path: Path) -> None:
    command = Command(tmp_path)

    for arguments, says in (
        (("--simulate", "8xh10"), "did you mean `8xh100`?"),
        (("--simulate", "8xh100", "--set", "zero_init=off"), "`zero_init=off` has no stated simulated effect"),
        (("--simulate", "8xh100", "--meter", "none"), "a simulated node brings its own meters"),
        (("--simulate", "8xh100", "--power-limit", "100W"), "100 W"),
    ):
        done = command.run("run", *arguments)

        assert done.returncode == 2, done.stderr
        assert says in done.stderr
    assert not list(tmp_path.glob("*/run.json"))


def test_a_plan_predicts_and_stores_nothing(tmp_path: Path) -> None:
    command = Command(tmp_path)

    done = command.run("run", "--simulate", "8xh100", "--plan", "--price", "0.2", "--trials", "5", "--json")

    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["evidence"] == "SIM"
    assert [row["limit"] for row in document["plan"]] == ["100%", "90%", "80%", "70%", "60%", "50%"]
    assert all(row["cost"] == row["node_kwh"] * 0.2 for row in document["plan"])
    times = [row["train_s"] for row in document["plan"]]
    assert times == sorted(times)
    assert not list(tmp_path.glob("*/run.json"))
    assert command.run("run", "--plan").returncode == 2
    assert "SIMULATED" in command.run("run", "--simulate", "8xh100", "--plan").stdout
