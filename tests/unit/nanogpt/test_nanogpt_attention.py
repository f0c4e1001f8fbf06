"""One mask rule, against its definition by brute force."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_mask

from attention import (
    attend,
    build_mask,
    causal_within_documents,
    find_visible_blocks,
    list_blocks,
    number_documents,
)
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
    mask = build_mask(number_documents(TOKENS_BT, separator=SEPARATOR))

    y = attend(q, k, v, mask, scale=0.5)

    for b in range(2):
        for h in range(2):
            for t in range(8):
                keys = [key for key in range(8) if may_look(b, t, key)]
                weights = [math.exp(0.5 * float(q[b, h, t] @ k[b, h, key])) for key in keys]
                parts = [weight * v[b, h, key] for weight, key in zip(weights, keys, strict=True)]
                torch.testing.assert_close(y[b, h, t], torch.stack(parts).sum(0) / sum(weights))


def kept_blocks(documents: list[int], window: int, block: int) -> list[set[int]]:
    """The window's definition, block by block and pair by pair."""
    n_blocks = len(documents) // block
    kept = []
    for q in range(n_blocks):
        full, partial = [], []
        for k in range(q + 1):
            pairs = [
                query >= key and documents[query] == documents[key]
                for query in range(q * block, (q + 1) * block)
                for key in range(k * block, (k + 1) * block)
            ]
            if all(pairs):
                full.append(k)
            elif any(pairs):
                partial.append(k)
        n_full, n_partial = min(len(full), max(window - 1, 0)), min(len(partial), max(window - len(full), 1))
        kept.append({*full[len(full) - n_full :], *partial[len(partial) - n_partial :]})
    return kept


@pytest.mark.parametrize("window", [0, 1, 2, 3, 5, 100])
@pytest.mark.parametrize("seed", range(6))
def test_window_keeps_the_blocks_of_its_definition(window: int, seed: int) -> None:
    """Random documents, against a definition that looks at every pair; a window of 0 keeps a block all the same."""
    generator = torch.Generator().manual_seed(seed)
    documents = (torch.rand(2, 48, generator=generator) < 0.08).cumsum(1, dtype=torch.int32)

    visible = find_visible_blocks(documents, torch.tensor(window, dtype=torch.int32), block=4)

    assert not (visible.full_BQS & visible.partial_BQS).any()
    found = visible.full_BQS | visible.partial_BQS
    for lane in range(2):
        expected = kept_blocks(documents[lane].tolist(), window, 4)
        assert [set(row.nonzero().flatten().tolist()) for row in found[lane]] == expected


def test_lists_for_cuda_say_what_the_dense_mask_says() -> None:
    """FlexAttention's lists, read back pair by pair: full blocks whole, partial ones by the rule."""
    documents = (torch.rand(2, 64) < 0.1).cumsum(1, dtype=torch.int32)
    window = torch.tensor(3, dtype=torch.int32)
    visible, rule = find_visible_blocks(documents, window, block=8), causal_within_documents(documents)

    lists = list_blocks(visible, rule, block=8)

    attends = torch.zeros(2, 64, 64, dtype=torch.bool)
    by_rule = create_mask(rule, 2, 1, 64, 64, device="cpu")[:, 0]
    for counts, numbers, is_full in (
        (lists.full_kv_num_blocks, lists.full_kv_indices, True),
        (lists.kv_num_blocks, lists.kv_indices, False),
    ):
        for lane in range(2):
            for q in range(8):
                for k in numbers[lane, 0, q, : counts[lane, 0, q]].tolist():
                    square = (lane, slice(8 * q, 8 * q + 8), slice(8 * k, 8 * k + 8))
                    attends[square] = True if is_full else by_rule[square]
    dense = [(bias == 0)[:, 0] for bias in build_mask(documents, window, block=8)]
    assert torch.equal(torch.cat(dense, dim=1), attends)


def test_a_window_that_sees_all_is_no_window() -> None:
    """More blocks than there are, also where the last block is not whole."""
    documents = (torch.rand(3, 45) < 0.05).cumsum(1, dtype=torch.int32)

    wide = build_mask(documents, torch.tensor(12, dtype=torch.int32), block=4)

    for ours, theirs in zip(wide, build_mask(documents), strict=True):
        assert torch.equal(ours, theirs)
