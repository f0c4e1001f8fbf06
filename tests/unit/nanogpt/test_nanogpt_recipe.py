"""The presets against the figures of the records that they stand for."""

import math
import tomllib
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from parameters import MANIFEST, parse_parameters
from recipe import RequestError, make_recipe
from schedule import Schedule, cosine_share, momentum, rate_share

PRESETS = tomllib.loads(MANIFEST.read_text(encoding="utf-8"))["presets"]


def parameters_of(preset: str, *more: str) -> Namespace:
    """What the harness would start the workload with."""
    values = PRESETS[preset].get("parameters", {})
    return parse_parameters([*(f"--{name}={value}" for name, value in values.items()), *more])


@contextmanager
def no_memory() -> Iterator[None]:
    """Parameters are made without their numbers."""
    with torch.device("meta"):
        yield


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_a_recipe(preset: str) -> None:
    """Nothing in it contradicts itself, on one rank and on its own number."""
    for world in {1, PRESETS[preset].get("ranks") or 8}:
        recipe = make_recipe(parameters_of(preset), world=world)

        assert recipe.n_steps > 0


def test_speedrun_has_the_parameters_of_record_26() -> None:
    """275.7 million, of which the matrices and the head, which multiply, are 121.2 million."""
    with no_memory():
        model = make_recipe(parameters_of("speedrun")).make_model()

    n_all = sum(one.numel() for one in model.parameters())
    n_active = sum(one.numel() for role in ("matrix", "head") for one in model.roles()[role])
    assert n_all == 25_952_256 + 56_623_104 + 5 * 50_304 * 768 + 64
    assert round(n_all / 1e6, 1) == 275.7
    assert round(n_active / 1e6, 1) == 121.2


def test_scale_has_one_and_a_half_billion() -> None:
    """52 layers of 12 x 1536^2, and one table."""
    with no_memory():
        model = make_recipe(parameters_of("scale-1.5b")).make_model()

    assert sum(one.numel() for one in model.parameters()) == 52 * 12 * 1536**2 + 50_304 * 1536


def test_baseline_is_gpt2_small() -> None:
    """GPT-2's 124,439,808, and 47 rows of padding in its vocabulary."""
    with no_memory():
        model = make_recipe(parameters_of("baseline")).make_model()

    assert sum(one.numel() for one in model.parameters()) == 124_439_808 + 47 * 768


@pytest.mark.parametrize("preset", ["speedrun", "speedrun-2025-01"])
def test_first_loss_is_log_of_the_vocabulary(preset: str) -> None:
    """ln(50304) = 10.8258 to 1e-3; the preset's own head and vocabulary, on a narrow and shallow model."""
    small = ("--device=cpu", "--width=64", "--layers=6", "--heads=2", "--attention_free_block=3", "--head_chunk=16")
    model = make_recipe(parameters_of(preset, *small)).make_model()
    tokens = torch.randint(0, 50_256, (1, 129))

    loss = model(tokens[:, :-1], tokens[:, 1:], torch.tensor(1, dtype=torch.int32)) / 128

    assert loss.item() == pytest.approx(math.log(50_304), abs=1e-3)


@pytest.mark.parametrize(("batch_size", "n_steps"), [(512, 1327), (448, 1517), (384, 1770)])
def test_every_batch_size_trains_on_equally_many_tokens(batch_size: int, n_steps: int) -> None:
    """Record 21's 1,770 steps of 384 sequences, in larger steps; lanes of 64K, 56K and 48K."""
    recipe = make_recipe(parameters_of("speedrun-2025-01", f"--batch_size={batch_size}"))

    assert recipe.n_steps == n_steps
    assert recipe.lane_length == batch_size * 128


