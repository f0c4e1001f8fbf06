"""The report of a run: HTML that needs nothing but itself, and PNG twins of its charts.

    tables.py       the result block that a run ends with        quantities.py   how a figure reads
    content.py      everything that a report shows, as data      losses.py, timelines.py, provenance.py: its parts
    boards.py       GPUs, a line each, and their checks          bounds.py       how much of it all is shown
    sentences.py    what the numbers show, in words              drawings.py     what each chart draws
    figures.py      drawn by matplotlib (PNG)                    charts.py       drawn by Bokeh (zoom, hover)
    html.py         the page                                     template.html   its text and style

Importing this package loads no drawing library: that happens when a report is written.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from ecobench.store.documents import store_error
from ecobench.store.folders import RunFolder

ReportFormat: TypeAlias = Literal["html", "png"]


def write_report(run: RunFolder, *, formats: Sequence[ReportFormat]) -> list[Path]:
    """Draw the report of `run` into its folder; the files written, each whole or not at all.

    Charts without data are left out: a run without a meter has no `power.png`, and `time.png` in place of `energy.png`.

    Raises:
        RecordError: the run's records cannot be read.
        StoreError: the disk is full, or the folder cannot be written.
    """
    from ecobench.report.content import gather
    from ecobench.report.drawings import draw
    from ecobench.report.figures import pngs

    content = gather(run)
    drawings = draw(content)
    images = pngs(drawings)
    files: dict[Path, bytes] = {}
    if "html" in formats:
        from ecobench.report.html import render

        files[run.report] = render(content, drawings, images=images).encode()
    if "png" in formats:
        files |= {run.path / f"{name}.png": image for name, image in images.items()}
    for path, data in files.items():
        _write_whole(path, data)
    return list(files)


def _write_whole(path: Path, data: bytes) -> None:
    """By way of a file beside it: a reader sees the old report or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise store_error(error, path) from None
