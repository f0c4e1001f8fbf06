"""`ecobench doctor`: what this machine can measure, and what would make it better."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from ecobench.cli.console import print_json, say
from ecobench.errors import ExitCode

if TYPE_CHECKING:
    from ecobench.cli.observe import ObservedReading
    from ecobench.measurement import MeterAbsence, MeterInfo


def doctor(
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Show square waves to the GPUs' sensors, and keep what they did.")
    ] = False,
    workload: Annotated[
        str, typer.Option("--workload", metavar="W", help="Of --calibrate: what speaks like squarewave.")
    ] = "squarewave",
    wave_s: Annotated[
        float, typer.Option("--wave-time", metavar="S", min=2.0, max=3600.0, help="Of --calibrate: seconds a wave.")
    ] = 12.0,
    observe_s: Annotated[
        float,
        typer.Option(
            "--observe", metavar="S", min=0.0, max=3600.0, help="Seconds to watch the GPUs' sensors; 0: do not."
        ),
    ] = 3.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Tell what this machine is, which meters it has and lacks, and why."""
    if calibrate:
        from ecobench.cli.calibrate import calibrate as calibrate_gpus

        calibrate_gpus(workload=workload, wave_s=wave_s, as_json=as_json)
        return
    from ecobench.cli.gpu_lines import gpu_lines, read_gpus
    from ecobench.cli.meter_lines import meter_lines
    from ecobench.cli.observe import observed_lines
    from ecobench.clock import time_resolution_ns
    from ecobench.machine import PACKAGES, free_disk_bytes, read_container, read_machine, read_versions
    from ecobench.store import Store
    from ecobench.units import format_bytes, format_number

    machine = read_machine()
    gpus = read_gpus()
    infos, absences, observed = _look_for_meters(observe_s)
    container = read_container()
    control = _control_text() if gpus.gpus else None
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
                "observed": observed,
                "gpus": gpus,
                "control": control,
                "container": container,
                "time_resolution_ns": time_resolution_ns(),
                "store": {"path": str(store.root), "is_writable": is_writable, "free_bytes": free_bytes},
                "packages": versions,
            }
        )
    else:
        memory = format_bytes(machine.memory_bytes)
        print(f"machine   {machine.cpu_model}, {machine.n_logical_cpus} logical cores, {memory}")
        print(f"system    {machine.system} {machine.kernel} {machine.architecture}, Python {machine.python}")
        if container is not None:
            print(f"container {container}: what it does not show, ecobench cannot see")
        print(f"time      monotonic clock, resolution {format_number(time_resolution_ns(), digits=3)} ns")
        print(f"store     {store.root}, {format_bytes(free_bytes)} free{'' if is_writable else ', NOT WRITABLE'}")
        print("packages  " + ", ".join(f"{name} {version}" for name, version in versions.items()))
        for line in gpu_lines(gpus):
            print(line)
        for line in meter_lines(infos):
            print(f"meter     {line}")
        for line in observed_lines(observed, duration_s=observe_s):
            print(f"observed  {line}")
        if control is not None:
            print(f"control   {control}")
        for absence in absences:
            print(f"no meter  {absence.interface}{f' {absence.domain}' if absence.domain else ''}: {absence.reason}")
            if absence.remedy:
                print(f"          -> {absence.remedy}")
    if not is_writable:
        raise typer.Exit(int(ExitCode.REQUEST))


def _control_text() -> str:
    """By which way power limits and clocks would be set from here, and whether this process may."""
    from ecobench.controls.board import REMEDIES
    from ecobench.controls.ways import choose_way
    from ecobench.machine import has_admin_capability

    way, _, rest = choose_way(os.environ).partition(":")
    what = "power limits and SM clocks"
    if way != "nvml":
        return f"{what} through {way} ({rest}); `--power-limit` tries it before anything starts"
    if has_admin_capability():
        return f"{what} through the driver: this process has the permission (CAP_SYS_ADMIN)"
    return f"{what}: this process lacks the permission (CAP_SYS_ADMIN); {REMEDIES}"


def _look_for_meters(observe_s: float) -> "tuple[list[MeterInfo], list[MeterAbsence], list[ObservedReading]]":
    """As a run without options would; a GPU that would be refused is an absence here."""
    from ecobench.cli.observe import observe
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
    try:
        observed = observe(found.meters, duration_s=observe_s, tell=say) if observe_s else []
    finally:
        for meter in found.meters:
            meter.close()
    return infos, [*absences, *found.absences], observed


def _is_writable(path: "os.PathLike[str]") -> bool:
    from pathlib import Path

    here = Path(path)
    while not here.exists():
        here = here.parent
    return os.access(here, os.W_OK)
