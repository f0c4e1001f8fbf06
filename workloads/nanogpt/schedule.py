"""How learning rate, momentum and window move over a run. Pure; a step is counted from 1.

Learning rate, `cooldown`: constant, then down a straight line over the last `cooldown_share` of the steps. There is no
warm-up: orthogonalised updates are bounded from the first one on. `cosine`: up a straight line over the first steps,
then down half a cosine to 0, as GPT-2's recipe has it.
Momentum: up a straight line over the first steps, so that the noisy first gradients are forgotten soon.
Window: from one block up to the last window in proportion to what is done, since early steps learn from what is near.

None looks at when a run ends early: stopping truncates a schedule and never rescales it. All can be frozen at one
progress, for runs that measure a step and not a result.
"""

import math
from dataclasses import dataclass

FIRST_MOMENTUM = 0.85
LAST_MOMENTUM = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What changes from step to step."""

    rate_share: float
    momentum: float
    window_blocks: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """All schedules of one run.

    Attributes:
        kind: of the learning rate, `cooldown` or `cosine`.
        n_rate_warmup_steps: only with `cosine`.
        n_window_positions: width of the last window; None: no window.
        block: positions that a window is counted in.
        grows: whether the window grows, or is the last one from the start.
        frozen_progress: the share of the run that every step is at, if it stands still.
    """

    n_steps: int
    kind: str = "cooldown"
    cooldown_share: float = 0.45
    final_share: float = 0.1
    n_rate_warmup_steps: int = 0
    n_momentum_warmup_steps: int = 300
    n_window_positions: int | None = None
    block: int = 128
    grows: bool = True
    frozen_progress: float | None = None

    def at(self, step: int) -> Settings:
        """Settings of a step."""
        if self.frozen_progress is not None:
            step = 1 + round(self.frozen_progress * self.n_steps)
        if self.kind == "cosine":
            share = cosine_share(step, n_steps=self.n_steps, n_warmup_steps=self.n_rate_warmup_steps)
        else:
            share = rate_share(
                step, n_steps=self.n_steps, cooldown_share=self.cooldown_share, final_share=self.final_share
            )
        return Settings(
            rate_share=share,
            momentum=momentum(step, n_warmup_steps=self.n_momentum_warmup_steps),
            window_blocks=self._window(step),
        )

    def _window(self, step: int) -> int | None:
        if self.n_window_positions is None:
            return None
        done_share = (step - 1) / self.n_steps if self.grows else 1.0
        return window_blocks(done_share, n_positions=self.n_window_positions, block=self.block)


def rate_share(step: int, *, n_steps: int, cooldown_share: float, final_share: float) -> float:
    """Share of the initial learning rate in `step`: 1, then linear towards `final_share` one step after the last."""
    left_share = (n_steps - (step - 1)) / n_steps
    if left_share >= cooldown_share:
        return 1.0
    return final_share + (1.0 - final_share) * left_share / cooldown_share


def cosine_share(step: int, *, n_steps: int, n_warmup_steps: int) -> float:
    """Share of the highest learning rate in `step`: linear up to 1, then half a cosine, 0 one step after the last."""
    if step <= n_warmup_steps:
        return step / n_warmup_steps
    done_share = (step - 1 - n_warmup_steps) / max(1, n_steps - n_warmup_steps)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done_share)))


def momentum(step: int, *, n_warmup_steps: int) -> float:
    """Muon's momentum in `step`: linear from 0.85 to 0.95 over `n_warmup_steps`, then constant."""
    done_share = min(1.0, (step - 1) / n_warmup_steps) if n_warmup_steps else 1.0
    return FIRST_MOMENTUM + (LAST_MOMENTUM - FIRST_MOMENTUM) * done_share


def window_blocks(done_share: float, *, n_positions: int, block: int) -> int:
    """Blocks of the long window; the short one is half of it, rounded down."""
    return max(1, math.ceil(done_share * n_positions / block))
