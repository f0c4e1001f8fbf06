"""What a program says through `ecobench.events`, each in a process of its own; read back by the harness's reader."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ecobench.transcript import Transcript, read_transcript

Require = Callable[..., str]

HEAD = "import os, sys\nfrom ecobench.events import emit, phase, should_stop\n"


def speak(folder: Path | None, script: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `script` with its events going to `folder`."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    if folder is not None:
        variables["ECOBENCH_EVENTS"] = str(folder)
    return subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(script)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def events_of(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    """The lines of a rank, as they stand."""
    return [json.loads(line) for line in (folder / f"rank-{rank:05d}.jsonl").read_text().splitlines()]


def heard(folder: Path, rank: int = 0) -> Transcript:
    """What the harness reads."""
    return read_transcript((folder / f"rank-{rank:05d}.jsonl").read_bytes(), rank=rank)


def said_status(folder: Path) -> str | None:
    """Status of the goodbye, None without one."""
    goodbye = heard(folder).goodbye
    return None if goodbye is None else str(goodbye.status)


def test_three_lines_make_a_whole_transcript(tmp_path: Path) -> None:
    """Hello and goodbye write themselves; stamps are those of the monotonic clock, in order."""
    done = speak(
        tmp_path,
        """
        with phase("train", sync=lambda: print("synced")):
            emit("step", step=1, tokens=8, synced=False)
            emit("metric", name="loss", value=2.5, unit="nats/token", step=1)
        """,
        RANK="3",
        WORLD_SIZE="4",
    )
    said = heard(tmp_path, rank=3)

    assert done.stdout == "synced\nsynced\n"
    assert [event["event"] for event in events_of(tmp_path, 3)] == [
        "hello",
        "phase_start",
        "step",
        "metric",
        "phase_stop",
        "goodbye",
    ]
    assert said.n_problems == 0
    assert said.hello is not None
    assert (said.hello.rank, said.hello.world_size, said.hello.parameters) == (3, 4, None)
    assert said.goodbye is not None


def test_hello_of_the_program_replaces_the_automatic_one(tmp_path: Path) -> None:
    """With its parameters and data hash."""
    speak(tmp_path, 'emit("hello", parameters={"steps": 3}, data_hash="d0")')
    said = heard(tmp_path)

    assert said.n_problems == 0
    assert said.hello is not None
    assert said.hello.parameters == {"steps": 3}
    assert said.hello.data_hash == "d0"
    assert said.hello.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_without_the_variable_nothing_happens(tmp_path: Path) -> None:
    """The program runs alone, and even NaN is nobody's business then."""
    done = speak(
        None,
        """
        with phase("train"):
            emit("metric", name="loss", value=float("nan"), unit="", step=1)
        print(should_stop())
        """,
    )

    assert (done.returncode, done.stdout) == (0, "False\n")
    assert list(tmp_path.iterdir()) == []


def test_stop_is_asked_by_the_file_in_the_events_folder(tmp_path: Path) -> None:
    """False before it is there, true after."""
    done = speak(
        tmp_path, 'print(should_stop()); open(os.environ["ECOBENCH_EVENTS"] + "/stop", "w"); print(should_stop())'
    )

    assert done.stdout == "False\nTrue\n"


@pytest.mark.parametrize(
    ("ending", "exit_code", "status"),
    [
        ("pass", 0, "done"),
        ('emit("goodbye", status="stopped")', 0, "stopped"),
        ('raise ValueError("no")', 1, "failed"),
        ("raise KeyboardInterrupt", -2, "failed"),
        # The program ended as it meant to; its exit code says how, and the harness looks at that first.
        ("sys.exit(3)", 3, "done"),
        ("os._exit(0)", 0, None),
        ("os.kill(os.getpid(), 9)", -9, None),
        ("os.kill(os.getpid(), 15)", -15, None),
    ],
)
def test_goodbye_tells_how_the_program_ended(tmp_path: Path, ending: str, exit_code: int, status: str | None) -> None:
    """At an exit of the interpreter it is written; a process that is killed, or kills itself, has none."""
    done = speak(tmp_path, f'emit("step", step=1, tokens=8, synced=False)\n{ending}')

    assert done.returncode == exit_code
    assert said_status(tmp_path) == status
    assert heard(tmp_path).n_problems == 0


def test_phase_stops_even_where_its_body_raises(tmp_path: Path) -> None:
    """So that a failed program's windows are still whole."""
    speak(tmp_path, 'with phase("train"):\n    with phase("eval"):\n        1 / 0')

    assert [event["event"] for event in events_of(tmp_path)][-3:] == ["phase_stop", "phase_stop", "goodbye"]
    assert said_status(tmp_path) == "failed"


def test_phase_stops_even_where_its_sync_raises(tmp_path: Path) -> None:
    """A device that fails to drain has left the phase: the stop is said, and the error goes on."""
    done = speak(
        tmp_path,
        """
        calls = iter([None, ZeroDivisionError])
        def sync():
            error = next(calls)
            if error: raise error
        with phase("train", sync=sync): pass
        """,
    )

    assert "ZeroDivisionError" in done.stderr
    assert [event["event"] for event in events_of(tmp_path)] == ["hello", "phase_start", "phase_stop", "goodbye"]


