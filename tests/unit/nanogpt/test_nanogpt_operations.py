"""Backward passes written by hand, against autograd of the definitions; in float64, so to rounding."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from operations import RMS_EPSILON, capped_cross_entropy, relu_squared, rms_norm, split_heads

N_TURNING = 4


def assert_same(ours: Callable[[Tensor], Tensor], definition: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Equal values, and equal gradients under the same random weights."""
    ours_x, definition_x = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, expected = ours(ours_x), definition(definition_x)
    weights = torch.randn_like(expected)
    (y * weights).sum().backward()
    (expected * weights).sum().backward()

    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(ours_x.grad, definition_x.grad)


def tables(length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of random angles, spread over queries and keys and two heads."""
    angles = torch.randn(length, N_TURNING, dtype=torch.float64)[:, None, None, :].repeat(1, 2, 2, 1)
    return angles.cos(), angles.sin()


def test_rms_norm_is_its_definition() -> None:
    """X over the root of its mean square."""
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    assert_same(rms_norm, lambda x: x / (x.square().mean(-1, keepdim=True) + RMS_EPSILON).sqrt(), x)


def test_rms_norm_gives_mean_square_one() -> None:
    """Whatever the scale of what comes in; epsilon is 1e-7 of a mean square of 1."""
    y = rms_norm(1000 * torch.randn(6, 32))

    torch.testing.assert_close(y.square().mean(-1), torch.ones(6))


def test_relu_squared_is_its_definition() -> None:
    """The square of what is positive."""
    assert_same(relu_squared, lambda x: F.relu(x) ** 2, torch.randn(4, 9, dtype=torch.float64))


def test_capped_cross_entropy_is_its_definition() -> None:
    """Cross-entropy of 30 sigmoid(z), summed, and its gradient under a factor."""
    targets = torch.tensor([0, 5, 2])
    assert_same(
        lambda z: capped_cross_entropy(z, targets, limit=30.0),
        lambda z: F.cross_entropy(30 * torch.sigmoid(z), targets, reduction="sum"),
        3 * torch.randn(3, 6, dtype=torch.float64),
    )


def test_capped_cross_entropy_survives_the_worst_logits() -> None:
    """At the ends of the cap the loss is the cap itself, 30 nats, and finite in float32."""
    z = torch.tensor([[100.0, -100.0]])

    assert capped_cross_entropy(z, torch.tensor([1]), limit=30.0).item() == 30.0


def test_split_heads_is_its_definition() -> None:
    """Norm, then rotation of pairs (i, i + K/2) where i turns, for queries and keys; values untouched."""
    cos, sin = tables(length=5)
    still = torch.zeros(5, 2, 2, 8 - N_TURNING, dtype=torch.float64)
    all_cos, all_sin = torch.cat([cos, still + 1], -1), torch.cat([sin, still], -1)

    def definition(x: Tensor) -> Tensor:
        qk = x[:, :, :2] / (x[:, :, :2].square().mean(-1, keepdim=True) + RMS_EPSILON).sqrt()
        x1, x2 = qk.chunk(2, dim=-1)
        turned = torch.cat([x1 * all_cos + x2 * all_sin, x2 * all_cos - x1 * all_sin], -1)
        return torch.cat([turned, x[:, :, 2:]], 2)

    x = torch.randn(2, 5, 3, 2, 16, dtype=torch.float64)
    assert_same(lambda x: torch.stack(split_heads(x, cos, sin), dim=2), definition, x)


def test_rotation_keeps_lengths() -> None:
    """After the norm every query and key has a length of sqrt(K), turned or not."""
    cos, sin = tables(length=5)

    q, k, _ = split_heads(torch.randn(2, 5, 3, 2, 16, dtype=torch.float64), cos, sin)

    for heads in (q, k):
        expected = torch.full((2, 5, 2), 4.0, dtype=torch.float64)
        torch.testing.assert_close(heads.norm(dim=-1), expected, rtol=1e-5, atol=0)  # epsilon in the norm


def test_rotation_depends_on_distance_only() -> None:
    """The same vectors one position further on give the same product of query and key."""
    angles = torch.outer(torch.arange(6, dtype=torch.float64), torch.tensor([1.0, 0.5, 0.1, 0.01], dtype=torch.float64))
    spread = angles[:, None, None, :].repeat(1, 2, 2, 1)
    same_everywhere = torch.randn(1, 1, 3, 2, 16, dtype=torch.float64).expand(1, 6, 3, 2, 16)

    q, k, _ = split_heads(same_everywhere, spread.cos(), spread.sin())
    products = torch.einsum("btk,bsk->ts", q[:, :, 0], k[:, :, 0])

    torch.testing.assert_close(products[1:, 1:], products[:-1, :-1])
