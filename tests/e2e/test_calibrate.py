"""`doctor --calibrate` on the NVML test bed: what its sensors were made to do is what is found, kept, and used."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nvml_bed import NvmlBed
from nvml_models import H100
from typed_command import Command

MakeNode = Callable[..., NvmlBed]
MS = 1_000_000


@pytest.fixture
def wave_folder(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`squarewave` with the stand-in that loads the bed's boards as its program."""
    folder = tmp_path / "squarewave"
    folder.mkdir()
    shutil.copy(checkout / "workloads" / "squarewave" / "workload.toml", folder)
    support = checkout / "tests" / "support"
    shutil.copy(support / "square_on_bed" / "train.py", folder)
    monkeypatch.setenv("SUPPORT_FOLDER", str(support))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


def assert_holds(estimate: dict[str, Any], truth: float, *, width: float) -> None:
    """The interval holds the truth, to a tenth of its greatest width, and is not wider than that."""
    assert estimate["value"] is not None, estimate
    assert estimate["low"] - width / 10 <= truth <= estimate["high"] + width / 10, estimate
    assert estimate["high"] - estimate["low"] <= width, estimate


def test_calibration_recovers_what_the_boards_sensors_were_made_to_do(
    make_node: MakeNode, wave_folder: Path, tmp_path: Path
) -> None:
    """Board 0: 25 ms in 100 ms, its power 3 % high and its counter 2 % low. Board 1: its counter sees 25 ms in 100."""
    bed = make_node(H100, H100)
    bed.set_sensor(0, "instant", gain=1.03)
    bed.set_sensor(0, "counter", gain=0.98)
    bed.set_sensor(1, "counter", window_ns=25 * MS)
    done = Command(tmp_path / "home").run(
        "doctor", "--calibrate", "--workload", str(wave_folder), "--wave-time", "3", "--json"
    )

    assert done.returncode == 0, done.stderr
    assert "wave 4/4" in done.stderr
    document = json.loads(done.stdout)
    first, second = document["calibrations"]
    assert (first["uuid"], second["uuid"]) == bed.uuids
    assert first["driver"] == "580.95.05"
    sensors = {sensor["kind"]: sensor for sensor in first["sensors"]}
    instant, average, counter = (sensors[kind] for kind in ("instant_power", "average_power", "energy_counter"))
    assert_holds(instant["update_period_s"], 0.1, width=0.002)
    assert_holds(instant["window_s"], 0.025, width=0.02)
    assert_holds(instant["lag_s"], 0.0, width=0.02)
    assert_holds(average["window_s"], 1.0, width=0.1)
    assert_holds(counter["update_period_s"], 0.1, width=0.002)
    assert_holds(counter["coverage_share"], 1.0, width=0.3)
    assert instant["ratio"]["value"] == pytest.approx(1.03 / 0.98, rel=0.003)
    assert average["ratio"]["value"] == pytest.approx(1 / 0.98, rel=0.003)
    partial = {sensor["kind"]: sensor for sensor in second["sensors"]}["energy_counter"]
    assert_holds(partial["coverage_share"], 0.25, width=0.3)
    for path, uuid in zip(document["paths"], bed.uuids, strict=True):
        assert Path(path) == tmp_path / "state" / "ecobench" / "calibration" / f"{uuid}.json"
        assert json.loads(Path(path).read_text())["uuid"] == uuid

    ratios = meter_ratios(tmp_path)
    assert ratios["gpu:0", "instant_power"] == instant["ratio"]["value"]
    assert ratios["gpu:0", "average_power"] == average["ratio"]["value"]
    assert ratios["gpu:0", "energy_counter"] is None
    bed._state.driver_version = b"590.48.01"
    assert set(meter_ratios(tmp_path).values()) == {None}


def meter_ratios(tmp_path: Path) -> dict[tuple[str, str], float | None]:
    """What each meter of power or energy would be judged against in a run."""
    meters = Command(tmp_path / "home").document("doctor", "--observe", "0")["meters"]
    return {
        (one["domain"], one["kind"]): one["calibrated_ratio"] for one in meters if one["device"] and not one["quantity"]
    }


def test_calibration_without_a_driver_says_so(tmp_path: Path, wave_folder: Path) -> None:
    """Exit code 3: a meter or a permission is missing."""
    done = Command(tmp_path / "home").run("doctor", "--calibrate", "--workload", str(wave_folder))

    assert done.returncode == 3
    assert "no NVIDIA driver" in done.stderr
    assert not (tmp_path / "state").exists()
