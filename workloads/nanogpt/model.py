"""The model: a GPT as the speedrun builds it, in the parts that every preset shares.

What differs from GPT-2, and why it is there:

    RMSNorm without parameters    before attention, MLP and head and on the embedding; nothing to learn or decay
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

from attention import Mask, attend, build_mask, causal_within_documents, number_documents
from operations import capped_cross_entropy, relu_squared, rms_norm, split_heads

# Half of the scale that keeps variance, with a uniform distribution: the speedrun's initialisation of linear layers.
INIT_STD_SHARE = 0.5
# Fixed, since QK-norm already fixes the size of queries and keys; 1/sqrt(K) would be 0.125 for the CPU's 64.
ATTENTION_SCALE = 0.12
SLOWEST_ROTATION = 1 / 1024
LOGIT_CAP = 30.0
LOGIT_SLOPE = 7.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Size of the model.

    Attributes:
        vocabulary: tokens, with the padding.
        separator: the token that opens a document.
        length: of the longest lane that the model will see.
    """

    vocabulary: int
    separator: int
    n_layers: int
    width: int
    n_heads: int
    length: int
    mlp_ratio: int = 4

    def __post_init__(self) -> None:
        if self.width % self.n_heads or (self.width // self.n_heads) % 4:
            raise ValueError(f"width {self.width} over {self.n_heads} heads: each needs a whole multiple of 4 numbers")


class RotaryTables(nn.Module):
    """Cosine and sine of each position's angles, `(T, 2, H, C)`: rates fall from 1 to 1/1024 a position.

    C is a quarter of the head: half of its pairs turn, the other half carry no position.
    """

    cos_T2HC: Tensor
    sin_T2HC: Tensor

    def __init__(self, *, length: int, n_heads: int, head_size: int) -> None:
        super().__init__()
        rates = SLOWEST_ROTATION ** torch.linspace(0, 1, head_size // 4)
        angles_TC = torch.outer(torch.arange(length), rates)
        angles_T2HC = angles_TC[:, None, None, :].repeat(1, 2, n_heads, 1)
        self.register_buffer("cos_T2HC", angles_T2HC.cos(), persistent=False)
        self.register_buffer("sin_T2HC", angles_T2HC.sin(), persistent=False)


class Attention(nn.Module):
    """Self-attention with QK-norm and rotary positions; writes nothing at first."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.qkv = nn.Parameter(_uniform(3, config.width, config.width))
        self.out = nn.Parameter(torch.zeros(config.width, config.width))
        self.rotary = RotaryTables(
            length=config.length, n_heads=config.n_heads, head_size=config.width // config.n_heads
        )

    def forward(self, x_BTD: Tensor, mask: Mask) -> Tensor:
        n_lanes, length, width = x_BTD.shape
        x_BT3HK = F.linear(x_BTD, self.qkv.flatten(0, 1)).view(n_lanes, length, 3, self.n_heads, -1)
        heads = split_heads(x_BT3HK, self.rotary.cos_T2HC[:length], self.rotary.sin_T2HC[:length])
        q_BHTK, k_BHTK, v_BHTK = (x_BTHK.transpose(1, 2) for x_BTHK in heads)
        y_BHTK = attend(q_BHTK, k_BHTK, v_BHTK, mask, scale=ATTENTION_SCALE)
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
        self.separator = config.separator
        self.logit_slope = LOGIT_SLOPE * math.sqrt(config.width)
        self.embedding = nn.Parameter(torch.randn(config.vocabulary, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.head = nn.Parameter(torch.zeros(config.vocabulary, config.width))

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Sum of the cross-entropy over all positions, in nats. A sum, so that lanes add up however they are split."""
        n_lanes, length = tokens_BT.shape
        rule = causal_within_documents(number_documents(tokens_BT, separator=self.separator))
        mask = build_mask(rule, n_lanes=n_lanes, length=length, device=tokens_BT.device)
        x_BTD = rms_norm(F.embedding(tokens_BT, self.embedding))
        for block in self.blocks:
            x_BTD = block(x_BTD, mask)
        # The slope goes to the weights, which are few. The cap is symmetric about 15, which softmax does not see.
        z_BTV = F.linear(rms_norm(x_BTD), self.head / self.logit_slope)
        return capped_cross_entropy(z_BTV.flatten(0, 1), targets_BT.flatten(), limit=LOGIT_CAP)


def _uniform(*shape: int) -> Tensor:
    bound = math.sqrt(3) * INIT_STD_SHARE / math.sqrt(shape[-1])
    return torch.empty(shape).uniform_(-bound, bound)
