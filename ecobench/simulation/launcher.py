"""Launches a script instead of a program: it writes the events that are due whenever it is looked at."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from ecobench.events import STOP_FILE, VARIABLE
from ecobench.seams import LaunchExit, LaunchRequest
from ecobench.simulation.clock import SimulatedClock
from ecobench.simulation.script import Script, WorkloadFault
from ecobench.units import NS_PER_S

# No process has it: nothing that is asked about its tree finds one.
NO_PID = 2**22 + 1
# From SIGTERM to the end.
ENDS_WITHIN_S = 0.1


class SimulatedLauncher:
    """`Launcher` of one simulated execution. `write` gives its script, cut after a step where it is asked to stop."""

    def __init__(
        self,
        clock: SimulatedClock,
        *,
        ranks: int,
        fault: WorkloadFault,
        write: Callable[[int, int | None], Script],
        begins: Callable[[Script], None],
    ) -> None:
        self._clock = clock
        self._ranks = ranks
        self._fault = fault
        self._write = write
        self._begins = begins
        self._script: Script | None = None
        self._folder: Path | None = None
        self._stderr: Path | None = None
        self._n_said = 0
        self._is_asked = False
        self._killed_ns: int | None = None

    @property
    def pid(self) -> int:
        return NO_PID

    def guard(self, journals: Sequence[Path], *, run: str) -> None:
        """Nothing outlives the harness, and nothing is set outside of it."""

    def launch(self, request: LaunchRequest) -> int:
        launch_ns = self._clock.now_ns()
        self._folder, self._stderr = Path(request.environment[VARIABLE]), request.stderr_path
        request.stdout_path.touch()
        request.stderr_path.touch()
        self._play(self._write(launch_ns, None))
        return launch_ns

    def poll(self) -> LaunchExit | None:
        assert self._script is not None
        assert self._folder is not None
        now_ns = self._clock.now_ns()
        if not self._is_asked and (self._folder / STOP_FILE).exists():
            self._is_asked = True
            n_done = int((self._script.step_stop_ns <= now_ns).sum())
            self._play(self._write(self._script.launch_ns, min(n_done + 1, len(self._script.step_stop_ns))))
        ends_ns = self._script.exit_ns if self._killed_ns is None else min(self._killed_ns, self._script.exit_ns)
        self._speak(min(now_ns, ends_ns))
        if now_ns < ends_ns:
            return None
        self._clock.wake_at(None)
        code = self._script.exit_code if self._killed_ns is None else -15
        if code and self._stderr is not None:
            self._stderr.write_text(f"rank {self._fault.crashing_rank}: simulated crash\n", encoding="utf-8")
        return LaunchExit(exit_code=code, time_ns=ends_ns, n_orphans_ended=0, error=None)

    def stop(self, *, grace_s: float) -> None:
        self._killed_ns = self._clock.now_ns() + round(min(grace_s, ENDS_WITHIN_S) * NS_PER_S)
        self._clock.wake_at(self._killed_ns)

    def close(self) -> None:
        self._clock.wake_at(None)

    def _play(self, script: Script) -> None:
        self._script = script
        self._begins(script)
        self._clock.wake_at(script.exit_ns)

    def _speak(self, until_ns: int) -> None:
        """Append what has been said by then."""
        assert self._script is not None
        assert self._folder is not None
        says = self._script.says
        first = self._n_said
        while self._n_said < len(says) and says[self._n_said][0] <= until_ns:
            self._n_said += 1
        fresh = says[first : self._n_said]
        for rank in range(self._ranks):
            heard = fresh if rank == 0 else [one for one in fresh if one[1]["event"] not in ("step", "metric")]
            lines = []
            for time_ns, event in heard:
                shown = {**event, "rank": rank} if event["event"] == "hello" else event
                lines.append(json.dumps({"time_ns": time_ns, **shown}) + "\n")
            if lines:
                with open(self._folder / f"rank-{rank:05d}.jsonl", "a", encoding="utf-8") as file:
                    file.write("".join(lines))
