"""What a running workload has said so far: its event files tailed while they grow."""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from ecobench.records import MetricValue, StopReason, StopRule, Target
from ecobench.transcript import Event, PhaseMark, Step, TranscriptReader
from ecobench.units import seconds

# The live speed is that of the last this many seconds.
SPEED_OVER_NS = 5_000_000_000
# A workload that floods the file must not keep the harness from heeding an interrupt.
LARGEST_LOOK_BYTES = 1 << 20


@dataclass(kw_only=True)
class Progress:
    """State of one trial, for the live line and the stop rule.

    Attributes:
        phases: open phases, outermost first.
        measured_since_ns: when the measured phase started; None before.
        metrics: last value of each metric.
    """

    measured_phase: str
    phases: list[str] = field(default_factory=list)
    measured_since_ns: int | None = None
    last_step: Step | None = None
    n_steps: int = 0
    metrics: dict[str, MetricValue] = field(default_factory=dict)
    energy_j: float | None = None
    _recent: deque[Step] = field(default_factory=deque)

    def take(self, event: Event) -> None:
        """Move on by one event of rank 0."""
        if isinstance(event, PhaseMark):
            if event.is_start:
                self.phases.append(event.phase)
                if event.phase == self.measured_phase and self.measured_since_ns is None:
                    self.measured_since_ns = event.time_ns
            elif self.phases and self.phases[-1] == event.phase:
                self.phases.pop()
        elif isinstance(event, Step):
            self.last_step = event
            self.n_steps += 1
            self._recent.append(event)
            while event.time_ns - self._recent[0].time_ns > SPEED_OVER_NS:
                self._recent.popleft()
        elif isinstance(event, MetricValue):
            self.metrics[event.name] = event

    @property
    def tokens_per_s(self) -> float | None:
        """Over the last seconds; None before the second step."""
        if len(self._recent) < 2:
            return None
        first, last = self._recent[0], self._recent[-1]
        duration_s = seconds(last.time_ns - first.time_ns)
        return (last.n_tokens - first.n_tokens) / duration_s if duration_s > 0 else None


class EventTail:
    """Reads what was appended to a folder's event files since the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offset = 0
        self._reader = TranscriptReader(rank=0)

    def read(self) -> list[Event]:
        """New events of rank 0."""
        path = self._folder / "rank-00000.jsonl"
        try:
            if not path.is_file():  # a pipe would never end
                return []
            with open(path, "rb") as file:
                file.seek(self._offset)
                data = file.read(LARGEST_LOOK_BYTES)
        except FileNotFoundError:
            return []
        self._offset += len(data)
        return self._reader.feed(data)


def is_reached(rule: StopRule, progress: Progress, *, target: Target | None, now_ns: int) -> bool:
    """Whether the workload is to be asked to stop.

    `time` counts from the start of the measured phase, `steps` is the number in the step events, `energy` all meters
    from the start of the trial, and `loss` is the target's metric (else `val_loss`).
    """
    if rule.reason is StopReason.STEPS:
        return progress.last_step is not None and progress.last_step.step >= rule.limit
    if rule.reason is StopReason.TIME:
        since_ns = progress.measured_since_ns
        return since_ns is not None and seconds(now_ns - since_ns) >= rule.limit
    if rule.reason is StopReason.ENERGY:
        return progress.energy_j is not None and progress.energy_j >= rule.limit
    metric = progress.metrics.get(target.metric if target is not None else "val_loss")
    return metric is not None and metric.value <= rule.limit
