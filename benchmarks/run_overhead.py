"""What a run costs beside its workload: `python benchmarks/run_overhead.py [REPEATS]`.

Runs the toy workload without a report and subtracts, from the command's wall time, the workload's own life and the
lead-in and lead-out. The bar is 2 s. Also times `ecobench --help` (bar 0.3 s) against a bare interpreter.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ECOBENCH = str(Path(sys.executable).parent / "ecobench")
LEADS_S = 1.0


def wall_s(*argv: str, **environment: str) -> float:
    """Wall time of a command that must succeed."""
    start_s = time.perf_counter()
    subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, check=True)
    return time.perf_counter() - start_s


def run_overhead_s() -> float:
    """One run of the toy."""
    with tempfile.TemporaryDirectory() as home:
        total_s = wall_s(ECOBENCH, "run", "toy", "--set", "steps=50", "--no-report", ECOBENCH_HOME=home)
        (record,) = Path(home).glob("*/trials/000/trial.json")
        times = json.loads(record.read_text())["end"]["times"]
    return total_s - (times["exit_ns"] - times["launch_ns"]) / 1e9 - LEADS_S


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    overheads, helps, bares = [], [], []
    for _ in range(repeats):
        overheads.append(run_overhead_s())
        helps.append(wall_s(ECOBENCH, "--help"))
        bares.append(wall_s(sys.executable, "-c", "pass"))
    for name, values in (("run overhead", overheads), ("--help", helps), ("bare python", bares)):
        print(f"{name:14} min {min(values):.3f} s, median {statistics.median(values):.3f} s, max {max(values):.3f} s")


if __name__ == "__main__":
    main()
