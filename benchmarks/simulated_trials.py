"""How long simulated trials of the full speedrun take, with their report: `python benchmarks/simulated_trials.py`.

Two processes, each a run of half of the trials; prints seconds for all, and for each trial.
"""

import argparse
import concurrent.futures
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from ecobench.report import write_report
from simulated_runs import simulate


def run_half(home: str, n_trials: int) -> str:
    run = simulate(Path(home), n_trials=n_trials)
    write_report(run.folder, formats=("html", "png"))
    return run.summary.status.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    n_trials = parser.parse_args().trials
    started_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ProcessPoolExecutor(2) as pool:
        halves = [n_trials // 2, n_trials - n_trials // 2]
        homes = [f"{folder}/{index}" for index in range(2)]
        found = list(pool.map(run_half, homes, halves))
        took_s = time.perf_counter() - started_s
    print(f"{n_trials} trials, {found}: {took_s:.1f} s, {1000 * took_s / n_trials:.0f} ms a trial")


if __name__ == "__main__":
    main()
