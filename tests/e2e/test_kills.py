"""Whatever is killed, and whenever: the run can be read, nothing is left behind, the exit code says what happened."""

import json
import os
import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from typed_command import Command, wait_for

# (workload arguments, has torchrun)
# An eval every 50 steps: segments of 0.5 s, long enough for 10 readings a second.
TOY = ("toy", "--set", "step_time=0.01", "--set", "steps=2000")
# As small as the smoke variant, and endless.
SMALL = ("sequence_length=64", "warmup_steps=1", "validation_every=50", "validation_tokens=1024", "steps=100000")
NANOGPT = ("nanogpt", *(word for setting in SMALL for word in ("--set", setting)))
NANOGPT_2 = (*NANOGPT, "--set", "ranks=2")
SUITE_KILLS = 3
SOAK_KILLS = 20


def seeds(n: int) -> list[int]:
    return list(range(n))


def kill_harness_by_ctrl_c(process: psutil.Process, command: Command) -> None:
    os.killpg(process.pid, signal.SIGINT)


def kill_harness_by_sigterm(process: psutil.Process, command: Command) -> None:
    process.send_signal(signal.SIGTERM)


def kill_harness(process: psutil.Process, command: Command) -> None:
    process.kill()


def kill_harness_group(process: psutil.Process, command: Command) -> None:
    os.killpg(process.pid, signal.SIGKILL)


def kill_supervisor(process: psutil.Process, command: Command) -> None:
    found = command.process_with("ecobench.supervisor")
    assert found is not None
    found.kill()


def kill_workload(process: psutil.Process, command: Command) -> None:
    # A launcher's own command line names the script too; the ranks run it with -u.
    found = command.process_with("main.py") or command.process_with(" -u train.py")
    assert found is not None
    found.kill()


def kill_agent(process: psutil.Process, command: Command) -> None:
    found = command.process_with("torch.distributed.run")
    assert found is not None
    found.kill()


# How the harness ends: its exit code (negative: by that signal), the status that `show` tells, a word of the message.
ENDINGS = {
    kill_harness_by_ctrl_c: (130, "interrupted", "SIGINT"),
    kill_harness_by_sigterm: (143, "interrupted", "SIGTERM"),
    kill_harness: (-9, "lost", ""),
    kill_harness_group: (-9, "lost", ""),
    kill_supervisor: (4, "failed", "supervisor"),
    kill_workload: (4, "failed", ""),
    kill_agent: (4, "failed", "SIGKILL"),
}


def check_kill(kind: object, arguments: tuple[str, ...], seed: int, home: Path, *, up_to_s: float) -> None:
    """Run, kill at an instant drawn from `seed` once the workload has spoken, and look at what there is."""
    command = Command(home)
    harness = command.start("run", *arguments, "--no-report", "--meter", "estimate")
    try:
        events = wait_for(
            lambda: list(home.glob("*/trials/000/events/rank-00000.jsonl")) if home.exists() else [],
            timeout_s=90,
            why="the workload's first event",
        )
        wait_for(lambda: b"\n" in events[0].read_bytes(), timeout_s=30, why="a whole line")
        time.sleep(random.Random(seed).uniform(0, up_to_s))
        killed_ns = time.monotonic_ns()
        kind(psutil.Process(harness.pid), command)  # type: ignore[operator]
        _, stderr = harness.communicate(timeout=20)
    finally:
        if harness.poll() is None:
            harness.kill()
    wait_for(lambda: not command.left_over(), timeout_s=2.5, why=f"left: {command.left_over()}")

    exit_code, status, word = ENDINGS[kind]
    assert harness.returncode == exit_code, stderr
    assert word in stderr
    shown = command.document("show")
    assert shown["summary"]["status"] == status
    assert not shown["summary"]["is_valid"] or status == "interrupted"
    assert shown["trials"][0]["end"] is not None
    last_sample_ns = shown["trials"][0]["end"]["times"]["sampler_down_ns"]
    # A second of samples may be lost, and a busy machine may wake the sampler late.
    assert last_sample_ns > killed_ns - 1_500_000_000
    assert command.run("verify").returncode == 0


