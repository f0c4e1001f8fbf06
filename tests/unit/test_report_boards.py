"""A run on two GPUs, from its samples on the disk to the result block, the page and `verify`."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from board_traces import Board, held, steadily, wave, window
from ecobench.gpu_records import CapState
from ecobench.reading import read_run, verify_run
from ecobench.report import write_report
from ecobench.report.boards import stragglers_text
from ecobench.report.tables import result_block
from ecobench.result import conclude_trial
from ecobench.store import RunFolder
from ecobench.store.samples import SampleWriter, read_traces
from ecobench.trace import Trace
from records_for_tests import (
    END,
    as_lines,
    but,
    goodbye,
    hello,
    phase_start,
    phase_stop,
    run_record,
    run_spec,
    sample,
    step,
    trial_end,
)
from stored_runs import embedded_json

S = 1_000_000_000
IDLE = wave(0, 730, high_w=120, low_w=90)
IDLE_AFTER = wave(70, 730, high_w=120, low_w=90)
STEPS = [step(round((10 + index * 0.095) * S), index, 500 * index) for index in range(1, 631)]
SPEECH = (hello(2 * S), phase_start(10 * S), *STEPS, phase_stop(70 * S), goodbye(70 * S))


def gpu_traces(index: int, *, limited_share: float, clock_mhz: float = 1500) -> list[Trace]:
    """One GPU: 650 and 300 W in steps of 95 ms from 10 to 70 s, a limit of 595 W, 61 C."""
    domain = f"gpu:{index}"
    board = Board(load=(IDLE, wave(10, 95, high_w=650, low_w=300), IDLE_AFTER), domain=domain, seed=index)
    return [
        board.counter(80),
        board.instant(80),
        board.average(80),
        steadily("sm_clock_mhz", clock_mhz, domain=domain),
        steadily("temperature_c", 61, domain=domain),
        steadily("limit_requested_w", 595, domain=domain, si_per_count=1e-3),
        steadily("limit_enforced_w", 595, domain=domain, si_per_count=1e-3),
        held("power_cap_ns", share=limited_share, domain=domain),
        held("hw_thermal_ns", share=0.0, domain=domain),
    ]


def stored(root: Path, traces: Sequence[Trace]) -> RunFolder:
    """A run of one trial that was launched at 1 s and ended at 75 s."""
    record = run_record(spec=run_spec(n_trials=1), meters=tuple(trace.info for trace in traces))
    folder = RunFolder(root / record.id)
    folder.path.mkdir(parents=True)
    folder.write(record)
    trial = folder.trial(0)
    trial.create()
    trial.samples.parent.mkdir(exist_ok=True)
    with SampleWriter(trial.samples, record.meters) as writer:
        for place, trace in enumerate(traces):
            rows = zip(trace.time_ns, trace.raw, strict=True)
            writer.append([(place, sample(int(time_ns), int(raw))) for time_ns, raw in rows])
    (trial.events / "rank-00000.jsonl").write_bytes(as_lines(*SPEECH))
    end = trial_end(times=but(END.times, launch_ns=1 * S, exit_ns=75 * S, sampler_down_ns=80 * S))
    trial.write(
        conclude_trial(
            record.spec, trial.read_transcripts(), read_traces(trial.samples), end, index=0, started_utc="2026-12-01"
        )
    )
    folder.write_summary(read_run(folder).summary)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """GPU 0 was held back by its limit for 80 % of the time, GPU 1 for 60 %."""
    root = tmp_path_factory.mktemp("gpus")
    return stored(root, [*gpu_traces(0, limited_share=0.8), *gpu_traces(1, limited_share=0.6)])


def test_the_result_block_has_a_line_for_each_gpu_and_how_often_the_limit_bound(run: RunFolder) -> None:
    """Each board draws 0.6 x 650 + 0.4 x 300 = 510 W, 30.6 kJ in 60 s; together 61.2 kJ, G1."""
    found = read_run(run)
    block = result_block(found.run, found.summary, report_path=None)

    lines = {line.split()[0]: line for line in block.splitlines() if line.startswith("gpu:")}
    assert lines["gpu:0"].split() == "gpu:0 30.60 kJ 510.0 W 595.0/595.0 W 1,500 MHz 61.0/61.0 C 80 %".split()
    assert lines["gpu:1"].endswith("60 %")
    assert "power limit: bound: it held every GPU back for half of the time or more; 60 to 80 % of the" in block
    (energy,) = [line for line in block.splitlines() if line.startswith("energy  ")]
    assert "61.2" in energy
    assert energy.endswith("gpu G1")
    assert "not counted" in block
    assert "processors, memory" in block
    assert max(map(len, block.splitlines())) <= 100


def test_the_summary_says_it_in_json(run: RunFolder) -> None:
    """Limits, cap state, the share, and the ratio of the two ways."""
    summary = read_run(run).summary

    assert summary.cap_state is CapState.BOUND
    assert [gpu.limited_share for gpu in summary.gpus] == [pytest.approx(0.8), pytest.approx(0.6)]
    assert [(gpu.limit_requested_w, gpu.limit_enforced_w) for gpu in summary.gpus] == [(595.0, 595.0)] * 2
    assert [gpu.check_ratio for gpu in summary.gpus] == [pytest.approx(1, abs=0.01)] * 2
    assert summary.is_valid


def test_the_page_shows_gpus_checks_and_what_held_them_back(run: RunFolder) -> None:
    """Tables of GPUs and of checks, and the timeline with its picture; gauges are no meters of energy."""
    written = write_report(run, formats=["html", "png"])
    page = run.report.read_text(encoding="utf-8")

    assert "throttle.png" in {path.name for path in written}
    assert '<table class="stack" id="gpus">' in page
    assert '<table class="stack" id="checks">' in page
    assert "0 gpu:1, average power, edges of 1.5 s left out" in page
    assert "What held the GPUs back" in page
    assert "gauge" not in page.split("<h3>Meters</h3>")[1].split("<h2>")[0]
    assert embedded_json(page, "summary")["gpus"][0]["uuid"] == "GPU-0"
    assert embedded_json(page, "item-throttle")


def test_verify_recomputes_energies_checks_and_conditions(run: RunFolder) -> None:
    """A share that was changed in the record by a hundredth is found."""
    assert verify_run(run).problems == ()

    path = run.trial(0).path / "trial.json"
    whole = path.read_text(encoding="utf-8")
    assert '"cap_state": "bound"' in whole
    path.write_text(whole.replace('"limit_highest_w": 595.0', '"limit_highest_w": 700.0', 1), encoding="utf-8")
    problems = verify_run(run).problems
    path.write_text(whole, encoding="utf-8")

    assert [line for line in problems if "result.gpus[0].limit_highest_w is 700.0, recomputed 595.0" in line]


def test_a_straggler_is_named(run: RunFolder) -> None:
    """1,400 MHz among 1,500: 6.7 % behind the median; within 2 % nobody is."""
    first = read_run(run).summary.gpus[0]
    clocks = (1500.0, 1400.0, 1500.0, 1505.0)
    gpus = [but(first, domain=f"gpu:{index}", sm_clock_mhz=clock) for index, clock in enumerate(clocks)]

    assert stragglers_text(gpus) == "gpu:1 runs 6.7% under the median clock of all GPUs."
    assert stragglers_text(gpus[2:]) is None
    assert stragglers_text([but(gpus[0], sm_clock_mhz=1490.0), *gpus[2:]]) is None


def test_stored_energies_are_those_that_the_boards_drew(run: RunFolder) -> None:
    """To 0.1 %, after the way through the disk."""
    (record,) = read_run(run).trials
    board = Board(load=(IDLE, wave(10, 95, high_w=650, low_w=300), IDLE_AFTER))
    assert record.result is not None

    truth_j = board.energy_j(window((10, 70)))
    for gpu in record.result.gpus:
        assert gpu.energy_j == pytest.approx(truth_j, rel=1e-3)
