"""A load that is on and off in a known rhythm. Runs alone too: `python train.py --load=cuda --period_s=0.5`.

    power   ______      ______
           |      |    |      |        a step event is stamped at each rising edge but the first (the start of `train`),
    _______|      |____|      |___     a `high_s` metric at each falling one, once the device has come to rest
    phase_s  duty    period_s

Edges keep to the grid of the first one: a late edge delays no later one. One process drives every visible GPU, so that
all of them rise and fall together.
"""

import argparse
import time
from collections.abc import Callable

from ecobench.events import emit, phase, should_stop

# Some milliseconds of sleep at the end of a wait would be slept over: the last of it is spun.
SPIN_S = 0.002
# Products that are under way at a time: the GPUs never wait, and an edge is at most so many products late.
N_AHEAD = 4

Work = Callable[[float], None]


def wait_until(time_s: float) -> None:
    remaining_s = time_s - time.monotonic()
    if remaining_s > SPIN_S:
        time.sleep(remaining_s - SPIN_S)
    while time.monotonic() < time_s:
        pass


def count_until(stop_s: float) -> None:
    """One core's load."""
    n = 0
    while time.monotonic() < stop_s:
        n += 1


def open_cuda(size: int) -> Work:
    """Matrix products on every visible GPU, until an instant; it returns once all are done."""
    import torch  # noqa: PLC0415  # the load of a CPU needs none

    if not torch.cuda.is_available():
        raise SystemExit("squarewave: load `cuda` needs an NVIDIA GPU that torch can use; `--load=cpu` loads one core")
    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    matrices_NN = [torch.randn(size, size, device=device, dtype=torch.float16) for device in devices]
    products_NN = [torch.empty_like(matrix_NN) for matrix_NN in matrices_NN]

    def work_until(stop_s: float) -> None:
        while time.monotonic() < stop_s:
            for matrix_NN, product_NN in zip(matrices_NN, products_NN, strict=True):
                for _ in range(N_AHEAD):
                    torch.matmul(matrix_NN, matrix_NN, out=product_NN)
            for device in devices:
                torch.cuda.synchronize(device)

    return work_until


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", choices=("cuda", "cpu"), default="cpu")
    parser.add_argument("--period_s", type=float, default=1.0)
    parser.add_argument("--duty", type=float, default=0.5)
    parser.add_argument("--phase_s", type=float, default=0.0)
    parser.add_argument("--periods", type=int, default=20)
    parser.add_argument("--size", type=int, default=4096)
    args = parser.parse_args()

    emit("hello", parameters=vars(args))
    work_until = open_cuda(args.size) if args.load == "cuda" else count_until
    with phase("warmup"):
        work_until(time.monotonic() + 0.05)
        wait_until(time.monotonic() + args.phase_s)
    status = "done"
    with phase("train"):
        start_s = time.monotonic()
        for n in range(args.periods):
            rising_s = start_s + n * args.period_s
            if args.duty > 0:
                work_until(rising_s + args.duty * args.period_s)
            emit("metric", name="high_s", value=time.monotonic() - rising_s, unit="s", step=n + 1)
            wait_until(rising_s + args.period_s)
            emit("step", step=n + 1, tokens=n + 1, synced=True)
            if should_stop():
                status = "stopped"
                break
    emit("goodbye", status=status)


if __name__ == "__main__":
    main()
