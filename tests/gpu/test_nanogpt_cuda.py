"""What only CUDA can show of the nanogpt workload. No machine has run this file yet: it says what to look at first."""

import sys
from pathlib import Path

import pytest
import torch

WORKLOAD = Path(__file__).resolve().parents[2] / "workloads" / "nanogpt"
if str(WORKLOAD) not in sys.path:
    sys.path.insert(0, str(WORKLOAD))

import formulas  # noqa: E402  # found by the line above
import fp8  # noqa: E402
import operations  # noqa: E402
from attention import attend, build_mask  # noqa: E402
from head import HeadRule, head_loss  # noqa: E402
from model import Gpt, ModelConfig  # noqa: E402
from muon import orthogonalise  # noqa: E402
from recipe import fp8_scales  # noqa: E402
from train import compile_model, count_compilations  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    # Compilers warn about what they are free to do.
    pytest.mark.filterwarnings("ignore"),
]
CUDA = torch.device("cuda")


@pytest.mark.parametrize("window", [1, 3, 100])
def test_flex_attention_agrees_with_the_dense_way(window: int) -> None:
    """Values and gradients over documents and a window: bf16 against fp32 on the CPU, to 2 %."""
    documents = (torch.rand(2, 1024) < 0.005).cumsum(1, dtype=torch.int32)
    q, k, v, dy = (torch.randn(2, 3, 1024, 128) for _ in range(4))
    blocks = torch.tensor(window, dtype=torch.int32)

    def run(device: torch.device, dtype: torch.dtype) -> list[torch.Tensor]:
        inputs = [one.to(device, dtype).requires_grad_() for one in (q, k, v)]

        def work(*qkv: torch.Tensor) -> torch.Tensor:
            return attend(*qkv, build_mask(documents.to(device), blocks.to(device)), scale=0.12)

        y = (torch.compile(work, fullgraph=True) if device.type == "cuda" else work)(*inputs)
        return [y, *torch.autograd.grad(y, inputs, dy.to(device, dtype))]

    for ours, theirs in zip(run(CUDA, torch.bfloat16), run(torch.device("cpu"), torch.float32), strict=True):
        assert ((ours.float().cpu() - theirs).norm() / theirs.norm()).item() < 0.02


def test_another_window_compiles_nothing_again() -> None:
    """The window is a tensor: two widths, one program, no graph break."""
    config = ModelConfig(
        vocabulary=512, separator=0, n_layers=6, width=256, n_heads=2, length=1024, dtype=torch.bfloat16,
        has_value_embeddings=True, has_skips=True, has_input_mix=True, attention_free=3,
    )  # fmt: skip
    model = Gpt(config).to(CUDA)
    compile_model(model, CUDA)
    tokens = torch.randint(0, 512, (1, 1025), device=CUDA)
    before = None
    for window in (1, 2, 7):
        model(tokens[:, :-1], tokens[:, 1:], torch.full((), window, dtype=torch.int32, device=CUDA)).backward()
        before = before or count_compilations()

    assert count_compilations() == before


@pytest.mark.parametrize("chunk", [256, 1024])
def test_eight_bit_head_errs_by_less_than_five_percent(chunk: int) -> None:
    """Against bf16, in both gradients; where the chip has 8 bits."""
    if not fp8.has_fp8(CUDA):
        pytest.skip("no 8-bit products before Ada")
    x = formulas.rms_norm(torch.randn(1024, 768, device=CUDA, dtype=torch.bfloat16))
    weight, targets = torch.randn(1024, 768, device=CUDA) * 0.5, torch.randint(0, 1024, (1024,), device=CUDA)

    def run(scales: fp8.Fp8Scales | None) -> tuple[torch.Tensor, ...]:
        a, w = x.clone().requires_grad_(), weight.clone().requires_grad_()
        loss = head_loss(a, w, targets, HeadRule(scale=768**-0.5, is_capped=True, chunk=chunk, fp8=scales))
        return torch.autograd.grad(loss, (a, w))

    for ours, theirs in zip(run(fp8_scales("record-26", width=768)), run(None), strict=True):
        assert ((ours - theirs).float().norm() / theirs.float().norm()).item() < 0.05


def test_orthogonalised_in_bf16_is_within_the_band() -> None:
    """Singular values between 0.5 and 1.3, as five steps in bf16 leave them."""
    values = torch.linalg.svdvals(orthogonalise(torch.randn(4, 768, 768, device=CUDA)).float())

    assert values.max() < 1.3
    assert values.quantile(0.02) > 0.5


def test_operations_on_cuda_are_the_definitions() -> None:
    """bf16 through the same functions that a CPU has by hand, to 1 %."""
    x = torch.randn(2, 16, 3, 2, 128)
    angles = torch.rand(16, 1, 1, 32)
    expected = operations.split_heads(x, angles.cos().expand(16, 2, 2, 32), angles.sin().expand(16, 2, 2, 32))

    found = operations.split_heads(x.to(CUDA, torch.bfloat16), angles.cos().to(CUDA), angles.sin().to(CUDA))

    for ours, theirs in zip(found, expected, strict=True):
        assert ((ours.float().cpu() - theirs).norm() / theirs.norm()).item() < 0.01
