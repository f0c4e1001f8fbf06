"""The live line of a run: one line that is rewritten on a terminal, a plain line now and then elsewhere."""

import sys
import time

from ecobench.cli.console import say, write_stderr
from ecobench.live import Progress
from ecobench.records import RunSpec
from ecobench.units import format_duration, format_number, format_si

TERMINAL_EVERY_S = 0.2
LOG_EVERY_S = 10.0


class LiveLine:
    """Shows one trial's progress on stderr."""

    def __init__(self, spec: RunSpec, *, index: int, is_estimate: bool) -> None:
        self._spec = spec
        self._index = index
        self._is_estimate = is_estimate
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._started_s = time.monotonic()
        self._next_s = self._started_s
        self._is_drawn = False

    def __call__(self, progress: Progress) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + (TERMINAL_EVERY_S if self._is_terminal else LOG_EVERY_S)
        line = self._line(progress, elapsed_s=now_s - self._started_s)
        if self._is_terminal:
            write_stderr(f"\r\x1b[2K{line[:119]}")
            self._is_drawn = True
        else:
            say(line)

    def close(self) -> None:
        """Leave the terminal at the start of a fresh line."""
        if self._is_drawn:
            write_stderr("\r\x1b[2K")
            self._is_drawn = False

    def _line(self, progress: Progress, *, elapsed_s: float) -> str:
        parts = ["SIMULATED"] if self._spec.simulation is not None else []
        parts += [f"trial {self._index + 1}/{self._spec.n_trials}", format_duration(elapsed_s)]
        parts.append(progress.phases[-1] if progress.phases else "starting")
        if progress.last_step is not None:
            total = self._spec.parameters.get("steps")
            parts.append(f"step {progress.last_step.step}" + (f"/{total}" if total else ""))
        if progress.tokens_per_s is not None:
            parts.append(f"{format_number(progress.tokens_per_s, digits=3)} tokens/s")
        parts += [f"{name} {format_number(metric.value)}" for name, metric in list(progress.metrics.items())[-2:]]
        if progress.energy_j is not None:
            parts.append(f"{format_si(progress.energy_j, 'J', digits=3)}{' EST' if self._is_estimate else ''}")
        return " | ".join(parts)
