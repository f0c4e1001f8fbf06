"""CPU energy of the workload, estimated from the CPU time of its processes (`EST`): for machines without a meter.

A rough model, and labelled so wherever its number appears: each busy logical core draws `WATTS_PER_BUSY_CORE`. It knows
nothing of clocks, of idle power, of memory, or of what a core does while it is busy.

The counter is the CPU time of all processes under a root (the launcher's, which is not counted itself), in uJ. Time is
counted once, wherever it stands: a living process has its own, and its parent takes it over when it reaps it; what the
root has reaped counts too, since orphans end up there. Parents are read before their children: a child that is reaped
in between is missed for one reading, and never counted twice. The counter does not go back for that.

A program that ignores SIGCHLD has the kernel throw its children's time away: from then on there is no reading, rather
than one that may be 20 times too low.
"""

import signal
import time
from collections.abc import Sequence
from pathlib import Path

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
        self._most_s = 0.0
        self._thrown_away: str | None = None
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
        if self._thrown_away is not None:
            raw, error = None, self._thrown_away
        call_ns = time.monotonic_ns() - before_ns
        return Sample(before_ns + call_ns // 2, raw, call_ns, error)

    def _counted_s(self) -> float:
        """CPU time since the start, never less than before."""
        self._most_s = max(self._most_s, self._cpu_s() - self._start_s)
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
            self._thrown_away = self._thrown_away or _who_throws_away(self._tree)
            self._look_again_ns = now_ns + round((time.thread_time_ns() - before_ns) / LOOKING_SHARE)
        return self._tree


def _who_throws_away(tree: Sequence[psutil.Process]) -> str | None:
    """Why CPU time is lost among these processes: one has children and ignores SIGCHLD; None where none does."""
    for process in tree:
        try:
            if _ignores_sigchld(process.pid) and process.children():
                return f"the workload's process {process.pid} ignores SIGCHLD: the CPU time of its children is lost"
        except (psutil.Error, OSError):
            continue  # it has ended meanwhile
    return None


def _ignores_sigchld(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    ignored = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:")), 0)
    return bool(ignored >> (signal.SIGCHLD - 1) & 1)
