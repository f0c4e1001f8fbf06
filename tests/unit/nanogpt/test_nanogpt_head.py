"""The head and the loss: in chunks, in 8 bits, with and without the cap."""

import pytest
import torch
import torch.nn.functional as F

from fp8 import E4M3, E5M2, Fp8Products, check_layout, quantise
from head import HeadRule, head_loss, losses_by_token
from recipe import fp8_scales

N, WIDTH, VOCABULARY = 512, 768, 640
SCALE = WIDTH**-0.5


def example() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalised hidden states, weights as after some training, targets."""
    x_ND = F.rms_norm(torch.randn(N, WIDTH), (WIDTH,))
    return x_ND, torch.randn(VOCABULARY, WIDTH) * 0.5, torch.randint(0, VOCABULARY, (N,))


def gradients(rule: HeadRule) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Loss and both gradients."""
    torch.manual_seed(3)
    x, weight, targets = example()
    x.requires_grad_()
    weight.requires_grad_()
    loss = head_loss(x, weight, targets, rule)
    return loss.detach(), *torch.autograd.grad(loss, (x, weight))


@pytest.mark.parametrize("is_capped", [True, False])
@pytest.mark.parametrize("chunk", [100, 256])
def test_chunks_give_the_loss_and_gradients_of_the_whole(chunk: int, is_capped: bool) -> None:  # noqa: FBT001
    """Also where the last chunk is a short one; against autograd of the definition."""
    torch.manual_seed(3)
    x, weight, targets = example()
    x.requires_grad_()
    weight.requires_grad_()
    z = x @ weight.T * SCALE
    expected = F.cross_entropy(30 * torch.sigmoid(z / 7.5) if is_capped else z, targets, reduction="sum")

    loss, *found = gradients(HeadRule(scale=SCALE, is_capped=is_capped, chunk=chunk))

    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=0)
    for ours, theirs in zip(found, torch.autograd.grad(expected, (x, weight)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
    by_token = losses_by_token(x.detach(), weight.detach(), targets, HeadRule(scale=SCALE, is_capped=True, chunk=chunk))
    assert by_token.shape == (N,)


def test_a_backward_that_starts_with_two_gives_twice_the_gradients() -> None:
    """Gradients are made in the forward; the chain rule holds all the same."""
    x, weight, targets = example()
    x.requires_grad_()
    rule = HeadRule(scale=SCALE, is_capped=True, chunk=128)

    once, twice = (torch.autograd.grad(k * head_loss(x, weight, targets, rule), x)[0] for k in (1, 2))

    torch.testing.assert_close(twice, 2 * once)


@pytest.mark.parametrize(("record", "most"), [("record-26", 0.05), ("record-21", 0.07)])
def test_eight_bits_err_by_a_few_percent(record: str, most: float) -> None:
    """Both gradients, in norm, against fp32; the loss by less than 1 %. Each record's scales with its own slope.

    Record 21's scale puts the largest gradient, 1 a logit, at 10.67, and the nearest number in e5m2 is 10.
    """
    scale = SCALE if record == "record-26" else 1.0
    plain, eight = (
        HeadRule(scale=scale, is_capped=True, chunk=256, fp8=fp8) for fp8 in (None, fp8_scales(record, width=WIDTH))
    )
    weight_size = 1.0 if record == "record-26" else SCALE

    def run(rule: HeadRule) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        torch.manual_seed(3)
        x, weight, targets = example()
        x, weight = x.requires_grad_(), (weight * weight_size).requires_grad_()
        loss = head_loss(x, weight, targets, rule)
        return loss.detach(), *torch.autograd.grad(loss, (x, weight))

    expected, found = run(plain), run(eight)

    assert found[0].item() == pytest.approx(expected[0].item(), rel=0.01)
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        assert ((ours - theirs).norm() / theirs.norm()).item() < most


def test_validation_is_not_in_eight_bits() -> None:
    """The same number with and without, to the last bit."""
    x, weight, targets = example()
    rules = (
        HeadRule(scale=SCALE, is_capped=True, chunk=128, fp8=f) for f in (None, fp8_scales("record-26", width=768))
    )

    with torch.no_grad():
        one, other = (head_loss(x, weight, targets, rule) for rule in rules)

    assert torch.equal(one, other)


def test_a_mean_would_lose_the_gradient() -> None:
    """Why the loss is a sum: divided by 49,152 tokens, most of the gradient falls below what e5m2 holds."""
    gradient = torch.randn(1000) * 1e-4
    scale = fp8_scales("record-26", width=768).gradient

    summed, mean = (quantise(gradient / n, scale, E5M2).float() * scale * n for n in (1, 49_152))

    assert (summed == 0).float().mean() < 0.01
    assert (mean - gradient).norm() > 3 * (summed - gradient).norm()


def test_large_values_are_clamped() -> None:
    """To 448 in e4m3 and 57,344 in e5m2, also what is infinite."""
    values = torch.tensor([1e6, -1e6, torch.inf])

    assert quantise(values, 1.0, E4M3).float().tolist() == [448, -448, 448]
    assert quantise(values, 1.0, E5M2).float().tolist() == [57344, -57344, 57344]


def test_layouts_that_cuda_refuses_are_refused_on_a_cpu() -> None:
    """Sides that are no multiples of 16, and matrices that lie the wrong way."""
    left, right = torch.zeros(32, 16), torch.zeros(48, 16).T
    check_layout(left, right)

    with pytest.raises(ValueError, match="multiple of 16"):
        check_layout(torch.zeros(30, 16), right)
    with pytest.raises(ValueError, match="right by columns"):
        check_layout(left, torch.zeros(16, 48))
    with pytest.raises(ValueError, match="left by rows"):
        check_layout(torch.zeros(16, 32).T, right)
    with pytest.raises(ValueError, match="multiple of 16"):
        Fp8Products(torch.zeros(64, 24), fp8_scales("record-26", width=24)).logits(torch.zeros(16, 24))
