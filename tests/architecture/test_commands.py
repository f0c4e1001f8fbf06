"""The commands that are there, their help and their documentation."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from ecobench.cli import app

CHECKOUT = Path(__file__).resolve().parents[2]


def walk(command: object, words: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Every command below a group, with the words that a person types for it."""
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(words), command
        return
    for name, child in below.items():
        yield from walk(child, (*words, name))


def find_commands(root: typer.Typer) -> dict[str, object]:
    """All commands of the application."""
    return dict(walk(get_command(root), ("ecobench",)))


COMMANDS = find_commands(app)


@pytest.mark.parametrize("words", COMMANDS)
def test_command_has_help(words: str) -> None:
    """Every command, and every option of it, says in a sentence what it does."""
    command = COMMANDS[words]
    mute = [option.name for option in command.params if not getattr(option, "help", None)]  # type: ignore[attr-defined]

    assert command.help  # type: ignore[attr-defined]
    assert not mute


@pytest.mark.parametrize("words", COMMANDS)
def test_command_is_in_the_readme(words: str) -> None:
    """A command that the README does not name is one that nobody finds."""
    assert words in (CHECKOUT / "README.md").read_text(encoding="utf-8")
