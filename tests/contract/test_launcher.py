"""What every launcher must do, shown on the supervised one: start, tell how it ended, and leave nothing behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ecobench.errors import WorkloadError
from ecobench.launcher import SupervisedLauncher
from ecobench.seams import LaunchExit, LaunchRequest

ENV = {"PATH": os.environ["PATH"]}
# Started twice removed, in a session of its own, and deaf to SIGTERM: what a careless workload leaves behind.
ORPHAN = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with open("orphan", "w") as file:
            file.write(str(os.getpid()))
        time.sleep(60)
    os._exit(0)
while not (os.path.exists("orphan") and os.path.getsize("orphan")):
    time.sleep(0.01)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


@pytest.fixture
def launcher() -> Iterator[SupervisedLauncher]:
    """Closed after the test, and then without a child."""
    launcher = SupervisedLauncher()
    yield launcher
    launcher.close()
    assert not psutil.pid_exists(launcher.pid)


def request(folder: Path, *argv: str, environment: dict[str, str] | None = None) -> LaunchRequest:
    """A program in `folder`; its output beside."""
    return LaunchRequest(
        argv=argv,
        directory=folder,
        environment=ENV if environment is None else environment,
        stdout_path=folder / "stdout",
        stderr_path=folder / "stderr",
    )


def python(folder: Path, script: str) -> LaunchRequest:
    """A Python program, given as text."""
    return request(folder, sys.executable, "-c", textwrap.dedent(script))


def wait_for(what: Callable[[], object], *, for_s: float = 10.0) -> None:
    """Until `what` is true; an assertion error if it does not become so."""
    stop_s = time.monotonic() + for_s
    while not what():
        assert time.monotonic() < stop_s, "it took too long"
        time.sleep(0.01)


def end_of(launcher: SupervisedLauncher, *, for_s: float = 10.0) -> LaunchExit:
    """How the program ended."""
    wait_for(launcher.poll, for_s=for_s)
    found = launcher.poll()
    assert found is not None
    return found


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def pid_in(path: Path) -> int:
    """The process id that a program wrote."""
    wait_for(lambda: path.exists() and path.read_text())
    return int(path.read_text())


@pytest.mark.parametrize(
    ("ending", "exit_code"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os.abort()", -6),
        ("import os; os.kill(os.getpid(), 9)", -9),
    ],
)
def test_the_exit_code_is_the_programs_own(
    launcher: SupervisedLauncher, tmp_path: Path, ending: str, exit_code: int
) -> None:
    """A signal is negative; the times are those of the monotonic clock."""
    before_ns = time.monotonic_ns()
    launch_ns = launcher.launch(python(tmp_path, ending))
    end = end_of(launcher)

    assert (end.exit_code, end.error, end.n_orphans_ended) == (exit_code, None, 0)
    assert before_ns <= launch_ns < end.time_ns <= time.monotonic_ns()
    assert launcher.poll() == end


def test_output_goes_to_the_two_files_and_nothing_comes_in(launcher: SupervisedLauncher, tmp_path: Path) -> None:
    """In the folder asked for; stdin is at its end."""
    launcher.launch(
        python(tmp_path, "import os, sys; print(os.getcwd(), repr(sys.stdin.read())); sys.stderr.write('why')")
    )
    end_of(launcher)

    assert (tmp_path / "stdout").read_text() == f"{tmp_path} ''\n"
    assert (tmp_path / "stderr").read_text() == "why"


def test_the_environment_is_exactly_the_one_asked_for(launcher: SupervisedLauncher, tmp_path: Path) -> None:
    """Nothing of the harness's own; values may be empty, long, or no UTF-8."""
    environment = {"A": "1", "EMPTY": "", "LONG": "x" * 100_000, "BYTES": "caf\udce9 \n"}
    launcher.launch(request(tmp_path, "/usr/bin/env", "-0", environment=environment))
    end_of(launcher)

    said = dict(entry.split(b"=", 1) for entry in (tmp_path / "stdout").read_bytes().split(b"\0") if entry)
    assert said == {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}


