"""What a workload makes thousands of is cut to what can be read, and the rest is counted in words."""

from pathlib import Path

from ecobench.measurement import QualityFlag, Severity
from ecobench.records import MetricValue, Target
from ecobench.report.bounds import MOST_EVIDENCE, MOST_METRICS, MOST_PHASES, MOST_TEXT, shortened
from ecobench.report.content import MOST_SPANS, gather
from ecobench.report.drawings import loss_drawing, power_drawing
from ecobench.report.losses import MOST_LINES
from ecobench.report.tables import grouped_flags, result_block
from ecobench.summary import summarise
from records_for_tests import (
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
    trial_record,
    trial_result,
)
from stored_runs import stored_run


def test_block_shows_the_measured_phase_and_the_longest_of_a_thousand_others() -> None:
    """Phase `p999` takes longest; the measured one takes 1 ms here and is shown all the same."""
    one = trial_result().phases[0]
    others = [but(one, phase=f"p{index}", duration_s=1.0 + index) for index in range(1000)]
    result = trial_result(phases=(but(one, duration_s=0.001), *others))
    block = result_block(run_record(), summarise(run_record(), [trial_record(result=result)]), report_path=None)

    assert "train *" in block
    assert "p999 " in block
    assert "p500 " not in block
    assert f"{1001 - MOST_PHASES} more phases that took less time are in --json, not here" in block


def test_block_shows_the_target_whatever_else_was_reported() -> None:
    """The target's metric is the last of 1000."""
    names = [*(f"m{index}" for index in range(999)), "val_loss"]
    metrics = tuple(MetricValue(name=name, value=1.0, unit="x", step=1, time_ns=S) for name in names)
    spec = run_spec(n_trials=1, target=Target(metric="val_loss", at_most=2.0, unit="x"))
    run = run_record(spec=spec)
    block = result_block(
        run, summarise(run, [trial_record(result=trial_result(final_metrics=metrics))]), report_path=None
    )

    assert "final val_loss" in block
    assert block.count("final m") == MOST_METRICS - 1
    assert f"{1000 - MOST_METRICS} more final values are in --json, not here" in block


def test_flag_raised_a_hundred_times_is_counted() -> None:
    """Flags that differ in nothing but their evidence."""
    flags = [QualityFlag(code="c", severity=Severity.WARNING, evidence=f"number {index}") for index in range(100)]
    (group,) = grouped_flags(flags)

    assert group.evidence[0] == "number 0"
    assert group.evidence[-1] == f"and {100 - MOST_EVIDENCE} more like these"
    assert len(group.evidence) == MOST_EVIDENCE + 1


def test_long_text_says_how_much_is_missing() -> None:
    """A text at the limit is whole."""
    assert shortened("a" * MOST_TEXT) == "a" * MOST_TEXT
    assert shortened("a" * (MOST_TEXT + 7)).endswith("a... (7 more characters)")


def test_timeline_colours_the_longest_of_many_stretches_and_counts_the_rest(tmp_path: Path) -> None:
    """400 validations inside of train make 801 stretches; the first train stretch of 1 s is the longest."""
    first = 2 * S
    speech = [hello(1 * S), phase_start(1 * S), step(first - 1, 1, 10)]
    for index in range(400):
        at = first + index * S // 100
        speech += [phase_start(at, "eval"), phase_stop(at + S // 200, "eval")]
    speech += [phase_stop(8 * S), goodbye(8 * S)]
    content = gather(stored_run(tmp_path, speeches=(speech,)))
    drawing = power_drawing(content)

    spans = content.trials[0].spans
    assert len(spans) == MOST_SPANS
    assert spans[0].stop_s == 1.0
    assert list(spans) == sorted(spans, key=lambda span: span.start_s)
    assert drawing is not None
    n_left = content.trials[0].n_undrawn_spans
    assert n_left > 400
    assert drawing.note == f"{n_left} shorter stretches of phases are not coloured."


def test_loss_chart_draws_the_main_metric_and_counts_those_that_do_not_fit(tmp_path: Path) -> None:
    """50 metrics of one unit, `val_loss` last."""
    names = [*(f"m{index}" for index in range(49)), "val_loss"]
    speech = [hello(1 * S), phase_start(3 * S), step(4 * S, 1, 10)]
    speech += [metric(5 * S + index, name, 1.0, 1) for index, name in enumerate(names)]
    speech += [phase_stop(8 * S), goodbye(8 * S)]
    drawing = loss_drawing(gather(stored_run(tmp_path, speeches=(speech,))))

    assert drawing is not None
    assert len(drawing.curves) == MOST_LINES
    assert drawing.curves[0].label == "trial 0, val_loss"
    assert drawing.note == f"{50 - MOST_LINES} more metrics are not drawn."
