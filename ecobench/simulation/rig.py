"""A simulated node put together: its boards, clock, meters, control and launcher, trial after trial."""

from collections.abc import Callable

import numpy as np

from ecobench.clock import read_boot_id
from ecobench.errors import RequestError
from ecobench.events import PROTOCOL
from ecobench.measurement import Boundary, Evidence, Interval, MeterInfo, ReadingKind
from ecobench.records import RunSpec
from ecobench.seams import Meter
from ecobench.simulation.clock import SimulatedClock
from ecobench.simulation.control import SimulatedControl, board_uuid
from ecobench.simulation.launcher import NO_PID, SimulatedLauncher
from ecobench.simulation.node import board_of, load_of, node_power_w
from ecobench.simulation.nodefile import Node
from ecobench.simulation.recipe import make_recipe
from ecobench.simulation.script import Script, WorkingBoard, WorkloadFault, write_script
from ecobench.simulation.sensor import NO_FAULT, Sensor, SensorFault, SimulatedMeter, sensor_counts
from ecobench.simulation.truth import PowerTruth
from ecobench.trace import Float64s, Int64s
from ecobench.units import NS_PER_S

POWER_EVERY_NS = NS_PER_S // 10
SLOW_EVERY_NS = NS_PER_S
NODE_EVERY_NS = NS_PER_S // 4
# Gain of a board's sensor: -2 % for all, and 1 % of standard deviation between boards. Assumed; within the 5 % that the
# instrument interval allows for. Counter and power share it.
GAIN, GAIN_SPREAD = 0.98, 0.01
NO_WORKLOAD_FAULT = WorkloadFault()
MILLI = 0.001

KINDS = (
    (ReadingKind.ENERGY_COUNTER, POWER_EVERY_NS),
    (ReadingKind.INSTANT_POWER, POWER_EVERY_NS),
)
HELD = ("power_cap_ns", "thermal_slowdown_ns")
GAUGES = ("sm_clock_mhz", "temperature_c", "limit_requested_w", "limit_enforced_w")


