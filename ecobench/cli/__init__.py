"""The command line: one file a command; `wiring` is the only place that chooses implementations.

Results go to stdout, everything else to stderr. Nothing heavy is imported until a command runs: `ecobench --help`
answers at once.
"""

import sys
from typing import Annotated

import typer

import ecobench
from ecobench.cli import data, doctor, list_runs, report, restore, run, show, verify
from ecobench.cli.console import print_error
from ecobench.errors import EcobenchError, ExitCode

app = typer.Typer(
    name="ecobench",
    help="Measure what a training run costs in energy, and how sure that is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("run")(run.run)
app.command("list")(list_runs.list_runs)
app.command("show")(show.show)
app.command("report")(report.report)
app.command("verify")(verify.verify)
app.command("doctor")(doctor.doctor)
app.command("restore")(restore.restore)
app.add_typer(data.app, name="data")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"ecobench {ecobench.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The installed command: run what was typed, and turn errors into one line, a hint and an exit code."""
    try:
        app()
    except EcobenchError as error:
        print_error(error.message, error.hint)
        sys.exit(int(error.exit_code))
    except BrokenPipeError:  # `ecobench list | head`
        sys.stderr.close()
        sys.exit(int(ExitCode.DONE))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print_error(f"{where}{error.strerror or error}", None)
        sys.exit(int(ExitCode.REQUEST))
