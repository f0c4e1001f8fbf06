"""`ecobench list`: the runs of the store."""

from typing import Annotated

import typer

from ecobench.cli.console import print_json, print_table, say


def list_runs(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """List the runs in the store, oldest first."""
    from ecobench.errors import EcobenchError
    from ecobench.reading import read_run
    from ecobench.report.tables import headline, status_text
    from ecobench.store import Store

    store = Store.from_environment()
    rows = []
    for folder in store.runs():
        try:
            found = read_run(folder)
        except (EcobenchError, OSError, ValueError, OverflowError) as error:  # one bad run hides no other
            rows.append({"id": folder.id, "status": "unreadable", "headline": str(error)})
            continue
        rows.append(
            {
                "id": folder.id,
                "status": status_text(found.summary),
                "headline": headline(found.summary),
            }
        )
    if as_json:
        print_json({"root": str(store.root), "runs": rows})
    elif rows:
        print_table(("ID", "STATUS", "RESULT"), [(row["id"], row["status"], row["headline"]) for row in rows])
    else:
        say(f"no runs in {store.root}")
