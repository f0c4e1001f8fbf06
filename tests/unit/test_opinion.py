"""The second opinion beside our own numbers: what is compared, and that another program's faults stay its own."""

import numpy as np
import pytest

from ecobench.measurement import Boundary, Evidence, Interval, MeterInfo, ReadingKind, ZeusReading, ZeusWindow
from ecobench.opinion import opinion_text, second_opinions
from ecobench.report.tables import result_block
from ecobench.result import evaluate_trial
from ecobench.summary import summarise
from ecobench.trace import Trace
from records_for_tests import run_record, run_spec, trial_end, trial_record

S = 1_000_000_000
COUNTER = MeterInfo(
    domain="gpu:0",
    kind=ReadingKind.ENERGY_COUNTER,
    interface="nvml",
    boundary=Boundary.GPU,
    evidence=Evidence.G1,
    si_per_count=0.001,
    period_ns=S // 10,
    wraps_at_count=None,
    max_power_w=700.0,
    instrument_share=Interval(low=-0.05, high=0.05),
    counted="the board",
    basis="test",
)


def steady_trace(power_w: int = 500, n_samples: int = 201) -> Trace:
    """A counter of mJ that is read every 100 ms from 10 s on, at constant power."""
    times = 10 * S + np.arange(n_samples, dtype=np.int64) * (S // 10)
    return Trace(info=COUNTER, time_ns=times, raw=np.arange(n_samples, dtype=np.int64) * power_w * 100)


def zeus_said(energy_j: float | None, *, domain: str = "gpu:0") -> ZeusWindow:
    """A window from 12.05 s to 22.05 s."""
    return ZeusWindow(
        version="0.16.0",
        start_ns=12 * S + S // 20,
        stop_ns=22 * S + S // 20,
        start_call_ns=1000,
        stop_call_ns=1000,
        readings=(ZeusReading(domain=domain, uuid="GPU-0", energy_j=energy_j),),
        note=None,
    )


def test_our_energy_is_of_exactly_zeus_window_though_it_lies_between_samples() -> None:
    """10 s of 500 W are 5,000 J."""
    (opinion,) = second_opinions(zeus_said(5000.0), [steady_trace()])

    assert opinion.ours_j == pytest.approx(5000.0, rel=1e-9)
    assert opinion.ratio == pytest.approx(1.0, rel=1e-9)
    assert (opinion.relation, opinion.source, opinion.note) == ("same source", "zeus 0.16.0", None)


def test_difference_of_two_ticks_is_explained_and_a_larger_one_is_said() -> None:
    """Two ticks of 100 ms at 700 W are 140 J, and 0.2 % of 5,000 J are 10 J."""
    (within,) = second_opinions(zeus_said(4860.0), [steady_trace()])
    (beyond,) = second_opinions(zeus_said(4840.0), [steady_trace()])

    assert within.note is None
    assert beyond.note == "Zeus -160 J off ours, where the counter's ticks explain 150.0 J"
    assert beyond.ratio == pytest.approx(0.968)


@pytest.mark.parametrize(
    ("energy_j", "note"),
    [
        (0.0, "Zeus said 0 J: its counter did not move"),
        (-1_000_511.0, "Zeus said -1,000,511 J: its counter went back"),
        (None, "Zeus gave no energy of it"),
    ],
)
def test_what_zeus_gets_wrong_is_missing_and_leaves_our_number_alone(energy_j: float | None, note: str) -> None:
    (opinion,) = second_opinions(zeus_said(energy_j), [steady_trace()])

    assert opinion.theirs_j is None
    assert opinion.ratio is None
    assert opinion.ours_j == pytest.approx(5000.0)
    assert opinion.note is not None
    assert opinion.note.replace(",", "").startswith(note.replace(",", ""))


def test_gpu_that_we_do_not_read_has_no_ratio() -> None:
    (opinion,) = second_opinions(zeus_said(5000.0, domain="gpu:1"), [steady_trace()])

    assert (opinion.theirs_j, opinion.ours_j, opinion.ratio) == (5000.0, None, None)
    assert opinion.note == "we read no counter of it"


def test_window_that_our_samples_do_not_cover_has_no_number_of_ours() -> None:
    """5 s of samples, of a window of 10 s."""
    (opinion,) = second_opinions(zeus_said(5000.0), [steady_trace(n_samples=51)])

    assert opinion.ours_j is None
    assert opinion.note is not None
    assert opinion.note.startswith("ours: ")


def test_one_line_says_ratio_source_or_why_there_is_none() -> None:
    window = zeus_said(5005.0)

    assert opinion_text(None, ()) is None
    assert (
        opinion_text(window, second_opinions(window, [steady_trace()]))
        == "Zeus 0.16.0 / ecobench = 1.0010 over 1 GPU(s) (same source)"
    )
    absent = ZeusWindow(
        version=None,
        start_ns=None,
        stop_ns=None,
        start_call_ns=None,
        stop_call_ns=None,
        readings=(),
        note="ModuleNotFoundError: No module named 'zeus'",
    )
    assert second_opinions(absent, [steady_trace()]) == ()
    assert opinion_text(absent, ()) == "Zeus gave none: ModuleNotFoundError: No module named 'zeus'"


def test_result_summary_and_result_block_carry_it_and_recompute_it() -> None:
    """From the trial's end and samples alone, so `verify` can make it again."""
    end = trial_end(zeus=zeus_said(5005.0))
    result = evaluate_trial(run_spec(), (), [steady_trace()], end)
    run = run_record()
    summary = summarise(run, [trial_record(end=end, result=result), trial_record(index=1, end=end, result=result)])

    assert [one.theirs_j for one in result.second_opinions] == [5005.0]
    assert summary.second_opinion == ("Zeus 0.16.0 / ecobench = 1.0010 over 1 GPU(s) (same source)",)
    block = result_block(run, summary, report_path=None)
    assert "second opinion\n  - Zeus 0.16.0 / ecobench = 1.0010 over 1 GPU(s) (same source)" in block
    without = summarise(run, [trial_record()])
    assert without.second_opinion == ()
    assert "second opinion" not in result_block(run, without, report_path=None)
