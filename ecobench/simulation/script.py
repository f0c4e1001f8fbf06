"""One simulated execution, written before it runs: what each rank will say, and what power each board will take. Pure.

init, compile (waiting with a context) → warm-up → train: steps, each with a stretch of high and one of low power,
and evaluations → goodbye
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ecobench.simulation.node import Board, Load, OperatingPoint, heat, settled_point
from ecobench.simulation.recipe import Recipe
from ecobench.simulation.truth import PowerTruth
from ecobench.trace import Float64s, Int64s
from ecobench.units import NS_PER_S

HEAT_EVERY_NS = NS_PER_S // 2
# Standard deviations between the steps of one run, as shares. Assumed.
STEP_SCATTER = 0.002
POWER_SCATTER = 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFault:
    """What goes wrong with the workload or its boards; instants after the launch, None: it does not.

    Attributes:
        throttles_at_s: all boards fall to `throttle_clock_share` of full clock from then on.
        crashes_at_s: rank `crashing_rank` ends without a word, and the others with it.
        open_phase: this phase never says that it stops.
    """

    throttles_at_s: float | None = None
    throttle_clock_share: float = 0.5
    crashes_at_s: float | None = None
    crashing_rank: int = 0
    open_phase: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingBoard:
    """One board of the node, what is asked of it, and its limits."""

    board: Board
    load: Load
    limit_w: float
    max_clock_share: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Script:
    """What will happen, from the launch at `launch_ns`.

    Attributes:
        says: of rank 0, `(time_ns, event)` in order; other ranks say hello, their phases and goodbye.
        step_stop_ns: end of each step of the measured phase.
        powers_w: of each board in each stretch, `(n_boards, n)`; `edges_ns` has n + 1.
        is_busy: whether boards work in a stretch, `(n,)`; `is_throttled` whether something holds them back.
    """

    launch_ns: int
    exit_ns: int
    exit_code: int
    says: tuple[tuple[int, dict[str, Any]], ...]
    step_stop_ns: Int64s
    edges_ns: Int64s
    powers_w: Float64s
    is_busy: Float64s
    is_throttled: Float64s
    points: tuple[OperatingPoint, ...]

    def truth(self, index: int) -> PowerTruth:
        """True power of one board."""
        return PowerTruth(edges_ns=self.edges_ns, power_w=self.powers_w[index])

    def temperature_c(self, index: int, board: Board) -> tuple[Int64s, Float64s]:
        """Die temperature of one board, at instants half a second apart; power in between by its mean."""
        last_ns = max(int(self.edges_ns[-1]), self.launch_ns + HEAT_EVERY_NS)
        times_ns = np.arange(self.launch_ns, last_ns + HEAT_EVERY_NS, HEAT_EVERY_NS, dtype=np.int64)
        means_w = self.truth(index).mean_power_w(times_ns[1:], window_ns=HEAT_EVERY_NS)
        state = (0.0, board.resistance_c_per_w * (1 - board.die_share) * board.context_idle_w)
        found = [board.ambient_c + sum(state)]
        for power_w in means_w.tolist():
            state = heat(board, state, power_w=power_w, duration_s=HEAT_EVERY_NS / NS_PER_S)
            found.append(board.ambient_c + sum(state))
        return times_ns, np.array(found)


class _Pen:
    """Collects stretches of power and events as time goes on."""

    def __init__(self, launch_ns: int) -> None:
        self.now_ns = launch_ns
        self.says: list[tuple[int, dict[str, Any]]] = []
        self.edges: list[Int64s] = [np.array([launch_ns], dtype=np.int64)]
        self.levels: list[Float64s] = []  # a row a board
        self.busy: list[Float64s] = []
        self.throttled: list[Float64s] = []

    def say(self, event: str, **fields: Any) -> None:
        self.says.append((self.now_ns, {"event": event, **fields}))

    def stretch(self, ends_ns: Int64s, levels_w: Float64s, *, busy: float, throttled: float = 0.0) -> None:
        self.edges.append(ends_ns)
        self.levels.append(levels_w)
        self.busy.append(np.full(len(ends_ns), busy))
        self.throttled.append(np.full(len(ends_ns), throttled))
        self.now_ns = int(ends_ns[-1])

    def wait(self, duration_s: float, levels_w: Float64s, *, busy: float = 0.0) -> None:
        if duration_s > 0:
            ends = np.array([self.now_ns + round(duration_s * NS_PER_S)], dtype=np.int64)
            self.stretch(ends, levels_w[:, None], busy=busy)


def write_script(
    recipe: Recipe,
    boards: tuple[WorkingBoard, ...],
    *,
    ranks: int,
    launch_ns: int,
    chance: np.random.Generator,
    hello: dict[str, Any],
    fault: WorkloadFault,
    stop_after_step: int | None = None,
) -> Script:
    """The script of one execution; the same `chance` gives the same up to where a stop cuts it."""
    at_work, points = boards[:ranks], _points(boards[:ranks], clock_share=1.0)
    held = _points(at_work, clock_share=fault.throttle_clock_share)
    speed = min(one.speed_share for one in points)
    held_speed = min(one.speed_share for one in held)
    waiting = np.array([one.board.context_idle_w for one in boards])
    idle = np.array([one.board.idle_w for one in boards])
    waiting[ranks:] = idle[ranks:]
    busy, busy_held = waiting.copy(), waiting.copy()
    busy[:ranks] = _powers(at_work, points, speed)
    busy_held[:ranks] = _powers(at_work, held, held_speed)

    pace = 1 + recipe.step_spread * float(chance.standard_normal())
    jitter = 1 + STEP_SCATTER * chance.standard_normal(len(recipe.step_s))
    final_loss = recipe.final_loss + recipe.loss_spread * float(chance.standard_normal())
    step_ns = np.rint(recipe.step_s * pace * jitter / speed * NS_PER_S).astype(np.int64)

    pen = _Pen(launch_ns)
    pen.wait(2.0, idle)
    pen.say("hello", **hello)
    pen.say("phase_start", phase="init")
    pen.wait(recipe.init_s, waiting)
    pen.say("phase_stop", phase="init")
    pen.say("phase_start", phase="compile")
    pen.wait(recipe.compile_s, waiting)
    pen.say("phase_stop", phase="compile")
    pen.say("phase_start", phase="warmup")
    pen.wait(recipe.n_warmup_steps * float(recipe.step_s[0]) / speed, busy, busy=1.0)
    pen.say("phase_stop", phase="warmup")
    pen.say("phase_start", phase="train")
    step_stop_ns = _train(
        pen,
        recipe,
        step_ns,
        busy,
        busy_held,
        slower=speed / held_speed,
        fault=fault,
        final_loss=final_loss,
        n_done=len(step_ns) if stop_after_step is None else stop_after_step,
        evaluation_s=recipe.evaluation_s / speed,
        chance=chance,
    )
    pen.say("phase_stop", phase="train")
    pen.wait(0.2, waiting)
    pen.say("goodbye", status="done" if len(step_stop_ns) == len(step_ns) else "stopped")
    pen.wait(1.0, idle)
    says = [one for one in pen.says if one[1] != {"event": "phase_stop", "phase": fault.open_phase}]
    exit_ns, exit_code = pen.now_ns, 0
    if fault.crashes_at_s is not None:
        crash_ns = launch_ns + round(fault.crashes_at_s * NS_PER_S)
        if crash_ns < exit_ns:
            exit_ns, exit_code = crash_ns, 1
            says = [one for one in says if one[0] < crash_ns]
    return Script(
        launch_ns=launch_ns,
        exit_ns=exit_ns,
        exit_code=exit_code,
        says=tuple(says),
        step_stop_ns=step_stop_ns,
        edges_ns=np.concatenate(pen.edges),
        powers_w=np.concatenate(pen.levels, axis=1),
        is_busy=np.concatenate(pen.busy),
        is_throttled=np.concatenate(pen.throttled),
        points=tuple(points),
    )


def _train(
    pen: _Pen,
    recipe: Recipe,
    step_ns: Int64s,
    busy: Float64s,
    busy_held: Float64s,
    *,
    slower: float,
    fault: WorkloadFault,
    final_loss: float,
    n_done: int,
    evaluation_s: float,
    chance: np.random.Generator,
) -> Int64s:
    """Steps and evaluations of the measured phase; the end of each step."""
    n_steps, every = len(step_ns), recipe.validation_every
    throttle_ns = (
        None if fault.throttles_at_s is None else int(pen.edges[0][0]) + round(fault.throttles_at_s * NS_PER_S)
    )
    stops: list[Int64s] = []
    if every:
        _evaluate(pen, recipe, 0, evaluation_s, busy, final_loss=final_loss, n_steps=n_steps)
    done = 0
    while done < n_done:
        until = min(n_done, (done // every + 1) * every if every else n_done)
        durations = step_ns[done:until]
        ends = pen.now_ns + np.cumsum(durations)
        n_normal = len(ends) if throttle_ns is None else int(np.searchsorted(ends, throttle_ns))
        if n_normal < len(ends):
            durations = durations.copy()
            durations[n_normal:] = np.rint(durations[n_normal:] * slower)
            ends = pen.now_ns + np.cumsum(durations)
        for part, levels, held in ((slice(0, n_normal), busy, 0.0), (slice(n_normal, None), busy_held, 1.0)):
            if len(ends[part]):
                _steps(pen, recipe, ends[part], durations[part], levels, throttled=held, chance=chance)
        for index, end_ns in enumerate(ends.tolist(), start=done + 1):
            pen.says.append(
                (end_ns, {"event": "step", "step": index, "tokens": index * recipe.n_step_tokens, "synced": False})
            )
        stops.append(ends)
        done = until
        if every:
            _evaluate(pen, recipe, done, evaluation_s, busy, final_loss=final_loss, n_steps=n_steps)
    return np.concatenate(stops) if stops else np.zeros(0, dtype=np.int64)


def _steps(
    pen: _Pen,
    recipe: Recipe,
    ends_ns: Int64s,
    durations_ns: Int64s,
    mean_w: Float64s,
    *,
    throttled: float,
    chance: np.random.Generator,
) -> None:
    """Each step: high power, then low; the mean is `mean_w`, but for what differs between steps."""
    low_ns = np.maximum(np.rint(durations_ns * recipe.low_time_share).astype(np.int64), 1)
    edges = np.empty(2 * len(ends_ns), dtype=np.int64)
    edges[0::2], edges[1::2] = ends_ns - low_ns, ends_ns
    low_share = low_ns / durations_ns
    levels = np.empty((len(mean_w), 2 * len(ends_ns)))
    levels[:, 1::2] = mean_w[:, None] * recipe.low_power_share
    levels[:, 0::2] = mean_w[:, None] * ((1 - recipe.low_power_share * low_share) / (1 - low_share))
    levels *= 1 + POWER_SCATTER * chance.standard_normal(levels.shape)
    pen.stretch(edges, levels, busy=1.0, throttled=throttled)


def _evaluate(
    pen: _Pen, recipe: Recipe, step: int, duration_s: float, levels_w: Float64s, *, final_loss: float, n_steps: int
) -> None:
    pen.say("phase_start", phase="eval")
    pen.wait(duration_s, levels_w, busy=1.0)
    loss = recipe.loss_at(step / n_steps, final_loss=final_loss)
    pen.say("metric", name="val_loss", value=round(loss, 6), unit="nats/token", step=step)
    pen.say("phase_stop", phase="eval")


def _points(boards: tuple[WorkingBoard, ...], *, clock_share: float) -> list[OperatingPoint]:
    return [
        settled_point(one.board, one.load, limit_w=one.limit_w, max_clock_share=min(one.max_clock_share, clock_share))
        for one in boards
    ]


def _powers(boards: tuple[WorkingBoard, ...], points: list[OperatingPoint], speed: float) -> list[float]:
    """Mean power of each: who is faster than the slowest waits for it."""
    return [
        point.power_w * speed / point.speed_share + one.board.context_idle_w * (1 - speed / point.speed_share)
        for one, point in zip(boards, points, strict=True)
    ]
