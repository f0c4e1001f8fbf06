"""Calibrations kept and used: read back as written, by board and driver, and never in a run's way."""

from pathlib import Path

import pytest

from ecobench.calibration_records import Calibration, Estimate, SensorCalibration, nothing
from ecobench.cli.calibrate import lines_of
from ecobench.cli.calibrated import with_ratios
from ecobench.measurement import MeterInfo, ReadingKind
from ecobench.records import SCHEMA
from ecobench.seams import Meter, Sample
from ecobench.store.calibrations import calibration_folder, read_calibration, write_calibration
from records_for_tests import but, meter_info

UUID = "GPU-11111111-2222-3333-4444-555555555555"


def sensor(kind: ReadingKind, ratio: Estimate) -> SensorCalibration:
    return SensorCalibration(
        kind=kind,
        update_period_s=Estimate(value=0.1, low=0.0999, high=0.1001, reason=None),
        window_s=Estimate(value=0.025, low=0.023, high=0.0271, reason=None),
        lag_s=nothing("the waves were too short for it"),
        ratio=ratio,
        coverage_share=nothing("it is no counter"),
    )


CALIBRATION = Calibration(
    schema=SCHEMA,
    uuid=UUID,
    name="NVIDIA H100 80GB HBM3",
    driver="580.95.05",
    created_utc="2026-09-02T14:15:04+00:00",
    ecobench="0.1.0",
    waves=("0.23 s, 50% on, 12.0 s",),
    sensors=(
        sensor(ReadingKind.INSTANT_POWER, Estimate(value=1.0312, low=1.0290, high=1.0333, reason=None)),
        sensor(ReadingKind.AVERAGE_POWER, nothing("no wave has both energies")),
    ),
)


class FixedMeter:
    """A meter that is only asked who it is."""

    def __init__(self, info: MeterInfo) -> None:
        self.info = info

    def read(self, times_ns: object) -> tuple[Sample, ...]:  # noqa: ARG002
        return (Sample(time_ns=1, raw=7, call_ns=1, error=None),)

    def close(self) -> None:
        pass


def meters() -> list[Meter]:
    kinds = (ReadingKind.ENERGY_COUNTER, ReadingKind.INSTANT_POWER, ReadingKind.AVERAGE_POWER)
    return [FixedMeter(but(meter_info(), kind=kind, device=UUID)) for kind in kinds]


def ratios(found: tuple[Meter, ...]) -> list[float | None]:
    return [meter.info.calibrated_ratio for meter in found]


def test_calibration_is_read_back_as_written(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    path = write_calibration(CALIBRATION, environment)

    assert path == tmp_path / "ecobench" / "calibration" / f"{UUID}.json"
    assert read_calibration(UUID, environment) == CALIBRATION
    assert read_calibration("GPU-other", environment) is None
    assert read_calibration("../../etc/passwd", environment) is None


def test_calibration_that_is_damaged_counts_as_none(tmp_path: Path) -> None:
    """It can be made again in a minute; a run must not end of it."""
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    write_calibration(CALIBRATION, environment).write_text("{")

    assert read_calibration(UUID, environment) is None


def test_calibrations_are_the_users_where_no_state_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")

    assert calibration_folder({}) == Path("/home/somebody/.local/state/ecobench/calibration")


def test_meters_of_power_get_their_boards_ratio_by_kind_and_still_read() -> None:
    found = with_ratios(meters(), find={UUID: CALIBRATION}.get, driver="580.95.05")

    assert ratios(found) == [None, 1.0312, None]
    assert found[1].read((0,))[0].raw == 7


@pytest.mark.parametrize("driver", ["590.48.01", None])
def test_calibration_under_another_driver_is_stale(driver: str | None) -> None:
    assert ratios(with_ratios(meters(), find={UUID: CALIBRATION}.get, driver=driver)) == [None, None, None]


def test_what_was_found_is_said_with_its_interval_or_the_reason() -> None:
    assert lines_of(CALIBRATION) == [
        (
            "instant_power: updates every 100.0 ms (99.9 to 100.1); averages over 25.0 ms (23.0 to 27.1); lag "
            "not known (the waves were too short for it); integral/counter 1.0312 (1.0290 to 1.0333)"
        ),
        (
            "average_power: updates every 100.0 ms (99.9 to 100.1); averages over 25.0 ms (23.0 to 27.1); lag "
            "not known (the waves were too short for it); integral/counter not known (no wave has both energies)"
        ),
    ]
