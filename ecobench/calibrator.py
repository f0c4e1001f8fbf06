"""Calibrates boards: shows square waves to their sensors, one trial each, and asks `calibration` what they did."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ecobench import __version__
from ecobench.calibration import Wave, calibrate, wave_of
from ecobench.calibration_records import Calibration
from ecobench.catalog import Workload
from ecobench.config import choose
from ecobench.errors import WorkloadError
from ecobench.live import Progress
from ecobench.records import SCHEMA, TrialStatus
from ecobench.runner import make_spec
from ecobench.store.folders import TrialFolder
from ecobench.store.samples import read_traces
from ecobench.trial import Interruption, Observer, Seams, run_trial
from ecobench.windows import trial_windows

# Over what the wave itself takes: a CUDA context, a first product.
STARTUP_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveRequest:
    """One square wave to show."""

    period_s: float
    duty: float
    phase_s: float
    duration_s: float

    @property
    def n_periods(self) -> int:
        return max(1, round(self.duration_s / self.period_s))

    @property
    def text(self) -> str:
        shape = "plateau" if self.duty == 1 else f"{self.period_s:g} s, {self.duty:.0%} on"
        return f"{shape}, {self.n_periods * self.period_s:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardToCalibrate:
    """Who the sensors belong to."""

    uuid: str
    name: str


def wave_plan(duration_s: float) -> tuple[WaveRequest, ...]:
    """Periods that keep no time with 20 or 100 ms, and a plateau for the ratio."""
    shapes = ((0.23, 0.5, 0.0), (0.37, 0.4, 0.11), (1.73, 0.5, 0.05), (1.0, 1.0, 0.07))
    return tuple(
        # A plateau loses 3 s to the edges of a second's average.
        WaveRequest(period_s=period_s, duty=duty, phase_s=phase_s, duration_s=duration_s + (3 if duty == 1 else 0))
        for period_s, duty, phase_s in shapes
    )


def calibrate_boards(
    workload: Workload,
    plan: Sequence[WaveRequest],
    boards: Sequence[BoardToCalibrate],
    *,
    seams: Seams,
    driver: str,
    observer: Callable[[int, Progress], None],
    interruption: Interruption,
) -> tuple[Calibration, ...]:
    """Show every wave of the plan to all boards at once, and say what each board's sensors did.

    Raises:
        EcobenchError: a wave could not be shown, or nothing could be measured.
    """
    by_board: dict[str, list[Wave]] = {board.uuid: [] for board in boards}
    with tempfile.TemporaryDirectory(prefix="ecobench-calibrate-") as scratch:
        for index, request in enumerate(plan):
            for uuid, wave in _show(
                workload,
                request,
                TrialFolder(Path(scratch, f"{index:03d}")),
                seams=seams,
                observer=lambda progress, index=index: observer(index, progress),  # type: ignore[misc]
                interruption=interruption,
            ).items():
                by_board[uuid].append(wave)
            if interruption.count:
                raise WorkloadError(f"interrupted by {interruption.name}", hint="nothing was stored")
    return tuple(
        Calibration(
            schema=SCHEMA,
            uuid=board.uuid,
            name=board.name,
            driver=driver,
            created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            ecobench=__version__,
            waves=tuple(request.text for request in plan),
            sensors=calibrate(by_board[board.uuid]),
        )
        for board in boards
    )


def _show(
    workload: Workload,
    request: WaveRequest,
    folder: TrialFolder,
    *,
    seams: Seams,
    observer: Observer,
    interruption: Interruption,
) -> dict[str, Wave]:
    """The wave as each board's meters saw it, by UUID."""
    settings = [
        f"period_s={request.period_s}",
        f"duty={request.duty}",
        f"phase_s={request.phase_s}",
        f"periods={request.n_periods}",
    ]
    choice = choose(workload.manifest, preset="gpu", hardware="gpu", settings=settings)
    spec = make_spec(workload, choice, meter="auto", n_trials=1, stop_rule=None)
    record = run_trial(
        spec,
        folder,
        seams=seams,
        observer=observer,
        interruption=interruption,
        timeout_s=request.duration_s * 2 + STARTUP_S,
    )
    if record.status is not TrialStatus.DONE or record.end is None:
        raise WorkloadError(
            f"the square wave did not come to its end: {record.message or record.status.value}",
            hint=f"`ecobench run {workload.path} --preset gpu` runs it alone",
        )
    transcripts = folder.read_transcripts()
    train = trial_windows(transcripts, launch_ns=record.end.times.launch_ns, exit_ns=record.end.times.exit_ns).window(
        spec.measured_phase
    )
    traces = read_traces(folder.samples)
    found = {}
    for uuid in dict.fromkeys(trace.info.device for trace in traces):
        mine = [trace for trace in traces if trace.info.device == uuid]
        start_ns = train.segments[0].start_ns if train is not None else 0
        wave = wave_of(transcripts[0], mine, start_ns=start_ns) if train is not None else None
        if wave is not None and uuid is not None:
            found[uuid] = wave
    return found
