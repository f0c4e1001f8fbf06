"""From trials to the figures of a run: pooled, with both intervals, and None with a reason."""

import math

import pytest

from ecobench.measurement import Boundary, Evidence, Interval, MeterAbsence, Severity
from ecobench.records import (
    Figure,
    MetricValue,
    RunSummary,
    StopReason,
    StopRule,
    TargetResult,
    TrialRecord,
    TrialStatus,
)
from ecobench.summary import summarise
from records_for_tests import (
    ENERGY,
    TARGET,
    but,
    measured,
    quality_flag,
    run_record,
    run_spec,
    trial_record,
    trial_result,
)

T_OF_2_DF = 4.302652729911275  # two-sided 95 %, any table of Student's t


def figure(summary: RunSummary, key: str) -> Figure:
    """The only figure of that key."""
    (found,) = [one for one in summary.figures if one.key == key]
    return found


def trials_of(*energies_j: float) -> list[TrialRecord]:
    """Done trials of 1000 tokens and 10 s each."""
    return [measured(energy_j, index=index) for index, energy_j in enumerate(energies_j)]


def test_a_mean_has_students_interval() -> None:
    """1, 2 and 3 J/token: mean 2, s = 1, half-width 4.303 x 1/sqrt(3) = 2.484."""
    found = figure(summarise(run_record(), trials_of(1000, 2000, 3000)), "energy_per_token_j")

    assert (found.value, found.n, found.unit, found.reason) == (2.0, 3, "J/token", None)
    assert (found.boundary, found.evidence) == (Boundary.CPU, Evidence.C1)
    assert found.repeatability is not None
    half = T_OF_2_DF / math.sqrt(3)
    assert half == pytest.approx(2.484, abs=5e-4)
    assert found.repeatability.low == pytest.approx(2 - half, rel=1e-9)
    assert found.repeatability.high == pytest.approx(2 + half, rel=1e-9)


def test_trials_of_unequal_work_are_not_pooled_in_silence() -> None:
    """1,000 tokens against 900, and another hash: invalid, with both in the evidence; a stop rule allows the first."""
    one, other = trials_of(1000, 1000)
    assert other.result is not None
    fewer = but(other, result=but(other.result, n_tokens=900, data_hash="other"))
    stopping = StopRule(reason=StopReason.TIME, limit=10.0, text="time=10s")

    plain = summarise(run_record(), [one, fewer])
    stopped = summarise(run_record(spec=run_spec(stop_rule=stopping)), [one, fewer])

    assert not plain.is_valid
    (flag,) = [flag for flag in plain.flags if flag.code == "unequal_work"]
    assert (flag.severity, flag.evidence) == (
        Severity.INVALID,
        f"trials did different work: data {one.result and one.result.data_hash}, other; tokens 1000, 900",
    )
    assert [flag.evidence for flag in stopped.flags if flag.code == "unequal_work"] == [
        f"trials did different work: data {one.result and one.result.data_hash}, other"
    ]
    assert "unequal_work" not in [flag.code for flag in summarise(run_record(), [one, other]).flags]


def test_the_instrument_does_not_get_better_by_repeating() -> None:
    """A tenth of 2 J/token, over three trials as over one."""
    found = figure(summarise(run_record(), trials_of(1000, 2000, 3000)), "energy_per_token_j")

    assert found.instrument is not None
    assert found.instrument.low == pytest.approx(1.8, rel=1e-12)
    assert found.instrument.high == pytest.approx(2.2, rel=1e-12)


def test_one_trial_has_no_repeatability() -> None:
    """None, not an interval of no width."""
    for found in summarise(run_record(), trials_of(1000)).figures:
        assert found.n == 1
        assert found.repeatability is None


def test_tokens_per_kwh_are_the_inverse_of_the_mean() -> None:
    """3.6e6 J over 2 J/token, not the mean of 3.6, 1.8 and 1.2 million; intervals turned round."""
    found = figure(summarise(run_record(), trials_of(1900, 2000, 2100)), "tokens_per_kwh")
    half = T_OF_2_DF * 0.1 / math.sqrt(3)

    assert found.value == pytest.approx(1.8e6, rel=1e-12)
    assert found.repeatability is not None
    assert found.repeatability.low == pytest.approx(3.6e6 / (2 + half), rel=1e-9)
    assert found.repeatability.high == pytest.approx(3.6e6 / (2 - half), rel=1e-9)
    assert found.instrument is not None
    assert found.instrument.low == pytest.approx(3.6e6 / 2.2, rel=1e-12)
    assert found.instrument.high == pytest.approx(3.6e6 / 1.8, rel=1e-12)


