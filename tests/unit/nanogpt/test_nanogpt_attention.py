"""One mask rule, against its definition by brute force."""

import math

import pytest
import torch
import torch.nn.functional as F

from attention import attend, build_mask, causal_within_documents, number_documents
from dense_attention import attend_densely, split_mask

SEPARATOR = 9
TOKENS_BT = torch.tensor([[1, 2, 9, 3, 4, 9, 9, 5], [9, 1, 1, 1, 1, 1, 1, 9]])


def may_look(lane: int, query: int, key: int) -> bool:
    """The rule in words: not ahead, and no separator between (the query's own position included)."""
    tokens = TOKENS_BT[lane].tolist()
    return key <= query and SEPARATOR not in tokens[key + 1 : query + 1]


def test_dense_mask_is_the_rule_pair_by_pair() -> None:
    """0 where a pair attends and -inf where it does not, for every pair of both lanes up to the end of each block."""
    rule = causal_within_documents(number_documents(TOKENS_BT, separator=SEPARATOR))
    position = torch.arange(8)
    lane = torch.arange(2).view(2, 1, 1, 1)
    attends = rule(lane, torch.zeros_like(lane), position.view(1, 1, 8, 1), position.view(1, 1, 1, 8))

    mask = split_mask(attends, n_queries=3)

    for bias, queries in zip(mask, (range(3), range(3, 6), range(6, 8)), strict=True):
        keys = range(queries.stop)
        expected = [[[[0.0 if may_look(b, q, k) else -math.inf for k in keys] for q in queries]] for b in range(2)]
        assert bias.tolist() == expected


@pytest.mark.parametrize("n_queries", [1, 3, 8, 100])
def test_blocks_of_any_size_give_torch_own_attention_and_gradients(n_queries: int) -> None:
    """Against scaled_dot_product_attention with the same mask, in float64, values and all three gradients."""
    q, k, v = (torch.randn(2, 3, 8, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    attends = torch.rand(2, 1, 8, 8).gt(0.5).tril().logical_or(torch.eye(8, dtype=torch.bool))
    dy = torch.randn(2, 3, 8, 4, dtype=torch.float64)

    ours = attend_densely(q, k, v, split_mask(attends, n_queries=n_queries), scale=0.7)
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=attends, scale=0.7)

    torch.testing.assert_close(ours, theirs)
    for one, other in zip(
        torch.autograd.grad(ours, (q, k, v), dy), torch.autograd.grad(theirs, (q, k, v), dy), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_attention_averages_over_allowed_keys_only() -> None:
    """Against a softmax written as sums over the allowed keys, position by position; float32 rounding apart."""
    q, k, v = torch.randn(3, 2, 2, 8, 4)
    rule = causal_within_documents(number_documents(TOKENS_BT, separator=SEPARATOR))
    mask = build_mask(rule, n_lanes=2, length=8, device=torch.device("cpu"))

    y = attend(q, k, v, mask, scale=0.5)

    for b in range(2):
        for h in range(2):
            for t in range(8):
                keys = [key for key in range(8) if may_look(b, t, key)]
                weights = [math.exp(0.5 * float(q[b, h, t] @ k[b, h, key])) for key in keys]
                parts = [weight * v[b, h, key] for weight, key in zip(weights, keys, strict=True)]
                torch.testing.assert_close(y[b, h, t], torch.stack(parts).sum(0) / sum(weights))
