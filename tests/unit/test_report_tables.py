"""The result block: what stands in the last lines of a run."""

import re
from pathlib import Path

import pytest

from ecobench.measurement import Evidence, Interval, MeterAbsence, QualityFlag, Severity
from ecobench.records import Figure, RunSummary, TrialStatus
from ecobench.report.quantities import instrument_text, repeatability_text, scale_of, value_text
from ecobench.report.tables import grouped_flags, ordered_figures, result_block
from ecobench.summary import summarise
from records_for_tests import ENERGY, TARGET, but, measured, run_record, run_spec, trial_record, trial_result

ESCAPE = "\x1b[2J"


def figure(value: float | None, unit: str = "J/token", **changes: object) -> Figure:
    """An energy per token of one trial."""
    fields: dict[str, object] = {
        "key": "energy_per_token_j",
        "label": "energy per token",
        "reason": None if value is not None else "no meter",
        "n": 1,
        "repeatability": None,
        "instrument": None,
        "boundary": None,
        "evidence": None,
    }
    return Figure(value=value, unit=unit, **{**fields, **changes})  # type: ignore[arg-type]  # fields of a figure


def summary_of(*energies_j: float) -> RunSummary:
    """Trials of 1000 tokens in 10 s each."""
    trials = [measured(energy_j, index=index) for index, energy_j in enumerate(energies_j)]
    return summarise(run_record(), trials)


def test_each_figure_stands_with_n_intervals_boundary_and_evidence() -> None:
    """99 J and 101 J for 1000 tokens: 100 mJ/token, n=2, t-interval 100 -+ 12.7, instrument 90 to 110."""
    block = result_block(run_record(), summary_of(99.0, 101.0), report_path=Path("report.html"))

    line = next(line for line in block.splitlines() if line.startswith("energy per token"))
    assert re.split(r"\s{2,}", line) == [
        "energy per token",
        "100.0 mJ/token",
        "2",
        "[87.3, 112.7]",
        "[90.0, 110]",
        "cpu C1",
    ]
    assert block.endswith("report: report.html")


def test_efficiency_comes_first_and_is_36_million_tokens_per_kwh() -> None:
    """100 mJ/token is 3.6e6 / 0.1 = 36 million tokens/kWh."""
    lines = result_block(run_record(), summary_of(100.0), report_path=None).splitlines()

    first = lines[lines.index("") + 3]
    assert first.startswith("efficiency")
    assert "36.00 Mtokens/kWh" in first


def test_one_trial_has_no_repeatability() -> None:
    """N = 1 is said to be so, and no interval is invented."""
    block = result_block(run_record(), summary_of(100.0), report_path=None)

    assert "none, n=1" in block


def test_estimate_says_est_on_each_figure_that_it_touches() -> None:
    """Efficiency, energy per token, energy, power and each phase's energy."""
    estimate = but(ENERGY, evidence=Evidence.EST)
    phase = but(trial_result().phases[0], boundaries=(estimate,))
    trial = trial_record(result=trial_result(boundaries=(estimate,), phases=(phase,)))
    block = result_block(run_record(), summarise(run_record(), [trial]), report_path=None)

    for start in ("efficiency", "energy per token", "energy ", "mean power", "train *"):
        assert next(line for line in block.splitlines() if line.startswith(start)).endswith("cpu EST")
    assert "EST: estimated from a model, not measured" in block


def test_missing_value_prints_its_reason() -> None:
    """A trial without energy has no number, and says why."""
    broken = but(ENERGY, energy_j=None, instrument=None, reason="samples miss 40% of the window")
    trial = trial_record(result=trial_result(boundaries=(broken,)))
    block = result_block(run_record(), summarise(run_record(), [trial]), report_path=None)

    assert "not known (cpu C1): samples miss 40% of the window" in block


def test_lines_are_ascii_and_at_most_100_columns() -> None:
    """Also with a long name, a long reason, and letters that no terminal should obey."""
    spec = run_spec(workload=f"n\u00e4me{ESCAPE}" + "x" * 150, preset="\u202e", target=TARGET)
    flag = QualityFlag(code="c\u00f6de", severity=Severity.WARNING, evidence="word " * 60, remedy=f"do{ESCAPE} " * 30)
    trial = trial_record(result=trial_result(flags=(flag,), boundaries=(but(ENERGY, energy_j=None, reason="r " * 90),)))
    run = run_record(
        spec=spec, absences=(MeterAbsence(interface="p", domain=None, reason="r " * 80, remedy="\U0001f525"),)
    )
    block = result_block(run, summarise(run, [trial]), report_path=None)

    assert block.isascii()
    assert "\x1b" not in block
    assert max(map(len, block.splitlines())) <= 100


