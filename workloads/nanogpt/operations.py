"""Small operations whose backward is written out, because autograd's own makes several more passes over memory.

On a CPU without a compiler such passes are a third of a step (measured: 4,096 tokens a step, width 128, where every
pass over a tensor goes through the shared cache). A compiler fuses most of it by itself.

    rms_norm(x)                     x / sqrt(mean(x^2)) over the last dimension
    relu_squared(x)                 max(x, 0)^2
    capped_cross_entropy(z, ...)    summed cross-entropy of the logits limit * sigmoid(z)
    split_heads(x, cos, sin)        queries and keys, normalised and turned, and values, out of one projection

On CUDA the same functions take the plain definitions of `formulas`, which a compiler fuses.

`tests/unit/nanogpt` holds each against autograd of its definition.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import formulas
from formulas import RMS_EPSILON


def rms_norm(x: Tensor) -> Tensor:
    """Scale the last dimension to a mean square of 1."""
    if x.is_cuda:
        return formulas.rms_norm(x)
    result: Tensor = _RmsNorm.apply(x)  # type: ignore[no-untyped-call]  # torch leaves `apply` untyped
    return result


def relu_squared(x: Tensor) -> Tensor:
    """The square of what is positive, else 0."""
    if x.is_cuda:
        return formulas.relu_squared(x)
    result: Tensor = _ReluSquared.apply(x)  # type: ignore[no-untyped-call]
    return result


def capped_cross_entropy(z_NV: Tensor, targets_N: Tensor, *, limit: float) -> Tensor:
    """Sum over N of the cross-entropy in nats, with the logits limit * sigmoid(z) in (0, limit); in fp32 or wider.

    `limit` is at most 80 or so: the probabilities themselves are kept, and exp(-limit)/V must not underflow.
    """
    loss: Tensor = _CappedCrossEntropy.apply(z_NV, targets_N, limit)  # type: ignore[no-untyped-call]
    return loss


def split_heads(x_BT3HK: Tensor, cos_T2HC: Tensor, sin_T2HC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys with a mean square of 1 per head, turned by their position, and values: each `(B, T, H, K)`.

    Pairs (i, i + K/2) turn for i < C, with `cos` and `sin` of their angle at each position: y1 = x1 cos + x2 sin and
    y2 = x2 cos - x1 sin. The other pairs stay as they are. The tables stand once for each of queries and keys and each
    head: a multiplication that has to spread them takes twice as long.
    """
    if x_BT3HK.is_cuda:
        return formulas.split_heads(x_BT3HK, cos_T2HC, sin_T2HC)
    q, k, v = _SplitHeads.apply(x_BT3HK, cos_T2HC, sin_T2HC)  # type: ignore[no-untyped-call]
    return q, k, v


def _rms_scale(x: Tensor) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide).square_().div_(x.size(-1))
    return mean_square.add_(RMS_EPSILON).rsqrt_().to(x.dtype)


def _mean_product(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vecdot(a, b).unsqueeze(-1).div_(a.size(-1))


def _turn_(x: Tensor, cos: Tensor, sin: Tensor, *, direction: int) -> None:
    """Turn the first C pairs of `(B, T, 2, H, K)` in place, back where `direction` is -1."""
    half, n_turning = x.size(-1) // 2, cos.size(-1)
    first, second = x[..., :n_turning], x[..., half : half + n_turning]
    turned = torch.addcmul(first * cos, second, sin, value=direction)
    second.mul_(cos).addcmul_(first, sin, value=-direction)
    first.copy_(turned)


class _RmsNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        scale = _rms_scale(x)
        y = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        # y = x s with s = (mean(x^2) + eps)^(-1/2) gives dx = s (dy - y mean(dy y)).
        y, scale = ctx.saved_tensors
        return torch.addcmul(dy, y, _mean_product(dy, y), value=-1).mul_(scale)


class _ReluSquared(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = x.relu()
        ctx.save_for_backward(positive)
        return positive.square()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return torch.addcmul(dy.new_zeros(()), dy, positive, value=2)


class _CappedCrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, targets: Tensor, limit: float) -> Tensor:
        share = z.to(torch.promote_types(z.dtype, torch.float32)).sigmoid()
        probability = torch.softmax(share * limit, dim=-1)
        ctx.save_for_backward(share, probability, targets)
        ctx.limit, ctx.dtype = limit, z.dtype
        return probability.gather(-1, targets.unsqueeze(-1)).log_().sum().neg_()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor, None, None]:
        # d loss / d logits is the probability, less 1 at the target; then through the cap.
        share, probability, targets = ctx.saved_tensors
        at_target = targets.unsqueeze(-1)
        dlogits = probability.scatter_add(-1, at_target, probability.new_full((), -1.0).expand(at_target.shape))
        dz = torch.ops.aten.sigmoid_backward(dlogits, share).mul_(dloss * ctx.limit)
        return dz.to(ctx.dtype), None, None


class _SplitHeads(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scale = _rms_scale(x[:, :, :2])
        y = x[:, :, :2] * scale
        _turn_(y, cos, sin, direction=1)
        ctx.save_for_backward(y, scale, cos, sin)
        q, k = y.unbind(2)
        return q, k, x[:, :, 2].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, None, None]:
        # Turning keeps lengths and products, so the norm's backward holds on turned vectors; then back they turn.
        y, scale, cos, sin = ctx.saved_tensors
        dx = torch.stack((dq, dk, dv), dim=2)
        dqk = dx[:, :, :2]
        dqk.addcmul_(y, _mean_product(dqk, y), value=-1).mul_(scale)
        _turn_(dqk, cos, sin, direction=-1)
        return dx, None, None
