"""From the last hidden state to the loss: logits, soft-cap, cross-entropy, summed, in chunks of tokens.

    z = x W^T                    in the model's type, or in 8 bits (`fp8`)
    logits = 30 sigmoid(s z / 7.5)    bounded to (0, 30); without the cap, logits = s z
    loss = sum over tokens of the cross-entropy, in fp32

Logits of a lane of 49,152 tokens are 4.9 GB in bf16, those of a validation lane 26 GB, and more again in fp32. So a
chunk of tokens goes all the way to its gradients before the next one begins, and what remains for the backward are two
gradients the size of the input and of the weight. The loss is a sum, so chunks add up; a backward that starts with
another number than 1 scales them.

At one chunk or less, on a CPU, the ordinary way through autograd is taken: nothing is gained there.

Suffixes: N tokens, D width, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from fp8 import Fp8Products, Fp8Scales
from operations import capped_cross_entropy

LOGIT_CAP = 30.0
CAP_SLOPE = 7.5

ChunkWork: TypeAlias = Callable[[Tensor, Tensor, float, bool], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRule:
    """How logits are made.

    Attributes:
        scale: what z is multiplied by; the soft-cap has slope 1 at 0, so it is the same with the cap and without.
        is_capped: whether they are bounded.
        chunk: tokens whose logits exist at one time.
        fp8: scales of the 8-bit products while training; None for the model's own type.
    """

    scale: float
    is_capped: bool
    chunk: int
    fp8: Fp8Scales | None = None


class Products(Protocol):
    """The three matrix products of the head."""

    def logits(self, x_ND: Tensor) -> Tensor: ...
    def gradients(self, x_ND: Tensor, dz_NV: Tensor) -> tuple[Tensor, Tensor]: ...


class PlainProducts:
    """Products in the type of the input."""

    def __init__(self, weight_VD: Tensor, dtype: torch.dtype) -> None:
        self._weight_VD = weight_VD.to(dtype)

    def logits(self, x_ND: Tensor) -> Tensor:
        return x_ND @ self._weight_VD.T

    def gradients(self, x_ND: Tensor, dz_NV: Tensor) -> tuple[Tensor, Tensor]:
        return dz_NV @ self._weight_VD, dz_NV.T @ x_ND


def loss_and_gradient(z_NV: Tensor, targets_N: Tensor, scale: float, is_capped: bool) -> tuple[Tensor, Tensor]:  # noqa: FBT001  # a compiled function takes no keywords
    """Summed loss of some tokens, and its gradient by z in the type of z. One kernel or two, once compiled."""
    logits_NV = make_logits(z_NV, scale=scale, is_capped=is_capped)
    at_target = targets_N.unsqueeze(-1)
    log_sum = logits_NV.logsumexp(dim=-1, keepdim=True)
    loss = (log_sum - logits_NV.gather(-1, at_target)).sum()
    classes = torch.arange(z_NV.size(-1), device=z_NV.device)
    dlogits_NV = (logits_NV - log_sum).exp() - (classes == at_target).to(logits_NV.dtype)
    if is_capped:
        share_NV = logits_NV / LOGIT_CAP
        dlogits_NV = dlogits_NV * share_NV * (1 - share_NV) * (LOGIT_CAP / CAP_SLOPE)
    return loss, (dlogits_NV * scale).to(z_NV.dtype)


def make_logits(z_NV: Tensor, *, scale: float, is_capped: bool) -> Tensor:
    """Logits of z, in fp32 or wider."""
    wide = z_NV.to(torch.promote_types(z_NV.dtype, torch.float32))
    return LOGIT_CAP * torch.sigmoid(wide * (scale / CAP_SLOPE)) if is_capped else wide * scale


def head_loss(
    x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, rule: HeadRule, *, work: ChunkWork = loss_and_gradient
) -> Tensor:
    """Summed cross-entropy of the targets, in nats."""
    is_small = not x_ND.is_cuda and len(x_ND) <= rule.chunk
    if is_small and (rule.fp8 is None or not torch.is_grad_enabled()):
        if not rule.is_capped:
            return F.cross_entropy(F.linear(x_ND, weight_VD.to(x_ND.dtype) * rule.scale), targets_N, reduction="sum")
        # The slope goes to the weights, which are few. The cap is symmetric about 15, which softmax does not see.
        z_NV = F.linear(x_ND, weight_VD.to(x_ND.dtype) / (CAP_SLOPE / rule.scale))
        return capped_cross_entropy(z_NV, targets_N, limit=LOGIT_CAP)
    if not torch.is_grad_enabled():
        return losses_by_token(x_ND, weight_VD, targets_N, rule).sum()
    loss: Tensor = _ChunkedLoss.apply(x_ND, weight_VD, targets_N, (rule, work))  # type: ignore[no-untyped-call]
    return loss


def losses_by_token(x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, rule: HeadRule) -> Tensor:
    """Cross-entropy of each target `(N,)` without a backward, never in 8 bits: how validation is done."""
    weight_VD = weight_VD.to(x_ND.dtype)
    losses = [
        F.cross_entropy(
            make_logits(F.linear(x, weight_VD), scale=rule.scale, is_capped=rule.is_capped), targets, reduction="none"
        )
        for x, targets in zip(x_ND.split(rule.chunk), targets_N.split(rule.chunk), strict=True)
    ]
    return torch.cat(losses)


class _ChunkedLoss(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, how: tuple[HeadRule, ChunkWork]) -> Tensor:
        rule, work = how
        products: Products
        products = PlainProducts(weight, x.dtype) if rule.fp8 is None else Fp8Products(weight, rule.fp8)
        dx, dweight = torch.empty_like(x), torch.zeros_like(weight, dtype=torch.float32)
        loss = torch.zeros((), dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
        for start in range(0, len(x), rule.chunk):
            tokens = slice(start, start + rule.chunk)
            part, dz = work(products.logits(x[tokens]), targets[tokens], rule.scale, rule.is_capped)
            loss += part
            dx[tokens], dweight_part = products.gradients(x[tokens], dz)
            dweight += dweight_part
        ctx.save_for_backward(dx, dweight.to(weight.dtype))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor, Tensor, None, None]:
        dx, dweight = ctx.saved_tensors
        return dx * dloss, dweight * dloss, None, None
