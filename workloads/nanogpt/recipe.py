"""From parameters to a recipe: sizes, model, optimizers, schedules, and which combinations are refused. Pure.

What a parameter asks for is done or refused; nothing is replaced silently.
"""

from argparse import Namespace
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn

from data import N_LANES
from fp8 import Fp8Scales
from gpt2 import Gpt2
from gradient_sync import GradSync, Shares
from head import HeadRule
from model import Gpt, ModelConfig
from optimizer import OptimizerConfig, Rates
from schedule import Schedule
from spans import Spans

AnyModel: TypeAlias = Gpt | Gpt2

E4M3_LARGEST = 448.0
# Record 21's scale of gradients is for the mean over its lane of 48K tokens; gradients here are of the sum.
RECORD_21_LANE = 49_152


class RequestError(Exception):
    """Parameters that do not go together; the message says which, and what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What data the recipe is for: its tokens, the one that opens a document, and what a loss is counted in."""

    vocabulary: int
    separator: int
    unit: str


TEXTS = {
    # 256 bytes and the separator, padded to a multiple of 128.
    "stdlib": Text(vocabulary=384, separator=256, unit="nats/byte"),
    # GPT-2's 50,257, padded to a multiple of 128.
    "fineweb": Text(vocabulary=50_304, separator=50_256, unit="nats/token"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that a run is made of, worked out."""

    text: Text
    n_steps: int
    lane_length: int
    validation_lane: int
    model: ModelConfig
    schedule: Schedule
    optimizers: OptimizerConfig
    is_gpt2: bool

    def make_model(self) -> AnyModel:
        """A new one, on the CPU, from the random numbers as they are."""
        return Gpt2(self.model) if self.is_gpt2 else Gpt(self.model)


def make_recipe(
    args: Namespace, *, rank: int = 0, world: int = 1, has_fp8: bool = True, spans: Spans | None = None
) -> Recipe:
    """The recipe that parameters ask for.

    Raises:
        RequestError: they do not go together.
        ValueError: a size that the model or the optimizers refuse.
    """
    refuse_contradictions(args, world=world)
    lane_length, rest = divmod(args.batch_size * args.sequence_length, N_LANES)
    if rest:
        raise RequestError(
            f"{args.batch_size} x {args.sequence_length} tokens are no {N_LANES} equal lanes: "
            f"batch_size x sequence_length must be a multiple of {N_LANES}"
        )
    validation_lane = args.validation_lane or lane_length
    parts_of = args.sequence_length if args.attention == "sequence" else 1
    if lane_length % (args.lane_parts * parts_of) or validation_lane % (args.lane_parts * parts_of):
        raise RequestError(
            f"lanes of {lane_length} and {validation_lane} tokens are not {args.lane_parts} equal parts of whole "
            "sequences: see batch_size, validation_lane, lane_parts"
        )
    n_steps = args.steps or args.token_budget // (N_LANES * lane_length)
    if not n_steps:
        raise RequestError("steps=0 takes its steps from token_budget, which is less than one step: set either")
    sync = GradSync.OFF if args.communication == "off" else GradSync(args.grad_sync)
    shares = Shares(rank=rank, world=world, sync=sync, spans=spans)
    return Recipe(
        text=TEXTS[args.data],
        n_steps=n_steps,
        lane_length=lane_length,
        validation_lane=validation_lane,
        model=_model_config(args, length=max(lane_length, validation_lane) // args.lane_parts, has_fp8=has_fp8),
        schedule=_schedule(args, n_steps=n_steps),
        optimizers=_optimizer_config(args, n_tokens=N_LANES * lane_length, shares=shares),
        is_gpt2=args.architecture == "gpt2",
    )


def refuse_contradictions(args: Namespace, *, world: int) -> None:
    """What cannot be meant together.

    Raises:
        RequestError: names the two, and the way out.
    """
    is_gpt2 = args.architecture == "gpt2"
    techniques = ("value_embeddings", "unet_skips", "input_mix", "logit_softcap")
    wrong = [
        (is_gpt2 and args.attention != "sequence", "architecture=gpt2 needs attention=sequence"),
        (is_gpt2 and args.tied_head == "off", "architecture=gpt2 needs tied_head=on"),
        (is_gpt2 and args.zero_init == "on", "architecture=gpt2 needs zero_init=off"),
        (is_gpt2 and args.attention_free_block >= 0, "architecture=gpt2 needs attention_free_block=-1"),
        *((is_gpt2 and vars(args)[one] == "on", f"architecture=gpt2 needs {one}=off") for one in techniques),
        (args.attention_free_block >= args.layers, "attention_free_block must be the number of a layer"),
        (args.tied_head == "on" and args.head_precision == "fp8", "tied_head=on needs head_precision=bf16"),
        (args.gradient_clip > 0 and args.optimizer == "muon", "gradient_clip needs optimizer=adamw"),
        (
            args.attention == "windowed" and args.window_block != 128 and args.device == "cuda",
            "window_block must be 128 on CUDA",
        ),
        (args.bos_aligned == "on" and args.attention == "sequence", "bos_aligned=on needs attention=windowed or full"),
        (args.transport == "host" and args.device != "cuda", "transport=host needs device=cuda"),
        (args.transport == "host" and world < 2, "transport=host needs two GPUs or more: set ranks"),
        (args.communication == "off" and world < 2, "communication=off needs two ranks or more: set ranks"),
        (
            args.head_precision == "fp8" and args.width % 16 != 0,
            "head_precision=fp8 needs a width that is a multiple of 16",
        ),
        (
            args.head_precision == "fp8" and args.head_chunk % 16 != 0,
            "head_precision=fp8 needs a head_chunk that is a multiple of 16",
        ),
    ]
    for is_wrong, message in wrong:
        if is_wrong:
            raise RequestError(message)


def fp8_scales(name: str, *, width: int) -> Fp8Scales:
    """The fixed scales of a record, for gradients of the summed loss."""
    if name == "record-21":
        return Fp8Scales(x=1 / 2, weight=2.0**-9, gradient=RECORD_21_LANE / 2.0**19)
    return Fp8Scales(x=width**0.5 / E4M3_LARGEST, weight=24 / E4M3_LARGEST, gradient=1 / E4M3_LARGEST)


def _model_config(args: Namespace, *, length: int, has_fp8: bool) -> ModelConfig:
    is_fp8 = args.head_precision == "fp8" and has_fp8
    return ModelConfig(
        vocabulary=TEXTS[args.data].vocabulary,
        separator=TEXTS[args.data].separator,
        n_layers=args.layers,
        width=args.width,
        n_heads=args.heads,
        length=length,
        dtype=torch.bfloat16 if args.device == "cuda" else torch.float32,
        sequence_length=args.sequence_length if args.attention == "sequence" else None,
        attention_free=args.attention_free_block if args.attention_free_block >= 0 else None,
        block=args.window_block,
        is_zero_init=args.zero_init == "on",
        has_value_embeddings=args.value_embeddings == "on",
        has_skips=args.unet_skips == "on",
        has_input_mix=args.input_mix == "on",
        has_tied_head=args.tied_head == "on",
        head=HeadRule(
            scale=args.width**-0.5 if args.logit_scale == "width" else 1.0,
            is_capped=args.logit_softcap == "on",
            chunk=args.head_chunk,
            fp8=fp8_scales(args.fp8_scales, width=args.width) if is_fp8 else None,
        ),
    )


def _schedule(args: Namespace, *, n_steps: int) -> Schedule:
    return Schedule(
        n_steps=n_steps,
        kind=args.rate_schedule,
        cooldown_share=args.cooldown_share,
        final_share=args.final_rate_share,
        n_rate_warmup_steps=args.rate_warmup_steps,
        n_momentum_warmup_steps=args.momentum_warmup_steps,
        n_window_positions=args.window_positions if args.attention == "windowed" else None,
        block=args.window_block,
        grows=args.window_schedule == "growing",
        frozen_progress=args.frozen_progress if args.frozen_progress >= 0 else None,
    )


def _optimizer_config(args: Namespace, *, n_tokens: int, shares: Shares) -> OptimizerConfig:
    return OptimizerConfig(
        rates=Rates(
            matrix=args.matrix_rate,
            embedding=args.embedding_rate,
            head=args.head_rate,
            scalar=args.scalar_rate,
            adamw=args.adamw_rate,
        ),
        is_muon=args.optimizer == "muon",
        adam_betas=(args.adam_beta1, args.adam_beta2),
        adam_epsilon=args.adam_epsilon,
        adamw_betas=(args.adamw_beta1, args.adamw_beta2),
        weight_decay=args.weight_decay,
        muon_scaling=args.muon_scaling,
        clip=args.gradient_clip,
        n_tokens=n_tokens,
        shares=shares,
    )


def named_parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    """Everything that must be in exactly one optimizer."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
