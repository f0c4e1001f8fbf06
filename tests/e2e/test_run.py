"""`ecobench run` and its companions, as typed."""

import json
import re
import shutil
from pathlib import Path

import pytest

from typed_command import Command

QUICK = ("--set", "steps=40", "--set", "step_time=0.01", "--no-report")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A store with one run of the toy, three trials."""
    command = Command(tmp_path_factory.mktemp("store"))
    done = command.run("run", "toy", *QUICK, "--trials", "3", "--meter", "estimate")
    assert done.returncode == 0, done.stderr
    return command


def make_workload(folder: Path, script: str, manifest: str = "") -> Path:
    """A workload whose program is `script`."""
    folder.mkdir(parents=True)
    (folder / "workload.toml").write_text(
        'name = "odd"\nsummary = "odd"\ncommand = "{python} main.py"\nmeasured_phase = "train"\n'
        f'token_rule = "none"\n{manifest}[presets.cpu]\nhardware = "cpu"\n'
    )
    (folder / "main.py").write_text(script)
    return folder


SPEAK = (
    "from ecobench.events import emit, phase\nemit('hello', parameters={})\n"
    "with phase('train'):\n    emit('step', step=1, tokens=1000, synced=True)\n"
)


def test_result_and_json_agree(measured: Command) -> None:
    """Every figure of the block is the one of the JSON document, to the printed digits."""
    block = measured.run("show").stdout
    figures = {figure["key"]: figure for figure in measured.document("show")["summary"]["figures"]}

    from ecobench.units import format_number

    speed = figures["tokens_per_s"]
    assert speed["n"] == 3
    assert format_number(speed["value"]) in block
    assert speed["repeatability"]["low"] < speed["value"] < speed["repeatability"]["high"]
    assert figures["tokens_per_kwh"]["evidence"] == "EST"
    assert figures["tokens_per_kwh"]["value"] == pytest.approx(
        3.6e6 / figures["energy_per_token_j"]["value"], rel=1e-12
    )
    assert "EST" in block


def test_tokens_and_steps_are_those_of_the_measured_phase(measured: Command) -> None:
    """40 steps of 8 sequences of 1,024 tokens are 327,680 tokens."""
    (result, *_) = [trial["result"] for trial in measured.document("show")["trials"]]

    assert (result["n_steps"], result["n_tokens"]) == (40, 40 * 8 * 1024)


def test_phases_add_up_to_the_workloads_life(measured: Command) -> None:
    """The innermost phase owns each instant: durations sum to launch-to-exit."""
    for trial in measured.document("show")["trials"]:
        times = trial["end"]["times"]
        life_s = (times["exit_ns"] - times["launch_ns"]) / 1e9
        assert sum(phase["duration_s"] for phase in trial["result"]["phases"]) == pytest.approx(life_s, abs=1e-8)


def test_estimate_is_core_time_times_the_stated_watts(measured: Command) -> None:
    """A loop that keeps one core busy costs at most one core's watts, and nearly that."""
    document = measured.document("show")
    (power,) = [figure for figure in document["summary"]["figures"] if figure["key"] == "mean_power_w"]
    busy_core_w = float(re.search(r"([\d.]+) W per busy", document["run"]["meters"][0]["basis"]).group(1))  # type: ignore[union-attr]

    assert 0.5 * busy_core_w < power["value"] <= 1.1 * busy_core_w


def test_verify_holds_for_an_untouched_run(measured: Command) -> None:
    """Samples and events give every number again."""
    done = measured.run("verify")

    assert done.returncode == 0, done.stdout
    assert "PROBLEM" not in done.stdout


@pytest.mark.parametrize(
    "name",
    ["run.json", "trials/000/trial.json", "trials/001/samples.arrow", "trials/002/events/rank-00000.jsonl"],
)
def test_verify_catches_one_changed_byte(measured: Command, tmp_path: Path, name: str) -> None:
    """Whichever file of the evidence it is in."""
    home = tmp_path / "home"
    shutil.copytree(measured.home, home)
    command = Command(home)
    path = command.run_folder() / name
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle] ^= 0x01
    path.write_bytes(data)

    done = command.run("verify")
    assert done.returncode != 0
    assert "PROBLEM" in done.stdout or "error" in done.stderr


def test_verify_catches_a_number_changed_in_the_summary(measured: Command, tmp_path: Path) -> None:
    """The summary is derived: it is recomputed, not hashed."""
    home = tmp_path / "home"
    shutil.copytree(measured.home, home)
    command = Command(home)
    path = command.run_folder() / "summary.json"
    summary = json.loads(path.read_text())
    summary["figures"][0]["value"] *= 1.001
    path.write_text(json.dumps(summary))

    done = command.run("verify")
    assert done.returncode == 5
    assert "figures[0].value" in done.stdout


