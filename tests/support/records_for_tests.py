"""Whole records with round numbers, each field of which a test may say otherwise.

run_spec(ranks=2)                        a spec like the others, with two ranks
trial_record(result=None)                a trial that measured nothing
transcript(hello(), step(1, 8), goodbye())    what rank 0 would be read to have said
"""

import dataclasses
import json
from typing import Any, TypeVar

from ecobench.measurement import (
    Boundary,
    BoundaryEnergy,
    DomainEnergy,
    Evidence,
    Interval,
    MeterInfo,
    QualityFlag,
    ReadingKind,
    Severity,
)
from ecobench.records import (
    SCHEMA,
    MachineRecord,
    MetricValue,
    PhaseResult,
    Provenance,
    RunRecord,
    RunSpec,
    Target,
    TargetResult,
    TrialEnd,
    TrialRecord,
    TrialResult,
    TrialStatus,
    TrialTimes,
)
from ecobench.seams import Sample
from ecobench.transcript import Transcript, read_transcript

T = TypeVar("T")

S = 1_000_000_000
BOOT = "one-boot"

METER = MeterInfo(
    domain="cpu:0/package",
    kind=ReadingKind.ENERGY_COUNTER,
    interface="powercap",
    boundary=Boundary.CPU,
    evidence=Evidence.C1,
    si_per_count=1e-6,
    period_ns=S // 10,
    wraps_at_count=1 << 40,
    max_power_w=400.0,
    instrument_share=Interval(low=-0.1, high=0.1),
    counted="cores, caches, memory controller",
    basis="a test",
)
TARGET = Target(metric="val_loss", at_most=1.5, unit="nats/token")
SPEC = RunSpec(
    workload="toy",
    workload_path="/workloads/toy",
    preset="cpu",
    ranks=1,
    parameters={"steps": 2, "step_time": 0.5, "mode": "plain"},
    command=("python", "main.py", "--steps=2"),
    environment={"PYTHONUNBUFFERED": "1"},
    measured_phase="train",
    token_rule="one a count",
    target=None,
    meter="auto",
    n_trials=3,
    stop_rule=None,
)
RUN = RunRecord(
    schema=SCHEMA,
    id="20260902-141503-toy-abcd",
    created_utc="2026-09-02T14:15:03+00:00",
    argv=("ecobench", "run", "toy"),
    spec=SPEC,
    machine=MachineRecord(
        system="Linux",
        kernel="6.1",
        architecture="x86_64",
        cpu_model="a processor",
        n_logical_cpus=2,
        memory_bytes=1 << 33,
        python="3.11.9",
        boot_id=BOOT,
    ),
    provenance=Provenance(ecobench="0.1.0", packages={"numpy": "2.0.0"}, git_commit=None, git_is_dirty=None),
    meters=(METER,),
    absences=(),
)
END = TrialEnd(
    times=TrialTimes(sampler_up_ns=0, launch_ns=1 * S, exit_ns=9 * S, sampler_down_ns=10 * S),
    boot_id=BOOT,
    exit_code=0,
    error=None,
    n_orphans_ended=0,
    was_asked_to_stop=False,
    interrupted_by=None,
    last_words=None,
)
ENERGY = BoundaryEnergy(
    boundary=Boundary.CPU,
    evidence=Evidence.C1,
    domains=("cpu:0/package",),
    energy_j=100.0,
    reason=None,
    instrument=Interval(low=90.0, high=110.0),
)
DOMAIN_ENERGY = DomainEnergy(
    domain="cpu:0/package",
    boundary=Boundary.CPU,
    evidence=Evidence.C1,
    method="counter",
    energy_j=100.0,
    reason=None,
    instrument=Interval(low=90.0, high=110.0),
    coverage_share=1.0,
    largest_gap_s=0.1,
)
PHASE = PhaseResult(phase="train", duration_s=10.0, n_segments=1, domains=(DOMAIN_ENERGY,), boundaries=(ENERGY,))
RESULT = TrialResult(
    measured_phase="train",
    duration_s=10.0,
    n_steps=2,
    n_tokens=1000,
    boundaries=(ENERGY,),
    phases=(PHASE,),
    final_metrics=(MetricValue(name="val_loss", value=1.25, unit="nats/token", step=2, time_ns=8 * S),),
    target=TargetResult(target=TARGET, final_value=1.25, is_met=True, first_step=2, first_n_tokens=1000),
    data_hash="d0",
    flags=(),
)
TRIAL = TrialRecord(
    schema=SCHEMA,
    index=0,
    status=TrialStatus.DONE,
    started_utc="2026-09-02T14:15:04.000+00:00",
    message=None,
    end=END,
    result=RESULT,
)


