"""Meters with what their own boards were calibrated to."""

import dataclasses
from collections.abc import Callable, Sequence

from ecobench.calibration_records import Calibration
from ecobench.measurement import MeterInfo, ReadingKind
from ecobench.seams import Meter, Sample

POWERS = (ReadingKind.INSTANT_POWER, ReadingKind.AVERAGE_POWER)


class CalibratedMeter:
    """A meter whose info carries the ratio of its board."""

    def __init__(self, meter: Meter, ratio: float) -> None:
        self._meter = meter
        self._info = dataclasses.replace(meter.info, calibrated_ratio=ratio)

    @property
    def info(self) -> MeterInfo:
        return self._info

    def read(self, times_ns: Sequence[int]) -> Sequence[Sample]:
        return self._meter.read(times_ns)

    def close(self) -> None:
        self._meter.close()


def with_ratios(
    meters: Sequence[Meter], *, find: Callable[[str], Calibration | None], driver: str | None
) -> tuple[Meter, ...]:
    """The meters, those of power with their board's ratio; one that was made with another driver is left out."""
    found: list[Meter] = []
    for meter in meters:
        info = meter.info
        calibration = find(info.device) if info.device is not None and info.kind in POWERS else None
        ratio = calibration.ratio(info.kind) if calibration is not None and calibration.driver == driver else None
        found.append(meter if ratio is None else CalibratedMeter(meter, ratio))
    return tuple(found)
