"""One printed number over the trials of a run: its mean, n, and both intervals. Pure.

The instrument interval of a mean is the mean of the trials' intervals: one sensor, one model, the same error each time.
"""

import statistics
from dataclasses import dataclass, field
from typing import NamedTuple

from ecobench.measurement import Boundary, BoundaryEnergy, Evidence, Interval
from ecobench.records import Figure
from ecobench.stats import mean_with_interval
from ecobench.units import J_PER_KWH


class FigureHead(NamedTuple):
    """What a figure is: its JSON name with the unit at the end, its label, and its unit."""

    key: str
    label: str
    unit: str


class FigureKind(NamedTuple):
    """What qualifies an energy figure."""

    boundary: Boundary
    evidence: Evidence


PER_TOKEN = FigureHead("energy_per_token_j", "energy per token", "J/token")
PER_KWH = FigureHead("tokens_per_kwh", "efficiency", "tokens/kWh")
ENERGY = FigureHead("energy_j", "energy", "J")
POWER = FigureHead("mean_power_w", "mean power", "W")
SPEED = FigureHead("tokens_per_s", "speed", "tokens/s")
DURATION = FigureHead("duration_s", "measured time", "s")
TOKENS = FigureHead("n_tokens", "tokens", "tokens")


@dataclass(kw_only=True)
class Readings:
    """Values of one figure, one a trial that has it, and the reasons of those that have none."""

    values: list[float] = field(default_factory=list)
    instruments: list[Interval] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def add(self, energy: BoundaryEnergy | None, *, per: float | None, lacking: str) -> None:
        """A trial's energy divided by `per`; where that is None or 0, `lacking` says what is missing."""
        if energy is None or energy.energy_j is None:
            self.reasons.append((energy.reason if energy is not None else None) or "not metered")
        elif not per:
            self.reasons.append(lacking)
        else:
            self.values.append(energy.energy_j / per)
            if energy.instrument is not None:
                self.instruments.append(Interval(low=energy.instrument.low / per, high=energy.instrument.high / per))


def mean_figure(head: FigureHead, readings: Readings, *, kind: FigureKind | None = None) -> Figure:
    """The mean of the readings; None with their reasons where there are none."""
    if not readings.values:
        return missing_figure(head, reason="; ".join(dict.fromkeys(readings.reasons)) or "not reported", kind=kind)
    mean = mean_with_interval(readings.values)
    instrument = None
    if len(readings.instruments) == len(readings.values):
        instrument = Interval(
            low=statistics.fmean(one.low for one in readings.instruments),
            high=statistics.fmean(one.high for one in readings.instruments),
        )
    return Figure(
        key=head.key,
        label=head.label,
        value=mean.value,
        unit=head.unit,
        reason=None,
        n=mean.n,
        repeatability=mean.interval,
        instrument=instrument,
        boundary=kind.boundary if kind is not None else None,
        evidence=kind.evidence if kind is not None else None,
    )


def missing_figure(head: FigureHead, *, reason: str, kind: FigureKind | None = None) -> Figure:
    """A figure that has no value, and why."""
    return Figure(
        key=head.key,
        label=head.label,
        value=None,
        unit=head.unit,
        reason=reason,
        n=0,
        repeatability=None,
        instrument=None,
        boundary=kind.boundary if kind is not None else None,
        evidence=kind.evidence if kind is not None else None,
    )


def tokens_per_kwh_figure(per_token: Figure) -> Figure:
    """tokens/kWh from J/token: 3.6e6 divided by it, and by the ends of its intervals."""
    kind = None
    if per_token.boundary is not None and per_token.evidence is not None:
        kind = FigureKind(per_token.boundary, per_token.evidence)
    if not per_token.value:
        return missing_figure(PER_KWH, reason=per_token.reason or "0 J were measured", kind=kind)
    return Figure(
        key=PER_KWH.key,
        label=PER_KWH.label,
        value=J_PER_KWH / per_token.value,
        unit=PER_KWH.unit,
        reason=None,
        n=per_token.n,
        repeatability=_inverse_per_kwh(per_token.repeatability),
        instrument=_inverse_per_kwh(per_token.instrument),
        boundary=per_token.boundary,
        evidence=per_token.evidence,
    )


def _inverse_per_kwh(interval: Interval | None) -> Interval | None:
    # An interval that reaches 0 J has no finite inverse.
    if interval is None or interval.low <= 0:
        return None
    return Interval(low=J_PER_KWH / interval.high, high=J_PER_KWH / interval.low)
