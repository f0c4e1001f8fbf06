"""The nouns of measurement: meters, windows, energies, flags, and what qualifies a number.

Every quantity's name ends in its unit. Missing is `None` with a reason beside it, never 0 and never NaN.
"""

from dataclasses import dataclass
from enum import StrEnum


class ReadingKind(StrEnum):
    """What a number read from a meter means. Gauges and counters of time carry no energy; `quantity` names them."""

    INSTANT_POWER = "instant_power"
    AVERAGE_POWER = "average_power"
    ENERGY_COUNTER = "energy_counter"
    GAUGE = "gauge"
    TIME_COUNTER = "time_counter"

    @property
    def carries_energy(self) -> bool:
        return self not in (ReadingKind.GAUGE, ReadingKind.TIME_COUNTER)


class Boundary(StrEnum):
    """What a figure includes. A sum of parts is none of the others."""

    GPU = "gpu"
    CPU = "cpu"
    NODE = "node"
    FACILITY = "facility"


class Evidence(StrEnum):
    """How a figure was obtained. Only figures of equal boundary and evidence are compared."""

    SIM = "SIM"
    EST = "EST"
    G0 = "G0"
    G1 = "G1"
    C1 = "C1"
    N1 = "N1"
    N2 = "N2"
    N3 = "N3"


class Severity(StrEnum):
    """How much a quality flag takes away: nothing, some trust, or the result."""

    INFO = "info"
    WARNING = "warning"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A closed interval, in the unit of the figure that it belongs to (or a share, where the name says so)."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterInfo:
    """What one meter reads, how often, and how far it can be trusted.

    Attributes:
        domain: the power domain, `cpu:0/package`. Unique among the meters of one kind and quantity in a trial.
        interface: the way in: `powercap`, `estimate`.
        si_per_count: joules (or watts) of one raw count.
        period_ns: how often the sampler asks.
        wraps_at_count: the raw counter starts again from 0 after this many counts; None: it does not wrap.
        max_power_w: more than this cannot be, a delta beyond it is no energy; None: no bound known.
        instrument_share: interval of (truth - reading)/reading, k = 2.
        counted: what the domain includes, in words, for the lines under a result.
        basis: where `instrument_share` and any model come from.
        quantity: what a gauge or a counter of time shows, its unit at the end: `sm_clock_mhz`, `power_cap_ns`; None
            for power and energy.
        device: UUID of the GPU that is read; None for anything else.
        update_period_ns: how often the sensor behind it updates, as observed when it was opened; None: not observed.
        calibrated_ratio: of a meter of power: what its integral is of the domain's energy counter, on this very board,
            as calibrated; None: never calibrated.
    """

    domain: str
    kind: ReadingKind
    interface: str
    boundary: Boundary
    evidence: Evidence
    si_per_count: float
    period_ns: int
    wraps_at_count: int | None
    max_power_w: float | None
    instrument_share: Interval
    counted: str
    basis: str
    quantity: str | None = None
    device: str | None = None
    update_period_ns: int | None = None
    calibrated_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterAbsence:
    """A meter that could have been there, why it is not, and what would bring it."""

    interface: str
    domain: str | None
    reason: str
    remedy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityFlag:
    """A reason to doubt a number."""

    code: str
    severity: Severity
    evidence: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One stretch of time, `start_ns < stop_ns`, on the machine's monotonic clock."""

    start_ns: int
    stop_ns: int

    def __post_init__(self) -> None:
        if self.stop_ns <= self.start_ns:
            raise ValueError(f"segment stops at {self.stop_ns}, not after its start {self.start_ns}")

    @property
    def duration_ns(self) -> int:
        return self.stop_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What energy is asked for: disjoint segments of one phase in order of time."""

    phase: str
    segments: tuple[Segment, ...]

    @property
    def duration_ns(self) -> int:
        return sum(segment.duration_ns for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainEnergy:
    """Energy of one power domain over one window.

    Attributes:
        method: `counter` (differences of an energy counter) or `integral` (of polled power).
        energy_j: None where the samples do not carry a number; `reason` says why.
        instrument: what the instrument leaves open, in J, k = 2; None where `energy_j` is.
        coverage_share: share of the window's time that samples cover, 0 to 1.
        largest_gap_s: longest time without a sample that touches the window; None without any sample.
    """

    domain: str
    boundary: Boundary
    evidence: Evidence
    method: str
    energy_j: float | None
    reason: str | None
    instrument: Interval | None
    coverage_share: float
    largest_gap_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryEnergy:
    """Energy within one boundary over one window: the sum of its domains, each metered apart.

    Domains of one boundary are taken as fully correlated: their instrument intervals add linearly.
    """

    boundary: Boundary
    evidence: Evidence
    domains: tuple[str, ...]
    energy_j: float | None
    reason: str | None
    instrument: Interval | None


class CheckVerdict(StrEnum):
    """What polled power says of an energy counter."""

    AGREES = "agrees"
    DIFFERS = "differs"  # more than it should, and no more than a warning
    CONTRADICTS = "contradicts"  # so much, on a calibrated board, that neither can be believed
    UNDECIDED = "undecided"  # sensor and steps keep time, or it cannot be told whether they do
    MISSING = "missing"  # one of the two has no energy


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyCheck:
    """An energy counter's answer with polled power beside it, over one window.

    Attributes:
        counter_j: by the counter, `polled_j` by polled power; over the window, its edges trimmed by `trimmed_s` each.
        ratio: `polled_j` / `counter_j`.
        calibrated_ratio: this board's own ratio, as calibrated; None: never calibrated.
        is_aliased: whether sensor and steps keep time too well for polled power to decide; None: cannot be told.
        beat_s: the longest beat of step and sensor; None where there is none, or it cannot be told.
        n_beats: beats in the window.
        cut_beat_share: what a beat that the window cuts may put on `ratio`; None where the beat is not known.
        reason: the verdict in words.
    """

    domain: str
    kind: ReadingKind
    counter_j: float | None
    polled_j: float | None
    trimmed_s: float
    ratio: float | None
    calibrated_ratio: float | None
    step_s: float | None
    sensor_s: float | None
    beat_s: float | None
    n_beats: float | None
    cut_beat_share: float | None
    is_aliased: bool | None
    verdict: CheckVerdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeusReading:
    """What Zeus said of one GPU, as it said it; `energy_j` None: it said nothing."""

    domain: str
    uuid: str
    energy_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeusWindow:
    """One window of Zeus around the workload, with stamps of our own.

    Attributes:
        version: Zeus's own; None where it never got so far.
        start_ns: middle of the call that opened the window, `stop_ns` of the one that closed it.
        start_call_ns: how long that call took; Zeus reads board after board in it.
        note: why there is no window; None where there is one.
    """

    version: str | None
    start_ns: int | None
    stop_ns: int | None
    start_call_ns: int | None
    stop_call_ns: int | None
    readings: tuple[ZeusReading, ...]
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOpinion:
    """Another program's energy of one domain, and ours over exactly its window.

    Attributes:
        source: which program.
        relation: what it shares with our reading: `same source` is the same counter.
        theirs_j: None where it gave no energy.
        ratio: `theirs_j` / `ours_j`.
        note: what to know of it: why a number is missing, or what the difference is.
    """

    domain: str
    source: str
    relation: str
    theirs_j: float | None
    ours_j: float | None
    ratio: float | None
    note: str | None
