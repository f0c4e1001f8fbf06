"""What sampling GPUs costs: `python benchmarks/sampling_overhead.py [--gpus=8] [--seconds=20] [--pairs=40]`.

On the tests' NVML driver (its calls cost nothing but Python; a real driver's take longer and mostly wait), the meters
and the sampler of a run, samples written to a file as in a run:

    CPU       of the sampling process, in shares of one core                                   bar: 2 %, aim 1 %
    gaps      between energy readings of one GPU, 99th percentile, with every core busy        bar: 2 periods
    A/B       nanogpt on one thread of this machine; sampling is on and off in turns of 3 s, and the time of its steps
              is compared by pairs, as wall time and as CPU time of their own                  bar: 0.1 %

The A/B says what it can: its interval stands beside it. A machine that does other work widens that of wall time.
"""

import argparse
import json
import math
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from ecobench.clock import LiveClock  # noqa: E402
from ecobench.measurement import Boundary, ReadingKind  # noqa: E402
from ecobench.meters import discover  # noqa: E402
from ecobench.sampler import Sampler  # noqa: E402
from ecobench.seams import Meter  # noqa: E402
from ecobench.stats import mean_with_interval  # noqa: E402
from ecobench.store.samples import SampleWriter, read_traces  # noqa: E402
from nvml_bed import NvmlBed  # noqa: E402  # found by the line above
from nvml_build import build_nvml  # noqa: E402
from nvml_models import H100  # noqa: E402

TURN_S = 3.0


@contextmanager
def sampling(meters: list[Meter], path: Path) -> Iterator[None]:
    """The sampler of a run on `meters` meanwhile, into a file of its own."""
    with SampleWriter(path, [meter.info for meter in meters]) as writer:
        sampler = Sampler(meters, clock=LiveClock(), sink=writer.append)
        sampler.start()
        try:
            yield
        finally:
            sampler.stop()
        sampler.raise_failure()


def cpu_share(meters: list[Meter], folder: Path, *, duration_s: float) -> float:
    """CPU time of this process while it samples, as a share of one core."""
    with sampling(meters, folder / "alone.arrows"):
        time.sleep(1)
        start, start_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        time.sleep(duration_s)
        stop, stop_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    used_s = stop.ru_utime + stop.ru_stime - start.ru_utime - start.ru_stime
    return used_s / (stop_s - start_s)


def gaps_ms(meters: list[Meter], path: Path, *, duration_s: float, n_busy: int) -> tuple[float, float, float]:
    """Median, 99th percentile and largest gap between the readings of an energy counter."""
    busy = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(n_busy)]
    for process in busy:
        process.start()
    try:
        with sampling(meters, path):
            time.sleep(duration_s)
    finally:
        for process in busy:
            process.terminate()
            process.join()
    counters = [trace for trace in read_traces(path) if trace.info.kind is ReadingKind.ENERGY_COUNTER]
    gaps = np.concatenate([np.diff(trace.time_ns) for trace in counters]) / 1e6
    return float(np.median(gaps)), float(np.quantile(gaps, 0.99)), float(gaps.max())


class Turn(NamedTuple):
    """One stretch with sampling on or off: instants, and the CPU time that the training had used at both."""

    is_on: bool
    start_ns: int
    stop_ns: int
    start_cpu_ns: int
    stop_cpu_ns: int


def turns_of_training(meters: list[Meter], folder: Path, *, n_pairs: int) -> tuple[list[Turn], list[int]]:
    """Pairs of turns with sampling on and off, their order changing from pair to pair; and the stamps of the steps."""
    turns = []
    with _training(folder) as (events, pid):
        _await_steps(events, 20)
        for pair in range(n_pairs):
            for is_on in (pair % 2 == 0, pair % 2 == 1):
                with sampling(meters, folder / f"turn-{pair}.arrows") if is_on else nullcontext():
                    start_ns, start_cpu_ns = time.monotonic_ns(), _cpu_ns(pid)
                    time.sleep(TURN_S)
                    turns.append(Turn(is_on, start_ns, time.monotonic_ns(), start_cpu_ns, _cpu_ns(pid)))
        _await_steps(events, events.read_text().count('"step"') + 2)
        lines = events.read_text().splitlines()
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return turns, [event["time_ns"] for event in found if event["event"] == "step"]


