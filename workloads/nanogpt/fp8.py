"""Matrix products of the head in 8 bits: e4m3 forward, e5m2 for gradients, scales that are fixed.

A value is divided by its scale, clamped to what the format holds (a cast on a GPU does not saturate by itself), and
cast. The products are those of the tensor cores, which multiply the scales back in:

    logits           x W^T      e4m3 x e4m3, fast accumulation, bf16 out
    input gradient   dz W       e5m2 x e4m3, bf16 out
    weight gradient  dz^T x     computed as (x^T dz)^T, e4m3 x e5m2, fp32 out

Scales are fixed because their inputs are bounded: x is normalised, |x| <= sqrt(width), and the gradient of a *sum* of
losses is at most about 0.04 a logit. Divided by the tokens first, it would fall below what e5m2 holds (measured on a
CPU: error of the weight gradient 2.9 % with the sum, 8 % with a mean over 49,152 tokens).

CUDA wants the left matrix row by row, the right one column by column, and every side a multiple of 16. A CPU takes
anything, so that is checked here, for both. No CUDA device has run this file yet; the arithmetic is tested on a CPU.

Suffixes: N tokens, D width, V vocabulary.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

E4M3 = torch.float8_e4m3fn
E5M2 = torch.float8_e5m2
SIDE_MULTIPLE = 16
FIRST_CAPABILITY = (8, 9)  # Ada; Hopper is (9, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Scales:
    """What inputs, weights and gradients are divided by before the cast."""

    x: float
    weight: float
    gradient: float


def has_fp8(device: torch.device) -> bool:
    """Whether its matrix units take 8 bits; a CPU computes the same numbers, slowly."""
    return device.type == "cpu" or torch.cuda.get_device_capability(device) >= FIRST_CAPABILITY


def quantise(value: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """Value / scale in 8 bits, at most the largest number that they hold."""
    largest = torch.finfo(dtype).max
    return (value / scale).clamp(-largest, largest).to(dtype)


def multiply(
    left: Tensor, right: Tensor, left_scale: float, right_scale: float, *, out: torch.dtype, fast: bool
) -> Tensor:
    """Product of two scaled 8-bit matrices, by whichever name torch has for it."""
    check_layout(left, right)
    scale_left = torch.full((), left_scale, dtype=torch.float32, device=left.device)
    scale_right = torch.full((), right_scale, dtype=torch.float32, device=left.device)
    if hasattr(F, "scaled_mm"):
        tensorwise = F.ScalingType.TensorWise
        product = F.scaled_mm(
            left, right, scale_left, tensorwise, scale_right, tensorwise, output_dtype=out, use_fast_accum=fast
        )
    else:  # torch 2.9
        product = torch._scaled_mm(  # noqa: SLF001
            left, right, scale_a=scale_left, scale_b=scale_right, out_dtype=out, use_fast_accum=fast
        )
    assert isinstance(product, Tensor)
    return product


def check_layout(left: Tensor, right: Tensor) -> None:
    """CUDA's rules for 8-bit products.

    Raises:
        ValueError: a side is no multiple of 16, or a matrix lies the wrong way.
    """
    sides = (*left.shape, right.size(1))
    if any(side % SIDE_MULTIPLE for side in sides):
        raise ValueError(f"8-bit product of sides {sides}: each must be a multiple of {SIDE_MULTIPLE}")
    if left.stride() != (left.size(1), 1) or right.stride() != (1, right.size(0)):
        raise ValueError(f"8-bit product: strides {left.stride()} and {right.stride()}, left by rows, right by columns")


class Fp8Products:
    """The head's three products in 8 bits. The weight is cast once, in both layouts."""

    def __init__(self, weight_VD: Tensor, scales: Fp8Scales) -> None:
        self.scales = scales
        self._weight_VD = quantise(weight_VD, scales.weight, E4M3)
        self._by_columns_VD = self._weight_VD.T.contiguous().T

    def logits(self, x_ND: Tensor) -> Tensor:
        x8_ND = quantise(x_ND, self.scales.x, E4M3)
        return multiply(x8_ND, self._weight_VD.T, self.scales.x, self.scales.weight, out=torch.bfloat16, fast=True)

    def gradients(self, x_ND: Tensor, dz_NV: Tensor) -> tuple[Tensor, Tensor]:
        """Of the input `(N, D)` in bf16 and of the weight `(V, D)` in fp32."""
        scales = self.scales
        dz8_NV = quantise(dz_NV, scales.gradient, E5M2)
        x8_DN = quantise(x_ND, scales.x, E4M3).T.contiguous()
        dz8_by_columns_NV = dz8_NV.T.contiguous().T
        dx_ND = multiply(dz8_NV, self._by_columns_VD, scales.gradient, scales.weight, out=torch.bfloat16, fast=False)
        dw_DV = multiply(x8_DN, dz8_by_columns_NV, scales.x, scales.gradient, out=torch.float32, fast=False)
        return dx_ND, dw_DV.T
