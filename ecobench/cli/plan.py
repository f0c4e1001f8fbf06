"""`ecobench run --simulate NODE --plan`: what a run would take, before it is made."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ecobench.cli.console import print_json, print_table
from ecobench.errors import RequestError
from ecobench.units import format_duration, format_number

if TYPE_CHECKING:
    from ecobench.records import RunSpec
    from ecobench.simulation.forecast import Forecast


def check_plan(*, is_asked: bool, simulate: str | None, until: str | None, price: float | None) -> None:
    """Refuse what makes no plan.

    Raises:
        RequestError: no node to plan on, or options that do not go together.
    """
    if is_asked and simulate is None:
        raise RequestError("--plan predicts a simulated run", hint="name a node: --simulate 8xh100 --plan")
    if is_asked and until is not None:
        raise RequestError("--plan predicts whole trials", hint="leave out --until, or set steps: --set steps=N")
    if price is not None and not is_asked:
        raise RequestError("--price belongs to --plan", hint="`ecobench run --simulate 8xh100 --plan --price 0.2`")


def print_plan(rows: "Sequence[Forecast]", spec: "RunSpec", *, as_json: bool) -> None:
    """The plan on stdout."""
    if as_json:
        print_json({"simulation": spec.simulation, "evidence": "SIM", "n_trials": spec.n_trials, "plan": list(rows)})
        return
    trials = f"{spec.n_trials} trial{'s' if spec.n_trials > 1 else ''}"
    print(f"SIMULATED ({spec.simulation}): {spec.workload}, preset {spec.preset}; a prediction, nothing was measured")
    print(f"time, energy and cost of {trials}, launch to exit; efficiency and {spec.measured_phase} of one trial\n")
    with_cost = any(row.cost is not None for row in rows)
    header = ("limit", spec.measured_phase, "tokens/kWh gpu SIM", "time", "gpu kWh SIM", "node kWh SIM", "cost")
    table = [
        (
            row.limit,
            format_duration(row.train_s),
            f"{row.tokens_per_kwh:.3e}",
            format_duration(row.total_s),
            format_number(row.gpu_kwh),
            "not modelled" if row.node_kwh is None else format_number(row.node_kwh),
            "" if row.cost is None else format_number(row.cost),
        )
        for row in rows
    ]
    n_columns = len(header) if with_cost else len(header) - 1
    print_table(header[:n_columns], [row[:n_columns] for row in table])
    print("\nwhat the model is held to, and what it extrapolates: docs/concepts/simulation.md")
