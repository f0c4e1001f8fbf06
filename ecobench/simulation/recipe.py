"""What a workload does on a simulated node: steps, tokens, evaluations and losses, from its parameters.
Reads its own data files.

`workloads/NAME.toml` beside this file says what each parameter does: `any` (nothing that is simulated), `values` (a
factor on time and an addition to the final loss for each value, with a source), or `modelled` (here, in code). A
parameter or a value that is not there has no stated effect, and is refused.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ecobench.errors import RequestError
from ecobench.parameters import suggest
from ecobench.records import ParameterValue
from ecobench.trace import Float64s

EFFECTS = Path(__file__).parent / "workloads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One configuration of a workload, at full clock.

    Attributes:
        load: which load of a node it is.
        step_s: time of each step on the ranks asked for, `(n_steps,)`; `communication_share` of it not on one rank.
        validation_every: steps; 0: never.
        final_loss: expected after the last step; `loss_spread` its standard deviation between runs.
    """

    load: str
    step_s: Float64s
    n_step_tokens: int
    n_warmup_steps: int
    validation_every: int
    evaluation_s: float
    init_s: float
    compile_s: float
    step_spread: float
    first_loss: float
    final_loss: float
    loss_spread: float
    curve_knee: float
    curve_power: float
    low_time_share: float
    low_power_share: float

    def loss_at(self, done_share: float, *, final_loss: float) -> float:
        """Validation loss once `done_share` of the steps are done: a power law from the first to the last."""
        end = math.pow(1 + 1 / self.curve_knee, -self.curve_power)
        left = (math.pow(1 + done_share / self.curve_knee, -self.curve_power) - end) / (1 - end)
        return final_loss + (self.first_loss - final_loss) * left


def make_recipe(workload: str, parameters: Mapping[str, ParameterValue], *, ranks: int) -> Recipe:
    """The recipe that these parameters make.

    Raises:
        RequestError: the workload, a parameter or a value has no stated effect.
    """
    effects = _read(workload)
    time_factor, loss_shift = _stated_effects(workload, parameters, effects.pop("parameters"))
    load = effects.pop("load")
    number = {name: float(constant["value"]) for name, constant in effects.items()}
    batch_size, sequence_length = int(parameters["batch_size"]), int(parameters["sequence_length"])
    if sequence_length != 1024:
        raise RequestError(
            f"sequence_length={sequence_length} has no stated simulated effect", hint="1024 tokens have one"
        )
    n_step_tokens = batch_size * sequence_length
    n_steps = int(parameters["steps"]) or math.ceil(int(parameters["token_budget"]) / n_step_tokens)
    if n_steps < 1:
        raise RequestError("steps=0 with token_budget=0: nothing to simulate", hint="set one of them")
    full_s = number["fixed_step_s"] + number["sequence_step_s"] * batch_size * number["reference_ranks"] / ranks
    frozen = float(parameters["frozen_progress"])
    if parameters["window_schedule"] == "last":
        done = np.ones(n_steps)
    else:
        done = np.linspace(0, 1, n_steps) if frozen < 0 else np.full(n_steps, frozen)
    trend = number["growing_first"] + (number["growing_last"] - number["growing_first"]) * done
    n_validation_tokens = int(parameters["validation_tokens"])
    tokens = n_steps * n_step_tokens
    return Recipe(
        load=load,
        step_s=full_s * time_factor * trend,
        n_step_tokens=n_step_tokens,
        n_warmup_steps=int(parameters["warmup_steps"]),
        validation_every=int(parameters["validation_every"]) if n_validation_tokens else 0,
        evaluation_s=n_validation_tokens / number["evaluation_tokens_per_s"] * number["reference_ranks"] / ranks,
        init_s=number["init_s"],
        compile_s=number["compile_s"],
        step_spread=number["step_spread"],
        first_loss=number["first_loss"],
        final_loss=number["final_loss"]
        + loss_shift
        - number["loss_per_log_tokens"] * math.log(tokens / number["reference_tokens"]),
        loss_spread=number["final_loss_spread"],
        curve_knee=number["curve_knee"],
        curve_power=number["curve_power"],
        low_time_share=number["low_time_share"],
        low_power_share=number["low_power_share"],
    )


def _read(workload: str) -> dict[str, Any]:
    path = EFFECTS / f"{workload}.toml"
    known = sorted(one.stem for one in EFFECTS.glob("*.toml"))
    if workload not in known:
        raise RequestError(f"`{workload}` has no stated simulated effects", hint=suggest(workload, known))
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _stated_effects(
    workload: str, parameters: Mapping[str, ParameterValue], stated: Mapping[str, Any]
) -> tuple[float, float]:
    time_factor, loss_shift = 1.0, 0.0
    for name, value in parameters.items():
        effect = stated.get(name)
        if effect is None:
            raise RequestError(
                f"{workload}: parameter `{name}` has no stated simulated effect", hint="leave --simulate out"
            )
        if "values" not in effect:
            continue
        one = effect["values"].get(str(value))
        if one is None:
            raise RequestError(
                f"`{name}={value}` has no stated simulated effect", hint=f"known: {', '.join(effect['values'])}"
            )
        time_factor *= one["time"]
        loss_shift += one["loss"]
    return time_factor, loss_shift
