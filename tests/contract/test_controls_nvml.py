"""What `NvmlControl` promises a trial: limits found before each come back after it, or the journal says so."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ecobench.controls.nvml import NvmlControl
from ecobench.errors import ControlError, RequestError
from nvml_bed import NvmlBed
from nvml_build import NvmlLibrary
from nvml_models import A40, H100, RTX4090

MakeBed = Callable[..., NvmlBed]
OpenControl = Callable[..., NvmlControl]
INVALID_ARGUMENT = 2


@pytest.fixture
def open_control(tmp_path: Path) -> Iterator[OpenControl]:
    """Opens the control of a run, named `run-a`, and closes it after the test."""
    opened = []

    def open_(power_limit: str | None = "300W", sm_clock: str | None = None) -> NvmlControl:
        control, _ = NvmlControl.open(power_limit, sm_clock, environment={"XDG_RUNTIME_DIR": str(tmp_path)})
        opened.append(control)
        control.name_run("run-a")
        return control

    yield open_
    for control in opened:
        control.close()


def journals(tmp_path: Path) -> list[str]:
    return [path.name for path in tmp_path.rglob("*.json")]


def test_to_open_changes_nothing(h100: NvmlBed, open_control: OpenControl, tmp_path: Path) -> None:
    """Permission is tried with the limit that is there; there is no journal, for there is nothing to put back."""
    h100.set_limit(0, 450)
    control = open_control("50%")

    assert [setting.limit_w for setting in control.settings] == [350]
    assert h100.limits_w(0) == (450, 450)
    assert not journals(tmp_path)


def test_each_trial_restores_what_it_found_itself(h100: NvmlBed, open_control: OpenControl, tmp_path: Path) -> None:
    """The operator goes from 450 W to 500 W between two trials."""
    control = open_control()
    for found_w in (450, 500):
        h100.set_limit(0, found_w)
        (path,) = control.prepare()
        assert path.exists()
        control.apply()
        assert h100.limits_w(0) == (300, 300)
        control.check()
        (record,) = control.restore()

        assert h100.limits_w(0) == (found_w, found_w)
        assert (record.problem, record.changes) == (None, ())
        assert not path.exists()
    assert control.restore() == ()  # nothing is left to be put back


def test_percent_is_of_each_boards_default_on_a_mixed_node(make_bed: MakeBed, open_control: OpenControl) -> None:
    """50 % of 700 W, 300 W and 450 W."""
    bed = make_bed(H100, A40, RTX4090)
    control = open_control("50%")
    control.prepare()
    control.apply()

    assert [bed.limits_w(gpu)[1] for gpu in range(3)] == [350, 150, 225]
    control.restore()
    assert [bed.limits_w(gpu)[1] for gpu in range(3)] == [700, 300, 450]


def test_changes_by_others_are_noted_once_each_and_put_back(h100: NvmlBed, open_control: OpenControl) -> None:
    """300 W, then 500 W seen twice, then 400 W in force by the machine's own controller; persistence off too."""
    control = open_control()
    control.prepare()
    control.apply()
    control.check()
    h100.set_limit(0, 500)
    control.check()
    control.check()
    h100.set_out_of_band_limit(0, 400)
    control.check()
    h100.set_out_of_band_limit(0, None)
    h100.set_persistence(0, is_on=False)
    (record,) = control.restore()

    assert [(one.requested_w, one.enforced_w) for one in record.changes] == [(500, 500), (500, 400)]
    assert h100.limits_w(0) == (700, 700)
    assert h100.has_persistence(0)
    assert record.after == record.before


def test_what_cannot_be_put_back_is_said_kept_and_tried_before_the_next_trial(
    h100: NvmlBed, open_control: OpenControl, tmp_path: Path
) -> None:
    """The next trial never takes the leftover for what it found."""
    h100.set_limit(0, 450)
    control = open_control()
    control.prepare()
    control.apply()
    h100.fail("nvmlDeviceSetPowerManagementLimit", INVALID_ARGUMENT)
    (record,) = control.restore()

    assert record.problem is not None
    assert "SetPowerManagementLimit" in record.problem
    assert journals(tmp_path)
    with pytest.raises(ControlError):
        control.prepare()
    h100.heal()
    control.prepare()
    control.apply()
    (record,) = control.restore()
    assert record.before.requested_w == 450
    assert h100.limits_w(0) == (450, 450)
    assert not journals(tmp_path)


def test_old_driver_has_limits_too(make_bed: MakeBed, old_nvml_library: NvmlLibrary, open_control: OpenControl) -> None:
    """Nothing of what later drivers brought is needed."""
    bed = make_bed(H100, library=old_nvml_library)
    control = open_control("min", "1200")
    control.prepare()
    control.apply()

    assert (bed.limits_w(0), bed.lock_mhz(0)) == ((200, 200), 1200)
    control.restore()
    assert (bed.limits_w(0), bed.lock_mhz(0)) == ((700, 700), None)


def test_clock_beyond_the_board_is_refused(h100: NvmlBed, open_control: OpenControl) -> None:
    """1,980 MHz is an H100's most."""
    with pytest.raises(RequestError, match="1980 MHz"):
        open_control(None, "1981")


def test_lock_of_somebody_who_only_puts_back_is_waited_for(
    h100: NvmlBed, open_control: OpenControl, tmp_path: Path
) -> None:
    """A supervisor holds it for a moment after its harness was killed; one that names its run is refused at once."""
    (tmp_path / "ecobench").mkdir(mode=0o700)
    program = (
        "import sys, time; from pathlib import Path; from ecobench.controls.journal import GpuLock\n"
        "lock = GpuLock(Path(sys.argv[1]), sys.argv[2]); lock.take(); print(flush=True); time.sleep(0.3)"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "ecobench"), h100.uuids[0]]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        control = open_control()
        assert [setting.index for setting in control.settings] == [0]
    with pytest.raises(ControlError, match=r"in use by another ecobench \(pid \d+, run run-a\)"):
        open_control()
