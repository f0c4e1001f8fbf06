"""The smallest speaker of the protocol: a loop that counts, and says so. Runs alone too: `python main.py --steps=20`.

The loss is a curve (1 + 4/sqrt(step)), not learned; what the toy is for is the shape of a run: init, warm-up, train
with nested eval, a stop when asked, a goodbye.
"""

import argparse
import time

from ecobench.events import emit, phase, should_stop

TOKENS_PER_SEQUENCE = 1024
EVAL_EVERY = 50


def count_for(duration_s: float) -> int:
    """Keep one core busy for `duration_s`; returns how far it counted."""
    stop = time.perf_counter() + duration_s
    n = 0
    while time.perf_counter() < stop:
        n += 1
    return n


def evaluate(step: int) -> None:
    with phase("eval"):
        count_for(0.01)
        emit("metric", name="val_loss", value=1.0 + 4.0 / step**0.5, unit="nats/token", step=step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--step_time", type=float, default=0.02)
    args = parser.parse_args()

    emit("hello", parameters=vars(args))
    with phase("warmup"):
        count_for(args.step_time)
    status = "done"
    with phase("train"):
        for step in range(1, args.steps + 1):
            count_for(args.step_time)
            emit("step", step=step, tokens=step * args.batch_size * TOKENS_PER_SEQUENCE, synced=True)
            if step % EVAL_EVERY == 0 or step == args.steps:
                evaluate(step)
            if should_stop():
                status = "stopped"
                break
    emit("goodbye", status=status)


if __name__ == "__main__":
    main()
