"""What is kept of a calibration: each quantity with its interval, each reading of a board, the board."""

from dataclasses import dataclass

from ecobench.measurement import ReadingKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A quantity with the interval that the readings leave open; `value` None with a `reason`."""

    value: float | None
    low: float | None
    high: float | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorCalibration:
    """One reading of one board.

    Attributes:
        update_period_s: from one update to the next.
        window_s: over how long it averages.
        lag_s: how long before an update its window ended.
        ratio: of a reading of power: its integral / the energy counter, over all waves; the interval is the waves' own.
        coverage_share: of an energy counter: the share of time that it sees.
    """

    kind: ReadingKind
    update_period_s: Estimate
    window_s: Estimate
    lag_s: Estimate
    ratio: Estimate
    coverage_share: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One board as it was calibrated; stored by its UUID.

    Attributes:
        driver: sensors are read through it: another driver makes this stale.
        waves: what was shown to it, in words.
    """

    schema: int
    uuid: str
    name: str
    driver: str
    created_utc: str
    ecobench: str
    waves: tuple[str, ...]
    sensors: tuple[SensorCalibration, ...]

    def ratio(self, kind: ReadingKind) -> float | None:
        """Integral of that reading / energy counter."""
        return next((sensor.ratio.value for sensor in self.sensors if sensor.kind is kind), None)


def nothing(reason: str) -> Estimate:
    """What cannot be told."""
    return Estimate(value=None, low=None, high=None, reason=reason)
