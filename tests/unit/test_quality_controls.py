"""What is said of limits that others changed, and of settings that did not come back."""

import pytest

from ecobench.measurement import Severity
from ecobench.quality import check_controls
from ecobench.records import ControlRecord, GpuSetting, LimitChange, LimitState
from records_for_tests import trial_end

FOUND = LimitState(requested_w=450, enforced_w=450, persistence=True)
SET = LimitState(requested_w=300, enforced_w=300, persistence=True)


def record(*, changes: tuple[LimitChange, ...] = (), problem: str | None = None) -> ControlRecord:
    setting = GpuSetting(uuid="GPU-a", index=3, name="H100", limit_w=300, sm_clock_mhz=None, text="300 W")
    return ControlRecord(
        setting=setting, before=FOUND, during=SET, at_end=SET, after=FOUND, changes=changes, problem=problem
    )


def test_limit_that_stayed_and_came_back_raises_no_flag() -> None:
    """Nor does a run that set nothing."""
    assert check_controls(trial_end(controls=(record(),))) == []
    assert check_controls(trial_end()) == []


@pytest.mark.parametrize(("n_changes", "more"), [(1, ""), (2, ", and changed 2 times in all")])
def test_limit_changed_by_somebody_else_makes_a_trial_invalid(n_changes: int, more: str) -> None:
    """Seen 2 s after the launch."""
    seen_ns = trial_end().times.launch_ns + 2_000_000_000
    changes = (LimitChange(time_ns=seen_ns, requested_w=600, enforced_w=500),) * n_changes
    (flag,) = check_controls(trial_end(controls=(record(changes=changes),)))

    assert (flag.code, flag.severity) == ("limit_changed", Severity.INVALID)
    assert flag.evidence == (
        "GPU 3: the limit of 300 W became 600 W requested, 500 W in force, seen 2.0 s after the launch" + more
    )


def test_setting_that_did_not_come_back_is_a_warning_with_the_remedy() -> None:
    """The energy is as good as before; the machine is not."""
    (flag,) = check_controls(trial_end(controls=(record(problem="GPU is lost"),)))

    assert (flag.code, flag.severity) == ("not_restored", Severity.WARNING)
    assert "GPU is lost" in flag.evidence
    assert "ecobench restore" in str(flag.remedy)