@pytest.mark.parametrize("value", ['float("nan")', 'float("inf")', "object()", "{1, 2}"])
@pytest.mark.parametrize("event", ["hello", "metric", "goodbye"])
def test_a_value_that_is_no_json_is_refused_and_leaves_no_trace(tmp_path: Path, event: str, value: str) -> None:
    """The event is as if it had never been tried: hello is still first, goodbye still comes."""
    done = speak(
        tmp_path,
        f"""
        try:
            emit("{event}", value={value})
        except ValueError as error:
            print("refused")
        emit("step", step=1, tokens=8, synced=False)
        """,
    )

    assert done.stdout == "refused\n"
    assert [one["event"] for one in events_of(tmp_path)] == ["hello", "step", "goodbye"]
    assert heard(tmp_path).n_problems == 0


def test_a_second_process_of_one_rank_is_an_error_at_its_first_event(tmp_path: Path) -> None:
    """The first one's file stays as it is."""
    first = speak(tmp_path, 'emit("step", step=1, tokens=8, synced=False)')
    before = (tmp_path / "rank-00000.jsonl").read_bytes()
    second = speak(tmp_path, 'emit("step", step=1, tokens=8, synced=False)')

    assert first.returncode == 0
    assert second.returncode == 1
    assert "RuntimeError: another process already writes the events of rank 0" in second.stderr
    assert (tmp_path / "rank-00000.jsonl").read_bytes() == before


def test_two_ranks_write_two_files(tmp_path: Path) -> None:
    """Each its own."""
    for rank in ("0", "1"):
        assert speak(tmp_path, 'emit("step", step=1, tokens=8, synced=True)', RANK=rank).returncode == 0

    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-00000.jsonl", "rank-00001.jsonl"]


def test_a_forked_child_may_not_emit_and_says_no_goodbye(tmp_path: Path) -> None:
    """A data loader's worker that inherits the open file must not write between the rank's own lines."""
    done = speak(
        tmp_path,
        """
        emit("step", step=1, tokens=8, synced=False)
        pid = os.fork()
        if pid == 0:
            try:
                emit("step", step=2, tokens=16, synced=False)
            except RuntimeError as error:
                print(error, flush=True)
            sys.exit(0)
        os.waitpid(pid, 0)
        """,
    )

    assert done.stdout == "a child process of rank 0 emits events; only the rank's own process may\n"
    assert [event["event"] for event in events_of(tmp_path)] == ["hello", "step", "goodbye"]


def test_threads_of_one_rank_keep_the_order_of_time(tmp_path: Path) -> None:
    """Lines whole, one hello, and no stamp before that of the line above."""
    done = speak(
        tmp_path,
        """
        import threading
        sys.setswitchinterval(1e-6)

        barrier = threading.Barrier(8)

        def count():
            barrier.wait()
            for number in range(2000):
                emit("metric", name="m", value=1.0, unit="", step=number)

        threads = [threading.Thread(target=count) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """,
    )
    said = heard(tmp_path)

    assert done.returncode == 0, done.stderr
    assert said.problems == ()
    assert len(said.metrics) == 16_000


def test_a_signal_handler_may_emit_in_the_middle_of_an_event(tmp_path: Path) -> None:
    """It neither waits for the event that it interrupts nor tears it."""
    done = speak(
        tmp_path,
        """
        import signal
        signal.signal(signal.SIGALRM, lambda *_: emit("metric", name="alarm", value=1.0, unit="", step=0))
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for number in range(3000):
            emit("metric", name="m", value=1.0, unit="", step=number)
        signal.setitimer(signal.ITIMER_REAL, 0)
        """,
    )
    lines = events_of(tmp_path)

    assert done.returncode == 0, done.stderr
    assert len([line for line in lines if line.get("name") == "m"]) == 3000
    assert lines[0]["event"] == "hello"
    assert lines[-1]["event"] == "goodbye"


def test_a_full_disk_is_reported_once_and_never_stops_the_training(small_disk: Path) -> None:
    """What was written before is whole but for a torn last line, and the missing goodbye tells."""
    done = speak(
        small_disk,
        """
        for number in range(3000):
            emit("metric", name="m", value=1.0, unit="nats", step=number)
        print("trained to the end")
        """,
    )
    said = heard(small_disk)

    assert (done.returncode, done.stdout) == (0, "trained to the end\n")
    assert done.stderr.count("no further events of rank 0 are written") == 1
    assert said.goodbye is None
    assert said.problems == ()
    assert 0 < len(said.metrics) < 3000


def test_no_room_for_the_event_file_itself_never_stops_the_training(small_disk: Path) -> None:
    """Not one event, and one line about it."""
    for number in range(100):
        try:
            (small_disk / f"filler-{number}").touch()
        except OSError:
            break
    done = speak(
        small_disk, 'emit("step", step=1, tokens=8, synced=False)\nemit("goodbye", status="done")\nprint("on")'
    )

    assert (done.returncode, done.stdout) == (0, "on\n")
    assert done.stderr.count("no further events of rank 0 are written") == 1
    assert not (small_disk / "rank-00000.jsonl").exists()


def test_a_folder_that_is_not_there_is_an_error_of_the_caller(tmp_path: Path) -> None:
    """No disk is full: the variable is wrong, and silence would cost the whole measurement."""
    done = speak(tmp_path / "nowhere", 'emit("step", step=1, tokens=8, synced=False)')

    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr
