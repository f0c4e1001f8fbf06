"""Where a run takes place: on this machine, or on a simulated node. What differs between the two is here only."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from ecobench.cli import wiring
from ecobench.cli.console import say
from ecobench.errors import RequestError

if TYPE_CHECKING:
    from ecobench.gpus import Selection
    from ecobench.hardware import Gpu
    from ecobench.measurement import MeterInfo
    from ecobench.meters import Discovery
    from ecobench.records import GpuSetting, RunSpec
    from ecobench.seams import Control
    from ecobench.simulation.forecast import Forecast
    from ecobench.trial import Seams


class SettableControl(Protocol):
    """A control as the command line sees it."""

    @property
    def settings(self) -> "tuple[GpuSetting, ...]": ...

    def name_run(self, run: str) -> None: ...


class Site(Protocol):
    """Everything of a run that depends on where it takes place."""

    @property
    def simulation(self) -> str | None:
        """What is simulated, as recorded; None on a real machine."""
        ...

    @property
    def needs_data(self) -> bool: ...

    @property
    def environment(self) -> "dict[str, str] | None":
        """What the workload is given to see the chosen GPUs by; None: as it is."""
        ...

    @property
    def chosen(self) -> str | None:
        """The chosen GPUs in words."""
        ...

    def choose_gpus(self, typed: str | None, *, is_needed: bool) -> None:
        """Which GPUs the run is about. Call first."""
        ...

    def gpus(self) -> "tuple[Gpu, ...]": ...

    def find_meters(self, choice: str) -> "Discovery":
        """What would be used, closed again."""
        ...

    @contextmanager
    def controlled(self, power_limit: str | None, sm_clock: str | None) -> "Iterator[Sequence[GpuSetting]]":
        """What the run will set, and hold meanwhile."""
        ...

    def check(self, spec: "RunSpec") -> None:
        """Refuse what cannot take place here."""
        ...

    def plan(
        self, spec: "RunSpec", power_limit: str | None, sm_clock: str | None, price_per_kwh: float | None
    ) -> "tuple[Forecast, ...]":
        """What the run would take, by power limit."""
        ...

    @contextmanager
    def seams(self, run_id: str, spec: "RunSpec", meters: "Sequence[MeterInfo]") -> "Iterator[Seams]":
        """What the trials run on."""
        ...


class Machine:
    """`Site` on this machine."""

    simulation = None
    needs_data = True

    def __init__(self) -> None:
        self._control: Control | None = None
        self._naming: SettableControl | None = None
        self._selection: Selection | None = None

    @property
    def environment(self) -> "dict[str, str] | None":
        from ecobench.gpus import visible

        return visible(self._selection.gpus) if self._selection is not None and self._selection.gpus else None

    @property
    def chosen(self) -> str | None:
        if self._selection is None or not self._selection.gpus:
            return None
        return f"{', '.join(str(gpu.index) for gpu in self._selection.gpus)} ({self._selection.text})"

    def choose_gpus(self, typed: str | None, *, is_needed: bool) -> None:
        """What CUDA_VISIBLE_DEVICES holds is refused only where the run measures or sets GPUs."""
        try:
            self._selection = wiring.choose_gpus(typed)
        except RequestError:
            if is_needed or typed is not None:
                raise

    @property
    def _uuids(self) -> "tuple[str, ...] | None":
        return None if self._selection is None else tuple(gpu.uuid for gpu in self._selection.gpus)

    def gpus(self) -> "tuple[Gpu, ...]":
        return wiring.find_gpus(self._uuids)

    def find_meters(self, choice: str) -> "Discovery":
        meters = wiring.meter_finder(choice, self._uuids)(os.getpid())
        for one in meters.meters:
            one.close()
        return meters

    @contextmanager
    def controlled(self, power_limit: str | None, sm_clock: str | None) -> "Iterator[Sequence[GpuSetting]]":
        """What others have left set is put back first, and said."""
        control, left = wiring.open_control(power_limit, sm_clock, self._uuids)
        for one in left:
            say(one.line if one.is_done else f"{one.line}; {one.hint}")
        self._control = self._naming = control
        try:
            yield control.settings if control is not None else ()
        finally:
            if control is not None:
                control.close()

    def check(self, spec: "RunSpec") -> None:
        """Whatever can be started may be."""

    def plan(
        self,
        spec: "RunSpec",
        power_limit: str | None,
        sm_clock: str | None,
        price_per_kwh: float | None,
    ) -> "tuple[Forecast, ...]":
        """A machine predicts nothing of itself."""
        del spec, power_limit, sm_clock, price_per_kwh
        raise RequestError("--plan predicts a simulated run", hint="name a node: --simulate 8xh100 --plan")

    @contextmanager
    def seams(self, run_id: str, spec: "RunSpec", meters: "Sequence[MeterInfo]") -> "Iterator[Seams]":
        from ecobench.trial import Seams

        if self._naming is not None:
            self._naming.name_run(run_id)
        find = wiring.meter_finder(spec.meter, self._uuids)
        with wiring.second_opinion(meters) as opinion:
            yield Seams(
                clock=wiring.make_clock(),
                make_launcher=wiring.make_launcher,
                open_meters=lambda root_pid: find(root_pid).meters,
                control=self._control,
                opinion=opinion,
            )


class SimulatedNode:
    """`Site` that does not exist."""

    needs_data = False
    environment = None
    chosen = None

    def __init__(self, name_or_path: str) -> None:
        from ecobench.simulation.nodefile import find_node
        from ecobench.simulation.rig import Rig

        self._node = find_node(name_or_path)
        self._rig = Rig(self._node, seed=0)

    @property
    def simulation(self) -> str | None:
        return self._rig.name

    def choose_gpus(self, typed: str | None, *, is_needed: bool) -> None:  # noqa: ARG002  # all of them, always
        if typed is not None:
            raise RequestError("--gpus with --simulate", hint="a simulated node is measured whole")

    def gpus(self) -> "tuple[Gpu, ...]":
        from ecobench.hardware import GIB, Gpu

        board = Gpu(
            name=self._node.board.name, memory_bytes=self._node.memory_gib * GIB, capability=self._node.capability
        )
        return (board,) * self._node.n_boards

    def find_meters(self, choice: str) -> "Discovery":
        from ecobench.meters import Discovery

        if choice != "auto":
            raise RequestError(f"--meter {choice} with --simulate", hint="a simulated node brings its own meters")
        return Discovery(meters=self._rig.open_meters(), absences=())

    @contextmanager
    def controlled(self, power_limit: str | None, sm_clock: str | None) -> "Iterator[Sequence[GpuSetting]]":
        from ecobench.simulation.rig import Rig

        self._rig = Rig(self._node, seed=0, power_limit=power_limit, sm_clock=sm_clock)
        yield self._rig.control.settings

    def check(self, spec: "RunSpec") -> None:
        self._rig.check(spec)

    def plan(
        self, spec: "RunSpec", power_limit: str | None, sm_clock: str | None, price_per_kwh: float | None
    ) -> "tuple[Forecast, ...]":
        from ecobench.simulation.forecast import LIMITS, forecast

        return forecast(
            self._node,
            spec,
            limits=LIMITS if power_limit is None else (power_limit,),
            sm_clock=sm_clock,
            seed=0,
            price_per_kwh=price_per_kwh,
        )

    @contextmanager
    def seams(self, run_id: str, spec: "RunSpec", meters: "Sequence[MeterInfo]") -> "Iterator[Seams]":  # noqa: ARG002  # no second opinion of what is not there
        from ecobench.simulation.poller import GridPoller
        from ecobench.simulation.rig import Rig
        from ecobench.trial import WATCH_EVERY_NS, Seams

        rig: Rig = self._rig
        rig.control.name_run(run_id)
        yield Seams(
            clock=rig.clock,
            make_launcher=lambda: rig.make_launcher(spec),
            open_meters=lambda root_pid: rig.open_meters(),  # noqa: ARG005  # nothing here has a process
            control=rig.control if rig.control.settings else None,
            make_poller=lambda open_meters, clock, sink: GridPoller(open_meters, clock=clock, sink=sink),
            # Nothing is to be seen meanwhile but by a stop rule; the end of the program wakes the watch.
            watch_every_ns=WATCH_EVERY_NS if spec.stop_rule is not None else 60 * 20 * WATCH_EVERY_NS,
        )


def choose_site(simulate: str | None) -> Site:
    """This machine, or the node that is simulated.

    Raises:
        RequestError: there is no such node.
    """
    return Machine() if simulate is None else SimulatedNode(simulate)
