"""Train the GPT of this folder: data, model, optimizers, warm-up, then the loop.

    python train.py --steps=20                                                         one process
    python -m torch.distributed.run --standalone --nproc_per_node=2 train.py           two ranks, the same result

Parameters are declared in workload.toml. Phases: `init` (data and model), `compile` where that is on, `warmup` (real
steps, undone afterwards), `train`, and inside it `eval`. Read next: recipe.py, model.py, muon.py, data.py.
"""

import math
import os
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch._dynamo.utils import counters

import fineweb
import hellaswag
import page_cache
from data import N_LANES, LaneLoader, Lanes
from ecobench.events import emit, phase, should_stop
from fp8 import has_fp8
from optimizer import Optimizers, check_each_in_one
from parameters import parse_parameters
from ranks import Ranks, join_ranks, set_threads
from recipe import AnyModel, Recipe, RequestError, make_recipe, named_parameters
from spans import Spans
from tokens import ShardError, default_folder, find_shards, tokenize
from transport import TransportError, check_transport, choose_transport, log_path

REPORT_EVERY = 10  # steps between training losses: each one waits for the device
AUTO_TOLERANCE = 0.01  # of the best speed that a larger micro-batch may lose
FAILURES = (RequestError, ShardError, ValueError, TransportError, page_cache.PageCacheError, hellaswag.HellaSwagError)


class TrainingError(Exception):
    """The run cannot go on; the message says why."""


