"""Workloads found by name and path, and what they say of their data."""

from pathlib import Path

import pytest

from ecobench.catalog import find_workload, known_workloads, make_data, read_data_info, read_workload
from ecobench.errors import ManifestError, RequestError, WorkloadError

HEAD = """summary = "s"
command = "{python} main.py"
measured_phase = "train"
token_rule = "r"
[presets.cpu]
hardware = "cpu"
"""
DATA = """[data.d]
summary = "s"
presets = ["cpu"]
tokenize = "{python} tokenize_it.py"
info = "{python} info.py"
"""


def make(folder: Path, name: str = "mine", more: str = "") -> Path:
    """A workload of that name."""
    folder.mkdir(parents=True)
    (folder / "workload.toml").write_text(f'name = "{name}"\n' + HEAD + more)
    return folder


def test_what_is_built_in_is_found_by_name() -> None:
    """From any folder; toy and nanogpt ship with the harness."""
    assert {"toy", "nanogpt"} <= set(known_workloads())
    assert find_workload("toy").manifest.name == "toy"
    assert (find_workload("toy").path / "main.py").is_file()


def test_a_workload_at_hand_goes_before_one_built_in(tmp_path: Path) -> None:
    """./workloads/toy is the nearer one."""
    folder = make(tmp_path / "workloads" / "toy", name="toy")

    assert find_workload("toy").path == folder


@pytest.mark.parametrize("asked", ["sub/mine", "./sub/mine", "sub/mine/", "sub/mine/workload.toml", "sub/../sub/mine"])
def test_a_path_names_a_folder_or_its_manifest(tmp_path: Path, asked: str) -> None:
    """Relative or not."""
    folder = make(tmp_path / "sub" / "mine")

    assert find_workload(asked).path.resolve() == folder
    assert find_workload(str(tmp_path / asked)).path.resolve() == folder
    assert find_workload(asked).path.is_absolute()


def test_the_folder_that_one_stands_in_is_a_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.`, its plain name from above, and its manifest."""
    folder = make(tmp_path / "mine")
    assert find_workload("mine").path == folder
    monkeypatch.chdir(folder)
    assert find_workload(".").path.resolve() == folder
    assert find_workload("workload.toml").path.resolve() == folder


@pytest.mark.parametrize(
    ("asked", "says", "hint"),
    [
        ("tyo", "no workload `tyo`", "did you mean `toy`?"),
        ("x/y", "no folder x/y", "a workload is a folder"),
        ("./file", "no folder file", "a workload is a folder"),
        ("empty/", "workload.toml", "a workload is a folder"),
        ("", "no workload ``", "known:"),
        ("empty", "no workload `empty`", "known:"),
    ],
)
def test_what_is_no_workload_is_refused_with_a_way_on(tmp_path: Path, asked: str, says: str, hint: str) -> None:
    """In one line."""
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match=says) as caught:
        find_workload(asked)

    assert hint in str(caught.value.hint)
    assert "\n" not in caught.value.message


def test_a_manifest_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """With its path."""
    (tmp_path / "workload.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(ManifestError, match=r"workload\.toml"):
        read_workload(tmp_path)


def data_workload(tmp_path: Path, info: str, tokenize: str = "pass") -> Path:
    """A workload whose data commands are these scripts."""
    folder = make(tmp_path / "mine", more=DATA)
    (folder / "info.py").write_text(info)
    (folder / "tokenize_it.py").write_text(tokenize)
    return folder


def test_data_is_made_and_described_by_the_workload_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In its own folder; what it prints while it makes data goes to stderr."""
    info = (
        "import json, os\n"
        "print(json.dumps({'present': os.path.exists('made'), 'path': os.getcwd(), 'n_train_tokens': 7}))"
    )
    folder = data_workload(tmp_path, info, "print('making'); open('made', 'w')")
    workload = find_workload(str(folder))
    source = workload.manifest.data["d"]

    assert not read_data_info(workload, source).is_present
    make_data(workload, source)
    said = read_data_info(workload, source)
    assert (said.is_present, said.path, said.n_train_tokens, said.n_validation_tokens) == (True, str(folder), 7, None)
    assert capfd.readouterr() == ("", "making\n")


@pytest.mark.parametrize(
    ("info", "says"),
    [
        ("print('hello')", "did not print its data as JSON"),
        ("print('[]')", "did not print its data as JSON"),
        ("print('{\"present\": true}')", "did not print its data as JSON"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "did not print its data as JSON"),
        (
            'print(\'{"present": true, "path": "p", "n_train_tokens": "many"}\')',
            "did not print its data as JSON",
        ),
        ("raise SystemExit(3)", "exit code 3"),
        ("raise ValueError('no disk')", "ValueError: no disk"),
        ("import sys; sys.stderr.buffer.write(b'bad \\xff'); sys.exit(1)", "bad"),
    ],
)
def test_a_data_command_that_fails_is_a_workload_error(tmp_path: Path, info: str, says: str) -> None:
    """With its last line, and the way to see all."""
    workload = find_workload(str(data_workload(tmp_path, info)))

    with pytest.raises(WorkloadError, match=says) as caught:
        read_data_info(workload, workload.manifest.data["d"])
    assert caught.value.hint


def test_a_data_command_that_is_not_there_is_a_workload_error(tmp_path: Path) -> None:
    """It names the table."""
    folder = make(
        tmp_path / "mine", more='[data.d]\nsummary="s"\npresets=["cpu"]\ntokenize="/nowhere/x"\ninfo="/nowhere/x"\n'
    )
    workload = find_workload(str(folder))

    with pytest.raises(WorkloadError, match="does not start") as caught:
        make_data(workload, workload.manifest.data["d"])
    assert "[data]" in str(caught.value.hint)
