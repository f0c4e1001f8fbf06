"""`ecobench data`: the token streams that workloads train on."""

from typing import Annotated

import typer

from ecobench.cli.console import print_json, print_table, say
from ecobench.errors import RequestError

app = typer.Typer(help="The data that workloads train on.", no_args_is_help=True, rich_markup_mode=None)

WorkloadOption = Annotated[str, typer.Option("--workload", "-w", metavar="W", help="A workload's name or folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def info(workload: WorkloadOption = "nanogpt", as_json: JsonOption = False) -> None:
    """Tell which data a workload needs, and whether it is there."""
    from ecobench.catalog import find_workload, read_data_info

    found = find_workload(workload)
    rows = [(source, read_data_info(found, source)) for source in found.manifest.data.values()]
    if as_json:
        print_json(
            {
                "workload": found.manifest.name,
                "data": [
                    {"name": source.name, "summary": source.summary, "presets": source.presets, "info": one}
                    for source, one in rows
                ],
            }
        )
        return
    if not rows:
        say(f"{found.manifest.name} needs no data")
        return
    print_table(
        ("DATA", "THERE", "TRAIN TOKENS", "VALIDATION", "HASH", "PATH"),
        [
            (
                source.name,
                "yes" if one.is_present else "no",
                "-" if one.n_train_tokens is None else f"{one.n_train_tokens:,}",
                "-" if one.n_validation_tokens is None else f"{one.n_validation_tokens:,}",
                (one.data_hash or "-")[:12],
                one.path,
            )
            for source, one in rows
        ],
    )


@app.command()
def tokenize(workload: WorkloadOption = "nanogpt", as_json: JsonOption = False) -> None:
    """Make a workload's token shards on this machine, without any download."""
    from ecobench.catalog import find_workload, make_data, read_data_info

    found = find_workload(workload)
    if not found.manifest.data:
        raise RequestError(
            f"{found.manifest.name} needs no data", hint="`ecobench data info` shows what a workload needs"
        )
    for source in found.manifest.data.values():
        make_data(found, source)
    rows = [(source, read_data_info(found, source)) for source in found.manifest.data.values()]
    if as_json:
        print_json({"workload": found.manifest.name, "data": [one for _, one in rows]})
    else:
        for source, one in rows:
            n_train, n_validation = one.n_train_tokens or 0, one.n_validation_tokens or 0
            print(f"{source.name}: {n_train:,} train and {n_validation:,} validation tokens in {one.path}")
