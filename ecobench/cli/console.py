"""How commands speak: data on stdout, the rest on stderr, legible without colour."""

import contextlib
import json
import sys
from typing import Any


def say(line: str = "") -> None:
    """One line for the person watching: control characters shown, not obeyed."""
    write_stderr("".join(c if c.isprintable() else repr(c)[1:-1] for c in line) + "\n")


def write_stderr(text: str) -> None:
    """Write to stderr where that still takes anything: who no longer listens must not end a run."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


def print_error(message: str, hint: str | None) -> None:
    """An error in one line, and after an empty one what to do."""
    say(f"error: {message}")
    if hint:
        say()
        say(f"hint: {hint}")


def print_json(document: Any) -> None:
    """The one document of `--json`."""
    from ecobench.store import as_plain

    print(json.dumps(as_plain(document), allow_nan=False, indent=1, ensure_ascii=False))


def print_table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Columns as wide as they need to be, on stdout."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
