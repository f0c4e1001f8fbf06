"""What the sensors of a board do to a load of known shape: update period, averaging window, lag, coverage, ratio. Pure.

The load is a square wave whose edges are known (workload `squarewave`). At each of its updates a sensor says the mean
of the power in a window that ended some time before:

    load      ____|^^^^^^|____          update k says   a + b x (share of the window in which the load was on)
    window          [=====]
                          |--lag--|     update k        a: idle, b: height, found by least squares

So the window and the lag are those for which the readings lie best on one line, found on a grid and then between its
points. Of an energy counter the increments are taken: the window as a share of its period is the share of time that the
counter sees. An interval holds every value that fits hardly worse (twice the standard error of the residuals), and is
never narrower than what the polling resolves. What the readings do not carry is None with a reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ecobench.agreement import TRIM_NS
from ecobench.calibration_records import Estimate, SensorCalibration, nothing
from ecobench.energy import domain_energy
from ecobench.measurement import ReadingKind, Segment, Window
from ecobench.records import MetricValue
from ecobench.trace import Float64s, Int64s, Trace
from ecobench.transcript import Step, Transcript
from ecobench.units import NS_PER_S

# A sensor that moves at more than about every other reading is too quick for the polling.
FEWEST_READINGS_PER_UPDATE = 2.5
FEWEST_UPDATES = 8
# The readings follow the load where it explains so much of their variance.
LEAST_EXPLAINED_SHARE = 0.5
PLATEAU_SHARE = 0.99
# What a sensor says just after an edge is of before it; the ratio leaves it out.
EDGE_NS = 3 * NS_PER_S // 10
# Over less, the ticks of the counter are some percent of its energy.
SHORTEST_RATIO_NS = 2 * NS_PER_S
# Longest windows and lags that are tried: first as of an instant reading, then as of an average.
_REACHES_S = ((0.3, 0.3), (1.3, 0.4))
# A window that comes out as nearly the longest that was tried is longer.
_AT_THE_END_SHARE = 0.95
_N_GRID = 33
_N_REFINEMENTS = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wave:
    """One square wave, and what the meters of one board said meanwhile.

    Attributes:
        rising_ns: edges, in order; each is followed by one of `falling_ns`.
        stop_ns: end of what is known of the load.
    """

    rising_ns: Int64s
    falling_ns: Int64s
    stop_ns: int
    traces: tuple[Trace, ...]

    @property
    def start_ns(self) -> int:
        return int(self.rising_ns[0])

    @property
    def is_plateau(self) -> bool:
        """The load never went off."""
        return int(np.sum(self.falling_ns - self.rising_ns)) > PLATEAU_SHARE * (self.stop_ns - self.start_ns)

    def trace(self, kind: ReadingKind) -> Trace | None:
        return next((trace for trace in self.traces if trace.info.kind is kind), None)

    def on_ns(self, time_ns: Float64s) -> Float64s:
        """For how long the load had been on until an instant after the start; instants from the start in ns."""
        edges = np.empty(2 * len(self.rising_ns))
        edges[0::2], edges[1::2] = self.rising_ns - self.start_ns, self.falling_ns - self.start_ns
        on = np.zeros(len(edges))
        on[1::2] = np.cumsum(self.falling_ns - self.rising_ns)
        on[2::2] = on[1:-1:2]
        until: Float64s = np.interp(time_ns, edges, on)
        return until


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Updates:
    """A sensor's updates in one wave: instants from the start in ns, and what each said."""

    wave: Wave
    time_ns: Float64s
    value: Float64s
    period_ns: float | None
    unsure_ns: float
    poll_ns: float


def calibrate(waves: Sequence[Wave]) -> tuple[SensorCalibration, ...]:
    """What each reading of one board does, from its waves."""
    kinds = dict.fromkeys(trace.info.kind for wave in waves for trace in wave.traces)
    return tuple(_sensor(kind, waves) for kind in kinds)


