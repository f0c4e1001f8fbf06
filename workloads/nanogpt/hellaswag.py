"""HellaSwag: of four endings of a sentence, the model's choice is the one that it finds least surprising.

A file has one JSON object a line, as published: `ctx` (the beginning), `endings` (four), `label` (the right one's
number). An ending is scored by the mean cross-entropy of its tokens after the beginning, so that long endings are not
punished for their length. Texts go in as the model's own tokens: bytes, or GPT-2's through tiktoken.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

# Tokens and their successors, (1, T) each, to losses (1, T).
TokenLosses: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Encode: TypeAlias = Callable[[str], Sequence[int]]


class HellaSwagError(Exception):
    """The file is not what it should be; the message names the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One beginning, its endings, and which of them is right."""

    beginning: str
    endings: tuple[str, ...]
    label: int


def read_questions(path: Path) -> Iterator[Question]:
    """All questions of a file.

    Raises:
        HellaSwagError: it cannot be read, or a line is no question.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HellaSwagError(f"{path}: {error}") from None
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            question = Question(
                beginning=str(entry["ctx"]), endings=tuple(map(str, entry["endings"])), label=int(entry["label"])
            )
        except (ValueError, KeyError, TypeError) as error:
            raise HellaSwagError(f"{path}, line {number}: {error!r}; it needs ctx, endings and label") from None
        if not 0 <= question.label < len(question.endings):
            raise HellaSwagError(f"{path}, line {number}: label {question.label} of {len(question.endings)} endings")
        yield question


def choose_ending(question: Question, losses: TokenLosses, encode: Encode, *, separator: int, multiple: int = 1) -> int:
    """Number of the ending with the lowest mean loss. Lengths are padded to a multiple with separators."""
    means = []
    beginning = [separator, *encode(question.beginning)]
    for ending in question.endings:
        tokens = [*beginning, *encode(" " + ending)]
        n_predicted = len(tokens) - 1
        padded = torch.tensor([tokens + [separator] * (-n_predicted % multiple)])
        by_token = losses(padded[:, :-1], padded[:, 1:])[0]
        means.append(by_token[len(beginning) - 1 : n_predicted].mean())
    return int(torch.stack(means).argmin())


def score(
    questions: Sequence[Question], losses: TokenLosses, encode: Encode, *, separator: int, multiple: int = 1
) -> float:
    """Share of the questions whose right ending is chosen."""
    right = [
        choose_ending(one, losses, encode, separator=separator, multiple=multiple) == one.label for one in questions
    ]
    return sum(right) / len(right)


def encoder(data: str) -> Encode:
    """How texts become tokens of that data.

    Raises:
        HellaSwagError: GPT-2's tokens need tiktoken, and its file.
    """
    if data == "stdlib":
        return lambda text: list(text.encode())
    try:
        import tiktoken  # noqa: PLC0415  # for GPT-2's tokens only

        return tiktoken.get_encoding("gpt2").encode_ordinary
    except Exception as error:  # noqa: BLE001  # the library, its file or the network: all end the same way
        raise HellaSwagError(f"GPT-2's tokens need tiktoken and its file: {error}") from None
