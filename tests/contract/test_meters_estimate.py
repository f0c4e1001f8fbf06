"""The estimate against the CPU time that the system itself accounts to the processes."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from ecobench.errors import MeterError
from ecobench.measurement import Boundary, Evidence
from ecobench.meters import discover
from ecobench.meters.checks import check_meter
from ecobench.meters.estimate import WATTS_PER_BUSY_CORE, EstimateMeter

# The system accounts in ticks of 10 ms: user and system time of a few processes, each cut to one.
TOLERANCE_S = 0.05

BURN = "import time\nwhile time.process_time() < {cpu_s}: pass\n"


def burner(cpu_s: float) -> list[str]:
    """A program that uses this much CPU time and ends."""
    return [sys.executable, "-I", "-S", "-c", BURN.format(cpu_s=cpu_s)]


def cpu_s(meter: EstimateMeter) -> float:
    """The CPU time behind what the meter reads."""
    (sample,) = meter.read([0])
    assert sample.raw is not None, sample.error
    return sample.raw / 1e6 / WATTS_PER_BUSY_CORE


def children_s() -> float:
    """CPU time of all children of this process that were reaped."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wait_until(is_true: Callable[[], bool], *, within_s: float = 20.0) -> None:
    """Wait for something that other processes do."""
    deadline_s = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.01)


def test_the_estimate_keeps_the_contract() -> None:
    """Also that it says how rough it is: 2 to 15 W where 6 W are counted."""
    meter = EstimateMeter(os.getpid())

    samples = check_meter(meter)

    assert all(sample.error is None for sample in samples)
    assert (meter.info.domain, meter.info.boundary, meter.info.evidence) == ("cpu/workload", Boundary.CPU, Evidence.EST)
    assert (meter.info.instrument_share.low, meter.info.instrument_share.high) == (pytest.approx(-2 / 3), 1.5)
    assert "rough" in meter.info.basis


def test_time_of_children_counts_while_they_live_and_after_they_are_reaped() -> None:
    """A child that uses 0.2 s, with a shell between: never less than before, and in the end what the system says."""
    meter = EstimateMeter(os.getpid())
    before_s = children_s()
    seen_s = []
    with subprocess.Popen(["/bin/sh", "-c", '"$@"; exit 0', "sh", *burner(0.2)]) as child:
        while child.poll() is None:
            seen_s.append(cpu_s(meter))
            time.sleep(0.005)
    seen_s.append(cpu_s(meter))

    assert seen_s == sorted(seen_s)
    assert any(0 < each < seen_s[-1] for each in seen_s)
    assert seen_s[-1] >= 0.2 - TOLERANCE_S
    assert seen_s[-1] == pytest.approx(children_s() - before_s, abs=TOLERANCE_S)


def test_the_root_itself_and_what_it_reaped_before_do_not_count() -> None:
    """The harness' own time is no work of the workload's."""
    subprocess.run(burner(0.05), check=True)
    meter = EstimateMeter(os.getpid())
    stop_s = time.process_time() + 0.1
    while time.process_time() < stop_s:
        pass

    assert cpu_s(meter) == 0


def test_a_zombie_keeps_its_time() -> None:
    """Ended, and not yet reaped."""
    meter = EstimateMeter(os.getpid())
    child = subprocess.Popen(burner(0.1))
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    as_zombie_s = cpu_s(meter)
    child.wait()

    assert as_zombie_s >= 0.1 - TOLERANCE_S
    assert cpu_s(meter) == pytest.approx(as_zombie_s, abs=TOLERANCE_S)


ORPHANING = """
import ctypes, os, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
print("ready", flush=True)
sys.stdin.readline()
subprocess.run(["/bin/sh", "-c", '"$@" & exit 0', "sh", sys.executable, "-I", "-S", "-c", sys.argv[1]], check=True)
os.wait()
print("reaped", flush=True)
sys.stdin.readline()
"""


def test_orphans_that_the_root_reaps_count_once() -> None:
    """The supervisor's case: a shell leaves its child behind, the root (a sub-reaper) gets it."""
    command = [sys.executable, "-c", ORPHANING, BURN.format(cpu_s=0.2)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as root:
        assert root.stdin is not None
        assert root.stdout is not None
        root.stdout.readline()
        meter = EstimateMeter(root.pid)
        root.stdin.write("\n")
        root.stdin.flush()
        wait_until(lambda: cpu_s(meter) > 0.1)
        assert root.stdout.readline() == "reaped\n"

        assert cpu_s(meter) == pytest.approx(0.2, abs=TOLERANCE_S)
        root.communicate("\n")


FORGETTING = """
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE, text=True)
print("started", flush=True)
sys.stdin.readline()
child.communicate("\\n")
print("ended", flush=True)
sys.stdin.readline()
"""


def test_where_a_program_throws_time_away_there_is_no_reading() -> None:
    """With SIGCHLD ignored the time of ended children is in no account: no number from then on, and the reason."""
    meter = EstimateMeter(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", FORGETTING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "started\n"
        wait_until(lambda: meter.read([0])[0].raw is None)
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "ended\n"
        (sample,) = meter.read([0])
        program.communicate("\n")

    assert sample.raw is None
    assert sample.error == f"the workload's process {program.pid} ignores SIGCHLD: the CPU time of its children is lost"


def test_a_root_that_is_gone_is_a_failed_sample() -> None:
    """And none to begin with is an error with exit code 3."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as root:
        meter = EstimateMeter(root.pid)
        assert meter.read([0])[0].raw == 0

    samples = check_meter(meter, n_readings=2)
    with pytest.raises(MeterError, match="cannot be read: NoSuchProcess"):
        discover("estimate", root_pid=root.pid)

    assert [sample.raw for sample in samples] == [None, None]
    assert all(sample.error is not None and "NoSuchProcess" in sample.error for sample in samples)