def wave_of(transcript: Transcript, traces: Sequence[Trace], *, start_ns: int) -> Wave | None:
    """The wave that a `squarewave` told of, its first edge at `start_ns`; None where it told of none."""
    rising, falling = [start_ns], []
    for event in transcript.events:
        if isinstance(event, MetricValue) and event.name == "high_s":
            falling.append(event.time_ns)
        elif isinstance(event, Step):
            rising.append(event.time_ns)
    if not falling or len(rising) != len(falling) + 1:
        return None
    return Wave(
        rising_ns=np.array(rising[:-1], dtype=np.int64),
        falling_ns=np.array(falling, dtype=np.int64),
        stop_ns=rising[-1],
        traces=tuple(traces),
    )


def _sensor(kind: ReadingKind, waves: Sequence[Wave]) -> SensorCalibration:
    is_counter = kind is ReadingKind.ENERGY_COUNTER
    updates = _all_updates(waves, kind)
    period = _period(updates)
    if is_counter and period.value is None:
        window = lag = nothing(f"the ticks are not seen: {period.reason}")
    else:
        window, lag = _window_and_lag(updates, period_s=period.value if is_counter else None)
    coverage = nothing("it is no counter")
    if is_counter:
        coverage = _coverage(window, period)
    ratio = nothing("it is the counter itself") if is_counter else _ratio(kind, waves)
    return SensorCalibration(
        kind=kind, update_period_s=period, window_s=window, lag_s=lag, ratio=ratio, coverage_share=coverage
    )


def _all_updates(waves: Sequence[Wave], kind: ReadingKind) -> list[_Updates]:
    """Of each wave. On a slow wave a reading may change at the edges alone: the quickest one tells the period."""
    found = [one for wave in waves if (one := _updates(wave, kind)) is not None]
    periods_ns = [one.period_ns for one in found if one.period_ns is not None]
    if not periods_ns:
        return found
    known_ns = min(periods_ns)
    return [one for wave in waves if (one := _updates(wave, kind, known_ns=known_ns)) is not None]


def _updates(wave: Wave, kind: ReadingKind, *, known_ns: float | None = None) -> _Updates | None:
    """The updates of one wave; where their grid is not seen, each reading is one."""
    trace = wave.trace(kind)
    if trace is None or len(trace.time_ns) < FEWEST_UPDATES:
        return None
    time_ns, raw = (trace.time_ns - wave.start_ns).astype(np.float64), trace.raw.astype(np.float64)
    poll_ns = float(np.median(np.diff(time_ns)))
    changes = np.flatnonzero(np.diff(raw) != 0)
    if len(changes) < FEWEST_UPDATES:
        return None
    moved_ns = (time_ns[changes] + time_ns[changes + 1]) / 2
    steps_ns = np.diff(moved_ns)
    shortest_ns = known_ns or float(np.median(steps_ns[steps_ns <= 1.5 * np.percentile(steps_ns, 20)]))
    value = raw * trace.info.si_per_count
    if shortest_ns < FEWEST_READINGS_PER_UPDATE * poll_ns:
        return _Updates(wave=wave, time_ns=time_ns, value=value, period_ns=None, unsure_ns=0.0, poll_ns=poll_ns)
    index = np.concatenate(([0.0], np.cumsum(np.maximum(np.round(steps_ns / shortest_ns), 1.0))))
    period_ns, origin_ns = np.polyfit(index, moved_ns, 1)
    # The change is anywhere between two readings: uniform, so 1/sqrt(12) of the distance.
    unsure_ns = 2 * poll_ns / np.sqrt(12) / (np.std(index) * np.sqrt(len(index)))
    first, last = np.ceil((time_ns[0] - origin_ns) / period_ns), np.floor((time_ns[-1] - origin_ns) / period_ns) - 1
    update_ns = origin_ns + period_ns * np.arange(first, last + 1)
    # Half a period after an update there is no doubt which one a reading is of.
    seen = np.clip(np.searchsorted(time_ns, update_ns + period_ns / 2), 0, len(time_ns) - 1)
    said = value[seen]
    if kind is ReadingKind.ENERGY_COUNTER:
        update_ns, said = update_ns[1:], np.diff(said)
    return _Updates(
        wave=wave,
        time_ns=update_ns,
        value=said,
        period_ns=float(period_ns),
        unsure_ns=float(unsure_ns),
        poll_ns=poll_ns,
    )


