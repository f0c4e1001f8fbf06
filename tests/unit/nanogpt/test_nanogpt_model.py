"""The model as a whole."""

import math

import pytest
import torch

from model import Gpt, ModelConfig
from tokens import SEPARATOR

CONFIG = ModelConfig(vocabulary=384, separator=SEPARATOR, n_layers=2, width=32, n_heads=2, length=16)


def test_first_loss_is_log_of_the_vocabulary() -> None:
    """A head of zeros says nothing about the next token: ln(384) = 5.9506 nats a token."""
    tokens = torch.randint(0, 256, (2, 17))

    loss = Gpt(CONFIG)(tokens[:, :-1], tokens[:, 1:]) / 32

    assert abs(loss.item() - math.log(384)) < 1e-3


def test_blocks_write_nothing_at_first() -> None:
    """Their output projections are zero, and every other parameter is not."""
    zero = {name for name, parameter in Gpt(CONFIG).named_parameters() if not parameter.any()}

    assert zero == {"head"} | {f"blocks.{i}.{name}" for i in range(2) for name in ("attention.out", "mlp.down")}


def test_parameters_are_as_many_as_the_sizes_say() -> None:
    """4 layers of width 128: 12 x 128^2 a layer, and two tables of 384 x 128."""
    model = Gpt(ModelConfig(vocabulary=384, separator=SEPARATOR, n_layers=4, width=128, n_heads=2, length=512))

    assert sum(parameter.numel() for parameter in model.parameters()) == 4 * 12 * 128**2 + 2 * 384 * 128


def test_loss_knows_no_later_token_and_no_other_document() -> None:
    """A changed token moves losses behind it in its own document, and none before it or beyond the separator."""
    model = Gpt(CONFIG)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokens = torch.randint(0, 256, (1, 16))
    tokens[0, 10] = SEPARATOR
    changed = tokens.clone()
    changed[0, 5] = (tokens[0, 5] + 1) % 256
    targets = torch.zeros(16, 1, 16, dtype=torch.long)

    def loss_at(lanes: torch.Tensor, position: int) -> float:
        # Only the prefix is shown: the loss at its last position is the difference of two sums.
        with torch.no_grad():
            longer = model(lanes[:, : position + 1], targets[0, :, : position + 1])
            shorter = model(lanes[:, :position], targets[0, :, :position]) if position else torch.zeros(())
        return float(longer - shorter)

    moved = [t for t in range(16) if abs(loss_at(tokens, t) - loss_at(changed, t)) > 1e-3]

    assert moved == [5, 6, 7, 8, 9]


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    """A head of 32/3 numbers is an error of the request."""
    with pytest.raises(ValueError, match="width 32 over 3 heads"):
        ModelConfig(vocabulary=384, separator=SEPARATOR, n_layers=2, width=32, n_heads=3, length=16)
