"""GPUs as the report shows them: a line each, whether their power limit held them back, and counter against power."""

from collections.abc import Sequence

from ecobench.gpu_records import CapState, GpuSummary
from ecobench.measurement import EnergyCheck
from ecobench.records import RunSummary, TrialRecord
from ecobench.units import format_number, format_si

GPU_COLUMNS = ("energy", "mean power", "limit asked/in force", "SM clock", "mean/max temp", "limited")
CHECK_COLUMNS = ("counter", "polled", "ratio", "own ratio", "verdict")

_CAP_IN_WORDS = {
    CapState.BOUND: "bound: it held every GPU back for half of the time or more",
    CapState.PARTLY: "bound partly",
    CapState.NEVER_BOUND: "never bound: it made no difference",
    CapState.UNKNOWN: "not known whether it bound: a GPU does not count the time",
}


def gpu_cells(gpu: GpuSummary) -> tuple[str, ...]:
    """The cells under `GPU_COLUMNS`; `-` for what a board does not tell."""
    limits = (_cell(gpu.limit_requested_w), _cell(gpu.limit_enforced_w))
    temperatures = (_cell(gpu.temperature_c, digits=3), _cell(gpu.hottest_c, digits=3))
    return (
        "-" if gpu.energy_j is None else format_si(gpu.energy_j, "J"),
        _cell(gpu.mean_power_w, "W"),
        "-" if limits == ("-", "-") else f"{'/'.join(limits)} W",
        _cell(gpu.sm_clock_mhz, "MHz"),
        "-" if temperatures == ("-", "-") else f"{'/'.join(temperatures)} C",
        "-" if gpu.limited_share is None else f"{gpu.limited_share * 100:.3g} %",
    )


def cap_text(summary: RunSummary) -> str | None:
    """`power limit: bound: it held ..., 62 to 71 % of the time`; None where no GPU was metered."""
    if summary.cap_state is None:
        return None
    shares = [gpu.limited_share for gpu in summary.gpus if gpu.limited_share is not None]
    text = f"power limit: {_CAP_IN_WORDS[summary.cap_state]}"
    if not shares:
        return text
    low, high = (f"{share * 100:.3g}" for share in (min(shares), max(shares)))
    return f"{text}; {low} % of the time" if low == high else f"{text}; {low} to {high} % of the time"


def stragglers_text(gpus: Sequence[GpuSummary]) -> str | None:
    """Which GPU runs furthest from the others' median clock, where that is more than 2 %; None where none does."""
    clocks = {gpu.domain: gpu.sm_clock_mhz for gpu in gpus if gpu.sm_clock_mhz is not None}
    if len(clocks) < 3:
        return None
    median = sorted(clocks.values())[len(clocks) // 2]
    slowest = min(clocks, key=lambda domain: clocks[domain])
    behind = 1 - clocks[slowest] / median if median else 0.0
    return f"{slowest} runs {behind:.1%} under the median clock of all GPUs." if behind > 0.02 else None


def check_rows(trials: Sequence[TrialRecord]) -> list[tuple[str, tuple[str, ...], str]]:
    """Of each trial: which check, its cells under `CHECK_COLUMNS`, and the reason of its verdict."""
    rows = []
    for trial in trials:
        result = trial.result
        for phase in result.phases if result is not None else ():
            if result is not None and phase.phase == result.measured_phase:
                rows += [(_check_name(trial.index, check), _check_cells(check), check.reason) for check in phase.checks]
    return rows


def _check_name(trial: int, check: EnergyCheck) -> str:
    trimmed = f", edges of {check.trimmed_s:g} s left out" if check.trimmed_s else ""
    return f"{trial} {check.domain}, {check.kind.value.replace('_', ' ')}{trimmed}"


def _check_cells(check: EnergyCheck) -> tuple[str, ...]:
    return (
        "-" if check.counter_j is None else format_si(check.counter_j, "J"),
        "-" if check.polled_j is None else format_si(check.polled_j, "J"),
        "-" if check.ratio is None else f"{check.ratio:.4f}",
        "not calibrated" if check.calibrated_ratio is None else f"{check.calibrated_ratio:.4f}",
        check.verdict.value,
    )


def _cell(value: float | None, unit: str = "", *, digits: int = 4) -> str:
    return "-" if value is None else f"{format_number(value, digits=digits)} {unit}".rstrip()
