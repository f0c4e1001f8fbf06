"""Power limits through the command line: set, proved, and put back whatever happens."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nvml_bed import NvmlBed
from nvml_models import H100
from nvml_state import PRIVILEGED_VARIABLE
from typed_command import Command, wait_for
from zeusd_server import ZeusdServer

MakeNode = Callable[..., NvmlBed]
SUITE_KILLS = 3
SOAK_KILLS = 50
BRIEF = ("toy", "--set", "steps=40", "--set", "step_time=0.005", "--no-report", "--meter", "none")
LONG = ("toy", "--set", "steps=100000", "--set", "step_time=0.005", "--no-report", "--meter", "none")


@pytest.fixture
def capped(make_node: MakeNode) -> NvmlBed:
    """Two H100, which their operator holds at 450 W and 500 W; the second has no persistence mode."""
    bed = make_node(H100, H100)
    bed.set_limit(0, 450)
    bed.set_limit(1, 500)
    bed.set_persistence(1, is_on=False)
    return bed


def is_as_found(bed: NvmlBed) -> bool:
    """Requested and enforced, and persistence."""
    limits = [bed.limits_w(0), bed.limits_w(1)]
    return limits == [(450, 450), (500, 500)] and (bed.has_persistence(0), bed.has_persistence(1)) == (True, False)


def journals(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "runtime").rglob("*.json"))


def start_capped(command: Command, bed: NvmlBed, *, limit_w: float = 300) -> "subprocess.Popen[str]":
    """A run that goes on and on, once its limit is in force and its workload speaks."""
    harness = command.start("run", *LONG, "--power-limit", f"{limit_w:g}W")
    try:
        wait_for(lambda: bed.limits_w(0)[1] == bed.limits_w(1)[1] == limit_w, timeout_s=60, why="the limit in force")
        wait_for(lambda: list(command.home.glob("*/trials/000/events/*.jsonl")), timeout_s=60, why="a first event")
    except AssertionError:
        harness.kill()
        raise
    return harness


def test_capped_run_reads_its_limit_back_and_restores_what_the_operator_had_set(
    capped: NvmlBed, tmp_path: Path
) -> None:
    """50 % of 700 W is 350 W; afterwards 450 W and 500 W again, and persistence as it was, trial by trial."""
    command = Command(tmp_path / "home")
    done = command.run("run", *BRIEF, "--power-limit", "50%", "--trials", "2", "--json")

    assert done.returncode == 0, done.stderr
    assert "GPU 0 (NVIDIA H100 80GB HBM3): 50 % of default 700 W = 350 W, range 200 to 700 W" in done.stderr
    assert is_as_found(capped)
    assert not journals(tmp_path)
    document = json.loads(done.stdout)
    assert [setting["limit_w"] for setting in document["run"]["spec"]["settings"]] == [350, 350]
    for trial in document["trials"]:
        for control, found_w in zip(trial["end"]["controls"], (450, 500), strict=True):
            during = control["during"]
            assert control["before"]["requested_w"] == control["before"]["enforced_w"] == found_w
            assert during["requested_w"] == during["enforced_w"] == control["at_end"]["enforced_w"] == 350
            assert control["after"] == control["before"]
            assert control["changes"] == []
            assert control["problem"] is None
    assert command.run("verify").returncode == 0
    assert command.run("restore").stdout == "nothing is to be put back\n"


def test_list_sets_one_gpu_and_clock_lock_is_taken_off_again(capped: NvmlBed, tmp_path: Path) -> None:
    """GPU 1 at its minimum, GPU 0 at its operator's; both clocks at 1,200 MHz meanwhile, as the bed sees."""
    command = Command(tmp_path / "home")
    harness = command.start("run", *LONG, "--power-limit", "1:min", "--sm-clock", "1200")
    wait_for(lambda: capped.lock_mhz(0) == capped.lock_mhz(1) == 1200, timeout_s=60, why="both clocks locked")
    wait_for(lambda: capped.limits_w(1) == (200, 200), timeout_s=10, why="the limit in force")
    wait_for(lambda: list(command.home.glob("*/trials/000/events/*.jsonl")), timeout_s=60, why="a first event")
    assert capped.limits_w(0) == (450, 450)
    os.killpg(harness.pid, signal.SIGINT)
    harness.communicate(timeout=20)

    assert harness.returncode == 130
    assert is_as_found(capped)
    assert capped.lock_mhz(0) is capped.lock_mhz(1) is None