def test_an_interval_that_reaches_zero_has_no_inverse() -> None:
    """2 +- 2.48 J/token says nothing finite about tokens/kWh; the value itself stands."""
    found = figure(summarise(run_record(), trials_of(1000, 2000, 3000)), "tokens_per_kwh")

    assert found.value == pytest.approx(1.8e6, rel=1e-12)
    assert found.repeatability is None
    assert found.n == 3


def test_power_energy_speed_and_time_follow() -> None:
    """100 J and 200 J in 10 s each: 150 J, 15 W; 1000 tokens in 10 s: 100 tokens/s."""
    summary = summarise(run_record(), trials_of(100, 200))

    assert figure(summary, "energy_j").value == 150.0
    assert figure(summary, "mean_power_w").value == 15.0
    assert figure(summary, "tokens_per_s").value == 100.0
    assert figure(summary, "duration_s").value == 10.0
    assert figure(summary, "n_tokens").value == 1000.0
    assert figure(summary, "final_val_loss").value == 1.25
    assert figure(summary, "final_val_loss").unit == "nats/token"
    assert summary.phases[0].is_measured
    assert summary.phases[0].figures[0].value == 150.0


def test_a_missing_energy_is_left_out_and_counted_out() -> None:
    """N says how many trials are behind the mean."""
    lost = but(ENERGY, energy_j=None, reason="5 % of the window is uncovered", instrument=None)
    hole = trial_record(index=1, result=trial_result(boundaries=(lost,)))
    found = figure(summarise(run_record(), [measured(100), hole]), "energy_j")

    assert (found.value, found.n, found.reason) == (100.0, 1, None)
    none = figure(summarise(run_record(), [hole, hole]), "energy_j")
    assert (none.value, none.n, none.reason) == (None, 0, "5 % of the window is uncovered")
    assert none.instrument is None
    assert none.repeatability is None


def test_an_instrument_interval_of_some_trials_is_none_of_the_mean() -> None:
    """What is not known of one is not known of all."""
    bare = trial_record(index=1, result=trial_result(boundaries=(but(ENERGY, instrument=None),)))
    found = figure(summarise(run_record(), [measured(100), bare]), "energy_j")

    assert found.value == 100.0
    assert found.instrument is None


@pytest.mark.parametrize(("meter", "reason"), [("none", "no meter was asked for"), ("auto", "nothing was measured")])
def test_without_a_meter_the_energy_is_none_with_the_reason(meter: str, reason: str) -> None:
    """And the speed is there all the same."""
    trial = trial_record(result=trial_result(boundaries=(), phases=()))
    summary = summarise(run_record(spec=run_spec(meter=meter)), [trial])

    for key in ("energy_per_token_j", "energy_j", "mean_power_w"):
        assert figure(summary, key).value is None
        assert figure(summary, key).reason == reason
    assert figure(summary, "tokens_per_s").value == 100.0


@pytest.mark.parametrize("n_tokens", [None, 0])
def test_without_tokens_nothing_is_per_token(n_tokens: int | None) -> None:
    """None with a reason, not a division by zero; energy and power stand."""
    summary = summarise(run_record(), [trial_record(result=trial_result(n_tokens=n_tokens))])

    for key in ("energy_per_token_j", "tokens_per_kwh", "tokens_per_s"):
        assert figure(summary, key).value is None
        assert figure(summary, key).reason == "no tokens were reported"
    assert figure(summary, "energy_j").value == 100.0


def test_no_joule_at_all_has_no_tokens_per_kwh() -> None:
    """An estimate of 0 J (no CPU time was used) is a number; its inverse is none."""
    summary = summarise(run_record(), [measured(0.0)])

    assert figure(summary, "energy_per_token_j").value == 0.0
    assert figure(summary, "tokens_per_kwh").value is None
    assert figure(summary, "tokens_per_kwh").reason == "0 J were measured"


def test_boundaries_and_evidence_are_never_pooled() -> None:
    """A measured and an estimated trial give two figures of one trial each."""
    estimate = but(ENERGY, evidence=Evidence.EST, energy_j=300.0, instrument=Interval(low=100.0, high=600.0))
    summary = summarise(
        run_record(), [measured(100), trial_record(index=1, result=trial_result(boundaries=(estimate,)))]
    )

    found = {(one.boundary, one.evidence): one for one in summary.figures if one.key == "energy_j"}
    assert {kind: (one.value, one.n) for kind, one in found.items()} == {
        (Boundary.CPU, Evidence.C1): (100.0, 1),
        (Boundary.CPU, Evidence.EST): (300.0, 1),
    }
    assert len(summary.not_counted) == 2


