"""Train the GPT of this folder: data, model, optimizers, warm-up, then the loop.

    python train.py --steps=20                                                         one process
    python -m torch.distributed.run --standalone --nproc_per_node=2 train.py           two ranks, the same result

Parameters are declared in workload.toml. Phases: `init` (data and model), `compile` where that is on, `warmup` (real
steps, undone afterwards), `train`, and inside it `eval`. Read next: model.py, muon.py, data.py.
"""

import math
import os
import shutil
import sys
import time
from argparse import Namespace
from dataclasses import dataclass

import torch

from data import N_LANES, LaneLoader, Lanes
from ecobench.events import emit, phase, should_stop
from model import Gpt, ModelConfig
from optimizer import Optimizers, Rates
from parameters import parse_parameters
from ranks import Ranks, join_ranks, set_threads
from schedule import momentum, rate_share
from tokens import SEPARATOR, ShardError, default_folder, find_shards, tokenize

VOCABULARY = 384  # 256 bytes and the separator, padded to a multiple of 128
REPORT_EVERY = 10  # steps between training losses: each one waits for the device


class TrainingError(Exception):
    """The run cannot go on; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """What a step needs. It is made once; only what it holds changes."""

    args: Namespace
    ranks: Ranks
    model: Gpt
    optimizers: Optimizers
    loader: LaneLoader
    validation: LaneLoader

    def loss_of(self, lanes: Lanes) -> torch.Tensor:
        """Summed loss of some lanes, in nats."""
        tokens_BT, targets_BT = (tensor.to(self.ranks.device, non_blocking=True) for tensor in lanes)
        loss: torch.Tensor = self.model(tokens_BT, targets_BT)
        return loss

    def step(self, step: int) -> torch.Tensor:
        """One optimizer step; this rank's summed loss before it."""
        args = self.args
        loss = torch.zeros((), device=self.ranks.device)
        for lanes in self.loader.next_step().split(args.micro_batch):
            lanes_loss = self.loss_of(lanes)
            lanes_loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            loss += lanes_loss.detach()
        self.optimizers.step(
            rate_share=rate_share(
                step, n_steps=args.steps, cooldown_share=args.cooldown_share, final_share=args.final_rate_share
            ),
            momentum=momentum(step, n_warmup_steps=args.momentum_warmup_steps),
        )
        self.optimizers.clear()
        return loss

    @torch.no_grad()
    def validate(self, n_tokens: int) -> float:
        """Mean loss over the first validation tokens, in nats a token: the same tokens for any number of ranks."""
        self.validation.restore((0, 0))
        n_batches = -(-n_tokens // self.n_step_tokens)
        total = torch.zeros((), device=self.ranks.device, dtype=torch.float64)
        for _ in range(n_batches):
            for lanes in self.validation.next_step().split(self.args.micro_batch):
                total += self.loss_of(lanes)
        return self.ranks.total(total).item() / (n_batches * self.n_step_tokens)

    @property
    def n_step_tokens(self) -> int:
        return N_LANES * self.loader.lane_length

    def warm_up(self, n_steps: int) -> None:
        """Run real steps and a validation, then put everything back as it was before."""
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        optimizers, position = self.optimizers.state(), self.loader.state
        for step in range(1, n_steps + 1):
            self.step(step)
        self.validate(self.n_step_tokens)
        self.model.load_state_dict(weights)
        self.optimizers.restore(optimizers)
        self.loader.restore(position)


def make_trainer(args: Namespace, ranks: Ranks) -> Trainer:
    """Loaders on the shards, the model with the first rank's weights, its optimizers."""
    lane_length, rest = divmod(args.batch_size * args.sequence_length, N_LANES)
    if rest:
        raise TrainingError(
            f"{args.batch_size} x {args.sequence_length} tokens are no {N_LANES} equal lanes: "
            f"batch_size x sequence_length must be a multiple of {N_LANES}"
        )
    train, validation = (
        LaneLoader(find_shards(default_folder(), split), lane_length=lane_length, rank=ranks.rank, world=ranks.world)
        for split in ("train", "val")
    )
    torch.manual_seed(args.seed)
    config = ModelConfig(
        vocabulary=VOCABULARY,
        separator=SEPARATOR,
        n_layers=args.layers,
        width=args.width,
        n_heads=args.heads,
        length=lane_length,
    )
    model = Gpt(config).to(ranks.device)
    ranks.share(model)
    rates = Rates(matrix=args.matrix_rate, embedding=args.embedding_rate, head=args.head_rate)
    optimizers = Optimizers(model, rates, rank=ranks.rank, world=ranks.world)
    if args.compile == "on":
        check_compiler(ranks.device)
        model.compile(dynamic=False)
    return Trainer(args=args, ranks=ranks, model=model, optimizers=optimizers, loader=train, validation=validation)


def check_compiler(device: torch.device) -> None:
    """On a CPU torch.compile writes C++, and says so late and at length where nothing compiles it.

    Raises:
        TrainingError: there is no C++ compiler on the path.
    """
    if device.type == "cpu" and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        raise TrainingError("compile=on needs a C++ compiler on a CPU: install g++, or leave compile=off")


def evaluate(trainer: Trainer, step: int) -> None:
    """Validate in a phase of its own and report the loss."""
    with phase("eval", sync=trainer.ranks.sync):
        loss = trainer.validate(trainer.args.validation_tokens)
        report("val_loss", loss, step=step, ranks=trainer.ranks)


def report(name: str, loss: float, *, step: int, ranks: Ranks) -> None:
    """Report a loss from the first rank.

    Raises:
        TrainingError: it is not finite. Every rank has the same loss, so every rank raises.
    """
    if not math.isfinite(loss):
        raise TrainingError(f"{name} is {loss} at step {step}: training diverged, lower the learning rates")
    if ranks.is_first:
        emit("metric", name=name, value=loss, unit="nats/byte", step=step)
        print(f"step {step}: {name} {loss:.4f}", flush=True)


def train(trainer: Trainer) -> str:
    """The measured loop; returns `done`, or `stopped` where the harness asked for an end."""
    args, ranks = trainer.args, trainer.ranks
    evaluate(trainer, step=0)
    for step in range(1, args.steps + 1):
        loss = trainer.step(step)
        if ranks.is_first:
            emit("step", step=step, tokens=step * trainer.n_step_tokens, synced=ranks.device.type == "cpu")
        if step % REPORT_EVERY == 0:
            report("train_loss", ranks.total(loss).item() / trainer.n_step_tokens, step=step, ranks=ranks)
        is_stopped = step < args.steps and ranks.agree(should_stop)
        if step % args.validation_every == 0 or step == args.steps or is_stopped:
            evaluate(trainer, step)
        if is_stopped:
            return "stopped"
    return "done"


def run(args: Namespace, ranks: Ranks) -> str:
    """Prepare, warm up, train; returns how it ended."""
    if ranks.is_first:
        tokenize(default_folder())
    ranks.wait()
    info = tokenize(default_folder())
    emit("hello", parameters=vars(args), data_hash=info.data_hash)
    with phase("init", sync=ranks.sync):
        trainer = make_trainer(args, ranks)
    if args.compile == "on":
        with phase("compile", sync=ranks.sync):
            trainer.warm_up(1)
    with phase("warmup", sync=ranks.sync):
        trainer.warm_up(args.warmup_steps)
    started = time.perf_counter()
    with phase("train", sync=ranks.sync):
        status = train(trainer)
    if ranks.is_first:
        print(f"{status} after {time.perf_counter() - started:.1f} s", flush=True)
    return status


def main() -> None:
    args = parse_parameters()
    with join_ranks(args.device) as ranks:
        set_threads(args.threads, world=ranks.world)
        try:
            status = run(args, ranks)
        except (TrainingError, ShardError, ValueError) as error:
            emit("goodbye", status="failed")
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(1) from None
        emit("goodbye", status=status)


if __name__ == "__main__":
    main()
