"""The model: a GPT as the speedrun builds it, in the parts that every preset shares.

What differs from GPT-2, and why it is there:

    RMSNorm without parameters    before attention, MLP and head and on the embedding; nothing to learn, nothing to decay
    QK-norm                       queries and keys are normalised per head: attention logits cannot run away
    rotary positions              half of each head's numbers turn with the position, the other half carry none
    ReLU^2                        in the MLP: as good as GELU, sparse, and cheap
    zero-initialised projections  attention and MLP write nothing at first, the head says nothing: the first loss is
                                  exactly ln(vocabulary)
    soft-cap on the logits        bounds them to (0, 30) smoothly
    untied head                   embedding and head learn at very different rates

Matrices of one kind that are used together lie in one parameter (`qkv` is three square matrices), and Muon
orthogonalises each of them by itself.

Suffixes: B lanes, T positions, D width, H heads, K numbers per head, V vocabulary.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention import Mask, attend
from operations import relu_squared, rms_norm, rotate

# Half of the scale that keeps variance, with a uniform distribution: the speedrun's initialisation of linear layers.
INIT_STD_SHARE = 0.5
# Fixed, since QK-norm already fixes the size of queries and keys; 1/sqrt(K) would be 0.125 for the CPU's 64.
ATTENTION_SCALE = 0.12
SLOWEST_ROTATION = 1 / 1024
LOGIT_CAP = 30.0
LOGIT_SLOPE = 7.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Size of the model. `vocabulary` includes the padding; `length` is the longest lane that it will see."""

    vocabulary: int
    n_layers: int
    width: int
    n_heads: int
    length: int
    mlp_ratio: int = 4

    def __post_init__(self) -> None:
        if self.width % self.n_heads or (self.width // self.n_heads) % 4:
            raise ValueError(f"width {self.width} over {self.n_heads} heads: each needs a whole multiple of 4 numbers")


class Rotary(nn.Module):
    """Turns pairs (i, i + K/2) of each head by an angle that grows with the position; lengths stay as they are.

    The first half of the pairs turns at rates from 1 down to 1/1024 per position, the second half not at all.
    """

    cos_TK: Tensor
    sin_TK: Tensor

    def __init__(self, *, length: int, n_numbers: int) -> None:
        super().__init__()
        n_turning = n_numbers // 4
        rates = SLOWEST_ROTATION ** torch.linspace(0, 1, n_turning)
        angles = torch.outer(torch.arange(length), torch.cat([rates, torch.zeros(n_turning)]))
        self.register_buffer("cos_TK", torch.cat([angles.cos(), angles.cos()], dim=1), persistent=False)
        self.register_buffer("sin_TK", torch.cat([angles.sin(), -angles.sin()], dim=1), persistent=False)

    def forward(self, x_BTHK: Tensor) -> Tensor:
        cos, sin = (table[: x_BTHK.size(1), None, :] for table in (self.cos_TK, self.sin_TK))
        return rotate(x_BTHK, cos, sin)


class Attention(nn.Module):
    """Self-attention with QK-norm and rotary positions; writes nothing at first."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.qkv = nn.Parameter(_uniform(3, config.width, config.width))
        self.out = nn.Parameter(torch.zeros(config.width, config.width))
        self.rotary = Rotary(length=config.length, n_numbers=config.width // config.n_heads)

    def forward(self, x_BTD: Tensor, mask: Mask) -> Tensor:
        n_lanes, length, width = x_BTD.shape
        projected = F.linear(x_BTD, self.qkv.flatten(0, 1)).view(n_lanes, length, 3 * self.n_heads, -1)
        # Queries and keys take the same two operations: once over both is half the passes through memory.
        qk, v = projected.split([2 * self.n_heads, self.n_heads], dim=2)
        q, k = self.rotary(rms_norm(qk)).transpose(1, 2).chunk(2, dim=1)
        y_BHTK = attend(q, k, v.transpose(1, 2), mask, scale=ATTENTION_SCALE)
        return F.linear(y_BHTK.transpose(1, 2).reshape(n_lanes, length, width), self.out)


class Mlp(nn.Module):
    """Two linear layers with ReLU^2 between them; writes nothing at first."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Parameter(_uniform(config.mlp_ratio * config.width, config.width))
        self.down = nn.Parameter(torch.zeros(config.width, config.mlp_ratio * config.width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        return F.linear(relu_squared(F.linear(x_BTD, self.up)), self.down)


class Block(nn.Module):
    """One layer: attention, then MLP, each added to what came in."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.mlp = Mlp(config)

    def forward(self, x_BTD: Tensor, mask: Mask) -> Tensor:
        x_BTD = x_BTD + self.attention(rms_norm(x_BTD), mask)
        return x_BTD + self.mlp(rms_norm(x_BTD))


class Gpt(nn.Module):
    """Tokens and their successors in, summed loss out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.randn(config.vocabulary, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.head = nn.Parameter(torch.zeros(config.vocabulary, config.width))

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor, mask: Mask) -> Tensor:
        """Sum of the cross-entropy over all positions, in nats. A sum, so that lanes add up however they are split."""
        x_BTD = rms_norm(F.embedding(tokens_BT, self.embedding))
        for block in self.blocks:
            x_BTD = block(x_BTD, mask)
        logits_BTV = self.cap(F.linear(rms_norm(x_BTD), self.head))
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="sum")

    def cap(self, logits_BTV: Tensor) -> Tensor:
        """Squeeze logits into (0, 30). The cap is symmetric about 15, which softmax does not see."""
        return LOGIT_CAP * torch.sigmoid(logits_BTV.float() / (LOGIT_SLOPE * math.sqrt(self.config.width)))


def _uniform(*shape: int) -> Tensor:
    bound = math.sqrt(3) * INIT_STD_SHARE / math.sqrt(shape[-1])
    return torch.empty(shape).uniform_(-bound, bound)
