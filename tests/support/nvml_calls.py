"""Short ways to ask the driver of an NVML test bed, in this process and in a child."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml

from nvml_bed import NvmlBed

SUPPORT = Path(__file__).resolve().parent


def handle(index: int = 0) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def field(number: int, *, gpu: int = 0, scope: int = 0) -> int:
    """One field value; its own error, if it has one, is raised."""
    (value,) = pynvml.nvmlDeviceGetFieldValues(handle(gpu), [(number, scope)])
    if value.nvmlReturn:
        raise pynvml.NVMLError(value.nvmlReturn)
    return int(
        value.value.ullVal if value.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG else value.value.uiVal
    )


def counter_mj(gpu: int = 0) -> int:
    return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle(gpu)))


def run_python(bed: NvmlBed, program: str, environment: dict[str, str] | None = None) -> Any:
    """What a child process on the bed prints, as JSON; `bed` in it is the bed."""
    prelude = f"""
import json, os, sys
sys.path.insert(0, {str(SUPPORT)!r})
import pynvml
from nvml_bed import NvmlBed
bed = NvmlBed.attach(os.environ)
"""
    done = subprocess.run(
        [sys.executable, "-c", prelude + program],
        env={**os.environ, **(environment or bed.environment)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def set_limit(limit_mw: int = 500_000) -> None:
    pynvml.nvmlDeviceSetPowerManagementLimit(handle(), limit_mw)
