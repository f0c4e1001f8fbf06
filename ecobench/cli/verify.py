"""`ecobench verify ID`: recompute every number from raw samples and events, and check that no byte has changed."""

from typing import Annotated

import typer

from ecobench.cli.console import print_json
from ecobench.errors import ExitCode


def verify(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="A run's id, the start of one, or `last`.")] = "last",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Recompute a run's numbers from its raw samples and events, and check its hashes."""
    from ecobench.reading import verify_run
    from ecobench.store import Store

    folder = Store.from_environment().find(run_id)
    verdict = verify_run(folder)
    if as_json:
        print_json({"id": folder.id, "is_good": not verdict.problems, "verdict": verdict})
    else:
        for line in verdict.checked:
            print(f"ok       {line}")
        for line in verdict.notes:
            print(f"note     {line}")
        for line in verdict.problems:
            print(f"PROBLEM  {line}")
        good = "holds as far as it can be checked" if verdict.notes else "every number and hash holds"
        print(f"{folder.id}: {'does not hold' if verdict.problems else good}")
    if verdict.problems:
        raise typer.Exit(int(ExitCode.INVALID))