def _period(updates: Sequence[_Updates]) -> Estimate:
    if not updates:
        return nothing("it never moved, or too rarely to tell")
    found = [(one.period_ns, one.unsure_ns) for one in updates if one.period_ns is not None]
    if not found:
        poll_s = max(one.poll_ns for one in updates) / NS_PER_S
        return nothing(f"it moves at nearly every reading: under {FEWEST_READINGS_PER_UPDATE * poll_s:.3g} s")
    return Estimate(
        value=float(np.median([period_ns for period_ns, _ in found])) / NS_PER_S,
        low=min(period_ns - unsure_ns for period_ns, unsure_ns in found) / NS_PER_S,
        high=max(period_ns + unsure_ns for period_ns, unsure_ns in found) / NS_PER_S,
        reason=None,
    )


def _window_and_lag(updates: Sequence[_Updates], *, period_s: float | None) -> tuple[Estimate, Estimate]:
    """`period_s`: of a counter, whose window is not longer than that."""
    if not updates:
        why = nothing("it never moved, or too rarely to tell")
        return why, why
    best: _Fit | None = None
    reaches_s = _REACHES_S if period_s is None else ((1.2 * period_s, period_s),)
    longest_s = 0.0
    for window_s, lag_s in reaches_s:
        fit = _fit(updates, most_window_ns=window_s * NS_PER_S, most_lag_ns=lag_s * NS_PER_S)
        longest_s = window_s if fit is not None else longest_s
        # The longer reach leaves fewer readings: it has to fit clearly better.
        if fit is not None and (best is None or fit.unexplained_share < 0.8 * best.unexplained_share):
            best = fit
    if best is None:
        why = nothing("the waves were too short for it")
    elif best.unexplained_share > 1 - LEAST_EXPLAINED_SHARE:
        why = nothing(f"it does not follow the load, which explains {1 - best.unexplained_share:.0%} of it")
    elif period_s is None and (best.window.value or 0.0) > _AT_THE_END_SHARE * longest_s:
        why = nothing(f"its window is longer than {longest_s:g} s, the longest that these waves can show")
    else:
        return best.window, best.lag
    return why, why


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    window: Estimate
    lag: Estimate
    unexplained_share: float


def _fit(updates: Sequence[_Updates], *, most_window_ns: float, most_lag_ns: float) -> _Fit | None:
    usable = []
    for one in updates:
        stop_ns = one.wave.stop_ns - one.wave.start_ns
        is_known = (one.time_ns >= most_window_ns + most_lag_ns) & (one.time_ns <= stop_ns)
        if np.count_nonzero(is_known) >= FEWEST_UPDATES:
            usable.append((one.wave, one.time_ns[is_known], one.value[is_known]))
    if not usable:
        return None
    value = np.concatenate([said for _, _, said in usable])
    variance = float(np.sum((value - value.mean()) ** 2))
    if variance == 0:
        return None
    windows_ns = np.linspace(0, most_window_ns, _N_GRID)
    lags_ns = np.linspace(0, most_lag_ns, _N_GRID)
    for _ in range(_N_REFINEMENTS):
        squares = _squares(usable, value, windows_ns, lags_ns)
        window_ns, lag_ns = (
            axis[index]
            for axis, index in zip(
                (windows_ns, lags_ns), np.unravel_index(squares.argmin(), squares.shape), strict=True
            )
        )
        least = float(squares.min())
        threshold = least + 4 * least / max(1, len(value) - 4)
        allowed_windows = windows_ns[squares.min(axis=1) <= threshold]
        allowed_lags = lags_ns[squares.min(axis=0) <= threshold]
        windows_ns, lags_ns = _closer(windows_ns, allowed_windows), _closer(lags_ns, allowed_lags)
    resolved_ns = max(one.poll_ns for one in updates) / 2
    return _Fit(
        window=_estimate(window_ns, allowed_windows, resolved_ns),
        lag=_estimate(lag_ns, allowed_lags, resolved_ns),
        unexplained_share=least / variance,
    )


