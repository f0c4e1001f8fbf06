"""What meters would read of a board whose load is known in closed form: whole traces at once, nothing waited for.

board = Board(load=(steady(0, 600), wave(10, 98.08, high_w=650, low_w=300)))
board.counter(80), board.instant(80), board.average(80)      # traces of 80 s at 50 Hz, as polls with jitter see them
board.energy_j(window)                                       # what was drawn
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ecobench.measurement import Boundary, Evidence, Interval, MeterInfo, ReadingKind, Segment, Window
from ecobench.trace import Trace
from nvml_truth import GpuTruth, Piece, SensorTruth

S = 1_000_000_000
MS = 1_000_000
# Board history starts well before the first reading, as that of a machine that was on.
PAST_NS = 20 * S
MAX_POWER_W = 700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A load from `start_s` on: high for a share of every period, or steady where the period is 0."""

    start_s: float
    period_ms: float
    high_share: float
    high_w: float
    low_w: float


def steady(start_s: float, power_w: float) -> Stretch:
    """The same power from `start_s` on."""
    return Stretch(start_s=start_s, period_ms=0, high_share=1, high_w=power_w, low_w=power_w)


def wave(start_s: float, period_ms: float, *, high_w: float, low_w: float, high_share: float = 0.6) -> Stretch:
    """Steps of `period_ms`: first high, then low."""
    return Stretch(start_s=start_s, period_ms=period_ms, high_share=high_share, high_w=high_w, low_w=low_w)


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One board: its load, the gains of its two paths, and when and how often it is read."""

    load: tuple[Stretch, ...]
    domain: str = "gpu:0"
    counter_gain: float = 1.0
    power_gain: float = 1.0
    resets_s: tuple[float, ...] = ()
    poll_ms: float = 20.0
    seed: int = 0

    def energy_j(self, window: Window) -> float:
        """What the board drew."""
        truth = self._truth()
        return sum(truth.energy_j(one.start_ns, one.stop_ns) for one in window.segments)

    def counter(self, until_s: float) -> Trace:
        """Of an energy counter in mJ that moves every 100 ms."""
        info = power_info(ReadingKind.ENERGY_COUNTER, self.domain, Evidence.G1)
        return self._trace(info, self._truth().counter_mj, until_s)

    def instant(self, until_s: float, *, calibrated_ratio: float | None = None) -> Trace:
        """Of a sensor that looks for 25 ms in every 100 ms."""
        info = power_info(ReadingKind.INSTANT_POWER, self.domain, Evidence.G0)
        info = dataclasses.replace(info, calibrated_ratio=calibrated_ratio)
        return self._trace(info, self._truth().instant_mw, until_s)

    def average(self, until_s: float) -> Trace:
        """Of a sensor that gives the mean of the last second every 100 ms."""
        info = power_info(ReadingKind.AVERAGE_POWER, self.domain, Evidence.G0)
        return self._trace(info, self._truth().average_mw, until_s)

    def _truth(self) -> GpuTruth:
        random = np.random.default_rng(self.seed)
        phases_ns = [int(each) for each in random.integers(0, 100 * MS, size=3)]
        starts = [-PAST_NS, *(round(one.start_s * S) for one in self.load[1:])]
        pieces = tuple(
            _piece(one, start_ns, stop_ns)
            for one, start_ns, stop_ns in zip(self.load, starts, [*starts[1:], None], strict=True)
        )
        return GpuTruth(
            pieces=pieces,
            counter=_sensor(phases_ns[0], window_ms=0, gain=self.counter_gain),
            instant=_sensor(phases_ns[1], window_ms=25, gain=self.power_gain),
            average=_sensor(phases_ns[2], window_ms=1000, gain=self.power_gain),
            quantum_mj=1,
            resets_ns=(-10 * S, *(round(reset_s * S) for reset_s in self.resets_s)),
            module_w=0,
            ambient_c=30,
            c_per_w=0.05,
        )

    def _trace(self, info: MeterInfo, read: Callable[[int], int], until_s: float) -> Trace:
        random = np.random.default_rng(self.seed + 1)
        n_polls = round(until_s * 1e3 / self.poll_ms)
        jitter_ms = random.uniform(0, self.poll_ms / 5, size=n_polls)
        time_ns = ((np.arange(n_polls) * self.poll_ms + jitter_ms) * MS).astype(np.int64)
        raw = np.array([read(int(each)) for each in time_ns], dtype=np.int64)
        return Trace(info=info, time_ns=time_ns, raw=raw)


def power_info(kind: ReadingKind, domain: str, evidence: Evidence) -> MeterInfo:
    """A GPU's meter in mJ or mW, read at 50 Hz."""
    return MeterInfo(
        domain=domain,
        kind=kind,
        interface="nvml",
        boundary=Boundary.GPU,
        evidence=evidence,
        si_per_count=1e-3,
        period_ns=20 * MS,
        wraps_at_count=None,
        max_power_w=MAX_POWER_W,
        instrument_share=Interval(low=-0.05, high=0.05),
        counted="board",
        basis="a test",
    )


def window(*edges_s: tuple[float, float]) -> Window:
    """A window of segments between seconds."""
    return Window(
        phase="train", segments=tuple(Segment(start_ns=round(a * S), stop_ns=round(b * S)) for a, b in edges_s)
    )


def _piece(one: Stretch, start_ns: int, stop_ns: int | None) -> Piece:
    period_ns = round(one.period_ms * MS)
    return Piece(
        start_ns=start_ns,
        stop_ns=stop_ns,
        origin_ns=start_ns,
        period_ns=period_ns,
        high_ns=round(one.high_share * period_ns),
        powers_w=(one.high_w, one.low_w),
        clocks_mhz=(1980.0, 1980.0),
        cap_binds=(False, False),
        is_busy=(True, True),
    )


def _sensor(phase_ns: int, *, window_ms: int, gain: float) -> SensorTruth:
    return SensorTruth(period_ns=100 * MS, phase_ns=phase_ns, window_ns=window_ms * MS, gain=gain, offset_w=0)


def told(quantity: str, values: dict[float, float], *, domain: str = "gpu:0", si_per_count: float = 1.0) -> Trace:
    """A gauge, or a counter of time where `quantity` ends in `_ns`, that read these values at these seconds."""
    kind = ReadingKind.TIME_COUNTER if quantity.endswith("_ns") else ReadingKind.GAUGE
    info = dataclasses.replace(
        power_info(kind, domain, Evidence.G0),
        quantity=quantity,
        device=f"GPU-{domain[-1]}",
        period_ns=S,
        si_per_count=1e-9 if kind is ReadingKind.TIME_COUNTER else si_per_count,
        max_power_w=None,
    )
    raw = [round(value / info.si_per_count) for value in values.values()]
    return Trace(
        info=info,
        time_ns=np.array([round(at * S) for at in values], dtype=np.int64),
        raw=np.array(raw, dtype=np.int64),
    )


def held(quantity: str, *, share: float, until_s: int = 80, domain: str = "gpu:0") -> Trace:
    """A counter of time that counts `share` of each second."""
    return told(quantity, {float(at): 1000 + share * at for at in range(until_s + 1)}, domain=domain)


def steadily(quantity: str, value: float, *, until_s: int = 80, domain: str = "gpu:0", **changes: float) -> Trace:
    """A gauge that says the same every second."""
    return told(quantity, {float(at): value for at in range(until_s + 1)}, domain=domain, **changes)
