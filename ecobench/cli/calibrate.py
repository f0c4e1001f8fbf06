"""`ecobench doctor --calibrate`: square waves for the sensors of every GPU, and what they did, kept for later."""

from typing import TYPE_CHECKING

import typer

from ecobench.cli.console import print_json, say

if TYPE_CHECKING:
    from ecobench.calibration_records import Calibration, Estimate
    from ecobench.live import Progress


def calibrate(*, workload: str, wave_s: float, as_json: bool) -> None:
    """Show the waves, say and store what was found; exit code 128 + n after a signal."""
    from ecobench.calibrator import BoardToCalibrate, calibrate_boards, wave_plan
    from ecobench.catalog import find_workload
    from ecobench.cli import wiring
    from ecobench.errors import EcobenchError
    from ecobench.interrupts import Interrupts
    from ecobench.store.calibrations import write_calibration
    from ecobench.trial import Seams

    found = find_workload(workload)
    plan = wave_plan(wave_s)
    with Interrupts() as interrupts, wiring.calibration_probes() as (boards, driver):
        say(f"calibrate {len(boards)} GPU(s), driver {driver}: {len(plan)} waves of {wave_s:g} s and a start each")
        clock = wiring.make_clock()
        said_s = [0]

        def observe(index: int, progress: "Progress") -> None:
            second = clock.now_ns() // 1_000_000_000
            if second == said_s[0]:
                return
            said_s[0] = second
            state = f"{progress.n_steps} of {plan[index].n_periods} periods" if progress.n_steps else "starting"
            say(f"wave {index + 1}/{len(plan)}  {plan[index].text}: {state}")

        meters = [meter for board in boards for meter in board.meters]
        try:
            calibrations = calibrate_boards(
                found,
                plan,
                [BoardToCalibrate(uuid=board.uuid, name=board.name) for board in boards if board.meters],
                seams=Seams(clock=clock, make_launcher=wiring.make_launcher, open_meters=lambda _: meters),
                driver=driver,
                observer=observe,
                interruption=interrupts,
            )
        except EcobenchError:
            if interrupts.signum is not None:
                raise typer.Exit(128 + interrupts.signum) from None
            raise
    paths = [write_calibration(one) for one in calibrations]
    if as_json:
        print_json({"calibrations": calibrations, "paths": [str(path) for path in paths]})
        return
    for one, path in zip(calibrations, paths, strict=True):
        print(f"{one.name}  {one.uuid}  driver {one.driver}")
        for line in lines_of(one):
            print(f"  {line}")
        print(f"  kept in {path}")


def lines_of(calibration: "Calibration") -> list[str]:
    """One line a reading."""
    lines = []
    for sensor in calibration.sensors:
        parts = [
            f"updates every {_in_ms(sensor.update_period_s)}",
            f"averages over {_in_ms(sensor.window_s)}",
            f"lag {_in_ms(sensor.lag_s)}",
        ]
        if sensor.kind == "energy_counter":
            parts = [parts[0], f"sees {_scaled(sensor.coverage_share, 100, '%')} of the time", parts[2]]
        else:
            parts.append(f"integral/counter {_scaled(sensor.ratio, 1, '')}")
        lines.append(f"{sensor.kind.value}: " + "; ".join(parts))
    return lines


def _in_ms(estimate: "Estimate") -> str:
    return _scaled(estimate, 1000, "ms")


def _scaled(estimate: "Estimate", factor: float, unit: str) -> str:
    """`25.1 ms (23.0 to 27.1)`, or `not known (why)`."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return f"not known ({estimate.reason})"
    digits = 4 if factor == 1 else 1
    value, low, high = (f"{one * factor:.{digits}f}" for one in (estimate.value, estimate.low, estimate.high))
    return f"{value}{f' {unit}' if unit else ''} ({low} to {high})"
