"""Attention from one mask rule, whatever computes it.

A position looks at itself and at what came before it in its own document. Beyond that, blocks of 128 positions decide
what is computed at all. Of the blocks of keys that a block of queries could look at, some are *full* (every pair of
positions attends) and some *partial* (some do: the diagonal, and blocks that a document begins in):

    keys      0  1  2  3  4  5
    query 5   .  p  f  f  f  p        a document begins in block 1

    window of w blocks: the latest w - 1 full ones, and the latest max(w - full, 1) partial ones, `full` counted before

So a window is counted in blocks, the diagonal is always kept, and a document that begins long ago is cut off. The
window is a tensor of one int32: it grows over a run and nothing is compiled again.

Three ways compute this, from the same lists of blocks:

    CUDA        FlexAttention, which skips the other blocks and applies the rule within partial ones
    CPU         the dense mask of `dense_attention`: FlexAttention has no backward there, and without a compiler it
                ignores the lists (torch 2.13)
    sequence    plain causal attention within short sequences, documents or not, as GPT-2 does: no lists, no window

No CUDA device has run this file yet: what is tested is the lists, the rule and the dense way.

Suffixes: B lanes, H heads, T positions, K numbers per head; Q and S blocks of queries and of keys.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from dense_attention import DenseMask, attend_densely, split_mask

MaskRule: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Mask: TypeAlias = BlockMask | DenseMask | None

BLOCK_POSITIONS = 128


@dataclass(frozen=True, slots=True)
class VisibleBlocks:
    """Which blocks of keys each block of queries looks at, bool `(B, Q, S)`: wholly, or by the rule inside."""

    full_BQS: Tensor
    partial_BQS: Tensor


def number_documents(tokens_BT: Tensor, *, separator: int) -> Tensor:
    """Number of the document that each position belongs to, counted along its lane; a separator opens its document."""
    return (tokens_BT == separator).cumsum(dim=1, dtype=torch.int32)


def causal_within_documents(documents_BT: Tensor) -> MaskRule:
    """The rule: a position looks at itself and at what came before it in its own document."""

    def rule(lane: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001  # a rule's signature
        return (query >= key) & (documents_BT[lane, query] == documents_BT[lane, key])

    return rule


def find_visible_blocks(documents_BT: Tensor, window: Tensor | None, *, block: int = BLOCK_POSITIONS) -> VisibleBlocks:
    """The blocks within a window of so many blocks, or all that the rule allows where that is None.

    Documents are numbered in order, so the first and the last number of a block tell of all in it.
    """
    n_lanes, length = documents_BT.shape
    n_missing = -length % block
    if n_missing:  # a last block that is not whole is one of the same document
        documents_BT = torch.cat([documents_BT, documents_BT[:, -1:].expand(-1, n_missing)], dim=1)
    in_blocks = documents_BT.view(n_lanes, -1, block)
    first_BQ, last_BQ = in_blocks[:, :, 0], in_blocks[:, :, -1]
    number = torch.arange(in_blocks.size(1), device=documents_BT.device)
    is_before_QS, is_here_QS = number[:, None] > number, number[:, None] == number
    is_full = is_before_QS & (first_BQ[:, None, :] == last_BQ[:, :, None])
    is_partial = (is_before_QS | is_here_QS) & (last_BQ[:, None, :] >= first_BQ[:, :, None]) & ~is_full
    if window is None:
        return VisibleBlocks(is_full, is_partial)
    n_full = is_full.sum(dim=-1, keepdim=True)
    return VisibleBlocks(
        is_full & (_count_from_the_end(is_full) <= window - 1),
        is_partial & (_count_from_the_end(is_partial) <= (window - n_full).clamp(min=1)),
    )


def build_mask(
    documents_BT: Tensor, window: Tensor | None = None, *, block: int = BLOCK_POSITIONS
) -> BlockMask | DenseMask:
    """What `attend` takes, equal for all heads: block lists on CUDA, else dense blocks of queries."""
    rule = causal_within_documents(documents_BT)
    if documents_BT.is_cuda:
        return list_blocks(find_visible_blocks(documents_BT, window, block=block), rule, block=block)
    n_lanes, length = documents_BT.shape
    lane = torch.arange(n_lanes, device=documents_BT.device).view(-1, 1, 1, 1)
    position = torch.arange(length, device=documents_BT.device)
    attends = rule(lane, torch.zeros_like(lane), position.view(1, 1, -1, 1), position.view(1, 1, 1, -1))
    if window is not None:
        visible = find_visible_blocks(documents_BT, window, block=block)
        is_visible = (visible.full_BQS | visible.partial_BQS).repeat_interleave(block, 1).repeat_interleave(block, 2)
        attends = attends & is_visible[:, None, :length, :length]
    return split_mask(attends, n_queries=BLOCK_POSITIONS)


def list_blocks(visible: VisibleBlocks, rule: MaskRule, *, block: int) -> BlockMask:
    """The lists that FlexAttention takes: for each block of queries how many blocks of keys, then their numbers."""
    n_partial, partial = _numbers_of(visible.partial_BQS)
    n_full, full = _numbers_of(visible.full_BQS)
    return BlockMask.from_kv_blocks(n_partial, partial, n_full, full, BLOCK_SIZE=block, mask_mod=rule)


def attend(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, mask: Mask, *, scale: float) -> Tensor:
    """Softmax attention over the pairs that the mask allows, or causally where it is None: `(B, H, T, K)`."""
    if mask is None:
        return F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True, scale=scale)
    if isinstance(mask, BlockMask):
        y_BHTK = flex_attention(q_BHTK, k_BHTK, v_BHTK, block_mask=mask, scale=scale)
        assert isinstance(y_BHTK, Tensor)
        return y_BHTK
    return attend_densely(q_BHTK, k_BHTK, v_BHTK, mask, scale=scale)


def _count_from_the_end(is_kept_BQS: Tensor) -> Tensor:
    """How many there are from a block on, itself included: 1 for the latest."""
    return is_kept_BQS.flip(-1).cumsum(-1).flip(-1)


def _numbers_of(is_kept_BQS: Tensor) -> tuple[Tensor, Tensor]:
    """Count `(B, 1, Q)` and numbers `(B, 1, Q, S)` of the blocks kept, which come first; the rest is never read."""
    counts = is_kept_BQS.sum(dim=-1, dtype=torch.int32)
    numbers = is_kept_BQS.to(torch.uint8).argsort(dim=-1, descending=True, stable=True).to(torch.int32)
    return counts.unsqueeze(1).contiguous(), numbers.unsqueeze(1).contiguous()