@pytest.mark.parametrize("seed", seeds(SUITE_KILLS))
@pytest.mark.parametrize("kind", [kind for kind in ENDINGS if kind is not kill_agent], ids=lambda one: one.__name__)
def test_toy_killed_at_a_random_instant_leaves_a_readable_run_and_no_process(
    kind: object, seed: int, tmp_path: Path
) -> None:
    """Every kind of kill, on the smallest workload."""
    check_kill(kind, TOY, seed, tmp_path, up_to_s=1.5)


@pytest.mark.parametrize("kind", list(ENDINGS), ids=lambda one: one.__name__)
def test_two_ranks_of_nanogpt_killed_leave_a_readable_run_and_no_process(kind: object, tmp_path: Path) -> None:
    """Every kind of kill, on torchrun with two gloo ranks."""
    check_kill(kind, NANOGPT_2, 1, tmp_path, up_to_s=2.0)


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(SOAK_KILLS))
@pytest.mark.parametrize("arguments", [TOY, NANOGPT, NANOGPT_2], ids=["toy", "nanogpt", "nanogpt-2-ranks"])
@pytest.mark.parametrize("kind", list(ENDINGS), ids=lambda one: one.__name__)
def test_soak_of_kills(kind: object, arguments: tuple[str, ...], seed: int, tmp_path: Path) -> None:
    """Twenty of each kind on each workload."""
    if kind is kill_agent and arguments is TOY:
        pytest.skip("toy has no launcher of its own")
    check_kill(kind, arguments, seed, tmp_path, up_to_s=4.0)


def test_second_ctrl_c_ends_a_workload_that_ignores_the_first(tmp_path: Path) -> None:
    """A workload that ignores SIGTERM is gone at the second Ctrl-C, without the grace."""
    workload = tmp_path / "stubborn"
    workload.mkdir()
    (workload / "workload.toml").write_text(
        'name = "stubborn"\nsummary = "ignores SIGTERM"\ncommand = "{python} main.py"\nmeasured_phase = "train"\n'
        'token_rule = "none"\n[presets.cpu]\nhardware = "cpu"\n'
    )
    (workload / "main.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "from ecobench.events import emit, phase\nemit('hello', parameters={})\n"
        "with phase('train'):\n    emit('step', step=1, tokens=1, synced=True)\n    time.sleep(60)\n"
    )
    command = Command(tmp_path / "home")
    harness = command.start("run", str(workload), "--no-report", "--meter", "none")
    wait_for(lambda: list(tmp_path.glob("home/*/trials/000/events/rank-00000.jsonl")), timeout_s=30, why="first event")
    os.killpg(harness.pid, signal.SIGINT)
    time.sleep(0.2)
    second_s = time.monotonic()
    os.killpg(harness.pid, signal.SIGINT)
    harness.communicate(timeout=20)

    assert harness.returncode == 130
    assert time.monotonic() - second_s < 2.0
    assert not command.left_over()


def test_killed_harness_leaves_samples_of_all_but_the_last_second(tmp_path: Path) -> None:
    """The sample stream of a killed harness reads without the torn batch at its end."""
    command = Command(tmp_path)
    harness = command.start("run", *TOY, "--no-report", "--meter", "estimate")
    wait_for(lambda: list(tmp_path.glob("*/trials/000/events/rank-00000.jsonl")), timeout_s=30, why="first event")
    time.sleep(2.5)
    harness.kill()
    harness.communicate()
    samples = command.run_folder() / "trials" / "000" / "samples.arrow"
    with open(samples, "ab") as file:
        file.write(b"\xff\xff\xff\xff\x10\x01")  # the first bytes of a batch that never came

    shown = command.document("show")
    phases = {phase["phase"]: phase for phase in shown["trials"][0]["result"]["phases"]}
    assert phases["train"]["domains"][0]["energy_j"] > 0
    assert json.loads((command.run_folder() / "run.json").read_text())["spec"]["workload"] == "toy"
