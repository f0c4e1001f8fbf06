"""GPT-2 as the speedrun's first record trained it: the `baseline` that everything else is measured against.

LayerNorm with weights and biases, biases everywhere, GELU, learned positions, a tied head, attention over sequences of
1,024 tokens whatever documents they hold, and a normal initialisation of 0.02, smaller by sqrt(2 x layers) where a
layer writes to the residual stream. The first loss is close to ln(vocabulary), not equal to it.

Suffixes: as in model.py; L positions of a sequence.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from head import HeadRule, head_loss, loss_and_gradient, losses_by_token
from model import ModelConfig

INIT_STD = 0.02


class PlainLinear(nn.Module):
    """A linear layer whose fp32 weights are cast to the type of its input."""

    def __init__(self, inputs: int, outputs: int, *, std: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(std * torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


class PlainNorm(nn.Module):
    """LayerNorm with weight and bias, in the type of its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight.to(x.dtype), self.bias.to(x.dtype))


class PlainBlock(nn.Module):
    """One layer of GPT-2."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, hidden = config.width, config.mlp_ratio * config.width
        std_out = INIT_STD / (2 * config.n_layers) ** 0.5
        self.n_heads = config.n_heads
        self.attention_norm, self.mlp_norm = PlainNorm(width), PlainNorm(width)
        self.qkv, self.out = PlainLinear(width, 3 * width, std=INIT_STD), PlainLinear(width, width, std=std_out)
        self.up, self.down = PlainLinear(width, hidden, std=INIT_STD), PlainLinear(hidden, width, std=std_out)

    def forward(self, x_BLD: Tensor) -> Tensor:
        heads = self.qkv(self.attention_norm(x_BLD)).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        y_BHLK = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x_BLD = x_BLD + self.out(y_BHLK.transpose(1, 2).reshape(x_BLD.shape))
        return x_BLD + self.down(F.gelu(self.up(self.mlp_norm(x_BLD)), approximate="tanh"))


class Gpt2(nn.Module):
    """Tokens and their successors in, summed loss out. Lanes are cut into sequences."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.sequence_length is not None, "GPT-2 attends within sequences"
        self.config = config
        self.head_rule = config.head or HeadRule(scale=1.0, is_capped=False, chunk=2**20)
        self.head_work = loss_and_gradient
        self.embedding = nn.Parameter(INIT_STD * torch.randn(config.vocabulary, config.width))
        self.positions = nn.Parameter(INIT_STD * torch.randn(config.sequence_length, config.width))
        self.blocks = nn.ModuleList(PlainBlock(config) for _ in range(config.n_layers))
        self.norm = PlainNorm(config.width)

    def roles(self) -> dict[str, list[nn.Parameter]]:
        """Every parameter under the role that decides its optimizer and rate; norms and biases are scalars."""
        in_blocks = list(self.blocks.parameters())
        return {
            "matrix": [one for one in in_blocks if one.dim() > 1],
            "embedding": [self.embedding, self.positions],
            "head": [],
            "scalar": [*(one for one in in_blocks if one.dim() == 1), *self.norm.parameters()],
        }

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor, window: Tensor | None = None) -> Tensor:
        """Sum of the cross-entropy over all positions, in nats."""
        x_ND = self.trunk(tokens_BT, window)
        return head_loss(x_ND, self.embedding, targets_BT.flatten(), self.head_rule, work=self.head_work)

    @torch.no_grad()
    def token_losses(self, tokens_BT: Tensor, targets_BT: Tensor, window: Tensor | None = None) -> Tensor:
        """Cross-entropy of each target, `(B, T)`."""
        x_ND = self.trunk(tokens_BT, window)
        return losses_by_token(x_ND, self.embedding, targets_BT.flatten(), self.head_rule).view(targets_BT.shape)

    def trunk(self, tokens_BT: Tensor, window: Tensor | None) -> Tensor:
        """What the head sees: normalised hidden states `(N, D)`."""
        assert window is None, "GPT-2 has no window"
        tokens_BL = tokens_BT.view(-1, len(self.positions))
        x_BLD = (F.embedding(tokens_BL, self.embedding) + self.positions).to(self.config.dtype)
        for block in self.blocks:
            x_BLD = block(x_BLD)
        return self.norm(x_BLD).flatten(0, 1)
