"""`ecobench report ID...`: draw the report of runs again."""

from typing import Annotated

import typer

from ecobench.cli.console import print_json, say
from ecobench.errors import RequestError

FORMATS = ("html", "png")


def report(
    run_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Runs: ids, starts of ids, or `last`.")
    ] = None,
    formats: Annotated[str, typer.Option("--format", help="Any of html, png, separated by commas.")] = "html,png",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write the report of runs (HTML and PNG) into their folders."""
    from ecobench.parameters import suggest
    from ecobench.report import write_report
    from ecobench.store import Store

    wanted = [one.strip() for one in formats.split(",") if one.strip()]
    for one in wanted:
        if one not in FORMATS:
            raise RequestError(f"unknown format `{one}`", hint=suggest(one, FORMATS))
    if not wanted:
        raise RequestError("no format", hint=f"--format {','.join(FORMATS)}")
    store = Store.from_environment()
    written = {}
    for folder in [store.find(one) for one in run_ids or ["last"]]:
        paths = write_report(folder, formats=tuple(wanted))  # type: ignore[arg-type]  # checked above
        written[folder.id] = [str(path) for path in paths]
        for path in paths if not as_json else ():
            print(path)
    if as_json:
        print_json({"written": written})
    else:
        say(f"report of {', '.join(written)}")
