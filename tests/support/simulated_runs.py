"""Runs on a simulated node, through the same trial, store and summary as any other."""

from pathlib import Path
from typing import NamedTuple

from ecobench.catalog import find_workload
from ecobench.config import choose
from ecobench.interrupts import Interrupts
from ecobench.live import Progress
from ecobench.parameters import parse_stop_rule
from ecobench.records import RunSpec, RunSummary, TrialRecord
from ecobench.runner import begin_run, make_spec, run_trials
from ecobench.simulation.nodefile import find_node
from ecobench.simulation.poller import GridPoller
from ecobench.simulation.rig import NO_WORKLOAD_FAULT, Rig
from ecobench.simulation.script import WorkloadFault
from ecobench.simulation.sensor import SensorFault
from ecobench.store import RunFolder, Store
from ecobench.trial import WATCH_EVERY_NS, Seams

WORKLOADS = Path(__file__).resolve().parents[2] / "workloads"


class SimulatedRun(NamedTuple):
    """A run that has ended, and the node that it ran on."""

    rig: Rig
    spec: RunSpec
    folder: RunFolder
    summary: RunSummary
    trials: tuple[TrialRecord, ...]

    def flags(self) -> set[str]:
        return {flag.code for flag in self.summary.flags}


def simulate(
    home: Path,
    *,
    node: str = "8xh100",
    preset: str = "speedrun",
    settings: tuple[str, ...] = (),
    power_limit: str | None = None,
    n_trials: int = 1,
    until: str | None = None,
    seed: int = 0,
    fault: WorkloadFault = NO_WORKLOAD_FAULT,
    sensor_faults: dict[str, SensorFault] | None = None,
) -> SimulatedRun:
    """Run `nanogpt` on `node`."""
    rig = Rig(find_node(node), seed=seed, power_limit=power_limit, fault=fault, sensor_faults=sensor_faults)
    workload = find_workload(str(WORKLOADS / "nanogpt"))
    spec = make_spec(
        workload,
        choose(workload.manifest, preset=preset, hardware="gpu", settings=settings),
        meter="auto",
        n_trials=n_trials,
        stop_rule=parse_stop_rule(until) if until is not None else None,
        settings=rig.control.settings,
        simulation=rig.name,
    )
    rig.check(spec)
    infos = [meter.info for meter in rig.open_meters()]
    folder, record = begin_run(Store(home), spec, workload, argv=("ecobench", "run"), meters=infos, absences=())
    seams = Seams(
        clock=rig.clock,
        make_launcher=lambda: rig.make_launcher(spec),
        open_meters=lambda _: rig.open_meters(),
        control=rig.control if rig.control.settings else None,
        make_poller=lambda meters, clock, sink: GridPoller(meters, clock=clock, sink=sink),
        watch_every_ns=WATCH_EVERY_NS * (1 if until is not None else 1200),
    )
    with Interrupts() as interrupts:
        outcome = run_trials(folder, record, seams=seams, observer=lambda _: _look_away, interruption=interrupts)
    return SimulatedRun(rig, spec, folder, outcome.summary, outcome.trials)


def _look_away(progress: Progress) -> None:
    del progress