def test_the_program_has_a_process_group_and_default_signals(launcher: SupervisedLauncher, tmp_path: Path) -> None:
    """Ctrl-C at the terminal does not reach it past the harness, and nothing of the supervisor's handlers does."""
    script = """
        import os, signal
        names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE", "SIGCHLD")
        print(os.getpgid(0) == os.getpid(), os.getsid(0) != int(os.environ["SID"]), len(os.listdir("/proc/self/fd")))
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        print(int(status["SigBlk"], 16), int(status["SigIgn"], 16) & ~(1 << 12) & ~(1 << 24))
    """
    launcher.launch(
        request(tmp_path, sys.executable, "-c", textwrap.dedent(script), environment={**ENV, "SID": str(os.getsid(0))})
    )
    end_of(launcher)

    # 0, 1, 2 and the folder being listed. (Python itself ignores SIGPIPE and SIGXFSZ.)
    assert (tmp_path / "stdout").read_text() == "True True 4\n0 0\n"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("/nowhere/program",), "No such file or directory"),
        (("program-that-is-nowhere",), "No such file or directory"),
        (("/tmp",), "Permission denied"),
        (("/bin/echo", "a\0b"), "null byte"),
    ],
)
def test_a_program_that_cannot_start_is_a_workload_error(
    launcher: SupervisedLauncher, tmp_path: Path, argv: tuple[str, ...], says: str
) -> None:
    """With the name of the program and the reason; and the next one starts."""
    with pytest.raises(WorkloadError, match=says) as caught:
        launcher.launch(request(tmp_path, *argv))
    assert f"`{argv[0]}`" in caught.value.message

    launcher.launch(python(tmp_path, "pass"))
    assert end_of(launcher).exit_code == 0


def test_an_environment_that_cannot_be_is_a_workload_error(launcher: SupervisedLauncher, tmp_path: Path) -> None:
    """A name with an equals sign ends the launch, not the supervisor."""
    with pytest.raises(WorkloadError, match="illegal environment variable name"):
        launcher.launch(request(tmp_path, "/bin/true", environment={"A=B": "1"}))

    launcher.launch(python(tmp_path, "pass"))
    assert end_of(launcher).exit_code == 0


def test_a_missing_folder_is_a_workload_error(launcher: SupervisedLauncher, tmp_path: Path) -> None:
    """Nor can output go where no file can be."""
    asked = request(tmp_path, "/bin/true")
    with pytest.raises(WorkloadError, match="nowhere"):
        launcher.launch(asked._replace(directory=tmp_path / "nowhere"))
    with pytest.raises(WorkloadError, match="no-folder"):
        launcher.launch(asked._replace(stdout_path=tmp_path / "no-folder" / "stdout"))


def test_what_outlives_the_program_is_ended_and_counted(launcher: SupervisedLauncher, tmp_path: Path) -> None:
    """Double-forked, in a session of its own, deaf to SIGTERM."""
    launcher.launch(python(tmp_path, ORPHAN))
    orphan = pid_in(tmp_path / "orphan")
    end = end_of(launcher)

    assert (end.exit_code, end.n_orphans_ended) == (0, 1)
    assert not is_running(orphan)


def test_stop_lets_the_program_end_in_its_own_way(launcher: SupervisedLauncher, tmp_path: Path) -> None:
    """SIGTERM first; the exit code is the program's."""
    script = (
        "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(7))\nprint('up', flush=True)\ntime.sleep(60)"
    )
    launcher.launch(python(tmp_path, script))
    wait_for((tmp_path / "stdout").read_text)
    launcher.stop(grace_s=30)

    assert end_of(launcher).exit_code == 7


def test_stop_ends_a_program_that_does_not_listen(launcher: SupervisedLauncher, tmp_path: Path) -> None:
    """After the grace, and not before."""
    launcher.launch(python(tmp_path, DEAF))
    wait_for((tmp_path / "stdout").read_text)
    before_ns = time.monotonic_ns()
    launcher.stop(grace_s=0.2)
    end = end_of(launcher)

    assert end.exit_code == -signal.SIGKILL
    assert end.time_ns - before_ns >= 200_000_000


def test_a_second_stop_hurries_and_never_delays(launcher: SupervisedLauncher, tmp_path: Path) -> None:
    """A second Ctrl-C means now; and a longer grace after a shorter one gives no more time."""
    for graces_s in ((60.0, 0.0), (0.3, 60.0)):
        launcher.launch(python(tmp_path, DEAF))
        wait_for((tmp_path / "stdout").read_text)
        for grace_s in graces_s:
            launcher.stop(grace_s=grace_s)
        assert end_of(launcher, for_s=5).exit_code == -signal.SIGKILL
        (tmp_path / "stdout").unlink()


