"""`ecobench run`: train, measure, report."""

import os
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ecobench.cli.console import print_error, print_json, say
from ecobench.errors import ExitCode, RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from ecobench.catalog import Workload
    from ecobench.cli.site import Site
    from ecobench.config import Choice
    from ecobench.interrupts import Interrupts
    from ecobench.meters import Discovery
    from ecobench.records import RunRecord, RunSpec
    from ecobench.runner import RunOutcome
    from ecobench.store import RunFolder


def run(
    workload: Annotated[str, typer.Argument(help="A workload's name or folder.")] = "nanogpt",
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="P", help="Preset; default: the one for this hardware.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a parameter; may be repeated.")
    ] = None,
    trials: Annotated[int, typer.Option("--trials", metavar="N", min=1, help="How often to run it.")] = 1,
    until: Annotated[
        str | None, typer.Option("--until", metavar="RULE", help="steps=N, loss=3.28, time=10m or energy=2kWh.")
    ] = None,
    meter: Annotated[
        str, typer.Option("--meter", metavar="M", help="auto, nvml, rapl, estimate, or none for speed alone.")
    ] = "auto",
    gpus: Annotated[
        str | None,
        typer.Option("--gpus", metavar="LIST", help="0,1 or UUIDs or all; default: CUDA_VISIBLE_DEVICES, else all."),
    ] = None,
    power_limit: Annotated[
        str | None,
        typer.Option(
            "--power-limit",
            metavar="LIMIT",
            help="85%, 595W, default, min, max, or by GPU: 0:300W,1:280W.",
        ),
    ] = None,
    sm_clock: Annotated[
        str | None, typer.Option("--sm-clock", metavar="MHZ", help="Lock the GPUs' SM clock for the run.")
    ] = None,
    simulate: Annotated[
        str | None,
        typer.Option(
            "--simulate", metavar="NODE", help="Run on a node that does not exist: 8xh100, or a file. Measures nothing."
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="With --simulate: predict time, energy and cost by power limit; run nothing.")
    ] = False,
    price: Annotated[
        float | None, typer.Option("--price", metavar="P", min=0, max=1e6, help="With --plan: what a kWh costs.")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Do not draw the report.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Run a workload, measure it, and end with a result and a report."""
    from ecobench.catalog import find_workload
    from ecobench.cli.plan import check_plan, print_plan
    from ecobench.cli.site import choose_site
    from ecobench.config import choose
    from ecobench.hardware import describe_gpus
    from ecobench.interrupts import Interrupts
    from ecobench.parameters import parse_stop_rule
    from ecobench.runner import begin_run, make_spec
    from ecobench.store import Store

    check_plan(is_asked=plan, simulate=simulate, until=until, price=price)
    site = choose_site(simulate)
    stop_rule = parse_stop_rule(until) if until is not None else None
    found = find_workload(workload)
    site.choose_gpus(gpus, is_needed=meter in ("auto", "nvml") or power_limit is not None or sm_clock is not None)
    boards = site.gpus() if any(one.hardware == "gpu" for one in found.manifest.presets.values()) else ()
    choice = choose(
        found.manifest, preset=preset, hardware="gpu" if boards else "cpu", settings=settings or (), gpus=boards
    )
    meters = site.find_meters(meter)
    if stop_rule is not None and stop_rule.reason == "energy" and not meters.meters:
        raise RequestError("`--until energy=` needs a meter", hint="leave out --meter none")
    with site.controlled(power_limit, sm_clock) as gpu_settings, Interrupts() as interrupts:
        spec = make_spec(
            found,
            choice,
            meter=meter,
            n_trials=trials,
            stop_rule=stop_rule,
            settings=gpu_settings,
            simulation=site.simulation,
            environment=site.environment,
        )
        site.check(spec)
        if plan:
            print_plan(site.plan(spec, power_limit, sm_clock, price), spec, as_json=as_json)
            return
        why = "asked for" if preset is not None else f"default, {describe_gpus(boards)}"
        _show_plan(found, spec, meters, why=why, gpus=site.chosen)
        if site.needs_data:
            _prepare_data(found, choice)
        folder, record = begin_run(
            Store.from_environment(),
            spec,
            found,
            argv=("ecobench", *sys.argv[1:]),
            meters=[one.info for one in meters.meters],
            absences=meters.absences,
        )
        say(f"run       {folder.path}")
        outcome = _run_trials(folder, record, interrupts, site)
        report_path = None if no_report else folder.report
        _print_result(folder, record, outcome, as_json=as_json, report_path=report_path)
        if report_path is not None:
            _draw_report(folder, interrupts)
    _end(folder, outcome, interrupts)


def _show_plan(workload: "Workload", spec: "RunSpec", meters: "Discovery", *, why: str, gpus: str | None) -> None:
    """What will happen, before anything does."""
    from ecobench.cli.meter_lines import meter_lines

    if spec.simulation is not None:
        say(f"SIMULATED {spec.simulation}: nothing here is measured")
    say(f"workload  {spec.workload}: {workload.manifest.summary}")
    say(f"preset    {spec.preset} ({why}), {spec.ranks} rank{'s' if spec.ranks > 1 else ''}")
    say("settings  " + ", ".join(f"{name}={value}" for name, value in spec.parameters.items()))
    if spec.target is not None:
        say(f"target    {spec.target.metric} <= {spec.target.at_most:g} {spec.target.unit}")
    if spec.stop_rule is not None:
        say(f"until     {spec.stop_rule.text}")
    for setting in spec.settings:
        say(f"setting   GPU {setting.index} ({setting.name}): {setting.text}")
    say(f"command   {shlex.join(spec.command)}")
    if gpus is not None:
        say(f"gpus      {gpus}")
    for line in meter_lines(one.info for one in meters.meters):
        say(f"meter     {line}")
    if not meters.meters:
        say("meter     none: speed alone")
    for absence in meters.absences:
        say(f"no meter  {absence.interface}{f' {absence.domain}' if absence.domain else ''}: {absence.reason}")


def _prepare_data(workload: "Workload", choice: "Choice") -> None:
    from ecobench.catalog import make_data, read_data_info

    for source in workload.manifest.data.values():
        if choice.preset.name in source.presets:
            info = read_data_info(workload, source)
            if not info.is_present:
                say(f"data      {'fetching' if source.is_download else 'making'} {source.name}: {source.summary}")
                make_data(workload, source)
                info = read_data_info(workload, source)
            n_train = f"{info.n_train_tokens:,} train tokens" if info.n_train_tokens is not None else "ready"
            say(f"data      {source.name}: {n_train} in {info.path}")


def _run_trials(folder: "RunFolder", record: "RunRecord", interrupts: "Interrupts", site: "Site") -> "RunOutcome":
    from ecobench.cli.live import LiveLine
    from ecobench.runner import run_trials
    from ecobench.trial import Observer

    is_estimate = any(info.evidence == "EST" for info in record.meters)
    lines: list[LiveLine] = []

    def observer(index: int) -> Observer:
        for line in lines:
            line.close()
        lines.append(LiveLine(record.spec, index=index, is_estimate=is_estimate))
        return lines[-1]

    try:
        with site.seams(record.id, record.spec, record.meters) as seams:
            return run_trials(folder, record, seams=seams, observer=observer, interruption=interrupts)
    finally:
        for line in lines:
            line.close()


def _print_result(
    folder: "RunFolder", record: "RunRecord", outcome: "RunOutcome", *, as_json: bool, report_path: "Path | None"
) -> None:
    from ecobench.report.tables import result_block

    try:
        if as_json:
            print_json({"path": str(folder.path), "run": record, "summary": outcome.summary, "trials": outcome.trials})
        else:
            print(result_block(record, outcome.summary, report_path=report_path))
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # `ecobench run | head`: the run is stored, and goes on to its report
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _draw_report(folder: "RunFolder", interrupts: "Interrupts") -> None:
    """Draw the report; a signal ends that at once, since all that it needs is stored."""
    from ecobench.errors import EcobenchError
    from ecobench.report import write_report

    count_before = interrupts.count
    try:
        interrupts.raises = True
        paths = write_report(folder, formats=("html", "png"))
    except EcobenchError as error:
        print_error(f"the report was not drawn: {error.message}", f"`ecobench report {folder.id}` draws it again")
    except KeyboardInterrupt:
        pass
    else:
        say(f"report    {paths[0]}")
    finally:
        interrupts.raises = False
    if interrupts.count > count_before:  # also where a library took the exception for itself
        say(f"the report may not be whole; `ecobench report {folder.id}` draws it")


def _end(folder: "RunFolder", outcome: "RunOutcome", interrupts: "Interrupts") -> None:
    """Leave with the exit code that says how the run ended."""
    from ecobench.records import TrialStatus

    if interrupts.signum is not None:
        say(f"interrupted by {interrupts.name}; what was measured is kept: `ecobench show {folder.id}`")
        raise typer.Exit(128 + interrupts.signum)
    if outcome.error is not None:
        raise outcome.error
    failed = [trial for trial in outcome.trials if trial.status not in (TrialStatus.DONE, TrialStatus.STOPPED)]
    if failed:
        output = folder.trial(failed[0].index).path
        print_error(
            f"trial {failed[0].index}: {failed[0].message}",
            f"its output is in {output}; `ecobench show {folder.id}` shows what was measured",
        )
        raise typer.Exit(int(ExitCode.WORKLOAD))
    if not outcome.summary.is_valid:
        say("error: measured but invalid, see the flags above")
        raise typer.Exit(int(ExitCode.INVALID))
