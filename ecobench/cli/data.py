"""`ecobench data`: the token streams that workloads train on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ecobench.cli.console import print_json, print_table, say
from ecobench.errors import RequestError

if TYPE_CHECKING:
    from ecobench.catalog import Workload
    from ecobench.config import DataSource

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
    from ecobench.catalog import find_workload

    found = find_workload(workload)
    _get(found, [one for one in found.manifest.data.values() if not one.is_download], as_json=as_json)


@app.command()
def download(
    workload: Annotated[str, typer.Argument(help="A workload's name or folder.")] = "nanogpt",
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="P", help="For this preset; default: the first that needs any.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch the data that a workload downloads: what is missing of it."""
    from ecobench.catalog import find_workload
    from ecobench.parameters import suggest

    found = find_workload(workload)
    if preset is not None and preset not in found.manifest.presets:
        raise RequestError(f"unknown preset `{preset}`", hint=suggest(preset, found.manifest.presets))
    sources = [one for one in found.manifest.data.values() if one.is_download]
    _get(found, [one for one in sources if preset is None or preset in one.presets][:1], as_json=as_json)


def _get(workload: "Workload", sources: "Sequence[DataSource]", *, as_json: bool) -> None:
    from ecobench.catalog import make_data, read_data_info

    if not sources:
        raise RequestError(
            f"{workload.manifest.name} needs no such data", hint="`ecobench data info` shows what a workload needs"
        )
    for source in sources:
        make_data(workload, source)
    rows = [(source, read_data_info(workload, source)) for source in sources]
    if as_json:
        print_json({"workload": workload.manifest.name, "data": [one for _, one in rows]})
    else:
        for source, one in rows:
            n_train, n_validation = one.n_train_tokens or 0, one.n_validation_tokens or 0
            print(f"{source.name}: {n_train:,} train and {n_validation:,} validation tokens in {one.path}")
