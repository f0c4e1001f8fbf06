"""What a node file must say."""

from pathlib import Path

import pytest

from ecobench.errors import RequestError
from ecobench.simulation.nodefile import NODES, find_node, known_nodes, parse_node


def test_built_in_nodes_say_where_every_constant_comes_from() -> None:
    assert known_nodes() == ["1xh100", "8xh100", "a40", "v100"]
    for name in known_nodes():
        node = find_node(name)
        n_expected = 19 + (3 if node.host is not None else 0) + 4 * len(node.loads)
        assert len(node.sources) == n_expected
        assert all(node.sources.values())


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((NODES / "v100.toml").read_text().replace('name = "v100"', 'name = "mine"'))

    assert find_node(str(path)).name == "mine"


def test_unknown_node_is_refused_with_a_suggestion() -> None:
    with pytest.raises(RequestError) as caught:
        find_node("8xh10")
    assert caught.value.hint == "did you mean `8xh100`?"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('{ value = 34.94, source = "', '{ value = 34.94, sources = "', "static_w is not a value with its source"),
        ("static_w", "statik_w", "unknown `statik_w`"),
        ("value = 0.926", "value = 0.9", "add up to 0.974"),
        ("n_boards = 1", "n_boards = 0", "n_boards from 1"),
        ("value = 34.94", 'value = "much"', "static_w = 'much'"),
    ],
)
def test_wrong_files_are_refused(old: str, new: str, says: str) -> None:
    text = (NODES / "v100.toml").read_text().replace(old, new, 1)

    with pytest.raises(RequestError, match=r"mine\.toml") as caught:
        parse_node(text, where="mine.toml")
    assert says in caught.value.message
