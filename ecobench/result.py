"""From a trial's events and samples to its result. Pure: `ecobench verify` calls the same on the same bytes."""

import signal
from collections.abc import Sequence

from ecobench import board_quality, quality
from ecobench.agreement import polled_beats, window_energies
from ecobench.conditions import cap_state, gpu_conditions
from ecobench.energy import boundary_energies, counter_breaks
from ecobench.gpu_records import GpuConditions
from ecobench.opinion import second_opinions
from ecobench.records import (
    SCHEMA,
    MetricValue,
    PhaseResult,
    RunSpec,
    Target,
    TargetResult,
    TrialEnd,
    TrialRecord,
    TrialResult,
    TrialStatus,
)
from ecobench.trace import Trace
from ecobench.transcript import Step, Transcript
from ecobench.units import seconds
from ecobench.windows import count_work, trial_windows


def conclude_trial(
    spec: RunSpec,
    transcripts: Sequence[Transcript],
    traces: Sequence[Trace],
    end: TrialEnd,
    *,
    index: int,
    started_utc: str,
) -> TrialRecord:
    """The record of a trial that was launched and has ended."""
    status, message = status_of(transcripts, end)
    return TrialRecord(
        schema=SCHEMA,
        index=index,
        status=status,
        started_utc=started_utc,
        message=message,
        end=end,
        result=evaluate_trial(spec, transcripts, traces, end),
    )


def status_of(transcripts: Sequence[Transcript], end: TrialEnd) -> tuple[TrialStatus, str | None]:
    """How the trial ended, and one line on it where that is not well."""
    if end.interrupted_by is not None:
        return TrialStatus.INTERRUPTED, f"interrupted by {end.interrupted_by}"
    words = f": {end.last_words}" if end.last_words else ""
    if end.error is not None:
        return TrialStatus.FAILED, f"the workload was lost: {end.error}"
    if end.exit_code is not None and end.exit_code < 0:
        return TrialStatus.FAILED, f"the workload was ended by {_signal_name(-end.exit_code)}{words}"
    if end.exit_code != 0:
        return TrialStatus.FAILED, f"the workload ended with exit code {end.exit_code}{words}"
    if not transcripts:
        return TrialStatus.FAILED, "the workload ended without one event"
    goodbyes = {one.goodbye.status if one.goodbye is not None else None for one in transcripts}
    if None in goodbyes:
        return TrialStatus.FAILED, "the workload ended without a goodbye: it crashed, whatever its exit code"
    if TrialStatus.FAILED in goodbyes:
        return TrialStatus.FAILED, f"the workload says that it failed{words}"
    if TrialStatus.STOPPED in goodbyes:
        return TrialStatus.STOPPED, None
    return TrialStatus.DONE, None


def evaluate_trial(
    spec: RunSpec, transcripts: Sequence[Transcript], traces: Sequence[Trace], end: TrialEnd
) -> TrialResult:
    """What the trial measured, with the reasons to doubt it."""
    first = next((one for one in transcripts if one.rank == 0), None)
    windows = trial_windows(transcripts, launch_ns=end.times.launch_ns, exit_ns=end.times.exit_ns)
    energies = window_energies(traces, windows.windows, transcript=first)
    phases = []
    for window, energy in zip(windows.windows, energies, strict=True):
        phases.append(
            PhaseResult(
                phase=window.phase,
                duration_s=seconds(window.duration_ns),
                n_segments=len(window.segments),
                domains=energy.domains,
                boundaries=boundary_energies(energy.domains),
                checks=energy.checks,
            )
        )
    measured = next((phase for phase in phases if phase.phase == spec.measured_phase), None)
    work = count_work(first, phase=spec.measured_phase) if first is not None else None
    n_tokens = work.n_tokens if work is not None else None
    target = _target_result(spec.target, first) if spec.target is not None else None
    is_killed = end.exit_code != 0 or end.interrupted_by is not None
    flags = quality.check_speech(spec, transcripts, end)
    flags += quality.check_controls(end)
    flags += quality.check_windows(spec, windows, is_killed=is_killed)
    flags += quality.check_work(n_tokens, phase=spec.measured_phase)
    if measured is not None:
        flags += quality.check_energy(measured.domains, measured.boundaries, duration_s=measured.duration_s)
    measured_window = windows.window(spec.measured_phase)
    gpus: tuple[GpuConditions, ...] = ()
    if measured is not None and measured_window is not None:
        beats = polled_beats(traces, measured_window, transcript=first)
        flags += board_quality.check_agreement(measured, beats)
        gpus = gpu_conditions(traces, measured.domains, measured_window)
        flags += board_quality.check_conditions(gpus)
        flags += board_quality.check_segments(measured_window, gpus)
        flags += board_quality.check_idle(traces, gpus, launch_ns=end.times.launch_ns)
        flags += board_quality.check_frozen(traces, measured_window, measured.checks)
        flags += board_quality.check_foreign(traces, measured_window)
        flags += board_quality.check_pace(traces)
    for trace in (one for one in traces if one.info.kind.carries_energy):
        flags += quality.check_trace(trace, counter_breaks(trace), measured_window)
    flags += quality.check_target(target, was_asked_to_stop=end.was_asked_to_stop or is_killed)
    return TrialResult(
        measured_phase=spec.measured_phase,
        duration_s=measured.duration_s if measured is not None else None,
        n_steps=work.n_steps if work is not None else None,
        n_tokens=n_tokens,
        boundaries=measured.boundaries if measured is not None else (),
        phases=tuple(phases),
        final_metrics=_final_metrics(first),
        target=target,
        data_hash=first.hello.data_hash if first is not None and first.hello is not None else None,
        flags=tuple(flags),
        gpus=gpus,
        cap_state=cap_state(one.cap_state for one in gpus),
        second_opinions=second_opinions(end.zeus, traces),
    )


def _final_metrics(transcript: Transcript | None) -> tuple[MetricValue, ...]:
    last: dict[str, MetricValue] = {}
    for metric in transcript.metrics if transcript is not None else ():
        last[metric.name] = metric
    return tuple(last.values())


def _target_result(target: Target, transcript: Transcript | None) -> TargetResult:
    final: float | None = None
    first_step: int | None = None
    first_n_tokens: int | None = None
    n_tokens = 0
    for event in transcript.events if transcript is not None else ():
        if isinstance(event, Step):
            n_tokens = event.n_tokens
        elif isinstance(event, MetricValue) and event.name == target.metric:
            final = event.value
            if first_step is None and event.value <= target.at_most:
                first_step, first_n_tokens = event.step, n_tokens
    return TargetResult(
        target=target,
        final_value=final,
        is_met=final is not None and final <= target.at_most,
        first_step=first_step,
        first_n_tokens=first_n_tokens,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