def test_path_of_the_report_keeps_its_letters_and_no_control() -> None:
    """It gets copied, so its letters stay; a control character in it does not."""
    block = result_block(run_record(), summary_of(100.0), report_path=Path("/h\u00f6me/a\x1bb/report.html"))

    assert block.splitlines()[-1] == "report: /h\u00f6me/a\\x1bb/report.html"


def test_target_and_trials_are_counted() -> None:
    """Two of two trials met it."""
    run = run_record(spec=run_spec(target=TARGET, n_trials=2))
    block = result_block(run, summarise(run, [measured(1.0), measured(1.0, index=1)]), report_path=None)

    assert "done, 2 of 2 trials" in block
    assert "val_loss <= 1.500 nats/token: met in 2 of 2 trials" in block


def test_failed_run_says_invalid_and_shows_its_flag() -> None:
    """A trial that ended with code 3 left no result."""
    trial = trial_record(status=TrialStatus.FAILED, message="the workload ended with exit code 3", result=None)
    block = result_block(run_record(), summarise(run_record(), [trial]), report_path=None)

    assert "INVALID" in block
    assert "the workload ended with exit code 3" in block


def test_flags_alike_are_said_once_and_the_worst_first() -> None:
    """Two trials with one warning, and one invalid flag after them."""
    flags = [
        QualityFlag(code="gap", severity=Severity.WARNING, evidence="trial 0: a gap", remedy="again"),
        QualityFlag(code="gap", severity=Severity.WARNING, evidence="trial 1: a gap", remedy="again"),
        QualityFlag(code="lost", severity=Severity.INVALID, evidence="gone"),
    ]
    groups = grouped_flags(flags)

    assert [group.code for group in groups] == ["lost", "gap"]
    assert groups[1].evidence == ("trial 0: a gap", "trial 1: a gap")


def test_unknown_figures_follow_in_their_order() -> None:
    """Keys that this version does not know are shown last, not dropped."""
    figures = [figure(1.0, key="final_b"), figure(1.0, key="final_a"), figure(1.0, key="energy_j")]

    assert [each.key for each in ordered_figures(figures)] == ["energy_j", "final_b", "final_a"]


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.0029166, "J/token", "2.917 mJ/token"),
        (430.1, "J", "430.1 J (119.5 mWh)"),
        (3.6e6, "J", "3.600 MJ (1.000 kWh)"),
        (1.234e9, "tokens/kWh", "1.234 Gtokens/kWh"),
        (24310.0, "tokens/s", "24,310 tokens/s"),
        (92.13, "s", "1 min 32 s"),
        (12582912.0, "tokens", "12,582,912 tokens"),
        (2.1234, "nats/byte", "2.123 nats/byte"),
        (0.0, "J/token", "0 J/token"),
        (None, "J/token", "not known"),
    ],
)
def test_value_reads_in_its_unit(value: float | None, unit: str, expected: str) -> None:
    """SI prefixes for joules, watts and tokens/kWh; none for the units of losses."""
    assert value_text(figure(value, unit)) == expected


def test_interval_shares_prefix_and_gets_the_digits_it_earns() -> None:
    """615.00 mJ, -+ 0.12 mJ: two digits of the half width, so five of the value."""
    narrow = figure(0.615, n=3, repeatability=Interval(low=0.61488, high=0.61512))

    assert value_text(narrow) == "615.00 mJ/token"
    assert repeatability_text(narrow) == "[614.88, 615.12]"


def test_wide_instrument_interval_keeps_the_prefix_of_the_value() -> None:
    """0.5 to 2 times 600 mJ is [300, 1,200] mJ, not 1.2 J."""
    assert instrument_text(figure(0.6, instrument=Interval(low=0.3, high=1.2))) == "[300, 1,200]"


def test_scale_of_a_unit_without_prefixes_is_one() -> None:
    """Nats are not written in millinats."""
    assert scale_of(0.001, "nats/token") == (1.0, "nats/token")