def effects_percent(turns: list[Turn], stamps_ns: list[int]) -> tuple[list[float], list[float]]:
    """For each pair, by how much a step took longer with sampling on: in wall time, and in its own CPU time."""
    origin_ns = stamps_ns[0]
    known_s = [(stamp - origin_ns) / 1e9 for stamp in stamps_ns]
    costs: list[tuple[float, float]] = []
    for turn in turns:
        edges_s = [(edge - origin_ns) / 1e9 for edge in (turn.start_ns, turn.stop_ns)]
        before, after = np.interp(edges_s, known_s, np.arange(len(known_s)))
        n_steps = float(after - before)
        costs.append(((turn.stop_ns - turn.start_ns) / n_steps, (turn.stop_cpu_ns - turn.start_cpu_ns) / n_steps))
    pairs = [
        (costs[index], costs[index + 1]) if turns[index].is_on else (costs[index + 1], costs[index])
        for index in range(0, len(costs), 2)
    ]
    wall = [math.log(on[0] / off[0]) * 100 for on, off in pairs]
    return wall, [math.log(on[1] / off[1]) * 100 for on, off in pairs]


def _cpu_ns(pid: int) -> int:
    """Time on a core of all threads, as the scheduler counts it."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


@contextmanager
def _training(folder: Path) -> Iterator[tuple[Path, int]]:
    """The smoke variant of nanogpt on one thread, for as long as it is needed; the file of its events, and its pid."""
    home = ROOT / "workloads" / "nanogpt"
    manifest = tomllib.loads((home / "workload.toml").read_text())
    parameters = manifest["smoke"]["parameters"] | {"steps": 1_000_000, "validation_every": 1_000_000}
    environment = manifest["presets"]["cpu"]["environment"] | {"OMP_NUM_THREADS": "1", "ECOBENCH_EVENTS": str(folder)}
    argv = [sys.executable, str(home / "train.py"), *(f"--{name}={value}" for name, value in parameters.items())]
    with (folder / "training.txt").open("w") as output:
        process = subprocess.Popen(argv, env={**os.environ, **environment}, stdout=output, stderr=output)
        try:
            yield folder / "rank-00000.jsonl", process.pid
        finally:
            process.kill()
            process.wait()


def _await_steps(events: Path, n_steps: int) -> None:
    while not events.exists() or events.read_text().count('"step"') < n_steps:
        time.sleep(0.2)


def _spin() -> None:
    while True:
        math.sqrt(2.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--pairs", type=int, default=40)
    options = parser.parse_args()
    n_cores = os.cpu_count() or 1
    print(f"{options.gpus} GPUs, {n_cores} cores, load {os.getloadavg()[0]:.1f} before")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bed = NvmlBed.create(folder / "node.state", build_nvml("gcc", folder), [H100] * options.gpus)
        with bed, bed.loaded():
            for gpu in range(options.gpus):
                bed.set_square_wave(gpu, high_w=650, low_w=300, period_ns=95_000_000)
            found = discover("auto", root_pid=os.getpid()).meters
            meters = [meter for meter in found if meter.info.boundary is Boundary.GPU]
            fast_ns = min(meter.info.period_ns for meter in meters)
            print(f"{len(meters)} meters, the fastest every {fast_ns / 1e6:g} ms")
            print(f"CPU    {cpu_share(meters, folder, duration_s=options.seconds):.2%} of one core")
            for n_busy in (0, n_cores):
                typical, high, most = gaps_ms(
                    meters, folder / f"gaps-{n_busy}.arrows", duration_s=options.seconds, n_busy=n_busy
                )
                print(f"gaps   {n_busy} cores busy: median {typical:.1f}, p99 {high:.1f}, largest {most:.1f} ms")
            if options.pairs:
                turns, stamps_ns = turns_of_training(meters, folder, n_pairs=options.pairs)
                for what, effects in zip(("wall", "CPU"), effects_percent(turns, stamps_ns), strict=True):
                    _print_effect(what, effects)
            print(f"load {os.getloadavg()[0]:.1f} after")
            for meter in found:
                meter.close()


def _print_effect(what: str, effects: list[float]) -> None:
    found = mean_with_interval(effects)
    interval = f" [{found.interval.low:+.2f}, {found.interval.high:+.2f}]" if found.interval is not None else ""
    print(f"A/B    {len(effects)} pairs, {what} time of a step: {found.value:+.2f} %{interval} with sampling on")


if __name__ == "__main__":
    main()
