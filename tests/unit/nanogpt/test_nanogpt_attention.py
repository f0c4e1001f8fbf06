"""One mask rule, against its definition by brute force."""

import math

import torch

from attention import attend, build_mask, causal_within_documents, number_documents

SEPARATOR = 9
TOKENS_BT = torch.tensor([[1, 2, 9, 3, 4, 9, 9, 5], [9, 1, 1, 1, 1, 1, 1, 9]])


def may_look(lane: int, query: int, key: int) -> bool:
    """The rule in words: not ahead, and no separator between (the query's own position included)."""
    tokens = TOKENS_BT[lane].tolist()
    return key <= query and SEPARATOR not in tokens[key + 1 : query + 1]


def test_dense_mask_is_the_rule_pair_by_pair() -> None:
    """0 where a pair attends and -inf where it does not, for every pair of both lanes."""
    rule = causal_within_documents(number_documents(TOKENS_BT, separator=SEPARATOR))

    mask = build_mask(rule, n_lanes=2, length=8, device=torch.device("cpu"))

    expected = [[[[0.0 if may_look(b, q, k) else -math.inf for k in range(8)] for q in range(8)]] for b in range(2)]
    assert isinstance(mask, torch.Tensor)
    assert mask.tolist() == expected


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
