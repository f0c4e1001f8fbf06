"""Twenty steps against an implementation of its own: plain loops, no sharding, no block lists, nothing written by hand.

It shares no code with the workload but the initial weights. Both presets' recipes at a small size.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from parameters import parse_parameters
from ranks import Ranks
from tokens import write_shard
from train import Trainer, make_trainer

SEPARATOR, VOCABULARY = 256, 384
LAYERS, WIDTH, HEADS, LENGTH, BLOCK, WINDOW = 6, 32, 2, 32, 4, 20
N_STEPS = 20
SMALL = (
    f"--layers={LAYERS}",
    f"--width={WIDTH}",
    f"--heads={HEADS}",
    f"--sequence_length={LENGTH}",
    f"--steps={N_STEPS}",
    "--batch_size=8",
)
SPEEDRUN = (
    *SMALL,
    "--attention=windowed",
    f"--window_block={BLOCK}",
    f"--window_positions={WINDOW}",
    "--value_embeddings=on",
    "--unet_skips=on",
    "--input_mix=on",
    "--attention_free_block=3",
    "--bos_aligned=on",
    "--momentum_warmup_steps=8",
    "--micro_batch=2",
)
BASELINE = (
    *SMALL,
    "--architecture=gpt2",
    "--attention=sequence",
    "--sequence_length=16",
    "--batch_size=16",
    "--tied_head=on",
    "--zero_init=off",
    "--logit_softcap=off",
    "--logit_scale=one",
    "--optimizer=adamw",
    "--rate_schedule=cosine",
    "--rate_warmup_steps=5",
    "--weight_decay=0.1",
    "--gradient_clip=1.0",
    *(f"--{name}_rate=0.003" for name in ("adamw", "embedding", "scalar")),
    *(f"--{name}_beta1=0.9" for name in ("adam", "adamw")),
    *(f"--{name}_beta2=0.95" for name in ("adam", "adamw")),
    "--adam_epsilon=1e-8",
)
Weights = dict[str, Tensor]


@pytest.fixture
def stream(tmp_path: Path) -> list[int]:
    """Random bytes in documents of about 20, also on disk as shards."""
    generator = np.random.default_rng(7)
    tokens = generator.integers(0, 64, 30_000, dtype=np.uint16)
    tokens[generator.random(30_000) < 0.05] = SEPARATOR
    write_shard(tmp_path / "a_train_000001.bin", tokens)
    write_shard(tmp_path / "a_val_000000.bin", tokens[:1000])
    return [int(token) for token in tokens]


def trainer_of(arguments: tuple[str, ...], folder: Path) -> Trainer:
    """The workload's own, on one rank."""
    alone = Ranks(rank=0, world=1, device=torch.device("cpu"))
    return make_trainer(parse_parameters(arguments), alone, folder=folder)


def aligned_lanes(stream: list[int], at: int) -> tuple[list[list[int]], int]:
    """Eight lanes, each from the next separator on."""
    lanes = []
    for _ in range(8):
        while stream[at] != SEPARATOR:
            at += 1
        lanes.append(stream[at : at + LENGTH + 1])
        at += LENGTH
    return lanes, at


def norm(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 2.0**-23).sqrt()


def rotate(x_TK: Tensor) -> Tensor:
    """Pair (i, i + K/2) by position / 1024^(i / (K/4 - 1)), for the first K/4 pairs."""
    half, turning = x_TK.size(1) // 2, x_TK.size(1) // 4
    y = x_TK.clone()
    for i in range(turning):
        angle = torch.arange(len(x_TK)) * (1 / 1024) ** (i / (turning - 1))
        y[:, i] = x_TK[:, i] * angle.cos() + x_TK[:, half + i] * angle.sin()
        y[:, half + i] = x_TK[:, half + i] * angle.cos() - x_TK[:, i] * angle.sin()
    return y


