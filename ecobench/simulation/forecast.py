"""What runs would take, before any is made: time and energy of whole trials, by the model's own truth."""

from collections.abc import Sequence
from dataclasses import dataclass

from ecobench.records import RunSpec
from ecobench.simulation.nodefile import Node
from ecobench.simulation.rig import Rig
from ecobench.units import J_PER_KWH, NS_PER_S

# What `--plan` compares where no limit is named.
LIMITS = ("100%", "90%", "80%", "70%", "60%", "50%")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """All trials of one configuration, launch to exit, in a simulated node.

    Attributes:
        limit: as asked for.
        train_s: measured phase of one trial; `total_s` is all of all trials.
        train_gpu_j: boards over the measured phase of one trial.
        node_kwh: None where the node's host is not modelled.
        cost: of the node's energy, else of the boards', at the price given; None without one.
    """

    limit: str
    train_s: float
    n_tokens: int
    train_gpu_j: float
    total_s: float
    gpu_kwh: float
    node_kwh: float | None
    cost: float | None

    @property
    def tokens_per_kwh(self) -> float:
        """In the measured phase, by the boards' energy."""
        return self.n_tokens / self.train_gpu_j * J_PER_KWH


def forecast(
    node: Node,
    spec: RunSpec,
    *,
    limits: Sequence[str],
    sm_clock: str | None,
    seed: int,
    price_per_kwh: float | None,
) -> tuple[Forecast, ...]:
    """One row a limit. Every trial is taken to be like the first.

    Raises:
        RequestError: a limit is out of range, or a parameter has no stated effect.
    """
    rows = []
    for limit in limits:
        rig = Rig(node, seed=seed, power_limit=limit, sm_clock=sm_clock)
        rig.check(spec)
        rig.control.apply()
        script = rig.rehearse(spec)
        total_s = (script.exit_ns - script.launch_ns) / NS_PER_S
        measured = rig.measured_segments(spec)
        gpu_j = sum(rig.true_energy_j(index, script.launch_ns, script.exit_ns) for index in range(node.n_boards))
        node_j = rig.true_node_energy_j(script.launch_ns, script.exit_ns)
        kwh = spec.n_trials / J_PER_KWH
        billed_j = gpu_j if node_j is None else node_j
        rows.append(
            Forecast(
                limit=limit,
                train_s=sum(stop_ns - start_ns for start_ns, stop_ns in measured) / NS_PER_S,
                n_tokens=rig.n_tokens(spec),
                train_gpu_j=sum(
                    rig.true_energy_j(index, start_ns, stop_ns)
                    for index in range(node.n_boards)
                    for start_ns, stop_ns in measured
                ),
                total_s=total_s * spec.n_trials,
                gpu_kwh=gpu_j * kwh,
                node_kwh=None if node_j is None else node_j * kwh,
                cost=None if price_per_kwh is None else billed_j * kwh * price_per_kwh,
            )
        )
    return tuple(rows)
