"""Zeus beside us, unmodified, on the NVML test bed; and what becomes of it when it does not work."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from ecobench.meters.zeus import ZeusProcess
from nvml_bed import NvmlBed
from nvml_models import H100
from typed_command import wait_for

MakeBed = Callable[..., NvmlBed]


@pytest.fixture
def node(make_bed: MakeBed, monkeypatch: pytest.MonkeyPatch) -> NvmlBed:
    """Three boards, this program its child's parent; of what the user's environment says Zeus chokes on most."""
    bed = make_bed(H100, H100, H100)
    bed.release()
    for name, value in bed.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", bed.uuids[2])
    monkeypatch.setenv("ZEUSD_SOCK_PATH", "/nonexistent/zeusd.sock")
    return bed


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_zeus_says_what_the_boards_counters_say_by_uuid_in_any_order(node: NvmlBed) -> None:
    """600 W on one board and 200 W on the other, over about half a second: within a tick of 100 ms at each end."""
    node.set_load(2, 600)
    node.set_load(0, 200)
    zeus = ZeusProcess({"gpu:2": node.uuids[2], "gpu:0": "0"})
    try:
        zeus.await_ready()
        zeus.begin()
        time.sleep(0.5)
        window = zeus.end()
    finally:
        zeus.close()

    assert window.note is None
    assert window.start_ns is not None
    assert window.stop_ns is not None
    assert [(one.domain, one.uuid) for one in window.readings] == [("gpu:2", node.uuids[2]), ("gpu:0", node.uuids[0])]
    for one, gpu in zip(window.readings, (2, 0), strict=True):
        truth_j = node.truth(gpu).energy_j(window.start_ns, window.stop_ns)
        tick_j = node.truth(gpu).power_w(window.stop_ns) * 0.1
        assert one.energy_j == pytest.approx(truth_j, abs=1.1 * tick_j)
    assert is_gone(zeus.pid)


def test_one_process_serves_every_trial_of_a_run(node: NvmlBed) -> None:
    zeus = ZeusProcess({"gpu:0": node.uuids[0]})
    try:
        zeus.await_ready()
        zeus.begin()  # a trial that was interrupted never asked for its end
        zeus.begin()
        first = zeus.end()
        never_begun = zeus.end()
        zeus.begin()
        second = zeus.end()
    finally:
        zeus.close()

    assert first.note is None
    assert never_begun.note == "no window was opened"
    assert first.stop_ns is not None
    assert second.start_ns is not None
    assert second.start_ns > first.stop_ns


PROGRAMS = {
    "absent": ("import nowhere", "ended without a word"),
    "broken": ("""print('{"is": "failed", "reason": "ImportError: broken"}')""", "ImportError: broken"),
    "talks nonsense": ("print('hello')", "no report"),
    "slow": ("import time; time.sleep(60)", "did not answer in time (ready)"),
    "dies later": (
        """print('{"is": "ready", "version": "1", "uuids": ["GPU-0"]}', flush=True)""",
        "ended without a word",
    ),
    "hangs later": (
        """import time; print('{"is": "ready", "version": "1", "uuids": ["GPU-0"]}', flush=True); time.sleep(60)""",
        "did not answer in time (begun)",
    ),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_zeus_that_does_not_work_is_a_note_and_nothing_else(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing raises, nothing waits for long, no process stays."""
    monkeypatch.setattr("ecobench.meters.zeus.ANSWER_WITHIN_S", 0.3)
    program, note = PROGRAMS[kind]
    start = time.monotonic()
    zeus = ZeusProcess({"gpu:0": "GPU-0"}, ready_within_s=1.0, program=("-c", program))
    zeus.await_ready()
    zeus.begin()
    window = zeus.end()

    assert window.readings == ()
    assert window.note is not None
    assert note in window.note or (kind == "dies later" and window.note == "its process was gone")
    assert is_gone(zeus.pid)
    assert time.monotonic() - start < 5
    zeus.close()


def test_gpu_that_the_driver_does_not_know_is_named_in_the_note(node: NvmlBed) -> None:
    zeus = ZeusProcess({"gpu:0": "GPU-00000000-0000-0000-0000-000000000000"})
    try:
        zeus.await_ready()
        zeus.begin()
        window = zeus.end()
    finally:
        zeus.close()

    assert window.note is not None
    assert "NVMLError" in window.note


def test_killed_harness_leaves_no_zeus(node: NvmlBed, tmp_path: Path) -> None:
    """The parent is killed with SIGKILL, once while Zeus starts and once while its window is open."""
    program = (
        "import sys, time\n"
        "from ecobench.meters.zeus import ZeusProcess\n"
        "zeus = ZeusProcess({'gpu:0': '0'})\n"
        "print(zeus.pid, flush=True)\n"
        "if sys.argv[1] == 'open':\n"
        "    zeus.await_ready(); zeus.begin(); print('open', flush=True)\n"
        "time.sleep(60)\n"
    )
    for state in ("starting", "open"):
        parent = subprocess.Popen([sys.executable, "-c", program, state], stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        if state == "open":
            assert parent.stdout.readline() == "open\n"
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        wait_for(lambda pid=pid: is_gone(pid), timeout_s=2, why="Zeus to be gone with its harness")
        parent.stdout.close()