def _squares(
    usable: Sequence[tuple[Wave, Float64s, Float64s]], value: Float64s, windows_ns: Float64s, lags_ns: Float64s
) -> Float64s:
    """Sum of squared residuals of the best line, `(n_windows, n_lags)`."""
    squares = np.empty((len(windows_ns), len(lags_ns)))
    centred = value - value.mean()
    for row, window_ns in enumerate(np.maximum(windows_ns, 1.0)):
        stops = [time_ns[None, :] - lags_ns[:, None] for _, time_ns, _ in usable]
        shares = np.concatenate(
            [
                (wave.on_ns(stop_ns) - wave.on_ns(stop_ns - window_ns)) / window_ns
                for (wave, _, _), stop_ns in zip(usable, stops, strict=True)
            ],
            axis=1,
        )
        shares -= shares.mean(axis=1, keepdims=True)
        spread = np.sum(shares**2, axis=1)
        together = shares @ centred
        explained = np.divide(together**2, spread, out=np.zeros_like(spread), where=(spread > 0) & (together > 0))
        squares[row] = np.sum(centred**2) - explained
    return np.maximum(squares, 0.0)


def _closer(axis: Float64s, allowed: Float64s) -> Float64s:
    """A finer grid over what is allowed, and one point more on each side."""
    step = axis[1] - axis[0]
    return np.linspace(max(0.0, allowed[0] - step), min(allowed[-1] + step, axis[-1] + step), _N_GRID)


def _estimate(value_ns: float, allowed: Float64s, resolved_ns: float) -> Estimate:
    return Estimate(
        value=float(value_ns) / NS_PER_S,
        low=max(0.0, float(allowed[0]) - resolved_ns) / NS_PER_S,
        high=(float(allowed[-1]) + resolved_ns) / NS_PER_S,
        reason=None,
    )


def _coverage(window: Estimate, period: Estimate) -> Estimate:
    if window.value is None or window.low is None or window.high is None or period.value is None:
        return nothing(window.reason or period.reason or "not known")
    return Estimate(
        value=min(1.0, window.value / period.value),
        low=min(1.0, window.low / period.value),
        high=min(1.0, window.high / period.value),
        reason=None,
    )


def _ratio(kind: ReadingKind, waves: Sequence[Wave]) -> Estimate:
    """On the plateaus, where nothing is aliased; the interval is that of their thirds, and of instant power on waves.

    A second's average on a wave says more of what was before it than of what its window holds.
    """
    trim_ns = TRIM_NS if kind is ReadingKind.AVERAGE_POWER else EDGE_NS
    polled_j, counted_j, ratios = 0.0, 0.0, []
    for wave in waves:
        if not wave.is_plateau and kind is ReadingKind.AVERAGE_POWER:
            continue
        start_ns, stop_ns = wave.start_ns + trim_ns, wave.stop_ns - trim_ns
        whole = _energies(kind, wave, start_ns, stop_ns)
        if whole is None:
            continue
        ratios.append(whole[0] / whole[1])
        if wave.is_plateau:
            polled_j, counted_j = polled_j + whole[0], counted_j + whole[1]
            third_ns = (stop_ns - start_ns) // 3
            thirds = [_energies(kind, wave, start_ns + n * third_ns, start_ns + (n + 1) * third_ns) for n in range(3)]
            ratios += [third[0] / third[1] for third in thirds if third is not None]
    if not counted_j:
        return nothing("no plateau is long enough for both energies")
    return Estimate(value=polled_j / counted_j, low=min(ratios), high=max(ratios), reason=None)


def _energies(kind: ReadingKind, wave: Wave, start_ns: int, stop_ns: int) -> tuple[float, float] | None:
    """By polled power and by the counter, between two instants of a wave; None where one of them has none."""
    counter, power = wave.trace(ReadingKind.ENERGY_COUNTER), wave.trace(kind)
    if counter is None or power is None or stop_ns - start_ns < SHORTEST_RATIO_NS:
        return None
    window = Window(phase="train", segments=(Segment(start_ns=start_ns, stop_ns=stop_ns),))
    power_j, counter_j = domain_energy(power, window).energy_j, domain_energy(counter, window).energy_j
    return (power_j, counter_j) if power_j and counter_j else None
