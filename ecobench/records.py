"""The stored records: what was asked for, on which machine, what each trial found, and the run's summary.

Frozen, and made of the nouns in `ecobench.measurement`. A record holds data and nothing that acts; `ecobench.store`
reads and writes them as JSON.

Format history (`schema`): 1, first.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from ecobench.gpu_records import CapState, GpuConditions, GpuSummary
from ecobench.measurement import (
    Boundary,
    BoundaryEnergy,
    DomainEnergy,
    EnergyCheck,
    Evidence,
    Interval,
    MeterAbsence,
    MeterInfo,
    QualityFlag,
    SecondOpinion,
    ZeusWindow,
)

SCHEMA = 1

ParameterValue: TypeAlias = int | float | str


class TrialStatus(StrEnum):
    """How a trial ended. `lost` is said of a trial whose harness ended before it could write the record, `running` of
    one whose harness is still at it; neither is ever stored.
    """

    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    LOST = "lost"
    RUNNING = "running"


class StopReason(StrEnum):
    """What `--until` may count."""

    STEPS = "steps"
    LOSS = "loss"
    TIME = "time"
    ENERGY = "energy"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseResult:
    """Time and energy of one phase of one trial; the innermost phase owns each instant.

    Attributes:
        domains: one answer for each domain; `checks` are what its other meters say of it.
    """

    phase: str
    duration_s: float
    n_segments: int
    domains: tuple[DomainEnergy, ...]
    boundaries: tuple[BoundaryEnergy, ...]
    checks: tuple[EnergyCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValue:
    """One `metric` event; `time_ns` on the machine's monotonic clock."""

    name: str
    value: float
    unit: str
    step: int
    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the workload trains towards: `metric <= at_most`."""

    metric: str
    at_most: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """Whether one trial's last value met the target, and where the metric first did.

    The first crossing is secondary: a single crossing certifies nothing (DESIGN: energy to target).
    """

    target: Target
    final_value: float | None
    is_met: bool
    first_step: int | None
    first_n_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What one trial measured in its measured phase, and beside it in all others. Derived from events and samples.

    Attributes:
        n_tokens: None where the workload reported no step inside the measured phase.
        boundaries: energy of the measured phase by boundary; empty without a meter.
        gpus: conditions of each GPU that was metered.
        cap_state: over all of them; None without a GPU.
    """

    measured_phase: str
    duration_s: float | None
    n_steps: int | None
    n_tokens: int | None
    boundaries: tuple[BoundaryEnergy, ...]
    phases: tuple[PhaseResult, ...]
    final_metrics: tuple[MetricValue, ...]
    target: TargetResult | None
    data_hash: str | None
    flags: tuple[QualityFlag, ...]
    gpus: tuple[GpuConditions, ...] = ()
    cap_state: CapState | None = None
    second_opinions: tuple[SecondOpinion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTimes:
    """The trial's own instants, on the machine's monotonic clock."""

    sampler_up_ns: int
    launch_ns: int
    exit_ns: int
    sampler_down_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSetting:
    """What a run sets on one GPU.

    Attributes:
        limit_w: the power limit; None: left as it is.
        sm_clock_mhz: what the SM clock is locked to; None: not locked.
        text: how the watts came about: `85 % of default 700 W = 595 W, range 200 to 700 W`.
    """

    uuid: str
    index: int
    name: str
    limit_w: float | None
    sm_clock_mhz: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """Power limit of one GPU: as requested, and as enforced by all limiters. `persistence` None: it does not tell."""

    requested_w: float
    enforced_w: float
    persistence: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChange:
    """Somebody else changed the limit during a trial; `time_ns` is when it was seen, on the monotonic clock."""

    time_ns: int
    requested_w: float
    enforced_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """What was set on one GPU for one trial, what became of it, and that it was put back.

    Attributes:
        before: as found, and to be put back.
        during: as read back before the launch.
        at_end: as read after the workload's end; None where the board did not answer.
        after: as read after it was put back.
        changes: what others did meanwhile, in order.
        problem: why it could not be put back; None where it was.
    """

    setting: GpuSetting
    before: LimitState
    during: LimitState | None
    at_end: LimitState | None
    after: LimitState | None
    changes: tuple[LimitChange, ...]
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnd:
    """How one execution ended, as the harness saw it from outside. Together with events and samples it gives the rest.

    Attributes:
        exit_code: of the workload; negative is the signal that ended it; None where nobody saw it.
        error: why there is no exit code.
        n_orphans_ended: processes that the workload left behind and that were ended after it.
        interrupted_by: the signal that ended the run, by name.
        last_words: last line of the workload's stderr, where it did not end well.
        controls: what was set on the machine and put back.
        zeus: Zeus's window around the workload; None where it was not asked.
    """

    times: TrialTimes
    boot_id: str
    exit_code: int | None
    error: str | None
    n_orphans_ended: int
    was_asked_to_stop: bool
    interrupted_by: str | None
    last_words: str | None
    controls: tuple[ControlRecord, ...] = ()
    zeus: ZeusWindow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """`trial.json`: one execution of one configuration, as it ended.

    Attributes:
        message: one line on how it ended, None where all is well.
        end: None where the workload never started.
    """

    schema: int
    index: int
    status: TrialStatus
    started_utc: str
    message: str | None
    end: TrialEnd | None
    result: TrialResult | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """`--until`: the workload is asked to stop once this is reached; it truncates, it never rescales a schedule.

    Attributes:
        limit: steps, loss, seconds or joules, by `reason`.
        text: as typed.
    """

    reason: StopReason
    limit: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Everything that was asked for, resolved: the one configuration that all trials of the run execute.

    Attributes:
        simulation: the node that was simulated, and its seed; None: a real machine.
    """

    workload: str
    workload_path: str
    preset: str
    ranks: int
    parameters: dict[str, ParameterValue]
    command: tuple[str, ...]
    environment: dict[str, str]
    measured_phase: str
    token_rule: str
    target: Target | None
    meter: str
    n_trials: int
    stop_rule: StopRule | None
    settings: tuple[GpuSetting, ...] = ()
    simulation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRecord:
    """The machine that a run ran on. No host name: a report is sent around."""

    system: str
    kernel: str
    architecture: str
    cpu_model: str
    n_logical_cpus: int
    memory_bytes: int
    python: str
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What produced the numbers: versions of the packages, and the state of the checkout where there is one."""

    ecobench: str
    packages: dict[str, str]
    git_commit: str | None
    git_is_dirty: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """`run.json`: written before the first trial starts."""

    schema: int
    id: str
    created_utc: str
    argv: tuple[str, ...]
    spec: RunSpec
    machine: MachineRecord
    provenance: Provenance
    meters: tuple[MeterInfo, ...]
    absences: tuple[MeterAbsence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One printed number, with everything that qualifies it.

    Attributes:
        key: `energy_per_token_j`; the JSON name, its unit at the end.
        value: mean over the trials that have it; None with a `reason`.
        n: trials behind the value.
        repeatability: 95 % interval of the mean between trials (t); None where n < 2.
        instrument: interval that the instrument leaves open, k = 2; None where there is none to state.
    """

    key: str
    label: str
    value: float | None
    unit: str
    reason: str | None
    n: int
    repeatability: Interval | None
    instrument: Interval | None
    boundary: Boundary | None
    evidence: Evidence | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSummary:
    """Mean time and energy of one phase over the trials."""

    phase: str
    is_measured: bool
    duration_s: float
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """`summary.json`: what a run found. Derived, and rebuildable from the trials.

    Attributes:
        status: worst status of the trials.
        is_valid: no trial failed and no flag says `invalid`.
        not_counted: what the energy does not include, in words.
        to_improve: what would make the numbers better on this machine.
        cap_state: over all GPUs and trials; None without a GPU.
        second_opinion: what Zeus said beside us, in words, trial by trial; empty where it was not asked.
    """

    schema: int
    id: str
    status: TrialStatus
    is_valid: bool
    n_trials: int
    n_trials_planned: int
    figures: tuple[Figure, ...]
    phases: tuple[PhaseSummary, ...]
    target: Target | None
    n_target_met: int | None
    flags: tuple[QualityFlag, ...]
    not_counted: tuple[str, ...]
    to_improve: tuple[str, ...]
    gpus: tuple[GpuSummary, ...] = ()
    cap_state: CapState | None = None
    second_opinion: tuple[str, ...] = ()
