"""Which optimizer has which parameter, and how rates move."""

import pytest
import torch

from model import Gpt, ModelConfig
from optimizer import OptimizerConfig, Optimizers, Rates, check_each_in_one
from schedule import momentum, rate_share
from tokens import SEPARATOR

CONFIG = ModelConfig(vocabulary=384, separator=SEPARATOR, n_layers=2, width=32, n_heads=2, length=16)
RATES = OptimizerConfig(rates=Rates(matrix=0.02, embedding=0.08, head=0.16))


def test_muon_has_the_matrices_and_adam_the_rest() -> None:
    """Four matrices a block on one side, embedding and head on the other."""
    model = Gpt(CONFIG)

    optimizers = Optimizers(model, RATES)

    assert len(optimizers.muon.param_groups[0]["params"]) == 2 * 4
    assert optimizers.adam.parameters == [model.embedding, model.head]


def test_forgotten_parameter_is_named() -> None:
    """One in no optimizer would just not learn; it is an error instead."""
    model = Gpt(CONFIG)
    some = [parameter for name, parameter in model.named_parameters() if name != "head"]

    with pytest.raises(ValueError, match="head in 0"):
        check_each_in_one(dict(model.named_parameters()), some)


def test_doubled_parameter_is_named() -> None:
    """One in two would learn twice."""
    model = Gpt(CONFIG)

    with pytest.raises(ValueError, match="head in 2"):
        check_each_in_one(dict(model.named_parameters()), [*model.parameters(), model.head])


def test_rates_follow_the_share() -> None:
    """Half of the share is half of every rate, from the initial ones and not from the last."""
    model = Gpt(CONFIG)
    optimizers = Optimizers(model, RATES)
    tokens = torch.randint(0, 256, (2, 17))

    for share in (1.0, 0.5, 0.5):
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizers.step(rate_share=share, momentum=0.9)

    groups = optimizers.muon.param_groups + optimizers.adam.adam.param_groups
    assert [group["lr"] for group in groups] == [0.01, 0.04, 0.08]
    assert optimizers.muon.param_groups[0]["momentum"] == 0.9


@pytest.mark.parametrize(
    ("step", "expected"), [(1, 1.0), (60, 1.0), (61, 1.0), (81, 0.55), (91, 0.325), (100, 0.1225), (101, 0.1)]
)
def test_rate_falls_in_a_straight_line(step: int, expected: float) -> None:
    """100 steps, the last 40 % down to a tenth: half way, at 80 steps done, it is (1 + 0.1)/2."""
    assert rate_share(step, n_steps=100, cooldown_share=0.4, final_share=0.1) == pytest.approx(expected)


def test_no_cooldown_keeps_the_rate() -> None:
    """A share of 0 never comes to a division."""
    assert rate_share(100, n_steps=100, cooldown_share=0.0, final_share=0.1) == 1.0


@pytest.mark.parametrize(("step", "expected"), [(1, 0.85), (51, 0.90), (101, 0.95), (500, 0.95)])
def test_momentum_rises_then_stays(step: int, expected: float) -> None:
    """Linear over 100 steps from 0.85 to 0.95."""
    assert momentum(step, n_warmup_steps=100) == pytest.approx(expected)
    assert momentum(step, n_warmup_steps=0) == 0.95