@dataclass(slots=True, kw_only=True)
class Trainer:
    """What a step needs. It is made once; only what it holds changes, and `micro_batch` where that is found out."""

    args: Namespace
    ranks: Ranks
    recipe: Recipe
    model: AnyModel
    optimizers: Optimizers
    loader: LaneLoader
    validation: LaneLoader
    spans: Spans
    micro_batch: int

    @property
    def n_step_tokens(self) -> int:
        return N_LANES * self.recipe.lane_length

    @property
    def validates(self) -> bool:
        return self.args.validation_tokens > 0 and self.args.communication == "on"

    def loss_of(self, lanes: Lanes, window: torch.Tensor | None = None) -> torch.Tensor:
        """Summed loss of some lanes, in nats."""
        tokens_BT, targets_BT = (
            tensor.to(self.ranks.device, non_blocking=True).view(len(tensor) * self.args.lane_parts, -1)
            for tensor in lanes
        )
        loss: torch.Tensor = self.model(tokens_BT, targets_BT, window)
        return loss

    def step(self, step: int) -> torch.Tensor:
        """One optimizer step; this rank's summed loss before it."""
        settings, spans = self.recipe.schedule.at(step), self.spans
        window = self.window_at(step)
        loss = torch.zeros((), device=self.ranks.device)
        with spans.measure("data"):
            own_lanes = self.loader.next_step()
        for lanes in own_lanes.split(self.micro_batch):
            with spans.measure("forward"):
                lanes_loss = self.loss_of(lanes, window)
            with spans.measure("backward"):
                lanes_loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            loss += lanes_loss.detach()
        with spans.measure("optimizer"):
            self.optimizers.step(rate_share=settings.rate_share, momentum=settings.momentum)
            self.optimizers.clear()
        return loss

    def window_at(self, step: int) -> torch.Tensor | None:
        """The long window in blocks. A tensor, so that another width is no other program."""
        blocks = self.recipe.schedule.at(step).window_blocks
        return None if blocks is None else torch.full((), blocks, dtype=torch.int32, device=self.ranks.device)

    @torch.no_grad()
    def validate(self, n_tokens: int, step: int) -> float:
        """Mean loss over the first validation tokens, in nats a token: the same tokens for any number of ranks."""
        self.validation.restore((0, 0))
        n_batch_tokens = N_LANES * self.recipe.validation_lane
        n_batches = -(-n_tokens // n_batch_tokens)
        window = self.window_at(max(1, step))
        total = torch.zeros((), device=self.ranks.device, dtype=torch.float64)
        for _ in range(n_batches):
            for lanes in self.validation.next_step().split(self.micro_batch):
                total += self.loss_of(lanes, window)
        return self.ranks.total(total).item() / (n_batches * n_batch_tokens)

    def warm_up(self, n_steps: int, work: Callable[[int], object] | None = None) -> None:
        """Run real steps (or other work) and a validation, then put everything back as it was before."""
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        optimizers, position = self.optimizers.state(), self.loader.state
        for step in range(1, n_steps + 1):
            (work or self.step)(step)
        if self.validates and n_steps:
            self.validate(1, 1)
        self.model.load_state_dict(weights)
        self.optimizers.restore(optimizers)
        self.loader.restore(position)
        self.spans.take()


def make_trainer(args: Namespace, ranks: Ranks, *, folder: Path | None = None) -> Trainer:
    """Loaders on the shards, the model with the first rank's weights, its optimizers."""
    spans = Spans(ranks.sync, is_on=args.spans == "on")
    recipe = make_recipe(args, rank=ranks.rank, world=ranks.world, has_fp8=has_fp8(ranks.device), spans=spans)
    train_shards, validation_shards = _find_shards(args, recipe, folder)
    load = partial(LaneLoader, rank=ranks.rank, world=ranks.world, prefetches=ranks.device.type == "cuda")
    separator = recipe.text.separator if args.bos_aligned == "on" else None
    train = load(train_shards, lane_length=recipe.lane_length, separator=separator)
    validation = load(validation_shards, lane_length=recipe.validation_lane)
    torch.manual_seed(args.seed)
    model = recipe.make_model().to(ranks.device)
    ranks.share(model)
    optimizers = Optimizers(model, recipe.optimizers)
    check_each_in_one(named_parameters(model), optimizers.parameters)
    if args.compile == "on":
        compile_model(model, ranks.device)
    return Trainer(
        args=args,
        ranks=ranks,
        recipe=recipe,
        model=model,
        optimizers=optimizers,
        loader=train,
        validation=validation,
        spans=spans,
        micro_batch=N_LANES // ranks.world if args.micro_batch == "auto" else int(args.micro_batch),
    )


def _find_shards(args: Namespace, recipe: Recipe, folder: Path | None) -> tuple[list[Path], list[Path]]:
    if args.data == "fineweb":
        n_shards = fineweb.shards_for(recipe.n_steps * N_LANES * recipe.lane_length)
        validation, *train = fineweb.find_files(folder or fineweb.default_folder(), n_shards)
        return train, [validation]
    folder = folder or default_folder()
    return find_shards(folder, "train"), find_shards(folder, "val")


def compile_model(model: AnyModel, device: torch.device) -> None:
    """On CUDA the trunk and the loss, each one whole graph or an error; on a CPU the model as it comes.

    Raises:
        TrainingError: on a CPU torch.compile writes C++, and says so late and at length where nothing compiles it.
    """
    if device.type == "cuda":
        model.trunk = torch.compile(model.trunk, fullgraph=True, dynamic=False)  # type: ignore[method-assign]
        model.head_work = torch.compile(model.head_work, fullgraph=True, dynamic=False)
        return
    if not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        raise TrainingError("compile=on needs a C++ compiler on a CPU: install g++, or leave compile=off")
    model.compile(dynamic=False)


def count_compilations() -> int:
    """Graphs that torch.compile has made in this process."""
    return int(counters["stats"]["unique_graphs"])


def find_micro_batch(trainer: Trainer) -> int:
    """The most lanes at a time that are within 1 % of the best speed. Weights, moments and position are put back."""
    step_s: dict[int, float] = {}

    def try_out(step: int) -> None:
        trainer.micro_batch = 2 ** (step - 1)
        try:
            trainer.step(1)  # compiles, and sizes memory
            trainer.ranks.sync()
            started = time.perf_counter()
            trainer.step(1)
            trainer.ranks.sync()
        except torch.OutOfMemoryError:
            trainer.optimizers.clear()
        else:
            step_s[trainer.micro_batch] = time.perf_counter() - started

    trainer.warm_up((N_LANES // trainer.ranks.world).bit_length(), try_out)
    if not step_s:
        raise TrainingError("micro_batch=auto: not even one lane fits memory; lane_parts cuts lanes")
    best_s = min(step_s.values())
    return trainer.ranks.follow(max(n for n, spent in step_s.items() if spent <= best_s * (1 + AUTO_TOLERANCE)))


def evaluate(trainer: Trainer, step: int) -> None:
    """Validate in a phase of its own and report the loss."""
    if not trainer.validates:
        return
    with phase("eval", sync=trainer.ranks.sync):
        loss = trainer.validate(trainer.args.validation_tokens, step)
        report_loss("val_loss", loss, step=step, trainer=trainer)


def report_loss(name: str, loss: float, *, step: int, trainer: Trainer) -> None:
    """Report a loss from the first rank.

    Raises:
        TrainingError: it is not finite. Every rank has the same loss, so every rank raises.
    """
    if not math.isfinite(loss):
        raise TrainingError(f"{name} is {loss} at step {step}: training diverged, lower the learning rates")
    if trainer.ranks.is_first:
        emit("metric", name=name, value=loss, unit=trainer.recipe.text.unit, step=step)
        print(f"step {step}: {name} {loss:.4f}", flush=True)


def report_number(name: str, value: float, unit: str, *, step: int, ranks: Ranks) -> None:
    """Something for the record."""
    if ranks.is_first:
        emit("metric", name=name, value=value, unit=unit, step=step)


def report_step(trainer: Trainer, step: int, loss: torch.Tensor, *, n_compiled: int) -> None:
    """What is worth waiting for the device: the training loss, spans, and that nothing was compiled again."""
    if trainer.args.communication == "on":
        mean = trainer.ranks.total(loss).item() / trainer.n_step_tokens
        report_loss("train_loss", mean, step=step, trainer=trainer)
    for name, seconds in trainer.spans.take().items():
        report_number(f"span_{name}", seconds / REPORT_EVERY, "s/step", step=step, ranks=trainer.ranks)
    if count_compilations() != n_compiled:
        raise TrainingError(f"compiled again by step {step}, within the measured phase: warm-up missed a shape")


def train(trainer: Trainer) -> str:
    """The measured loop; returns `done`, or `stopped` where the harness asked for an end."""
    args, ranks, n_steps = trainer.args, trainer.ranks, trainer.recipe.n_steps
    n_compiled = count_compilations()
    evaluate(trainer, step=0)
    for step in range(1, n_steps + 1):
        loss = trainer.step(step)
        if ranks.is_first:
            emit("step", step=step, tokens=step * trainer.n_step_tokens, synced=ranks.device.type == "cpu")
        if step % REPORT_EVERY == 0:
            report_step(trainer, step, loss, n_compiled=n_compiled)
        is_stopped = step < n_steps and ranks.agree(should_stop)
        if step % args.validation_every == 0 or step == n_steps or is_stopped:
            evaluate(trainer, step)
        if is_stopped:
            return "stopped"
    return "done"


def prepare_cache(trainer: Trainer) -> None:
    """Shards in the kernel's page cache or out of it, as asked."""
    loader, ranks = trainer.loader, trainer.ranks
    if trainer.args.data_cache == "warm":
        if ranks.is_first:
            page_cache.read_through(loader.paths)
        return
    # Mapped anew and not looked at yet: pages that a process has seen through its map could not be dropped.
    loader.close()
    loader.open()
    ranks.wait()
    if ranks.is_first:
        page_cache.drop(loader.paths)
    ranks.wait()


def score_hellaswag(trainer: Trainer) -> None:
    """Score the first rank's weights, which are everybody's, in a phase of their own."""
    args, ranks, recipe = trainer.args, trainer.ranks, trainer.recipe
    if not args.hellaswag or not ranks.is_first:
        return
    window = trainer.window_at(recipe.n_steps)
    multiple = args.sequence_length if args.attention == "sequence" else args.window_block
    with phase("eval", sync=ranks.sync):
        share = hellaswag.score(
            list(hellaswag.read_questions(Path(args.hellaswag))),
            lambda tokens, targets: trainer.model.token_losses(
                tokens.to(ranks.device), targets.to(ranks.device), window
            ),
            hellaswag.encoder(args.data),
            separator=recipe.text.separator,
            multiple=multiple,
        )
    report_number("hellaswag", share, "share right", step=recipe.n_steps, ranks=ranks)
    print(f"hellaswag {share:.3f}", flush=True)


def prepare_data(args: Namespace, ranks: Ranks) -> str:
    """Make or find the shards; their hash."""
    if args.data == "fineweb":
        n_shards = fineweb.shards_for(
            make_recipe(args, world=ranks.world).n_steps * args.batch_size * args.sequence_length
        )
        return fineweb.hash_shards(fineweb.default_folder(), n_shards)
    if ranks.is_first:
        tokenize(default_folder())
    ranks.wait()
    return tokenize(default_folder()).data_hash


def run(args: Namespace, ranks: Ranks) -> str:
    """Prepare, warm up, train; returns how it ended."""
    make_recipe(args, world=ranks.world)  # refuses what cannot be, before anything takes its time
    emit("hello", parameters=vars(args), data_hash=prepare_data(args, ranks))
    with phase("init", sync=ranks.sync):
        trainer = make_trainer(args, ranks)
    if args.compile == "on" or args.micro_batch == "auto":
        with phase("compile", sync=ranks.sync):
            if args.micro_batch == "auto":
                trainer.micro_batch = find_micro_batch(trainer)
            trainer.warm_up(1)
    with phase("warmup", sync=ranks.sync):
        trainer.warm_up(args.warmup_steps)
        prepare_cache(trainer)
    check_transport(args.transport, log_path())
    report_facts(trainer)
    started = time.perf_counter()
    with phase("train", sync=ranks.sync):
        status = train(trainer)
    if ranks.is_first:
        print(f"{status} after {time.perf_counter() - started:.1f} s", flush=True)
    score_hellaswag(trainer)
    return status


def report_facts(trainer: Trainer) -> None:
    """What was worked out rather than asked for."""
    head = trainer.model.head_rule
    if trainer.args.head_precision == "fp8":
        report_number("head_is_fp8", float(head.fp8 is not None), "", step=0, ranks=trainer.ranks)
    if trainer.args.micro_batch == "auto":
        report_number("micro_batch", trainer.micro_batch, "lanes", step=0, ranks=trainer.ranks)
    if trainer.args.lane_parts > 1 and trainer.args.attention != "sequence" and trainer.ranks.is_first:
        print("lane_parts cuts lanes, and attention ends at every cut: another recipe, not comparable", flush=True)


def main() -> None:
    args = parse_parameters()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("error: device=cuda, but torch sees no GPU here; --preset cpu needs none")
    choose_transport(args.transport, os.environ, log=log_path())
    with join_ranks(args.device) as ranks:
        set_threads(args.threads, world=ranks.world)
        try:
            status = run(args, ranks)
        except (TrainingError, *FAILURES) as error:
            emit("goodbye", status="failed")
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(1) from None
        emit("goodbye", status=status)


if __name__ == "__main__":
    main()
