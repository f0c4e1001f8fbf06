"""The workloads' contract: what ships keeps it, and each way of breaking it is noticed."""

from pathlib import Path

import pytest

from ecobench.contract import check_workload
from ecobench.errors import RequestError, WorkloadError
from ecobench.records import TrialStatus

MANIFEST = """
name = "odd"
summary = "breaks one rule"
command = "{python} main.py"
measured_phase = "train"
token_rule = "eight a step"
[parameters.steps]
type = "int"
default = 200
[presets.cpu]
hardware = "cpu"
[smoke]
preset = "cpu"
parameters = { steps = 30 }
timeout = "10s"
"""
# A workload that keeps every rule; each variant below replaces one piece of it.
PROGRAM = """
import sys, time
from ecobench.events import emit, phase, should_stop

steps = int(sys.argv[1].removeprefix("--steps="))
emit("hello", parameters={"steps": steps})
status = "done"
with phase("train"):
    for step in range(1, steps + 1):
        time.sleep(0.01)
        emit("step", step=step, tokens=8 * step, synced=True)
        if should_stop():
            status = "stopped"
            break
emit("goodbye", status=status)
"""


def make(folder: Path, old: str = "", new: str = "", *, manifest: str = MANIFEST) -> Path:
    """The workload above, with `old` replaced by `new`."""
    assert old in PROGRAM
    folder.mkdir()
    (folder / "workload.toml").write_text(manifest)
    (folder / "main.py").write_text(PROGRAM.replace(old, new) if old else PROGRAM)
    return folder


def test_toy_keeps_the_contract() -> None:
    """The smallest speaker of the protocol, as shipped."""
    record = check_workload("toy")

    assert record.status is TrialStatus.DONE
    assert record.result is not None
    assert (record.result.n_steps, record.result.n_tokens) == (20, 20 * 8 * 1024)


def test_the_program_that_is_broken_below_keeps_the_contract(tmp_path: Path) -> None:
    """So that each variant fails for what it changes."""
    record = check_workload(str(make(tmp_path / "odd")))

    assert record.result is not None
    assert (record.result.n_steps, record.result.n_tokens) == (30, 240)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('emit("goodbye", status=status)', "sys.stdout.flush(); __import__('os')._exit(0)", "without a goodbye"),
        ('emit("goodbye", status=status)', 'emit("goodbye", status="failed")', "says that it failed"),
        ('emit("goodbye", status=status)', "raise ValueError('at the end')", "ValueError: at the end"),
        ('emit("goodbye", status=status)', 'emit("goodbye", status="fine")', "goodbye"),
        ('emit("goodbye", status=status)', "sys.exit(3)", "exit code 3"),
        ('with phase("train"):', 'with phase("trian"):', "never entered phase `train`"),
        ('with phase("train"):', 'emit("phase_start", phase="train")\nif True:', "never stopped"),
        ('with phase("train"):', 'emit("phase_stop", phase="train")\nwith phase("train"):', "outside of every phase"),
        ('parameters={"steps": steps}', 'parameters={"steps": 200}', "other parameters"),
        ('parameters={"steps": steps}', 'parameters={"stesp": steps}', "other parameters"),
        ("tokens=8 * step", "tokens=8000 - step", "tokens go back"),
        ("tokens=8 * step", "tokens=0", "no tokens were reported"),
        ("tokens=8 * step", "n_tokens=8 * step", "without `tokens`"),
        ("step=step,", "step=1,", "more than one step"),
        ('        emit("step", step=step, tokens=8 * step, synced=True)\n', "", "no tokens were reported"),
        ('emit("hello"', 'emit("dance")\nemit("hello"', "unknown event"),
        ("import sys, time", "import sys, time, nonexistent", "No module named"),
        ("        if should_stop():", "        if False:", "did not stop"),
        ('status = "stopped"', 'status = "done"', "did not stop"),
    ],
)
def test_a_workload_that_breaks_a_rule_is_rejected(tmp_path: Path, old: str, new: str, says: str) -> None:
    """One rule each; the message says which."""
    with pytest.raises(AssertionError, match=says):
        check_workload(str(make(tmp_path / "odd", old, new)))


def test_a_workload_that_never_ends_is_ended_at_its_timeout(tmp_path: Path) -> None:
    """The manifest's own time is the limit."""
    folder = make(tmp_path / "odd", "time.sleep(0.01)", "time.sleep(60)", manifest=MANIFEST.replace('"10s"', '"0.5s"'))

    with pytest.raises((AssertionError, WorkloadError), match=r"did not end within 0\.5 s"):
        check_workload(str(folder))


def test_a_workload_whose_program_is_missing_is_rejected(tmp_path: Path) -> None:
    """By the name of the program."""
    folder = make(tmp_path / "odd", manifest=MANIFEST.replace("{python} main.py", "no-such-program"))

    with pytest.raises(WorkloadError, match="`no-such-program` does not start"):
        check_workload(str(folder))


def test_a_workload_without_a_smoke_variant_cannot_be_checked(tmp_path: Path) -> None:
    """It says what to declare."""
    folder = make(tmp_path / "odd", manifest=MANIFEST.partition("[smoke]")[0])

    with pytest.raises(RequestError, match="no \\[smoke\\]"):
        check_workload(str(folder))


def test_data_that_its_command_does_not_make_is_noticed(tmp_path: Path) -> None:
    """`tokenize` ran, `info` still says that nothing is there."""
    data = '[data.d]\nsummary = "s"\npresets = ["cpu"]\ntokenize = "{python} -c pass"\ninfo = "{python} info.py"\n'
    folder = make(tmp_path / "odd", manifest=MANIFEST.replace("[smoke]", data + "[smoke]"))
    (folder / "info.py").write_text('print(\'{"present": false, "path": "x"}\')')

    with pytest.raises(AssertionError, match="made nothing"):
        check_workload(str(folder))
