"""`ecobench doctor`: what this machine can measure, and what would make it better."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from ecobench.cli.console import print_json
from ecobench.errors import ExitCode

if TYPE_CHECKING:
    from ecobench.measurement import MeterAbsence, MeterInfo


def doctor(
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Show square waves to the GPUs' sensors, and keep what they did.")
    ] = False,
    workload: Annotated[
        str, typer.Option("--workload", metavar="W", help="Of --calibrate: what speaks like squarewave.")
    ] = "squarewave",
    wave_s: Annotated[
        float, typer.Option("--wave-time", metavar="S", min=2.0, help="Of --calibrate: seconds a wave.")
    ] = 12.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Tell what this machine is, which meters it has and lacks, and why."""
    if calibrate:
        from ecobench.cli.calibrate import calibrate as calibrate_gpus

        calibrate_gpus(workload=workload, wave_s=wave_s, as_json=as_json)
        return
    from ecobench.cli.gpu_lines import gpu_lines, read_gpus
    from ecobench.cli.meter_lines import meter_lines
    from ecobench.clock import time_resolution_ns
    from ecobench.machine import PACKAGES, free_disk_bytes, read_machine, read_versions
    from ecobench.store import Store
    from ecobench.units import format_bytes, format_number

    machine = read_machine()
    gpus = read_gpus()
    infos, absences = _look_for_meters()
    store = Store.from_environment()
    free_bytes = free_disk_bytes(store.root)
    is_writable = _is_writable(store.root)
    versions = read_versions(PACKAGES)
    if as_json:
        print_json(
            {
                "machine": machine,
                "meters": infos,
                "absences": absences,
                "gpus": gpus,
                "time_resolution_ns": time_resolution_ns(),
                "store": {"path": str(store.root), "is_writable": is_writable, "free_bytes": free_bytes},
                "packages": versions,
            }
        )
    else:
        memory = format_bytes(machine.memory_bytes)
        print(f"machine   {machine.cpu_model}, {machine.n_logical_cpus} logical cores, {memory}")
        print(f"system    {machine.system} {machine.kernel} {machine.architecture}, Python {machine.python}")
        print(f"time      monotonic clock, resolution {format_number(time_resolution_ns(), digits=3)} ns")
        print(f"store     {store.root}, {format_bytes(free_bytes)} free{'' if is_writable else ', NOT WRITABLE'}")
        print("packages  " + ", ".join(f"{name} {version}" for name, version in versions.items()))
        for line in gpu_lines(gpus):
            print(line)
        for line in meter_lines(infos):
            print(f"meter     {line}")
        for absence in absences:
            print(f"no meter  {absence.interface}{f' {absence.domain}' if absence.domain else ''}: {absence.reason}")
            if absence.remedy:
                print(f"          -> {absence.remedy}")
    if not is_writable:
        raise typer.Exit(int(ExitCode.REQUEST))


def _look_for_meters() -> "tuple[list[MeterInfo], list[MeterAbsence]]":
    """As a run without options would; a GPU that would be refused is an absence here."""
    from ecobench.cli.wiring import choose_gpus, meter_finder
    from ecobench.errors import EcobenchError
    from ecobench.measurement import MeterAbsence

    absences = []
    try:
        chosen = choose_gpus(None)
        found = meter_finder("auto", None if chosen is None else [gpu.uuid for gpu in chosen.gpus])(os.getpid())
    except EcobenchError as error:
        absences.append(MeterAbsence(interface="nvml", domain=None, reason=error.message, remedy=error.hint))
        found = meter_finder("auto", ())(os.getpid())
    infos = [meter.info for meter in found.meters]
    for meter in found.meters:
        meter.close()
    return infos, [*absences, *found.absences]


def _is_writable(path: "os.PathLike[str]") -> bool:
    from pathlib import Path

    here = Path(path)
    while not here.exists():
        here = here.parent
    return os.access(here, os.W_OK)