def kill_harness(command: Command, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def kill_group(command: Command, pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)


def kill_supervisor(command: Command, pid: int) -> None:
    found = command.process_with("ecobench.supervisor")
    assert found is not None
    found.kill()


KILLS = (kill_harness, kill_group, kill_supervisor)


def check_kill(kill: Callable[[Command, int], None], seed: int, bed: NvmlBed, tmp_path: Path) -> None:
    """Kill a capped run at an instant drawn from `seed`: what was found is back within 2 s, and nothing is left."""
    command = Command(tmp_path / f"home-{seed}")
    harness = start_capped(command, bed)
    time.sleep(random.Random(seed).uniform(0, 0.3))
    kill(command, harness.pid)
    killed_s = time.monotonic()
    wait_for(lambda: is_as_found(bed), timeout_s=2.0, why="the limits found before")
    restored_s = time.monotonic() - killed_s
    harness.communicate(timeout=20)
    wait_for(lambda: not command.left_over(), timeout_s=2.5, why=f"left: {command.left_over()}")

    assert restored_s < 2.0
    assert not journals(tmp_path)


@pytest.mark.parametrize("seed", range(SUITE_KILLS))
@pytest.mark.parametrize("kill", KILLS, ids=lambda one: one.__name__)
def test_killed_capped_run_has_its_limits_back_within_two_seconds(
    kill: Callable[[Command, int], None], seed: int, capped: NvmlBed, tmp_path: Path
) -> None:
    """Harness, its whole group, or the supervisor, at a random instant."""
    check_kill(kill, seed, capped, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("kill", KILLS, ids=lambda one: one.__name__)
def test_soak_of_killed_capped_runs(kill: Callable[[Command, int], None], capped: NvmlBed, tmp_path: Path) -> None:
    """Fifty of each kind on one node."""
    for seed in range(100, 100 + SOAK_KILLS):
        check_kill(kill, seed, capped, tmp_path)


def test_limits_left_by_a_run_killed_with_its_supervisor_come_back_by_restore(capped: NvmlBed, tmp_path: Path) -> None:
    """Both at once leave the journal; `ecobench restore` says what it put back, and has nothing to do after it."""
    command = Command(tmp_path / "home")
    harness = start_capped(command, capped)
    kill_both(command, harness)
    assert capped.limits_w(0) == (300, 300)
    restored = command.run("restore")

    assert restored.returncode == 0
    assert re.search(r"restored  GPU 0 \(NVIDIA H100 80GB HBM3\) to 450 W: run \S+ \(pid \d+\) had", restored.stdout)
    assert is_as_found(capped)
    assert command.run("restore").stdout == "nothing is to be put back\n"


@pytest.mark.parametrize("limit", [(), ("--power-limit", "0:400W")], ids=["uncapped", "capped"])
def test_limits_left_by_a_killed_run_come_back_at_the_next_start(
    limit: tuple[str, ...], capped: NvmlBed, tmp_path: Path
) -> None:
    """Before it snapshots anything: what it restores at its end are the operator's limits, not the leftover's."""
    command = Command(tmp_path / "home")
    kill_both(command, start_capped(command, capped))
    done = command.run("run", *BRIEF, *limit)

    assert done.returncode == 0, done.stderr
    assert "restored  GPU 0 (NVIDIA H100 80GB HBM3) to 450 W" in done.stderr
    assert "restored  GPU 1 (NVIDIA H100 80GB HBM3) to 500 W" in done.stderr
    assert is_as_found(capped)


def kill_both(command: Command, harness: "subprocess.Popen[str]") -> None:
    """Harness and supervisor, stopped first so that neither sees the other's end."""
    supervisor = command.process_with("ecobench.supervisor")
    assert supervisor is not None
    supervisor.suspend()
    harness.kill()
    supervisor.kill()
    harness.communicate(timeout=20)
    wait_for(lambda: not command.left_over(), timeout_s=5, why="all of its processes ended")


def test_second_ecobench_on_a_gpu_is_refused_with_the_pid_of_the_first(capped: NvmlBed, tmp_path: Path) -> None:
    """It changes nothing, and neither does `restore` while the first lives."""
    command = Command(tmp_path / "home")
    harness = start_capped(command, capped)
    other = Command(tmp_path / "other")
    refused = other.run("run", *BRIEF, "--power-limit", "250W")
    restored = other.run("restore")
    still = capped.limits_w(0), capped.limits_w(1)
    harness.send_signal(signal.SIGTERM)
    harness.communicate(timeout=20)

    assert refused.returncode == 3
    assert f"GPU 0 is in use by another ecobench (pid {harness.pid}" in refused.stderr
    assert "left alone" in restored.stdout
    assert still == ((300, 300), (300, 300))
    assert harness.returncode == 143
    assert not other.home.exists()
    assert is_as_found(capped)


def test_without_permission_nothing_starts_and_each_remedy_is_named(capped: NvmlBed, tmp_path: Path) -> None:
    """Exit 3 before there is a run folder."""
    capped.only_root_controls()
    command = Command(tmp_path / "home")
    refused = command.run("run", *BRIEF, "--power-limit", "300W")

    assert refused.returncode == 3
    assert "error: no permission to set GPU 0" in refused.stderr
    for word in ("root", "ZEUSD_SOCK_PATH", "ECOBENCH_POWER_COMMAND", "SYS_ADMIN", "administrator"):
        assert word in refused.stderr
    assert not command.home.exists()
    assert is_as_found(capped)


@pytest.mark.parametrize(
    ("typed", "says"),
    [("300", "write 300W for watts or 300%"), ("701W", "200 to 700 W"), ("2:300W", "there is no GPU 2")],
)
def test_limit_that_cannot_be_is_refused_before_anything_starts(
    typed: str, says: str, capped: NvmlBed, tmp_path: Path
) -> None:
    """Exit 2, and the way to write it."""
    command = Command(tmp_path / "home")
    refused = command.run("run", *BRIEF, "--power-limit", typed)

    assert refused.returncode == 2
    assert says in refused.stderr
    assert not command.home.exists()
    assert is_as_found(capped)


def test_limit_changed_by_somebody_else_makes_the_run_invalid_and_is_put_back(capped: NvmlBed, tmp_path: Path) -> None:
    """Seen by the watch during the trial: exit 5, evidence with the watts."""
    command = Command(tmp_path / "home")
    harness = start_capped(command, capped)
    time.sleep(0.2)
    capped.set_limit(1, 600)
    stop = next(command.home.glob("*/trials/000/events")) / "stop"
    time.sleep(1.2)
    stop.touch()
    stdout, stderr = harness.communicate(timeout=60)

    assert harness.returncode == 5, stderr
    assert "GPU 1: the limit of 300 W became 600 W requested, 600 W in force" in stdout
    assert is_as_found(capped)
    assert command.run("verify").returncode == 0


@pytest.mark.parametrize("fault", ["out of band", "ignored"])
def test_limit_that_is_not_in_force_ends_the_run_before_the_launch(fault: str, capped: NvmlBed, tmp_path: Path) -> None:
    """Exit 3: 300 W were set and read back, and the board is held elsewhere."""
    if fault == "out of band":
        capped.set_out_of_band_limit(0, 250)
        in_force_w = 250.0
    else:
        capped.ignore_limits(0)
        in_force_w = capped.limits_w(0)[1]
    command = Command(tmp_path / "home")
    refused = command.run("run", *BRIEF, "--power-limit", "300W")

    assert refused.returncode == 3
    assert f"300 W was set and read back, but {in_force_w:g} W is in force" in refused.stderr
    assert not list(command.home.glob("*/trials/000/events/*.jsonl"))
    assert capped.limits_w(0)[0] == 450
    assert capped.limits_w(1) == (500, 500)
    assert not journals(tmp_path)


def test_lost_gpu_keeps_no_other_from_coming_back(capped: NvmlBed, tmp_path: Path) -> None:
    """The one that answers is put back; the other's journal stays until it answers again."""
    command = Command(tmp_path / "home")
    harness = start_capped(command, capped)
    capped.lose(1)
    next(command.home.glob("*/trials/000/events")).joinpath("stop").touch()
    stdout, stderr = harness.communicate(timeout=60)

    assert capped.limits_w(0) == (450, 450)
    assert "not put back as it was found" in stdout, stderr
    failed = command.run("restore")
    assert failed.returncode == 3
    assert "NOT restored" in failed.stderr
    capped.heal()
    assert command.run("restore").returncode == 0
    assert is_as_found(capped)


def test_power_limit_without_a_driver_says_so(tmp_path: Path) -> None:
    """Exit 3 on a machine without NVIDIA GPUs; without the option it runs as ever."""
    command = Command(tmp_path / "home")
    refused = command.run("run", *BRIEF, "--power-limit", "50%")

    assert refused.returncode == 3
    assert "no NVIDIA driver" in refused.stderr
    assert not command.home.exists()


def test_zeusd_sets_and_restores_where_this_process_may_not(
    capped: NvmlBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through its socket, with its token; read back from the driver; killed, the supervisor restores through it too."""
    capped.only_root_controls()
    command = Command(tmp_path / "home")
    with ZeusdServer(tmp_path / "zeusd.sock", capped, token="open sesame") as server:
        without = command.run("run", *BRIEF, "--power-limit", "300W", ZEUSD_SOCK_PATH=str(server.path))
        access = {"ZEUSD_SOCK_PATH": str(server.path), "ZEUSD_TOKEN": "open sesame"}
        done = command.run("run", *BRIEF, "--power-limit", "300W", **access)
        killed = Command(tmp_path / "killed")
        killed.environment |= access
        harness = start_capped(killed, capped, limit_w=250)
        harness.kill()
        wait_for(lambda: is_as_found(capped), timeout_s=2.0, why="the limits found before")
        harness.communicate(timeout=20)
        wait_for(lambda: not killed.left_over(), timeout_s=2.5, why=f"left: {killed.left_over()}")
    gone = command.run("run", *BRIEF, "--power-limit", "300W", **access)

    assert without.returncode == 3
    assert "401 missing or invalid token" in without.stderr
    assert "ZEUSD_TOKEN" in without.stderr
    assert done.returncode == 0, done.stderr
    asked = [(path, values["gpu_ids"], values["power_limit_mw"]) for path, values in server.requests[:6]]
    assert asked == [
        ("/gpu/set_power_limit", gpu, str(limit_w * 1000))
        for limit_w_of in ((450, 500), (300, 300), (450, 500))  # tried, set, put back
        for gpu, limit_w in zip("01", limit_w_of, strict=True)
    ]
    assert gone.returncode == 3
    assert "does not answer" in gone.stderr
    assert is_as_found(capped)


def test_command_of_the_site_sets_and_restores(capped: NvmlBed, tmp_path: Path) -> None:
    """A wrapper that may, as by sudo; one that may not says so with its own words."""
    capped.only_root_controls()
    wrapper = tmp_path / "gpu-limit"
    wrapper.write_text(
        f"#!{sys.executable}\nimport os, sys\nos.environ['{PRIVILEGED_VARIABLE}'] = '1'\nimport pynvml\n"
        "pynvml.nvmlInit()\nhandle = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])\n"
        "pynvml.nvmlDeviceSetPowerManagementLimit(handle, round(float(sys.argv[2]) * 1000))\n"
    )
    wrapper.chmod(0o755)
    command = Command(tmp_path / "home")
    done = command.run(
        "run", *BRIEF, "--power-limit", "0:300W", "--json", ECOBENCH_POWER_COMMAND=f"{wrapper} {{uuid}} {{watts}}"
    )
    refused = command.run(
        "run", *BRIEF, "--power-limit", "300W", ECOBENCH_POWER_COMMAND="sh -c 'echo not you >&2; exit 9'"
    )
    clock = command.run("run", *BRIEF, "--sm-clock", "1200", ECOBENCH_POWER_COMMAND=f"{wrapper} {{uuid}} {{watts}}")

    assert done.returncode == 0, done.stderr
    (control,) = json.loads(done.stdout)["trials"][0]["end"]["controls"]
    assert (control["during"]["enforced_w"], control["after"]["enforced_w"]) == (300, 450)
    assert refused.returncode == clock.returncode == 3
    assert "exit code 9: not you" in refused.stderr
    assert "is not locked" in clock.stderr
    assert is_as_found(capped)
