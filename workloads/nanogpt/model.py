"""The model: a GPT as the speedrun builds it. What differs from GPT-2, and why it is there:

    RMSNorm without parameters    before attention, MLP and head and on the embedding; nothing to learn or decay
    QK-norm                       queries and keys are normalised per head: attention logits cannot run away
    rotary positions              half of each head's numbers turn with the position, the other half carry none
    ReLU^2                        in the MLP: as good as GELU, sparse, and cheap
    zero-initialised projections  attention and MLP write nothing at first, the head says nothing: the first loss is
                                  exactly ln(vocabulary)
    soft-cap on the logits        bounds them to (0, 30) smoothly
    untied head                   embedding and head learn at very different rates
    value embeddings              tables that tell the values of the first and last three blocks the token itself
    U-net skips                   the first half's outputs are added to the inputs of the second, last in first out
    input mix                     every block may look back at the embedding: lambda0 x + lambda1 x0
    windows                       most blocks see half of the window; the first, a middle and the last see all of it
    a block without attention     one that does not need it

Each can be switched off. Matrices of one kind that are used together lie in one parameter (`qkv` is three square
matrices), and Muon orthogonalises each of them by itself. All learned weights of single numbers are one vector,
`scalars`.

Suffixes: B lanes, T positions, D width, H heads, K numbers per head, C turning pairs, N = B x T, V vocabulary.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention import BLOCK_POSITIONS, Mask, attend, build_mask, number_documents
from head import HeadRule, head_loss, loss_and_gradient, losses_by_token
from operations import relu_squared, rms_norm, split_heads

# Half of the scale that keeps variance, with a uniform distribution: the speedrun's initialisation of linear layers.
INIT_STD_SHARE = 0.5
# A tied table is embedding and head at once, so it starts as GPT-2's: large enough to tell tokens apart.
TIED_STD = 0.02
# Fixed, since QK-norm already fixes the size of queries and keys; 1/sqrt(K) would be 0.125 for the CPU's 64.
ATTENTION_SCALE = 0.12
SLOWEST_ROTATION = 1 / 1024
VALUE_TABLES = 3
SCALARS_MULTIPLE = 64  # a whole number for each of 8 ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Size and techniques of the model.

    Attributes:
        vocabulary: tokens, with the padding.
        separator: the token that opens a document.
        length: of the longest lane that the model will see.
        dtype: what is computed in, and of the embedding tables; matrices and head stay fp32.
        sequence_length: attention stays within sequences of so many positions, documents or not; None: within
            documents of the lane.
        attention_free: number of the block without attention, if there is one.
        block: positions that the window is counted in.
        head: how logits are made; None: soft-capped, of slope 1/sqrt(width), in one chunk.
    """

    vocabulary: int
    separator: int
    n_layers: int
    width: int
    n_heads: int
    length: int
    mlp_ratio: int = 4
    dtype: torch.dtype = torch.float32
    sequence_length: int | None = None
    attention_free: int | None = None
    block: int = BLOCK_POSITIONS
    is_zero_init: bool = True
    has_value_embeddings: bool = False
    has_skips: bool = False
    has_input_mix: bool = False
    has_tied_head: bool = False
    head: HeadRule | None = None

    def __post_init__(self) -> None:
        if self.width % self.n_heads or (self.width // self.n_heads) % 4:
            raise ValueError(f"width {self.width} over {self.n_heads} heads: each needs a whole multiple of 4 numbers")
        if self.has_skips and self.n_layers % 2:
            raise ValueError(f"{self.n_layers} layers have no two halves: unet_skips needs an even number")
        if self.has_value_embeddings and self.n_layers < 2 * VALUE_TABLES:
            raise ValueError(f"{self.n_layers} layers: value_embeddings serve the first and the last {VALUE_TABLES}")

    @property
    def long_blocks(self) -> frozenset[int]:
        """Blocks that see the whole window: 0, 4 and 11 of 12."""
        return frozenset({0, self.n_layers // 3, self.n_layers - 1})

    def value_table(self, block: int) -> int | None:
        """Number of the block's value table, if it has one: the tables serve the first blocks and again the last."""
        if not self.has_value_embeddings or VALUE_TABLES <= block < self.n_layers - VALUE_TABLES:
            return None
        return block if block < VALUE_TABLES else block - (self.n_layers - VALUE_TABLES)


class RotaryTables(nn.Module):
    """Cosine and sine of each position's angles: rates fall from 1 to 1/1024 a position.

    C is a quarter of the head: half of its pairs turn, the other half carry no position.
    """

    cos_TC: Tensor
    sin_TC: Tensor

    def __init__(self, *, length: int, n_heads: int, head_size: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        rates = SLOWEST_ROTATION ** torch.linspace(0, 1, head_size // 4)
        angles_TC = torch.outer(torch.arange(length), rates)
        self.register_buffer("cos_TC", angles_TC.cos(), persistent=False)
        self.register_buffer("sin_TC", angles_TC.sin(), persistent=False)

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        """The first positions', `(T, 1, 1, C)`; on a CPU once for each of queries, keys and heads, `(T, 2, H, C)`."""
        cos, sin = (table[:length, None, None] for table in (self.cos_TC, self.sin_TC))
        if cos.is_cuda:
            return cos, sin
        spread = (1, 2, self.n_heads, 1)
        return cos.repeat(spread), sin.repeat(spread)


class Attention(nn.Module):
    """Self-attention with QK-norm and rotary positions; writes nothing at first."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.qkv = nn.Parameter(_uniform(3, config.width, config.width))
        self.out = nn.Parameter(_projection(config, config.width, config.width))

    def forward(
        self, x_BTD: Tensor, mask: Mask, rotation: tuple[Tensor, Tensor], extra_BTD: Tensor | None, mix: Tensor | None
    ) -> Tensor:
        n_lanes, length, width = x_BTD.shape
        x_BT3HK = F.linear(x_BTD, self.qkv.flatten(0, 1).to(x_BTD.dtype)).view(n_lanes, length, 3, self.n_heads, -1)
        q_BTHK, k_BTHK, v_BTHK = split_heads(x_BT3HK, *rotation)
        if mix is not None:
            v_BTHK = mix[0] * v_BTHK
            if extra_BTD is not None:
                v_BTHK = v_BTHK + mix[1] * extra_BTD.view_as(v_BTHK)
        q_BHTK, k_BHTK, v_BHTK = (x_BTHK.transpose(1, 2) for x_BTHK in (q_BTHK, k_BTHK, v_BTHK))
        y_BHTK = attend(q_BHTK, k_BHTK, v_BHTK, mask, scale=ATTENTION_SCALE)
        return F.linear(y_BHTK.transpose(1, 2).reshape(n_lanes, length, width), self.out.to(x_BTD.dtype))


class Mlp(nn.Module):
    """Two linear layers with ReLU^2 between them; writes nothing at first."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Parameter(_uniform(config.mlp_ratio * config.width, config.width))
        self.down = nn.Parameter(_projection(config, config.width, config.mlp_ratio * config.width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return F.linear(relu_squared(F.linear(x_BTD, self.up.to(x_BTD.dtype))), self.down.to(x_BTD.dtype))


class Block(nn.Module):
    """One layer: attention, then MLP, each added to what came in."""

    def __init__(self, config: ModelConfig, *, has_attention: bool = True) -> None:
        super().__init__()
        self.attention = Attention(config) if has_attention else None
        self.mlp = Mlp(config)

    def forward(
        self,
        x_BTD: Tensor,
        mask: Mask,
        rotation: tuple[Tensor, Tensor],
        extra_BTD: Tensor | None = None,
        mix: Tensor | None = None,
    ) -> Tensor:
        if self.attention is not None:
            x_BTD = x_BTD + self.attention(rms_norm(x_BTD), mask, rotation, extra_BTD, mix)
        return x_BTD + self.mlp(rms_norm(x_BTD))


class Scalars(nn.Module):
    """All learned single numbers, padded to a multiple of 64: a weight a skip, two a block, two a block's values."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        n = config.n_layers
        start = [torch.ones(n), torch.tensor([1.0, 0.0]).repeat(n), torch.full((2 * n,), 0.5)]
        self.n_layers = n
        self.numbers = nn.Parameter(torch.cat([*start, torch.ones(-5 * n % SCALARS_MULTIPLE)]))

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weights of the skips `(n,)` (the first half is used), of the input mix `(n, 2)`, of the values `(n, 2)`."""
        n = self.n_layers
        skip, mix, value = self.numbers[: 5 * n].split([n, 2 * n, 2 * n])
        return skip, mix.view(n, 2), value.view(n, 2)


class Gpt(nn.Module):
    """Tokens and their successors in, summed loss out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.head_rule = config.head or HeadRule(scale=config.width**-0.5, is_capped=True, chunk=2**20)
        self.head_work = loss_and_gradient
        table = (config.vocabulary, config.width)
        std = TIED_STD if config.has_tied_head else 1.0
        self.embedding = nn.Parameter((std * torch.randn(table)).to(config.dtype))
        n_tables = VALUE_TABLES if config.has_value_embeddings else 0
        self.values = nn.ParameterList(nn.Parameter(torch.randn(table).to(config.dtype)) for _ in range(n_tables))
        self.blocks = nn.ModuleList(
            Block(config, has_attention=i != config.attention_free) for i in range(config.n_layers)
        )
        has_scalars = config.has_skips or config.has_input_mix or config.has_value_embeddings
        self.scalars = Scalars(config) if has_scalars else None
        self.head = None if config.has_tied_head else nn.Parameter(_projection(config, *table))
        self.rotary = RotaryTables(
            length=config.length, n_heads=config.n_heads, head_size=config.width // config.n_heads
        )

    def roles(self) -> dict[str, list[nn.Parameter]]:
        """Every parameter under the role that decides its optimizer and rate."""
        scalars = [] if self.scalars is None else [self.scalars.numbers]
        return {
            "matrix": list(self.blocks.parameters()),
            "embedding": [self.embedding, *self.values],
            "head": [] if self.head is None else [self.head],
            "scalar": scalars,
        }

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor, window: Tensor | None = None) -> Tensor:
        """Sum of the cross-entropy over all positions, in nats. A sum, so that lanes add up however they are split."""
        x_ND = self.trunk(tokens_BT, window)
        return head_loss(x_ND, self._head_weight(), targets_BT.flatten(), self.head_rule, work=self.head_work)

    @torch.no_grad()
    def token_losses(self, tokens_BT: Tensor, targets_BT: Tensor, window: Tensor | None = None) -> Tensor:
        """Cross-entropy of each target, `(B, T)`."""
        x_ND = self.trunk(tokens_BT, window)
        losses = losses_by_token(x_ND, self._head_weight(), targets_BT.flatten(), self.head_rule)
        return losses.view(targets_BT.shape)

    def trunk(self, tokens_BT: Tensor, window: Tensor | None) -> Tensor:
        """What the head sees: normalised hidden states `(N, D)`. `window` counts blocks; None: no window."""
        config = self.config
        if config.sequence_length is not None:
            tokens_BT = tokens_BT.view(-1, config.sequence_length)
        long, short = self._masks(tokens_BT, window)
        rotation = self.rotary(tokens_BT.size(1))
        skip_weights, mixes, value_mixes = self.scalars() if self.scalars is not None else (torch.empty(0),) * 3
        x_BTD = start_BTD = rms_norm(F.embedding(tokens_BT, self.embedding))
        tables_BTD = [F.embedding(tokens_BT, table) for table in self.values]
        skips: list[Tensor] = []
        half = config.n_layers // 2
        for i, block in enumerate(self.blocks):
            if config.has_skips and i >= half:
                x_BTD = x_BTD + skip_weights[i - half] * skips.pop()
            if config.has_input_mix:
                x_BTD = mixes[i, 0] * x_BTD + mixes[i, 1] * start_BTD
            table = config.value_table(i)
            x_BTD = block(
                x_BTD,
                long if i in config.long_blocks else short,
                rotation,
                None if table is None else tables_BTD[table],
                value_mixes[i] if config.has_value_embeddings else None,
            )
            if config.has_skips and i < half:
                skips.append(x_BTD)
        return rms_norm(x_BTD).flatten(0, 1)

    def _masks(self, tokens_BT: Tensor, window: Tensor | None) -> tuple[Mask, Mask]:
        if self.config.sequence_length is not None:
            return None, None
        documents_BT = number_documents(tokens_BT, separator=self.config.separator)
        block = self.config.block
        if window is None:
            return (build_mask(documents_BT, block=block),) * 2
        return build_mask(documents_BT, window, block=block), build_mask(documents_BT, window // 2, block=block)

    def _head_weight(self) -> Tensor:
        return self.embedding if self.head is None else self.head


def _uniform(*shape: int) -> Tensor:
    bound = math.sqrt(3) * INIT_STD_SHARE / math.sqrt(shape[-1])
    return torch.empty(shape).uniform_(-bound, bound)


def _projection(config: ModelConfig, *shape: int) -> Tensor:
    """What writes to the residual stream, and the head: zero, or as any other linear layer."""
    return torch.zeros(shape) if config.is_zero_init else _uniform(*shape)