def test_list_shows_the_run_once(measured: Command) -> None:
    """One line a run, also as JSON."""
    (run,) = measured.document("list")["runs"]

    assert run["id"] == measured.run_folder().name
    assert run["id"] in measured.run("list").stdout


def test_until_steps_stops_and_says_so(tmp_path: Path) -> None:
    """The workload is asked through the stop file and says that it stopped."""
    command = Command(tmp_path)
    done = command.run("run", "toy", "--set", "step_time=0.05", "--until", "steps=5", "--no-report", "--meter", "none")

    assert done.returncode == 0, done.stderr
    (trial,) = command.document("show")["trials"]
    assert trial["status"] == "stopped"
    assert 5 <= trial["result"]["n_steps"] < 200


def test_speed_alone_without_a_meter(tmp_path: Path) -> None:
    """`--meter none`: no energy, with the reason, and never 0."""
    command = Command(tmp_path)
    done = command.run("run", "toy", *QUICK, "--meter", "none")

    assert done.returncode == 0, done.stderr
    figures = {figure["key"]: figure for figure in command.document("show")["summary"]["figures"]}
    assert figures["energy_j"]["value"] is None
    assert figures["energy_j"]["reason"]
    assert figures["tokens_per_s"]["value"] > 0


@pytest.mark.parametrize(
    ("script", "exit_code", "said"),
    [
        ("import sys\n" + SPEAK + "sys.exit(3)\n", 4, "exit code 3"),
        ("import os\n" + SPEAK + "os._exit(0)\n", 4, "goodbye"),
        ("raise ValueError('boom')\n", 4, "ValueError: boom"),
        ("", 4, "without one event"),
        (
            "import os\n"
            + SPEAK
            + "open(os.environ['ECOBENCH_EVENTS'] + '/rank-00000.jsonl', 'a').write('{oops\\n')\n",
            5,
            "broken_events",
        ),
        (
            "from ecobench.events import emit\nemit('hello', parameters={'a': 1})\n"
            + SPEAK.replace("emit('hello', parameters={})\n", ""),
            5,
            "a is 1",
        ),
        ("from ecobench.events import emit\nemit('hello', parameters={})\n", 5, "never entered phase"),
    ],
    ids=["exits 3", "no goodbye", "raises", "silent", "broken line", "other parameters", "no phase"],
)
def test_odd_workload_is_named_and_nothing_is_lost(tmp_path: Path, script: str, exit_code: int, said: str) -> None:
    """A clear error, the right exit code, and a run that can be shown and verified."""
    workload = make_workload(tmp_path / "odd", script)
    command = Command(tmp_path / "home")
    done = command.run("run", str(workload), "--no-report", "--meter", "estimate")

    assert done.returncode == exit_code, done.stderr
    assert said in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert command.run("show").returncode == 0
    assert command.run("verify").returncode == 0


def test_program_that_does_not_exist_is_a_clear_error(tmp_path: Path) -> None:
    """Exit code 4, the program's name, and a run folder that says so."""
    workload = make_workload(tmp_path / "odd", "")
    manifest = workload / "workload.toml"
    manifest.write_text(manifest.read_text().replace("{python} main.py", "/no/such/program"))
    command = Command(tmp_path / "home")
    done = command.run("run", str(workload), "--no-report", "--meter", "none")

    assert done.returncode == 4
    assert "/no/such/program" in done.stderr
    assert command.document("show")["trials"][0]["status"] == "failed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "nonogpt"), "nanogpt"),
        (("run", "toy", "--set", "stepz=3"), "steps"),
        (("run", "toy", "--set", "steps=0"), "out of range"),
        (("run", "toy", "--set", "steps=2.5"), "whole number"),
        (("run", "toy", "--preset", "gpu"), "cpu"),
        (("run", "toy", "--until", "time=10"), "unit"),
        (("run", "toy", "--meter", "mains"), "estimate"),
        (("run", "toy", "--trials", "0"), "--trials"),
        (("show", "nothing"), "ecobench"),
        (("report", "--format", "pdf"), "html"),
        (("verify",), "ecobench run"),
    ],
)
def test_bad_request_is_refused_before_anything_is_written(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """Exit code 2, one line with a hint, and no run folder."""
    command = Command(tmp_path / "home")
    done = command.run(*arguments)

    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "home").exists()


def test_unreadable_schema_is_refused_in_one_line(measured: Command, tmp_path: Path) -> None:
    """A run of a later version is not guessed at."""
    home = tmp_path / "home"
    shutil.copytree(measured.home, home)
    command = Command(home)
    path = command.run_folder() / "run.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 99'))

    done = command.run("show")
    assert done.returncode == 2
    assert "schema 99" in done.stderr
    assert command.run("list").returncode == 0
