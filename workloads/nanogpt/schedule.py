"""How learning rate and momentum move over a run. Pure; a step is counted from 1.

Learning rate: constant, then down a straight line over the last `cooldown_share` of the steps. There is no warm-up:
orthogonalised updates are bounded from the first one on. Momentum: up a straight line over the first steps, so that
the noisy first gradients are forgotten soon.

Neither looks at when a run ends early: stopping truncates a schedule and never rescales it.
"""

FIRST_MOMENTUM = 0.85
LAST_MOMENTUM = 0.95


def rate_share(step: int, *, n_steps: int, cooldown_share: float, final_share: float) -> float:
    """Share of the initial learning rate in `step`: 1, then linear towards `final_share` one step after the last."""
    left_share = (n_steps - (step - 1)) / n_steps
    if left_share >= cooldown_share:
        return 1.0
    return final_share + (1.0 - final_share) * left_share / cooldown_share


def momentum(step: int, *, n_warmup_steps: int) -> float:
    """Muon's momentum in `step`: linear from 0.85 to 0.95 over `n_warmup_steps`, then constant."""
    done_share = min(1.0, (step - 1) / n_warmup_steps) if n_warmup_steps else 1.0
    return FIRST_MOMENTUM + (LAST_MOMENTUM - FIRST_MOMENTUM) * done_share
