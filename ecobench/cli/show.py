"""`ecobench show ID`: what one run found, also of a run that was killed half-way."""

from typing import Annotated

import typer

from ecobench.cli.console import print_json


def show(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="A run's id, the start of one, or `last`.")] = "last",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show what a run found; of one that was killed, what it left."""
    from ecobench.reading import read_run
    from ecobench.report.tables import result_block
    from ecobench.store import Store

    folder = Store.from_environment().find(run_id)
    found = read_run(folder)
    if as_json:
        print_json({"run": found.run, "summary": found.summary, "trials": found.trials})
    else:
        print(result_block(found.run, found.summary, report_path=folder.report if folder.report.exists() else None))