def visible(tokens: list[int], window: int) -> Tensor:
    """Which pairs attend: the window's definition by blocks, then causal and of one document."""
    document = [sum(token == SEPARATOR for token in tokens[: i + 1]) for i in range(LENGTH)]
    attends = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    for q in range(LENGTH // BLOCK):
        full, partial = [], []
        for k in range(q + 1):
            pairs = [
                (i, j)
                for i in range(q * BLOCK, (q + 1) * BLOCK)
                for j in range(k * BLOCK, (k + 1) * BLOCK)
                if j <= i and document[i] == document[j]
            ]
            if pairs:
                (full if len(pairs) == BLOCK**2 else partial).append(pairs)
        kept = full[::-1][: max(window - 1, 0)] + partial[::-1][: max(window - len(full), 1)]
        for i, j in (pair for pairs in kept for pair in pairs):
            attends[i, j] = True
    return attends


def speedrun_loss(w: Weights, lane: list[int], window: int) -> Tensor:
    """One lane's summed loss, straight from the recipe."""
    tokens, targets = torch.tensor(lane[:-1]), torch.tensor(lane[1:])
    long, short = visible(lane[:-1], window), visible(lane[:-1], window // 2)
    numbers = w["scalars.numbers"]
    x = start = norm(w["embedding"][tokens])
    outputs: list[Tensor] = []
    for i in range(LAYERS):
        if i >= 3:
            x = x + numbers[i - 3] * outputs[5 - i]
        x = numbers[LAYERS + 2 * i] * x + numbers[LAYERS + 2 * i + 1] * start
        if i != 3:
            q, k, v = (norm(x) @ w[f"blocks.{i}.attention.qkv"][part].T for part in range(3))
            v = numbers[3 * LAYERS + 2 * i] * v + numbers[3 * LAYERS + 2 * i + 1] * w[f"values.{i % 3}"][tokens]
            mask = long if i in (0, 2, 5) else short
            heads = []
            for columns in torch.arange(WIDTH).split(WIDTH // HEADS):
                scores = 0.12 * rotate(norm(q[:, columns])) @ rotate(norm(k[:, columns])).T
                heads.append(scores.masked_fill(~mask, -math.inf).softmax(-1) @ v[:, columns])
            x = x + torch.cat(heads, 1) @ w[f"blocks.{i}.attention.out"].T
        x = x + (norm(x) @ w[f"blocks.{i}.mlp.up"].T).relu().square() @ w[f"blocks.{i}.mlp.down"].T
        outputs.append(x)
    logits = 30 * torch.sigmoid(norm(x) @ w["head"].T / (7.5 * math.sqrt(WIDTH)))
    return F.cross_entropy(logits, targets, reduction="sum")


def baseline_loss(w: Weights, lane: list[int]) -> Tensor:
    """One sequence's summed loss: GPT-2 with torch's own functions."""
    tokens, targets = torch.tensor(lane[:-1]), torch.tensor(lane[1:])
    length = len(tokens)
    x = w["embedding"][tokens] + w["positions"][:length]
    ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
    for i in range(LAYERS):
        here = {name.removeprefix(f"blocks.{i}."): one for name, one in w.items() if name.startswith(f"blocks.{i}.")}
        y = F.layer_norm(x, (WIDTH,), here["attention_norm.weight"], here["attention_norm.bias"])
        q, k, v = F.linear(y, here["qkv.weight"], here["qkv.bias"]).split(WIDTH, dim=1)
        heads = []
        for columns in torch.arange(WIDTH).split(WIDTH // HEADS):
            scores = q[:, columns] @ k[:, columns].T / math.sqrt(WIDTH // HEADS)
            heads.append(scores.masked_fill(ahead, -math.inf).softmax(-1) @ v[:, columns])
        x = x + F.linear(torch.cat(heads, 1), here["out.weight"], here["out.bias"])
        y = F.layer_norm(x, (WIDTH,), here["mlp_norm.weight"], here["mlp_norm.bias"])
        y = F.gelu(F.linear(y, here["up.weight"], here["up.bias"]), approximate="tanh")
        x = x + F.linear(y, here["down.weight"], here["down.bias"])
    x = F.layer_norm(x, (WIDTH,), w["norm.weight"], w["norm.bias"])
    return F.cross_entropy(x @ w["embedding"].T, targets, reduction="sum")


def orthogonal(matrix: Tensor) -> Tensor:
    """Five Newton-Schulz steps, by their formula."""
    x = matrix.T if matrix.size(0) > matrix.size(1) else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if matrix.size(0) > matrix.size(1) else x


class Moments(dict[str, Tensor]):
    """Running means that begin at zero."""

    def move(self, name: str, value: Tensor, keep: float) -> Tensor:
        self[name] = keep * self.get(name, torch.zeros_like(value)) + (1 - keep) * value
        return self[name]


def adam(
    name: str, gradient: Tensor, moments: Moments, *, t: int, betas: tuple[float, float], epsilon: float
) -> Tensor:
    first = moments.move(f"{name}/1", gradient, betas[0]) / (1 - betas[0] ** t)
    second = moments.move(f"{name}/2", gradient.square(), betas[1]) / (1 - betas[1] ** t)
    return first / (second.sqrt() + epsilon)


@torch.no_grad()
def speedrun_update(w: Weights, gradients: Weights, moments: Moments, step: int) -> None:
    """Muon for the blocks' matrices, Adam for the rest, rates down a line over the last 45 %."""
    left = (N_STEPS - step) / N_STEPS
    share = 1.0 if left >= 0.45 else 0.1 + 0.9 * left / 0.45
    keep = 0.85 + 0.1 * min(1.0, step / 8)
    rates = {"embedding": 0.08, "values": 0.08, "head": 0.16, "scalars": 0.016}
    for name, weight in w.items():
        if name.startswith("blocks"):
            pieces = (
                [(weight, gradients[name])] if weight.dim() == 2 else list(zip(weight, gradients[name], strict=True))
            )
            for number, (matrix, gradient) in enumerate(pieces):
                buffer = moments.move(f"{name}/{number}", gradient, keep)
                tall = math.sqrt(max(1, matrix.size(0) / matrix.size(1)))
                matrix.sub_(0.02 * share * tall * orthogonal((1 - keep) * gradient + keep * buffer))
        else:
            update = adam(name, gradients[name], moments, t=step + 1, betas=(0.8, 0.95), epsilon=1e-10)
            weight.sub_(rates[name.split(".")[0]] * share * update)


@torch.no_grad()
def baseline_update(w: Weights, gradients: Weights, moments: Moments, step: int) -> None:
    """AdamW on the clipped mean gradient, rates up a line for 5 steps and down half a cosine."""
    means = {name: gradient / (8 * LENGTH) for name, gradient in gradients.items()}
    total = math.sqrt(sum(float(gradient.square().sum()) for gradient in means.values()))
    clip = min(1.0, 1.0 / (total + 1e-6))
    share = (step + 1) / 5 if step < 5 else 0.5 * (1 + math.cos(math.pi * (step - 5) / (N_STEPS - 5)))
    for name, weight in w.items():
        if weight.dim() > 1:
            weight.mul_(1 - 0.003 * share * 0.1)
        update = adam(name, clip * means[name], moments, t=step + 1, betas=(0.9, 0.95), epsilon=1e-8)
        weight.sub_(0.003 * share * update)


def initial_weights(trainer: Trainer) -> Weights:
    return {name: one.detach().clone().requires_grad_() for name, one in trainer.model.named_parameters()}


def gradients_of(w: Weights, loss: Tensor) -> Weights:
    return dict(zip(w, torch.autograd.grad(loss, list(w.values())), strict=True))


def test_speedrun_takes_the_steps_of_a_plain_implementation(stream: list[int], tmp_path: Path) -> None:
    """Windows that grow from one block to five, skips, value tables, input mix, a block without attention, Muon."""
    trainer, position = trainer_of(SPEEDRUN, tmp_path), 0
    w, moments = initial_weights(trainer), Moments()
    for step in range(N_STEPS):
        lanes, position = aligned_lanes(stream, position)
        window = max(1, math.ceil(step / N_STEPS * WINDOW / BLOCK))
        loss = torch.stack([speedrun_loss(w, lane, window) for lane in lanes]).sum()

        assert trainer.step(step + 1).item() == pytest.approx(loss.item(), rel=1e-4), f"step {step}"

        speedrun_update(w, gradients_of(w, loss), moments, step)
    assert loss.item() < 0.8 * 8 * LENGTH * math.log(VOCABULARY)


def test_baseline_takes_the_steps_of_a_plain_implementation(stream: list[int], tmp_path: Path) -> None:
    """GPT-2: norms, biases, clipping, decay of what is no bias, warm-up and cosine."""
    trainer = trainer_of(BASELINE, tmp_path)
    w, moments = initial_weights(trainer), Moments()
    for step in range(N_STEPS):
        starts = range(step * 8 * LENGTH, (step + 1) * 8 * LENGTH, 16)
        loss = torch.stack([baseline_loss(w, stream[start : start + 17]) for start in starts]).sum()

        assert trainer.step(step + 1).item() == pytest.approx(loss.item(), rel=1e-4), f"step {step}"

        baseline_update(w, gradients_of(w, loss), moments, step)
    assert loss.item() < 0.95 * 8 * LENGTH * math.log(VOCABULARY)