def but(record: T, **changes: Any) -> T:
    """`record` with some fields said otherwise."""
    return dataclasses.replace(record, **changes)  # type: ignore[type-var]  # any record is a dataclass


def run_spec(**changes: Any) -> RunSpec:
    """A spec of three trials of the toy, without a target."""
    return but(SPEC, **changes)


def run_record(**changes: Any) -> RunRecord:
    """A run of that spec; `spec` may be given too."""
    return but(RUN, **changes)


def trial_end(**changes: Any) -> TrialEnd:
    """A workload that ran from 1 s to 9 s and ended with 0."""
    return but(END, **changes)


def trial_result(**changes: Any) -> TrialResult:
    """1000 tokens and 100 J (90 to 110) in 10 s of `train`; val_loss 1.25."""
    return but(RESULT, **changes)


def trial_record(**changes: Any) -> TrialRecord:
    """A trial that is done, with that result."""
    return but(TRIAL, **changes)


def meter_info(**changes: Any) -> MeterInfo:
    """A counter of microjoules, read ten times a second."""
    return but(METER, **changes)


def measured(energy_j: float, *, n_tokens: int = 1000, index: int = 0, **changes: Any) -> TrialRecord:
    """A done trial of 10 s whose measured phase took `energy_j`, give or take a tenth."""
    energy = but(ENERGY, energy_j=energy_j, instrument=Interval(low=energy_j * 0.9, high=energy_j * 1.1))
    phase = but(PHASE, boundaries=(energy,))
    result = trial_result(boundaries=(energy,), phases=(phase,), n_tokens=n_tokens)
    return trial_record(index=index, result=result, **changes)


def quality_flag(code: str, severity: Severity) -> QualityFlag:
    """A flag that says no more than its code."""
    return QualityFlag(code=code, severity=severity, evidence=f"evidence of {code}")


def sample(time_ns: int, raw: int | None, *, error: str | None = None) -> Sample:
    """A reading that took a microsecond."""
    return Sample(time_ns=time_ns, raw=raw, call_ns=1000, error=error)


def hello(time_ns: int = 1 * S, **changes: Any) -> dict[str, Any]:
    """First event of a rank that understood what `SPEC` asks for."""
    fields = {"protocol": 1, "rank": 0, "world_size": 1, "pid": 7, "boot_id": BOOT, "wall_ns": 1}
    return {
        "event": "hello",
        "time_ns": time_ns,
        **fields,
        "parameters": dict(SPEC.parameters),
        "data_hash": "d0",
        **changes,
    }


def phase_start(time_ns: int, name: str = "train") -> dict[str, Any]:
    """`name` starts."""
    return {"event": "phase_start", "time_ns": time_ns, "phase": name}


def phase_stop(time_ns: int, name: str = "train") -> dict[str, Any]:
    """`name` stops."""
    return {"event": "phase_stop", "time_ns": time_ns, "phase": name}


def step(time_ns: int, number: int, n_tokens: int) -> dict[str, Any]:
    """A step with its cumulative tokens."""
    return {"event": "step", "time_ns": time_ns, "step": number, "tokens": n_tokens, "synced": False}


def metric(time_ns: int, name: str, value: float, number: int) -> dict[str, Any]:
    """A metric in nats/token at step `number`."""
    return {
        "event": "metric",
        "time_ns": time_ns,
        "name": name,
        "value": value,
        "unit": "nats/token",
        "step": number,
    }


def goodbye(time_ns: int, status: str = "done") -> dict[str, Any]:
    """Last event of a rank."""
    return {"event": "goodbye", "time_ns": time_ns, "status": status}


# 2 s of warm-up, 5 s of train with two steps of 500 tokens, a validation loss after each.
SPEECH = (
    hello(1 * S),
    phase_start(1 * S, "warmup"),
    phase_stop(3 * S, "warmup"),
    phase_start(3 * S),
    step(5 * S, 1, 500),
    metric(5 * S, "val_loss", 2.0, 1),
    step(7 * S, 2, 1000),
    metric(7 * S, "val_loss", 1.25, 2),
    phase_stop(8 * S),
    goodbye(8 * S),
)


def as_lines(*events: dict[str, Any]) -> bytes:
    """Events as a rank's file holds them."""
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def transcript(*events: dict[str, Any], rank: int = 0) -> Transcript:
    """What is read of these events."""
    return read_transcript(as_lines(*events), rank=rank)
