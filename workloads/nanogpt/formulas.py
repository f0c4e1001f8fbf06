"""The definitions of the model's small operations, for whoever fuses them: the compiler, on CUDA.

`operations` computes the same on a CPU, with backwards written out; tests hold one against the other.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

# Epsilon of float32 whatever the type of x. Source: the speedrun's record 26.
RMS_EPSILON = 2.0**-23


def rms_norm(x: Tensor) -> Tensor:
    """Divide by the root of the mean square: x / sqrt(mean(x^2)) over the last dimension."""
    return F.rms_norm(x, (x.size(-1),), eps=RMS_EPSILON)


def relu_squared(x: Tensor) -> Tensor:
    """max(x, 0)^2."""
    return x.relu().square()


def split_heads(x_BT3HK: Tensor, cos_T2HC: Tensor, sin_T2HC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys, normalised per head and turned by their position (in fp32), and values."""
    q, k, v = x_BT3HK.unbind(2)
    cos, sin = cos_T2HC[:, 0], sin_T2HC[:, 0]
    return turn(rms_norm(q), cos, sin), turn(rms_norm(k), cos, sin), v


def turn(x_BTHK: Tensor, cos_THC: Tensor, sin_THC: Tensor) -> Tensor:
    """Pairs (i, i + K/2) turned for i < C: y1 = x1 cos + x2 sin and y2 = x2 cos - x1 sin; the others stay."""
    half, n_turning = x_BTHK.size(-1) // 2, cos_THC.size(-1)
    wide = x_BTHK.to(torch.promote_types(x_BTHK.dtype, torch.float32))
    x1, rest1, x2, rest2 = wide.split([n_turning, half - n_turning] * 2, dim=-1)
    y1, y2 = x1 * cos_THC + x2 * sin_THC, x2 * cos_THC - x1 * sin_THC
    return torch.cat([y1, rest1, y2, rest2], dim=-1).to(x_BTHK.dtype)