class Rig:
    """One simulated node. `seed` makes its boards and everything that chance does in its trials."""

    def __init__(
        self,
        node: Node,
        *,
        seed: int,
        power_limit: str | None = None,
        sm_clock: str | None = None,
        fault: WorkloadFault = NO_WORKLOAD_FAULT,
        sensor_faults: dict[str, SensorFault] | None = None,
    ) -> None:
        self.node = node
        self.clock = SimulatedClock()
        self.control = SimulatedControl(node.board, n_boards=node.n_boards, power_limit=power_limit, sm_clock=sm_clock)
        self._seed = seed
        self._fault = fault
        self._sensor_faults = sensor_faults or {}
        self._boards = [board_of(node.board, index=index, seed=seed) for index in range(node.n_boards)]
        chance = np.random.default_rng([seed, 1])
        self._sensors = [
            Sensor(
                gain=GAIN + GAIN_SPREAD * float(np.clip(chance.standard_normal(), -2.5, 2.5)),
                phase_ns=int(chance.integers(0, NS_PER_S // 10)),
            )
            for _ in self._boards
        ]
        self._n_launched = 0
        self._script: Script | None = None
        self._truths: dict[int, PowerTruth] = {}

    @property
    def name(self) -> str:
        """The node and the seed, as they are recorded."""
        return f"{self.node.name}, seed {self._seed}"

    def check(self, spec: RunSpec) -> None:
        """Refuse what cannot be simulated, before anything is made.

        Raises:
            RequestError: too many ranks, no such load, a parameter without a stated effect.
        """
        if spec.ranks > self.node.n_boards:
            raise RequestError(
                f"{spec.ranks} ranks on {self.node.n_boards} simulated GPU(s)", hint=f"--set ranks={self.node.n_boards}"
            )
        recipe = make_recipe(spec.workload, spec.parameters, ranks=spec.ranks)
        if recipe.load not in self.node.loads:
            raise RequestError(
                f"simulated node `{self.node.name}` has no load `{recipe.load}`",
                hint=f"it has {', '.join(self.node.loads) or 'none'}",
            )

    def make_launcher(self, spec: RunSpec) -> SimulatedLauncher:
        """A launcher for the next trial of `spec`."""
        self._script = None
        return SimulatedLauncher(
            self.clock, ranks=spec.ranks, fault=self._fault, write=self._writer(spec), begins=self._begin
        )

    def _writer(self, spec: RunSpec) -> Callable[[int, int | None], Script]:
        """Writes the script of the next trial of `spec`, from its launch to a step that it is cut after."""
        recipe = make_recipe(spec.workload, spec.parameters, ranks=spec.ranks)
        trial = self._n_launched
        self._n_launched += 1
        seed = int(spec.parameters.get("seed", 0))
        load = self.node.loads[recipe.load]
        hello = {
            "protocol": PROTOCOL,
            "rank": 0,
            "world_size": spec.ranks,
            "pid": NO_PID,
            "boot_id": read_boot_id(),
            "wall_ns": 0,
            "parameters": dict(spec.parameters),
            "data_hash": "simulated",
        }

        def write(launch_ns: int, stop_after_step: int | None) -> Script:
            boards = tuple(
                WorkingBoard(
                    board=board,
                    load=load_of(board, load, index=index, seed=self._seed),
                    limit_w=self.control.limit_w(index),
                    max_clock_share=self.control.clock_share(index),
                )
                for index, board in enumerate(self._boards)
            )
            return write_script(
                recipe,
                boards,
                ranks=spec.ranks,
                launch_ns=launch_ns,
                chance=np.random.default_rng([self._seed, 2, trial, seed]),
                hello=hello,
                fault=self._fault,
                stop_after_step=stop_after_step,
            )

        return write

    def open_meters(self) -> tuple[Meter, ...]:
        """Meters of all boards, and of the node where its host is modelled."""
        meters: list[Meter] = []
        for index, sensor in enumerate(self._sensors):
            meters += [self._meter(index, sensor, kind, period_ns) for kind, period_ns in KINDS]
            meters += [self._gauge(index, quantity) for quantity in GAUGES]
            meters += [self._held_counter(index, quantity) for quantity in HELD]
        if self.node.host is not None:
            meters.append(self._node_meter())
        return tuple(meters)

    def true_energy_j(self, index: int, start_ns: int, stop_ns: int) -> float:
        """What one board really took, for whoever wants to know how right a figure is."""
        energy = self._truth(index).energy_j(np.array([start_ns, stop_ns], dtype=np.int64))
        return float(energy[1] - energy[0])

    def true_node_energy_j(self, start_ns: int, stop_ns: int) -> float | None:
        """What the whole node really took; None where its host is not modelled."""
        if self.node.host is None:
            return None
        energy = self._node_truth().energy_j(np.array([start_ns, stop_ns], dtype=np.int64))
        return float(energy[1] - energy[0])

    def rehearse(self, spec: RunSpec) -> Script:
        """The script of the next trial, played to nobody: its truth can be asked for."""
        script = self._writer(spec)(self.clock.now_ns(), None)
        self._begin(script)
        return script

    def n_tokens(self, spec: RunSpec) -> int:
        """Tokens of one whole trial."""
        recipe = make_recipe(spec.workload, spec.parameters, ranks=spec.ranks)
        return len(recipe.step_s) * recipe.n_step_tokens

    def measured_segments(self, spec: RunSpec) -> list[tuple[int, int]]:
        """Start and stop of each stretch of the measured phase, what is nested in it taken out."""
        assert self._script is not None
        marks = [(time_ns, one["event"], one.get("phase")) for time_ns, one in self._script.says if "phase" in one]
        found: list[tuple[int, int]] = []
        open_phases: list[str | None] = []
        since_ns = 0
        for time_ns, event, phase in marks:
            if open_phases and open_phases[-1] == spec.measured_phase and time_ns > since_ns:
                found.append((since_ns, time_ns))
            if event == "phase_start":
                open_phases.append(phase)
            else:
                open_phases.pop()
            since_ns = time_ns
        return found

    def gain(self, index: int) -> float:
        """Reading over truth of one board's sensor."""
        return self._sensors[index].gain

    def _begin(self, script: Script) -> None:
        self._script = script
        self._truths = {}

    def _launch_ns(self) -> int:
        return self._script.launch_ns if self._script is not None else self.clock.now_ns()

    def _truth(self, index: int) -> PowerTruth:
        if self._script is None:
            now_ns = self.clock.now_ns()
            idle = np.array([self._boards[index].idle_w])
            return PowerTruth(edges_ns=np.array([now_ns - NS_PER_S, now_ns], dtype=np.int64), power_w=idle)
        if index not in self._truths:
            self._truths[index] = self._script.truth(index)
        return self._truths[index]

    def _meter(self, index: int, sensor: Sensor, kind: ReadingKind, period_ns: int) -> Meter:
        def counts(times_ns: Int64s) -> Int64s:
            read = sensor_counts(sensor, self._truth(index), kind, times_ns, si_per_count=MILLI)
            # The counter has counted before: 1 kJ, so that it is above 0 in the lead-in too.
            return read + 1_000_000 if kind is ReadingKind.ENERGY_COUNTER else read

        return self._simulated(
            _info(
                f"gpu:{index}",
                kind,
                period_ns=period_ns,
                device=board_uuid(index),
                max_power_w=self.node.board.max_w,
                counted="GPU boards of a simulated node",
            ),
            counts,
        )

    def _gauge(self, index: int, quantity: str) -> Meter:
        def counts(times_ns: Int64s) -> Int64s:
            return np.rint(self._gauge_values(index, quantity, times_ns) / MILLI).astype(np.int64)

        return self._simulated(
            _info(
                f"gpu:{index}",
                ReadingKind.GAUGE,
                period_ns=SLOW_EVERY_NS,
                device=board_uuid(index),
                quantity=quantity,
                counted="conditions of a simulated board",
            ),
            counts,
        )

    def _gauge_values(self, index: int, quantity: str, times_ns: Int64s) -> Float64s:
        board = self._boards[index]
        script = self._script
        if quantity in ("limit_requested_w", "limit_enforced_w"):
            return np.full(len(times_ns), self.control.limit_w(index))
        if script is None:
            value = board.ambient_c + board.resistance_c_per_w * board.idle_w if quantity == "temperature_c" else 345.0
            return np.full(len(times_ns), value)
        if quantity == "temperature_c":
            known_ns, known_c = script.temperature_c(index, board)
            return np.interp(times_ns, known_ns, known_c)
        stretch = np.clip(np.searchsorted(script.edges_ns, times_ns, side="right") - 1, 0, len(script.is_busy) - 1)
        share = script.points[index].clock_share if index < len(script.points) else 1.0
        held = np.minimum(share, np.where(script.is_throttled[stretch] > 0, self._fault.throttle_clock_share, 1.0))
        return np.where(script.is_busy[stretch] > 0, held, 1.0) * board.max_clock_mhz

    def _held_counter(self, index: int, quantity: str) -> Meter:
        """Nanoseconds in which a board was held back, by its limit or by heat."""

        def counts(times_ns: Int64s) -> Int64s:
            script = self._script
            if script is None or index >= len(script.points):
                return np.zeros(len(times_ns), dtype=np.int64)
            share = script.is_throttled
            if quantity == "power_cap_ns":
                share = script.is_busy * (1 - script.is_throttled) * float(script.points[index].is_capped)
            held = PowerTruth(edges_ns=script.edges_ns, power_w=share)
            inside = np.clip(times_ns, script.edges_ns[0], script.edges_ns[-1])
            return np.rint(held.energy_j(inside) * NS_PER_S).astype(np.int64)

        return self._simulated(
            _info(
                f"gpu:{index}",
                ReadingKind.TIME_COUNTER,
                period_ns=SLOW_EVERY_NS,
                device=board_uuid(index),
                quantity=quantity,
                si_per_count=1e-9,
                counted="conditions of a simulated board",
            ),
            counts,
        )

    def _node_meter(self) -> Meter:
        def counts(times_ns: Int64s) -> Int64s:
            sensor = Sensor(update_ns=NS_PER_S, gain=1.0)
            return sensor_counts(sensor, self._node_truth(), ReadingKind.AVERAGE_POWER, times_ns, si_per_count=MILLI)

        return self._simulated(
            _info(
                "node",
                ReadingKind.AVERAGE_POWER,
                period_ns=NODE_EVERY_NS,
                boundary=Boundary.NODE,
                counted="a simulated node at its AC side",
            ),
            counts,
        )

    def _node_truth(self) -> PowerTruth:
        host = self.node.host
        assert host is not None
        if self._script is None:
            idle = node_power_w(host, tuple(board.idle_w for board in self._boards), busy_share=0.0)
            now_ns = self.clock.now_ns()
            edges = np.array([now_ns - NS_PER_S, now_ns], dtype=np.int64)
            return PowerTruth(edges_ns=edges, power_w=np.array([idle]))
        script = self._script
        host_w = host.idle_w + (host.loaded_w - host.idle_w) * script.is_busy
        power_w = (script.powers_w.sum(axis=0) + host_w) * (1 + host.supply_loss_share)
        return PowerTruth(edges_ns=script.edges_ns, power_w=power_w)

    def _simulated(self, info: MeterInfo, counts: Callable[[Int64s], Int64s]) -> Meter:
        fault = self._sensor_faults.get(f"{info.domain} {info.quantity or info.kind.value}", NO_FAULT)
        return SimulatedMeter(info, counts=counts, launch_ns=self._launch_ns, fault=fault)


def _info(
    domain: str,
    kind: ReadingKind,
    *,
    period_ns: int,
    counted: str,
    boundary: Boundary = Boundary.GPU,
    device: str | None = None,
    quantity: str | None = None,
    max_power_w: float | None = None,
    si_per_count: float = MILLI,
) -> MeterInfo:
    return MeterInfo(
        domain=domain,
        kind=kind,
        interface="simulation",
        boundary=boundary,
        evidence=Evidence.SIM,
        si_per_count=si_per_count,
        period_ns=period_ns,
        wraps_at_count=None,
        max_power_w=max_power_w,
        instrument_share=Interval(low=-0.05, high=0.05),
        counted=counted,
        basis="SIMULATED: sensors with errors of their own over a model of a node; nothing was measured",
        quantity=quantity,
        device=device,
        update_period_ns=NS_PER_S // 10 if kind is not ReadingKind.AVERAGE_POWER else NS_PER_S,
    )
