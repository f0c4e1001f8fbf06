"""What a running workload has said so far, and when it is asked to stop."""

from pathlib import Path

import pytest

from ecobench.live import EventTail, Progress, is_reached
from ecobench.parameters import parse_stop_rule
from records_for_tests import (
    SPEECH,
    TARGET,
    S,
    as_lines,
    goodbye,
    hello,
    metric,
    phase_start,
    phase_stop,
    step,
    transcript,
)


def progress_after(*events: dict[str, object]) -> Progress:
    """A trial that has said this."""
    progress = Progress(measured_phase="train")
    for event in transcript(hello(0), *events).events:
        progress.take(event)
    return progress


def test_phases_open_and_close_like_brackets() -> None:
    """The measured one is remembered from its first start."""
    progress = progress_after(
        phase_start(1 * S, "warmup"), phase_stop(2 * S, "warmup"), phase_start(3 * S), phase_start(4 * S, "eval")
    )
    assert progress.phases == ["train", "eval"]
    assert progress.measured_since_ns == 3 * S

    again = progress_after(phase_start(3 * S), phase_stop(4 * S), phase_start(5 * S))
    assert again.measured_since_ns == 3 * S


def test_speed_is_that_of_the_last_seconds() -> None:
    """100 tokens/s for 10 s, then 500: over the last five seconds it is 500."""
    slow = [step(n * S, n, 100 * n) for n in range(11)]
    quick = [step((10 + n) * S, 10 + n, 1000 + 500 * n) for n in range(1, 6)]

    assert progress_after(*slow).tokens_per_s == 100.0
    assert progress_after(*slow, *quick).tokens_per_s == 500.0
    assert progress_after(slow[1]).tokens_per_s is None
    assert progress_after(step(S, 1, 8), step(S, 2, 16)).tokens_per_s is None


def test_the_tail_reads_what_was_added_and_no_line_by_half(tmp_path: Path) -> None:
    """Byte by byte: every event once, in order."""
    tail = EventTail(tmp_path)
    assert tail.read() == []
    found = []
    with open(tmp_path / "rank-00000.jsonl", "wb", buffering=0) as file:
        for byte in as_lines(*SPEECH):
            file.write(bytes([byte]))
            found += tail.read()

    assert tuple(found) == transcript(*SPEECH).events
    assert tail.read() == []


@pytest.mark.parametrize(
    ("rule", "is_so"),
    [
        ("steps=2", True),
        ("steps=3", False),
        ("time=6s", True),
        ("time=7s", False),
        ("loss=2", True),
        ("loss=1.9", False),
        ("energy=50J", True),
        ("energy=51J", False),
    ],
)
def test_a_rule_is_reached_at_its_limit_and_not_before(rule: str, *, is_so: bool) -> None:
    """Step 2, val_loss 2.0, 50 J, and 6 s after the measured phase began at 3 s."""
    progress = progress_after(
        phase_start(3 * S), step(4 * S, 1, 8), step(5 * S, 2, 16), metric(6 * S, "val_loss", 2.0, 2)
    )
    progress.energy_j = 50.0

    assert is_reached(parse_stop_rule(rule), progress, target=None, now_ns=9 * S) is is_so


@pytest.mark.parametrize("rule", ["steps=1", "time=1s", "loss=9", "energy=1J"])
def test_nothing_is_reached_before_it_was_said(rule: str) -> None:
    """No step, no measured phase, no loss, no energy: no reason to stop."""
    progress = progress_after(phase_start(1 * S, "warmup"))

    assert not is_reached(parse_stop_rule(rule), progress, target=None, now_ns=1000 * S)


def test_loss_is_the_metric_of_the_target() -> None:
    """Else `val_loss`; another metric says nothing."""
    progress = progress_after(metric(1 * S, "perplexity", 1.0, 1), goodbye(2 * S))
    rule = parse_stop_rule("loss=1.5")

    assert not is_reached(rule, progress, target=TARGET, now_ns=3 * S)
    assert not is_reached(rule, progress, target=None, now_ns=3 * S)
    progress.take(transcript(metric(1 * S, "val_loss", 1.5, 1)).events[0])
    assert is_reached(rule, progress, target=TARGET, now_ns=3 * S)
