"""The command line of `train.py`, made from `workload.toml`: each parameter is declared once, there.

Every `[parameters.NAME]` is an option `--NAME=VALUE` with its type, default and allowed values; switches are `on` and
`off`. What is parsed is exactly what the manifest declares, so `vars()` of it is what `hello` reports.
"""

import argparse
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MANIFEST = Path(__file__).with_name("workload.toml")
TYPES: dict[str, Callable[[str], int | float | str]] = {"int": int, "float": float, "text": str, "switch": str}


def parse_parameters(arguments: Sequence[str] | None = None, *, manifest: Path = MANIFEST) -> argparse.Namespace:
    """Parameters by name as int, float or str; exits with a message where one is unknown or out of its range."""
    declared: dict[str, dict[str, Any]] = tomllib.loads(manifest.read_text(encoding="utf-8"))["parameters"]
    parser = argparse.ArgumentParser(description="Train the GPT of this folder; the README says what it does.")
    for name, entry in declared.items():
        allowed = ["on", "off"] if entry["type"] == "switch" else entry.get("allowed")
        parser.add_argument(
            f"--{name}",
            type=TYPES[entry["type"]],
            default=entry["default"],
            choices=allowed,
            help=f"{entry['help']}; default {entry['default']} {entry.get('unit', '')}".rstrip(),
        )
    parsed = parser.parse_args(arguments)
    for name, entry in declared.items():
        value = getattr(parsed, name)
        if "minimum" in entry and value < entry["minimum"]:
            parser.error(f"--{name}={value}: at least {entry['minimum']}")
        if "maximum" in entry and value > entry["maximum"]:
            parser.error(f"--{name}={value}: at most {entry['maximum']}")
    return parsed
