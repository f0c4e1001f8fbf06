"""CPU energy of the workload, estimated from the CPU time of its processes (`EST`): for machines without a meter.

A rough model, and labelled so wherever its number appears: each busy logical core draws `WATTS_PER_BUSY_CORE`. It knows
nothing of clocks, of idle power, of memory, or of what a core does while it is busy.

The counter is the CPU time of all processes under a root (the launcher's, which is not counted itself), in uJ. Time is
counted once, wherever it stands: a living process has its own, and its parent takes it over when it reaps it; what the
root has reaped counts too, since orphans end up there. Parents are read before their children: a child that is reaped
in between is missed for one reading, and never counted twice. The counter does not go back for that.
"""

import time
from collections.abc import Sequence

import psutil

from ecobench.measurement import Boundary, Evidence, Interval, MeterInfo, ReadingKind
from ecobench.seams import Sample

INTERFACE = "estimate"
PERIOD_NS = 100_000_000

# Watts of package power that one more busy logical core adds. Source: thermal design power over logical cores of
# current processors is 2 W (AMD EPYC 9654: 360 W/192) to 8 W (Intel i9-13900K: 253 W/32), Intel Xeon 8462Y+ 4.7 W
# (300 W/64); on a Ryzen 7 2700X the first busy thread added 15 W at the wall and sixteen 5.6 W each
# (mathr.co.uk/web/energy.html).
WATTS_PER_BUSY_CORE = 6.0
LEAST_W, MOST_W = 2.0, 15.0

# Looking for processes reads all of them on the machine. At most this share of one core goes into it: on a machine
# with thousands, new ones are found later (and their time with them, since their start).
LOOKING_SHARE = 0.05

# Readings in a row that show less than before until the loss is taken as real: a program that ignores SIGCHLD throws
# the time of its children away, and what others use from then on must not hide behind it.
READINGS_UNTIL_LOST = 10


class EstimateMeter:
    """CPU time of the processes under `root_pid` as an energy counter. `Meter`."""

    def __init__(self, root_pid: int) -> None:
        """Starts counting at 0 now.

        Raises:
            psutil.NoSuchProcess: there is no such root.
        """
        self._root = psutil.Process(root_pid)
        self._tree: list[psutil.Process] = []
        self._look_again_ns = 0
        self._n_low = 0
        self._lost_s = 0.0
        self._most_s = 0.0
        self._start_s = self._cpu_s()
        self._info = MeterInfo(
            domain="cpu/workload",
            kind=ReadingKind.ENERGY_COUNTER,
            interface=INTERFACE,
            boundary=Boundary.CPU,
            evidence=Evidence.EST,
            si_per_count=1e-6,
            period_ns=PERIOD_NS,
            wraps_at_count=None,
            max_power_w=None,
            instrument_share=Interval(
                low=LEAST_W / WATTS_PER_BUSY_CORE - 1,
                high=MOST_W / WATTS_PER_BUSY_CORE - 1,
            ),
            counted="CPU time of the workload's own processes; no idle power, no memory, no other program",
            basis=(
                f"rough model: {WATTS_PER_BUSY_CORE:g} W per busy logical core, {LEAST_W:g} to {MOST_W:g} W over"
                " processors and loads (design power over logical cores is 2 to 8 W; a core busy alone adds up to 15 W)"
            ),
        )

    @property
    def info(self) -> MeterInfo:
        return self._info

    def read(self, times_ns: Sequence[int]) -> Sequence[Sample]:
        """One reading of the counter for each instant asked for, all of them now."""
        return [self._sample() for _ in times_ns]

    def close(self) -> None:
        """Nothing is held open between readings."""

    def _sample(self) -> Sample:
        before_ns = time.monotonic_ns()
        raw, error = None, None
        try:
            raw = round(self._counted_s() * WATTS_PER_BUSY_CORE * 1e6)
        except psutil.Error as problem:
            error = f"process {self._root.pid} cannot be read: {type(problem).__name__}"
        call_ns = time.monotonic_ns() - before_ns
        return Sample(before_ns + call_ns // 2, raw, call_ns, error)

    def _counted_s(self) -> float:
        """CPU time since the start, never less than before."""
        seen_s = self._cpu_s() - self._start_s + self._lost_s
        if seen_s >= self._most_s:
            self._most_s, self._n_low = seen_s, 0
        else:
            self._n_low += 1
            if self._n_low == READINGS_UNTIL_LOST:
                self._lost_s += self._most_s - seen_s
                self._n_low = 0
        return self._most_s

    def _cpu_s(self) -> float:
        """CPU time of all that runs or ran under the root. Parents first: see the module."""
        of_root = self._root.cpu_times()
        total_s: float = of_root.children_user + of_root.children_system
        for process in self._living():
            try:
                own = process.cpu_times()
            except psutil.Error:
                continue  # gone: its parent, or whoever reaped it, has its time
            total_s += own.user + own.system + own.children_user + own.children_system
        return total_s

    def _living(self) -> list[psutil.Process]:
        now_ns = time.monotonic_ns()
        if now_ns >= self._look_again_ns:
            # What it costs is CPU time: waiting for a core on a busy machine is no reason to look less often.
            before_ns = time.thread_time_ns()
            self._tree = self._root.children(recursive=True)
            self._look_again_ns = now_ns + round((time.thread_time_ns() - before_ns) / LOOKING_SHARE)
        return self._tree
