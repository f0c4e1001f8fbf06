"""The stand-in for `squarewave` on the NVML test bed: it sets the fake boards' load, and says the same."""

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["SUPPORT_FOLDER"])))

from ecobench.events import emit, phase
from nvml_bed import NvmlBed

parser = argparse.ArgumentParser()
for name, kind in (
    ("load", str),
    ("period_s", float),
    ("duty", float),
    ("phase_s", float),
    ("periods", int),
    ("size", int),
):
    parser.add_argument(f"--{name}", type=kind)
args = parser.parse_args()
emit("hello", parameters=vars(args))


def wait_until(time_ns: int) -> None:
    while (left_ns := time_ns - time.monotonic_ns()) > 0:
        time.sleep(max(0, left_ns - 500_000) / 1e9)


period_ns, high_ns = round(args.period_s * 1e9), round(args.period_s * args.duty * 1e9)
with NvmlBed.attach(os.environ) as bed:
    with phase("warmup"):
        time.sleep(args.phase_s + 0.05)
    with phase("train"):
        start_ns = time.monotonic_ns()
        for gpu in range(len(bed.uuids)):
            bed.set_square_wave(
                gpu,
                high_w=650,
                low_w=150,
                period_ns=period_ns,
                duty_share=args.duty,
                origin_ns=start_ns,
                while_pid=os.getpid(),
            )
        for n in range(args.periods):
            # The bed switches by itself: an edge is stamped with when it was, not with when this process woke up.
            falling_ns, rising_ns = start_ns + n * period_ns + high_ns, start_ns + (n + 1) * period_ns
            wait_until(falling_ns)
            emit("metric", name="high_s", value=high_ns / 1e9, unit="s", step=n + 1, time_ns=falling_ns)
            wait_until(rising_ns)
            emit("step", step=n + 1, tokens=n + 1, synced=True, time_ns=rising_ns)
    for gpu in range(len(bed.uuids)):
        bed.set_idle(gpu)
emit("goodbye", status="done")
