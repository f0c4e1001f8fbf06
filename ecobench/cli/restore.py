"""`ecobench restore`: put back what runs that were killed have left set on this machine's GPUs."""

from typing import Annotated

import typer

from ecobench.cli.console import print_error, print_json
from ecobench.errors import ExitCode


def restore(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Put back power limits and clocks that a run which was killed has left set."""
    from ecobench.cli.wiring import put_left_back

    found = put_left_back()
    if as_json:
        print_json({"restored": [{"line": one.line, "is_done": one.is_done} for one in found]})
    for one in found:
        if not one.is_done:
            print_error(one.line, one.hint)
        elif not as_json:
            print(one.line)
    if not found and not as_json:
        print("nothing is to be put back")
    if not all(one.is_done for one in found):
        raise typer.Exit(int(ExitCode.METER))
