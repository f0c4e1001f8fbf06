"""How fast the nanogpt workload trains, against a plain GPT of the same size with AdamW.

    python benchmarks/training_speed.py [--compile=on] [--rounds=25] [--set NAME=VALUE] [--json=FILE]

Both sides in one process, in the environment of the `cpu` preset, on the same threads and tokens, both eager or both
compiled as whole models, in turns: A B A B. The plain side is written here, the way nanoGPT is built: LayerNorm,
learned positions, one causal attention call, GELU, tied head, AdamW in one fused call, gradients clipped. Two ratios of
tokens/s, ours over plain:

    forward and backward     mask and loss included                                                   bar: 0.95
    whole step               loader, forward, backward, Muon against AdamW with clipping              bar: 0.80

Weights are small random numbers also where training starts from zero: zeros, and the denormal numbers that follow from
them, run at another speed. A round is a step of each; the ratio is the median over rounds of each
round's own ratio, since neighbours in time share what else the machine does.
"""

import argparse
import json
import os
import statistics
import sys
import time
import tomllib
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "workloads" / "nanogpt")]

from parameters import MANIFEST, parse_parameters  # noqa: E402  # the workload's files are found by the line above
from ranks import join_ranks, set_threads  # noqa: E402
from recipe import TEXTS  # noqa: E402
from tokens import default_folder, tokenize  # noqa: E402
from train import Trainer, make_trainer  # noqa: E402

BARS = {"forward and backward": 0.95, "whole step": 0.80}
VOCABULARY = TEXTS["stdlib"].vocabulary
SMALL_STD = 0.02


class PlainBlock(nn.Module):
    """A GPT-2 block without biases."""

    def __init__(self, *, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        shape = x_BTD.shape
        parts = self.qkv(self.attention_norm(x_BTD)).split(shape[-1], dim=2)
        q, k, v = (part.view(*shape[:2], self.n_heads, -1).transpose(1, 2) for part in parts)
        y_BHTK = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BTD = x_BTD + self.out(y_BHTK.transpose(1, 2).reshape(shape))
        mlp: Tensor = self.down(F.gelu(self.up(self.mlp_norm(x_BTD))))
        return x_BTD + mlp


class PlainGpt(nn.Module):
    """GPT-2 in small: the yardstick, no recipe of its own."""

    def __init__(self, *, length: int, n_layers: int, width: int, n_heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(PlainBlock(width=width, n_heads=n_heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=SMALL_STD)

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(tokens_BT) + self.positions(torch.arange(tokens_BT.size(1)))
        for block in self.blocks:
            x_BTD = block(x_BTD)
        logits_BTV = F.linear(self.norm(x_BTD), self.embedding.weight)
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Medians over rounds of one pair of work, and the median of the rounds' own ratios."""

    what: str
    plain_tokens_per_s: float
    ours_tokens_per_s: float
    ratio: float
    lowest_ratio: float
    highest_ratio: float
    bar: float
    n_rounds: int


def time_s(work: Callable[[], object], *, n_times: int) -> float:
    """Seconds of one call, mean of `n_times` in a row."""
    start = time.perf_counter()
    for _ in range(n_times):
        work()
    return (time.perf_counter() - start) / n_times


def compare(
    what: str, *, plain: Callable[[], object], ours: Callable[[], object], n_tokens: int, n_rounds: int, n_steps: int
) -> Comparison:
    """Rounds of `n_steps` each in turns, after one round that does not count."""
    rounds = [(time_s(plain, n_times=n_steps), time_s(ours, n_times=n_steps)) for _ in range(n_rounds + 1)][1:]
    ratios = [plain_s / ours_s for plain_s, ours_s in rounds]
    return Comparison(
        what=what,
        plain_tokens_per_s=n_tokens / statistics.median(plain_s for plain_s, _ in rounds),
        ours_tokens_per_s=n_tokens / statistics.median(ours_s for _, ours_s in rounds),
        ratio=statistics.median(ratios),
        lowest_ratio=min(ratios),
        highest_ratio=max(ratios),
        bar=BARS[what],
        n_rounds=n_rounds,
    )


def run(trainer: Trainer, args: Namespace, options: Namespace) -> list[Comparison]:
    """Both comparisons."""
    for parameter in trainer.model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=SMALL_STD)
    length = trainer.loader.lane_length
    plain = PlainGpt(length=length, n_layers=args.layers, width=args.width, n_heads=args.heads)
    if args.compile == "on":
        plain.compile(dynamic=False)
    adamw = torch.optim.AdamW(plain.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    lanes = trainer.loader.next_step()

    def plain_gradients() -> None:
        for part in lanes.split(int(args.micro_batch)):
            plain(*part).backward()
        adamw.zero_grad(set_to_none=True)

    def our_gradients() -> None:
        for part in lanes.split(int(args.micro_batch)):
            trainer.loss_of(part).backward()  # type: ignore[no-untyped-call]
        trainer.optimizers.clear()

    def plain_step() -> None:
        for part in trainer.loader.next_step().split(int(args.micro_batch)):
            plain(*part).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)

    sizes = {"n_tokens": trainer.n_step_tokens, "n_rounds": options.rounds, "n_steps": options.steps}
    return [
        compare("forward and backward", plain=plain_gradients, ours=our_gradients, **sizes),
        compare("whole step", plain=plain_step, ours=lambda: trainer.step(1), **sizes),
    ]


def enter_preset_environment() -> None:
    """Start this program again with the variables of the `cpu` preset, unless it has them: libraries read them once."""
    environment = tomllib.loads(MANIFEST.read_text(encoding="utf-8"))["presets"]["cpu"]["environment"]
    if any(os.environ.get(name) != value for name, value in environment.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **environment})


def main() -> None:
    """Compare, print a table, and write the file that was asked for."""
    parser = argparse.ArgumentParser(description="Speed of the nanogpt workload against a plain GPT with AdamW.")
    parser.add_argument("--compile", choices=["on", "off"], default="off", help="of both models; default off")
    parser.add_argument("--rounds", type=int, default=25, help="rounds that count; default 25")
    parser.add_argument("--steps", type=int, default=1, help="steps of each side in a round; default 1")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a workload parameter")
    parser.add_argument("--json", type=Path, help="write the results to this file as well")
    options = parser.parse_args()
    enter_preset_environment()
    args = parse_parameters([f"--compile={options.compile}", *(f"--{setting}" for setting in options.set)])

    tokenize(default_folder())
    with join_ranks("cpu") as ranks:
        set_threads(args.threads, world=1)
        torch.manual_seed(0)
        comparisons = run(make_trainer(args, ranks), args, options)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, compile {args.compile}, ", end="")
    print(f"{args.batch_size} x {args.sequence_length} tokens a step, median of {options.rounds} rounds\n")
    print(f"{'':24}{'plain tokens/s':>16}{'ours tokens/s':>16}{'ratio':>8}{'range':>16}{'bar':>7}")
    for c in comparisons:
        spread = f"{c.lowest_ratio:.3f} to {c.highest_ratio:.3f}"
        print(f"{c.what:24}{c.plain_tokens_per_s:16,.0f}{c.ours_tokens_per_s:16,.0f}{c.ratio:8.3f}", end="")
        print(f"{spread:>16}{c.bar:7.2f}")
    if options.json:
        document = {
            "torch": torch.__version__,
            "n_threads": torch.get_num_threads(),
            "parameters": vars(args),
            "comparisons": [asdict(c) for c in comparisons],
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