def test_speedrun_has_the_schedules_of_record_26() -> None:
    """Steps counted from 0 in the record: window rises at 130, 260, 389, 1686; the last rate is 0.10114."""
    schedule = make_recipe(parameters_of("speedrun")).schedule

    assert schedule.n_steps == 1750
    windows = [schedule.at(step + 1).window_blocks for step in range(1750)]
    rises = [step for step in range(1, 1750) if windows[step] != windows[step - 1]]
    assert rises == [130, 260, 389, 519, 649, 778, 908, 1038, 1167, 1297, 1426, 1556, 1686]
    assert (windows[0], windows[-1]) == (1, 14)
    assert schedule.at(1750).rate_share == pytest.approx(0.1 + 0.9 / (0.45 * 1750))
    assert schedule.at(1750).rate_share == pytest.approx(0.10114, abs=5e-6)
    assert [schedule.at(step).rate_share for step in (1, 962)] == [1.0, 1.0]
    assert schedule.at(965).rate_share < 1.0
    assert [schedule.at(step + 1).momentum for step in (0, 150, 300, 1749)] == pytest.approx([0.85, 0.9, 0.95, 0.95])


def test_short_preset_stands_still_half_way() -> None:
    """Seven blocks, momentum at its end, in every step, and nothing is validated."""
    args = parameters_of("speedrun-short")
    schedule = make_recipe(args).schedule

    assert {schedule.at(step).window_blocks for step in (1, 320, 640)} == {7}
    assert len({schedule.at(step) for step in range(1, 641)}) == 1
    assert args.validation_tokens == 0


def test_baseline_rates_go_up_and_down() -> None:
    """700 steps up to 6e-4, then half a cosine: half of it in the middle, next to nothing at the end."""
    recipe = make_recipe(parameters_of("baseline"))

    assert recipe.optimizers.rates.adamw == 6e-4
    assert [recipe.schedule.at(step).rate_share for step in (1, 350, 700)] == pytest.approx([1 / 700, 0.5, 1.0])
    assert cosine_share(700 + 9430 + 1, n_steps=19_560, n_warmup_steps=700) == pytest.approx(0.5)
    assert recipe.schedule.at(19_560).rate_share == pytest.approx(0.0, abs=1e-7)


def test_window_may_be_the_last_from_the_start() -> None:
    """`window_schedule=last`: 14 blocks in every step; `attention=full`: none."""
    assert make_recipe(parameters_of("speedrun", "--window_schedule=last")).schedule.at(1).window_blocks == 14
    assert make_recipe(parameters_of("speedrun", "--attention=full")).schedule.at(1).window_blocks is None


@pytest.mark.parametrize(
    ("preset", "argument", "says"),
    [
        ("baseline", "--value_embeddings=on", "value_embeddings=off"),
        ("baseline", "--attention=windowed", "attention=sequence"),
        ("baseline", "--optimizer=muon", "optimizer=adamw"),
        ("scale-1.5b", "--head_precision=fp8", "head_precision=bf16"),
        ("speedrun", "--window_block=64", "128 on CUDA"),
        ("speedrun", "--attention=sequence", "bos_aligned"),
        ("speedrun", "--communication=off", "two ranks"),
        ("speedrun", "--transport=host", "two GPUs"),
        ("cpu", "--transport=host", "device=cuda"),
        ("speedrun", "--batch_size=3", None),
        ("cpu", "--batch_size=9", None),
        ("cpu", "--sequence_length=9 --batch_size=7", "multiple of 8"),
        ("cpu", "--steps=0", "token_budget"),
        ("speedrun", "--layers=11", "even number"),
        ("speedrun", "--attention_free_block=12", "number of a layer"),
        ("cpu", "--value_embeddings=on", "first and the last 3"),
    ],
)
def test_what_does_not_go_together_is_refused(preset: str, argument: str, says: str | None) -> None:
    """With the way out in the message; what does go together is not."""
    args = parameters_of(preset, *argument.split())
    if says is None:
        make_recipe(args)
        return
    with pytest.raises((RequestError, ValueError), match=says):
        make_recipe(args)


def test_a_schedule_that_stands_still_is_that_of_its_progress() -> None:
    """At 0.9 of 100 steps: what step 91 has when it moves."""
    moving = Schedule(n_steps=100, n_window_positions=1728)
    standing = Schedule(n_steps=100, n_window_positions=1728, frozen_progress=0.9)

    assert standing.at(1) == moving.at(91)
    assert standing.at(1).rate_share == rate_share(91, n_steps=100, cooldown_share=0.45, final_share=0.1)
    assert standing.at(1).momentum == momentum(91, n_warmup_steps=300)
