"""Attention from one mask rule, whatever computes it.

A rule says which pairs attend: `rule(lane, head, query, key)` on index tensors, true where `query` may look at `key`.
It is FlexAttention's own signature, so that CUDA takes the rule as it is and skips blocks in which no pair attends. On
a CPU FlexAttention has no backward (torch 2.13), so there the same rule is evaluated once per pass into the dense mask
of `dense_attention`. One rule, two ways to compute it, and no second definition that could differ.

No CUDA device has run this file yet: what is tested is the rule and the dense way.

    mask = build_mask(causal_within_documents(documents_BT), n_lanes=8, length=512, device=device)
    y_BHTK = attend(q_BHTK, k_BHTK, v_BHTK, mask, scale=0.12)

Suffixes: B lanes, H heads, T positions, K numbers per head.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from dense_attention import DenseMask, attend_densely, split_mask

MaskRule: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Mask: TypeAlias = BlockMask | DenseMask

BLOCK_POSITIONS = 128


def number_documents(tokens_BT: Tensor, *, separator: int) -> Tensor:
    """Number of the document that each position belongs to, counted along its lane; a separator opens its document."""
    return (tokens_BT == separator).cumsum(dim=1, dtype=torch.int32)


def causal_within_documents(documents_BT: Tensor) -> MaskRule:
    """The rule: a position looks at itself and at what came before it in its own document."""

    def rule(lane: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001  # a rule's signature
        return (query >= key) & (documents_BT[lane, query] == documents_BT[lane, key])

    return rule


def build_mask(rule: MaskRule, *, n_lanes: int, length: int, device: torch.device) -> Mask:
    """What `attend` takes, equal for all heads: block lists on CUDA, else dense blocks of queries (causal rules)."""
    if device.type == "cuda":
        return create_block_mask(rule, n_lanes, None, length, length, device=device.type, BLOCK_SIZE=BLOCK_POSITIONS)
    lane = torch.arange(n_lanes, device=device).view(-1, 1, 1, 1)
    position = torch.arange(length, device=device)
    attends = rule(lane, torch.zeros_like(lane), position.view(1, 1, -1, 1), position.view(1, 1, 1, -1))
    return split_mask(attends, n_queries=BLOCK_POSITIONS)


def attend(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, mask: Mask, *, scale: float) -> Tensor:
    """Softmax attention over the pairs that the mask allows: `(B, H, T, K)`."""
    if isinstance(mask, BlockMask):
        y_BHTK = flex_attention(q_BHTK, k_BHTK, v_BHTK, block_mask=mask, scale=scale)
        assert isinstance(y_BHTK, Tensor)
        return y_BHTK
    return attend_densely(q_BHTK, k_BHTK, v_BHTK, mask, scale=scale)
