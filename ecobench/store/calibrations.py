"""Calibrations of boards, one file for each by its UUID: kept by the user, not by a store of runs.

`$XDG_STATE_HOME/ecobench/calibration/UUID.json`, else under `~/.local/state`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from ecobench.calibration_records import Calibration
from ecobench.errors import RecordError
from ecobench.store.documents import read_document, store_error, write_document


def calibration_folder(environment: Mapping[str, str]) -> Path:
    """Where they are; it need not exist."""
    state = environment.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "ecobench" / "calibration"


def write_calibration(calibration: Calibration, environment: Mapping[str, str] = os.environ) -> Path:
    """Keep it, in place of an older one.

    Raises:
        StoreError: it cannot be written.
    """
    folder = calibration_folder(environment)
    path = folder / f"{calibration.uuid}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(error, path) from None
    write_document(path, calibration)
    return path


def read_calibration(uuid: str, environment: Mapping[str, str] = os.environ) -> Calibration | None:
    """That board's; None where there is none, or none that can be read: it is made again in a minute."""
    path = calibration_folder(environment) / f"{uuid}.json"
    if os.sep in uuid or not path.is_file():
        return None
    try:
        found = read_document(path, Calibration)
    except RecordError:
        return None
    return found if found.uuid == uuid else None
