"""What a report gathers from a run folder, and the sentences that it says about it."""

import dataclasses
from pathlib import Path

import pytest

from ecobench.measurement import Boundary, Evidence
from ecobench.records import TrialStatus
from ecobench.report import sentences
from ecobench.report.content import ReportContent, gather
from ecobench.report.drawings import bars_drawing, draw, loss_drawing
from ecobench.report.provenance import command_line, reproduce_lines
from records_for_tests import (
    SPEECH,
    TARGET,
    S,
    but,
    goodbye,
    hello,
    metric,
    phase_start,
    phase_stop,
    run_record,
    run_spec,
    step,
    trial_end,
)
from stored_runs import DRAM, ESTIMATE, PACKAGE_0, PACKAGE_1, stored_run

# Loss 2.0 after 2 s and 1.25 after 4 s of train, at 20 W.
LOSS_ENERGIES_J = (40.0, 80.0)


def content_of(root: Path, **options: object) -> ReportContent:
    """Of a stored run."""
    return gather(stored_run(root, **options))  # type: ignore[arg-type]  # options of stored_run


def test_loss_stands_at_the_energy_of_the_measured_phase_so_far(tmp_path: Path) -> None:
    """Train starts at 3 s; the losses come at 5 s and 7 s, so after 40 J and 80 J at 20 W."""
    (line,) = content_of(tmp_path).trials[0].losses

    assert line.energy_j == pytest.approx(LOSS_ENERGIES_J)
    assert line.time_s == (2.0, 4.0)
    assert line.n_tokens == (500, 1000)
    assert line.value == (2.0, 1.25)


def test_validation_between_train_segments_costs_the_loss_curve_nothing(tmp_path: Path) -> None:
    """Train 1-3 s, eval 3-5 s, train 5-6 s: a loss at 6 s stands at 3 s of train, 60 J."""
    speech = (
        hello(1 * S),
        phase_start(1 * S),
        step(3 * S, 1, 500),
        phase_start(3 * S, "eval"),
        metric(4 * S, "val_loss", 2.0, 1),
        phase_stop(5 * S, "eval"),
        metric(6 * S, "val_loss", 1.0, 2),
        phase_stop(7 * S),
        goodbye(8 * S),
    )
    (line,) = content_of(tmp_path, speeches=(speech,)).trials[0].losses

    assert line.energy_j == pytest.approx((40.0, 60.0))


def test_domains_of_one_boundary_add_up_in_the_loss_curve_and_stay_apart_in_the_bars(tmp_path: Path) -> None:
    """60 + 55 + 8 = 123 W: 246 J after 2 s; the bar of train is 300, 275 and 40 J."""
    content = content_of(tmp_path, powers_w={PACKAGE_0: 60.0, PACKAGE_1: 55.0, DRAM: 8.0})
    train = next(bar for bar in content.bars if bar.is_measured)

    assert content.trials[0].losses[0].energy_j == pytest.approx((246.0, 492.0))
    assert dict(train.parts) == pytest.approx({"cpu:0/package": 300.0, "cpu:1/package": 275.0, "cpu:0/dram": 40.0})
    assert [line.domain for line in content.trials[0].power] == ["cpu:0/package", "cpu:1/package", "cpu:0/dram"]


def test_phases_are_spans_from_launch(tmp_path: Path) -> None:
    """Launch at 1 s: warm-up 0-2 s, train 2-7 s, and 1 s that no phase owns."""
    spans = content_of(tmp_path).trials[0].spans

    assert [(span.phase, span.start_s, span.stop_s) for span in spans] == [
        ("warmup", 0.0, 2.0),
        ("train", 2.0, 7.0),
        ("job", 7.0, 8.0),
    ]


def test_meter_row_says_how_well_the_meter_saw_the_measured_phase(tmp_path: Path) -> None:
    """Read each 0.1 s from 0 s to 10 s: 101 readings, all of train covered, largest gap 0.1 s."""
    (row,) = content_of(tmp_path).meters

    assert (row.n_samples, row.n_failed, row.errors) == (101, 0, ())
    assert row.energy is not None
    assert row.energy.coverage_share == 1.0
    assert row.energy.largest_gap_s == pytest.approx(0.1)


def test_without_a_meter_the_loss_stands_against_time(tmp_path: Path) -> None:
    """Speed alone: no energy is invented, and the chart of phases is one of time."""
    content = content_of(tmp_path, powers_w={}, run=run_record(spec=run_spec(meter="none", n_trials=1)))
    loss, bars = loss_drawing(content), bars_drawing(content)

    assert content.scope is None
    assert content.trials[0].losses[0].energy_j is None
    assert loss is not None
    assert loss.curves[0].x == (2.0, 4.0)
    assert bars is not None
    assert bars.name == "time"
    assert sentences.headline(content) == (
        "toy (cpu) trained at 200.0 tokens/s; what it cost is not known: no meter was asked for."
    )