def test_stop_without_a_program_does_nothing(launcher: SupervisedLauncher, tmp_path: Path) -> None:
    """Before the first, and after the last."""
    launcher.stop(grace_s=0)
    launcher.launch(python(tmp_path, "pass"))
    end_of(launcher)
    launcher.stop(grace_s=0)

    launcher.launch(python(tmp_path, "import time; time.sleep(0.1)"))
    assert end_of(launcher).exit_code == 0


def test_close_ends_everything_and_may_come_twice(tmp_path: Path) -> None:
    """With a program running that does not listen, and its orphan; within 4 s."""
    launcher = SupervisedLauncher()
    launcher.launch(python(tmp_path, ORPHAN + DEAF))
    orphan = pid_in(tmp_path / "orphan")
    wait_for((tmp_path / "stdout").read_text)
    before_s = time.monotonic()
    launcher.close()
    launcher.close()

    assert time.monotonic() - before_s < 4
    assert not is_running(orphan)
    assert not psutil.pid_exists(launcher.pid)
    assert [
        child for child in psutil.Process().children(recursive=True) if "sleep(60)" in " ".join(child.cmdline())
    ] == []


def test_close_without_a_program_is_quick(tmp_path: Path) -> None:
    """A trial whose meters could not be opened closes at once."""
    del tmp_path
    launcher = SupervisedLauncher()
    launcher.close()

    assert launcher.poll() is None
    assert not psutil.pid_exists(launcher.pid)


def test_a_killed_supervisor_takes_the_program_with_it(launcher: SupervisedLauncher, tmp_path: Path) -> None:
    """The harness inherits what is left, ends it, and says what happened; nothing hangs after that."""
    launcher.launch(python(tmp_path, ORPHAN + "open('leader', 'w').write(str(os.getpid()))\n" + DEAF))
    orphan, leader = pid_in(tmp_path / "orphan"), pid_in(tmp_path / "leader")
    os.kill(launcher.pid, signal.SIGKILL)
    end = end_of(launcher)

    assert (end.exit_code, end.error) == (None, "the supervisor process was killed")
    assert end.n_orphans_ended >= 1
    wait_for(lambda: not is_running(orphan) and not is_running(leader), for_s=2)
    launcher.stop(grace_s=0)
    with pytest.raises(WorkloadError, match="supervisor process was killed"):
        launcher.launch(python(tmp_path, "pass"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_supervisor_that_is_asked_to_end_ends_the_program_first(
    launcher: SupervisedLauncher, tmp_path: Path, number: signal.Signals
) -> None:
    """Somebody's `kill` of it, or of its session."""
    launcher.launch(python(tmp_path, "open('leader', 'w').write(str(__import__('os').getpid()))\n" + DEAF))
    leader = pid_in(tmp_path / "leader")
    os.kill(launcher.pid, number)
    end = end_of(launcher)

    assert end.error == "the supervisor process was killed"
    assert not is_running(leader)


HARNESS = """
import sys, time
from pathlib import Path
from ecobench.launcher import SupervisedLauncher
from ecobench.seams import LaunchRequest
folder = Path(sys.argv[1])
launcher = SupervisedLauncher()
launcher.launch(LaunchRequest((sys.executable, "-c", sys.argv[2]), folder, {"PATH": "/usr/bin:/bin"}, folder / "stdout",
                              folder / "stderr"))
(folder / "supervisor").write_text(str(launcher.pid))
time.sleep(60)
"""


@pytest.mark.parametrize("is_deaf", [False, True])
def test_a_killed_harness_leaves_nothing_after_two_seconds(tmp_path: Path, *, is_deaf: bool) -> None:
    """SIGKILL of the harness: supervisor, program, child and orphan are gone, whether they listen to SIGTERM or not."""
    child = "import subprocess\nsubprocess.Popen(['sleep', '60'])\n"
    leader = "open('leader', 'w').write(str(os.getpid()))\n"
    script = ORPHAN + child + leader + (DEAF if is_deaf else "time.sleep(60)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, str(tmp_path), script], env=environment)
    try:
        leader_pid, supervisor = pid_in(tmp_path / "leader"), pid_in(tmp_path / "supervisor")
        tree = {
            supervisor,
            *(one.pid for one in psutil.Process(supervisor).children(recursive=True) if is_running(one.pid)),
        }
    finally:
        harness.kill()
        harness.wait()

    assert {leader_pid, pid_in(tmp_path / "orphan")} < tree
    assert len(tree) == 4  # with the supervisor and the child
    wait_for(lambda: not any(map(is_running, tree)), for_s=2)
