"""The program that CUDA compiles, traced on a CPU: bf16, plain formulas, FlexAttention's lists, 8 bits.

What a GPU makes of it is for `tests/gpu`; that it is one graph with the right types can be seen here.
"""

import pytest
import torch

import formulas
import model
from attention import causal_within_documents, find_visible_blocks, list_blocks
from head import HeadRule, loss_and_gradient
from recipe import fp8_scales

CONFIG = model.ModelConfig(
    vocabulary=512,
    separator=0,
    n_layers=6,
    width=64,
    n_heads=2,
    length=512,
    dtype=torch.bfloat16,
    has_value_embeddings=True,
    has_skips=True,
    has_input_mix=True,
    attention_free=3,
    is_zero_init=False,
    head=HeadRule(scale=0.125, is_capped=True, chunk=256, fp8=fp8_scales("record-26", width=64)),
)


def lists_of(documents_BT: torch.Tensor, window: torch.Tensor, *, block: int) -> object:
    """What `build_mask` makes on CUDA."""
    visible = find_visible_blocks(documents_BT, window, block=block)
    return list_blocks(visible, causal_within_documents(documents_BT), block=block)


@pytest.fixture
def as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> model.Gpt:
    """The model with the branches that a CUDA tensor takes, but for the mask."""
    for name in ("rms_norm", "relu_squared", "split_heads"):
        monkeypatch.setattr(model, name, getattr(formulas, name))
    monkeypatch.setattr(
        model.RotaryTables,
        "forward",
        lambda self, length: (self.cos_TC[:length, None, None], self.sin_TC[:length, None, None]),
    )
    return model.Gpt(CONFIG)


def lanes() -> tuple[torch.Tensor, torch.Tensor]:
    """One lane of documents of 100 tokens."""
    tokens = torch.randint(1, 512, (1, 513))
    tokens[0, ::100] = 0
    return tokens[:, :-1], tokens[:, 1:]


def window_of(blocks: int) -> torch.Tensor:
    return torch.full((), blocks, dtype=torch.int32)


def test_types_are_those_of_the_record(as_on_cuda: model.Gpt) -> None:
    """bf16 through the trunk and in the tables' gradients; fp32 in the loss and in gradients of matrices and head."""
    tokens, targets = lanes()

    assert as_on_cuda.trunk(tokens, window_of(2)).dtype is torch.bfloat16
    loss = as_on_cuda(tokens, targets, window_of(2))
    loss.backward()

    assert loss.dtype is torch.float32
    for role, dtype in (
        ("matrix", torch.float32),
        ("embedding", torch.bfloat16),
        ("head", torch.float32),
        ("scalar", torch.float32),
    ):
        assert {one.grad.dtype for one in as_on_cuda.roles()[role] if one.grad is not None} == {dtype}
        assert all(one.grad is not None for one in as_on_cuda.roles()[role])


@torch.no_grad()
def test_trunk_is_one_graph_for_every_window(as_on_cuda: model.Gpt, monkeypatch: pytest.MonkeyPatch) -> None:
    """No break, or `fullgraph` would refuse; no second graph for another window. Nor has the loss a break."""
    monkeypatch.setattr(model, "build_mask", lists_of)
    n_graphs = 0

    def count(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> object:
        nonlocal n_graphs
        n_graphs += 1
        return graph.forward

    trunk = torch.compile(as_on_cuda.trunk, fullgraph=True, dynamic=False, backend=count)
    tokens, _ = lanes()
    for blocks in (1, 2, 7, 14):
        trunk(tokens, window_of(blocks))
    assert n_graphs == 1

    work = torch.compile(loss_and_gradient, fullgraph=True, dynamic=False, backend=count)
    work(torch.randn(16, 512), torch.zeros(16, dtype=torch.long), 0.1, True)  # noqa: FBT003
    assert n_graphs == 2


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")  # compilers warn about what is theirs
@torch.no_grad()
def test_compiled_flex_attention_sees_what_the_dense_mask_sees(
    as_on_cuda: model.Gpt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU's compiled FlexAttention has a forward and heeds the lists: the whole trunk to bf16's 1.5 %."""
    tokens, _ = lanes()
    dense = as_on_cuda.trunk(tokens, window_of(2))
    everything = as_on_cuda.trunk(tokens, window_of(14))
    monkeypatch.setattr(model, "build_mask", lists_of)

    listed = torch.compile(as_on_cuda.trunk, fullgraph=True, dynamic=False)(tokens, window_of(2))

    error = (listed - dense).float().norm() / dense.float().norm()
    of_no_window = (everything - dense).float().norm() / dense.float().norm()
    assert error.item() < 0.015
    assert of_no_window.item() > 2 * error.item()