def test_estimate_is_marked_in_headline_axes_and_sentences(tmp_path: Path) -> None:
    """EST stands beside each number that it touches."""
    content = content_of(tmp_path, powers_w={ESTIMATE: 20.0})
    drawings = draw(content)

    assert content.scope is not None
    assert (content.scope.boundary, content.scope.evidence) == (Boundary.CPU, Evidence.EST)
    assert sentences.headline(content) == (
        "A token of toy (cpu) is estimated to cost 100.0 mJ (EST) at 200.0 tokens/s and 20.00 W."
    )
    assert drawings.loss is not None
    assert drawings.power is not None
    assert drawings.phases is not None
    assert "EST" in drawings.loss.x_label
    assert "EST" in drawings.power.y_label
    assert "EST" in drawings.phases.x_label
    for sentence in (sentences.loss_sentence, sentences.power_sentence, sentences.phases_sentence):
        assert "(EST)" in sentence(content)


def test_sentences_are_computed_from_the_run(tmp_path: Path) -> None:
    """At 20 W: 40 J, 100 J and 20 J of 160 J; the loss moved by 0.75 for 80 J."""
    content = content_of(tmp_path)

    assert sentences.loss_sentence(content) == "val_loss falls from 2.000 to 1.250 nats/token for 80.00 J."
    assert sentences.phases_sentence(content) == (
        "Phase train took 62% of the 160.0 J from launch to exit; most of the rest went to warmup, 25%."
    )
    assert sentences.power_sentence(content).endswith("the mean in train is 20.0 W.")


def test_no_share_is_said_where_a_phase_has_no_energy(tmp_path: Path) -> None:
    """100 J of an unknown whole are no percentage."""
    content = content_of(tmp_path)
    first, *others = content.bars
    assert first.energy is not None
    unknown = dataclasses.replace(first, energy=dataclasses.replace(first.energy, value=None, reason="too short"))

    assert sentences.phases_sentence(dataclasses.replace(content, bars=(unknown, *others))) == (
        "Phase train took 100.0 J; what 1 other phase took is not known."
    )


def test_lost_trial_keeps_its_timeline(tmp_path: Path) -> None:
    """The harness was killed in the second trial: what is on the disk is shown, and said to be no more."""
    content = content_of(tmp_path, speeches=(SPEECH, SPEECH[:6]), lost=(1,))
    lost = content.trials[1]

    assert lost.record.status is TrialStatus.LOST
    assert lost.power
    assert {span.phase for span in lost.spans} == {"warmup", "train"}
    assert content.summary.n_trials_planned == 2
    assert not content.summary.is_valid


def test_trial_that_never_started_says_why(tmp_path: Path) -> None:
    """No samples, no events, no numbers; the headline carries the reason."""
    content = content_of(tmp_path, never_started=(0,))

    assert "no program `missing`" in sentences.headline(content)
    assert content.trials[0].problem is not None
    assert draw(content).power is None


def test_crashed_trial_without_tokens_has_no_cost_of_a_token(tmp_path: Path) -> None:
    """Ended with code 3 before its first step."""
    content = content_of(tmp_path, speeches=(SPEECH[:4],), ends={0: trial_end(exit_code=3, last_words="boom")})

    assert sentences.headline(content).startswith("toy (cpu) has no cost of a token to show: ")
    assert sentences.loss_sentence(content) == "No loss was reported in the measured phase."


def test_target_of_another_metric_draws_no_line(tmp_path: Path) -> None:
    """A target on a metric that nobody reported is not drawn across others."""
    spec = run_spec(n_trials=1, target=but(TARGET, metric="accuracy"))
    drawing = loss_drawing(content_of(tmp_path, run=run_record(spec=spec)))

    assert drawing is not None
    assert drawing.target is None


def test_command_line_is_quoted_for_a_shell() -> None:
    """How ecobench was started is not part of what was asked of it."""
    run = run_record(argv=("/somewhere/bin/ecobench", "run", "toy", "--set", "note=it's $HOME"))

    assert command_line(run) == """ecobench run toy --set 'note=it'"'"'s $HOME'"""


def test_reproduction_names_the_commit_and_what_lies_beside_it() -> None:
    """A dirty checkout is said to be one."""
    run = run_record(provenance=but(run_record().provenance, git_commit="abc123", git_is_dirty=True))

    assert reproduce_lines(run)[0] == "git checkout abc123"
    assert "source/" in reproduce_lines(run)[1]