def test_only_trials_that_came_to_their_end_are_pooled() -> None:
    """A failed trial does not move the mean; its status is the run's, and the run is not valid."""
    failed = measured(9000, index=1, status=TrialStatus.FAILED, message="the workload ended with exit code 3")
    summary = summarise(run_record(), [measured(100), failed])

    assert figure(summary, "energy_j").value == 100.0
    assert (summary.n_trials, summary.status, summary.is_valid) == (1, TrialStatus.FAILED, False)
    assert [flag.evidence for flag in summary.flags] == ["trial 1: the workload ended with exit code 3"]


def test_where_none_came_to_its_end_what_there_is_is_shown() -> None:
    """An interrupted run still says what it measured, and that it is no result."""
    summary = summarise(run_record(), [measured(100, status=TrialStatus.INTERRUPTED, message="interrupted by SIGINT")])

    assert figure(summary, "energy_j").value == 100.0
    assert (summary.status, summary.is_valid) == (TrialStatus.INTERRUPTED, False)
    assert [flag.severity for flag in summary.flags] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        (["done", "done"], "done"),
        (["done", "stopped"], "stopped"),
        (["stopped", "interrupted"], "interrupted"),
        (["interrupted", "failed"], "failed"),
        (["failed", "lost"], "lost"),
        ([], "lost"),
    ],
)
def test_the_worst_trial_names_the_run(statuses: list[str], worst: str) -> None:
    """Done, stopped, interrupted, failed, lost."""
    trials = [measured(100, index=index, status=TrialStatus(status)) for index, status in enumerate(statuses)]
    summary = summarise(run_record(), trials)

    assert summary.status == worst
    assert summary.is_valid == (worst in ("done", "stopped"))


def test_a_run_of_no_trial_has_figures_without_values() -> None:
    """It was killed before its first; every figure says why it is empty."""
    summary = summarise(run_record(), [])

    assert summary.n_trials == 0
    assert all(one.value is None and one.reason and one.n == 0 for one in summary.figures)
    assert summary.n_target_met is None


def test_every_trial_that_failed_is_told() -> None:
    """What all trials say is said once for all of them; what one says, with its number."""
    same = "the workload ended with exit code 3"
    trials = [trial_record(index=n, status=TrialStatus.FAILED, message=same, result=None, end=None) for n in (0, 1)]

    assert [flag.evidence for flag in summarise(run_record(), trials).flags] == [f"every trial: {same}"]


def test_an_invalid_flag_makes_the_run_invalid() -> None:
    """A warning does not."""
    for severity, is_valid in ((Severity.INVALID, False), (Severity.WARNING, True), (Severity.INFO, True)):
        trial = trial_record(result=trial_result(flags=(quality_flag("x", severity),)))
        summary = summarise(run_record(), [trial])
        assert summary.is_valid is is_valid
        assert [flag.evidence for flag in summary.flags] == ["evidence of x"]


def test_targets_met_are_counted_over_the_pooled_trials() -> None:
    """One of two; None where there is no target."""
    missed = TargetResult(target=TARGET, final_value=2.0, is_met=False, first_step=None, first_n_tokens=None)
    trials = [trial_record(), trial_record(index=1, result=trial_result(target=missed))]

    assert summarise(run_record(spec=run_spec(target=TARGET)), trials).n_target_met == 1
    assert summarise(run_record(), [trial_record(result=trial_result(target=None))]).n_target_met is None


def test_metrics_of_another_unit_are_another_figure() -> None:
    """Nats and bits are not averaged."""
    bits = MetricValue(name="val_loss", value=1.8, unit="bits/token", step=2, time_ns=1)
    summary = summarise(
        run_record(), [trial_record(), trial_record(index=1, result=trial_result(final_metrics=(bits,)))]
    )

    finals = [(one.unit, one.value, one.n) for one in summary.figures if one.key == "final_val_loss"]
    assert finals == [("nats/token", 1.25, 1), ("bits/token", 1.8, 1)]


def test_what_is_absent_says_what_would_bring_it() -> None:
    """Reason and remedy in one line."""
    absences = (
        MeterAbsence(interface="powercap", domain=None, reason="not readable", remedy="chmod"),
        MeterAbsence(interface="nvml", domain=None, reason="no GPU", remedy=None),
    )

    assert summarise(run_record(absences=absences), []).to_improve == (
        "powercap: not readable: chmod",
        "nvml: no GPU",
    )
