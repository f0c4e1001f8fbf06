"""The manifest: what is understood, what is refused, and how a request is resolved against it."""

from types import MappingProxyType

import pytest

from ecobench.config import Smoke, choose, expand_command, parse_manifest
from ecobench.errors import ManifestError, RequestError
from ecobench.records import Target

HEAD = """
name = "mine"
summary = "a test"
command = "{python} -m launch --ranks={ranks} 'my script.py'"
measured_phase = "train"
token_rule = "one a count"
"""
STEPS = """
[parameters.steps]
type = "int"
default = 10
minimum = 1
"""
RATE = """
[parameters.rate]
type = "float"
default = 0.5
"""
CPU = """
[presets.cpu]
hardware = "cpu"
"""
GPU = """
[presets.big]
hardware = "gpu"
ranks = 8
parameters = { steps = 99 }
environment = { OMP_WAIT_POLICY = "passive" }
target = { metric = "val_loss", at_most = 3 }
"""
WHOLE = (
    HEAD
    + STEPS
    + RATE
    + CPU
    + GPU
    + """
[axes]
steps = { cpu = [1, 2], big = [5] }

[data.bytes]
summary = "bytes"
presets = ["cpu"]
tokenize = "{python} tokens.py make"
info = "{python} tokens.py info"

[smoke]
preset = "cpu"
parameters = { steps = 2 }
timeout = "30s"
"""
)


def refused(text: str) -> ManifestError:
    """The error that `text` gives; it has one line and names the file."""
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, where="workload.toml")
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_a_whole_manifest_is_understood() -> None:
    """Every table of the reference page."""
    manifest = parse_manifest(WHOLE, where="workload.toml")

    assert manifest.name == "mine"
    assert manifest.parameters["steps"].minimum == 1.0
    assert manifest.axes == {"steps": {"cpu": (1, 2), "big": (5,)}}
    assert manifest.presets["cpu"].ranks == 1
    assert manifest.presets["cpu"].target is None
    assert manifest.presets["big"].target == Target(metric="val_loss", at_most=3.0, unit="")
    assert manifest.presets["big"].environment == {"OMP_WAIT_POLICY": "passive"}
    assert manifest.data["bytes"].presets == ("cpu",)
    assert manifest.smoke == Smoke(preset="cpu", parameters={"steps": 2}, timeout_s=30.0)


def test_a_manifest_without_parameters_data_and_smoke_is_whole() -> None:
    """A program that takes no options is a workload too."""
    manifest = parse_manifest(HEAD + CPU, where="workload.toml")

    assert manifest.parameters == {}
    assert manifest.data == {}
    assert manifest.smoke is None


@pytest.mark.parametrize(
    ("wrong", "unknown", "meant"),
    [
        ('sumary = "x"\n' + WHOLE, "sumary", "summary"),
        (HEAD + CPU + "[smok]\npreset = 'cpu'\n", "smok", "smoke"),
        (HEAD + CPU + STEPS + "minimun = 3\n", "minimun", "minimum"),
        (HEAD + CPU + "rank = 2\n", "rank", "ranks"),
        (HEAD + CPU + "targt = { metric = 'a', at_most = 1 }\n", "targt", "target"),
        (HEAD + CPU + "target = { metric = 'a', at_most = 1, units = 'x' }\n", "units", "unit"),
        (WHOLE + "timeouts = '3s'\n", "timeouts", "timeout"),
        (WHOLE.replace('summary = "bytes"', 'summary = "bytes"\npreset = ["cpu"]'), "preset", "presets"),
    ],
)
def test_an_unknown_key_is_refused_with_what_was_meant(wrong: str, unknown: str, meant: str) -> None:
    """At every level of the file."""
    error = refused(wrong)

    assert f"unknown key `{unknown}`" in error.message
    assert error.hint == f"did you mean `{meant}`?"


@pytest.mark.parametrize("key", ["name", "summary", "command", "measured_phase", "token_rule"])
def test_a_missing_key_is_named(key: str) -> None:
    """Also where it is there under a name that is nearly right."""
    lines = [line for line in (HEAD + CPU).splitlines() if not line.startswith(key)]
    nearly = f'{key}s = "x"\n'

    assert f"`{key}` is missing" in refused("\n".join(lines)).message
    assert refused(nearly + "\n".join(lines)).hint == f"is it written as `{key}s`?"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (HEAD.replace('"mine"', "3") + CPU, "`name` is 3"),
        (HEAD.replace('"mine"', '"a/b"') + CPU, "name `a/b`"),
        (HEAD.replace('"mine"', '""') + CPU, "name ``"),
        (HEAD, "no preset"),
        (HEAD + "[presets]\n", "no preset"),
        (HEAD + "[presets.cpu]\n", "`hardware` is missing"),
        (HEAD + "presets = 3\n", "`presets` is 3"),
        (HEAD + "[presets]\ncpu = 3\n", "presets.cpu is 3"),
        (HEAD + '[presets.cpu]\nhardware = "tpu"\n', "hardware `tpu`"),
        (HEAD + CPU + "ranks = 0\n", "ranks = 0"),
        (HEAD + CPU + "ranks = true\n", "`ranks` is True"),
        (HEAD + CPU + "ranks = 1.0\n", "`ranks` is 1.0"),
        (HEAD + CPU + "environment = { THREADS = 2 }\n", "`THREADS` is 2"),
        (HEAD + CPU + "parameters = { steps = 2 }\n", "unknown parameter `steps`"),
        (HEAD + CPU + "target = { metric = 'a', at_most = nan }\n", "`at_most` is nan"),
        (HEAD + CPU + "target = { metric = 'a', at_most = 'low' }\n", "`at_most` is 'low'"),
        (HEAD + CPU + f"target = {{ metric = 'a', at_most = 1{'0' * 400} }}\n", "`at_most` is 1000"),
        (HEAD + CPU + CPU, "presets"),
        ("name = ", "workload.toml"),
        ("name = " + "[" * 5000, "workload.toml"),
        ("name = " + "9" * 5000, "workload.toml"),
    ],
)
def test_what_cannot_be_is_refused(wrong: str, says: str) -> None:
    """A value of another type, out of range, or twice."""
    assert says in refused(wrong).message


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ('[parameters.n]\ntype = "int"\n', "`default` is missing"),
        ('[parameters.n]\ntype = "integer"\ndefault = 1\n', "type `integer`"),
        ('[parameters.n]\ntype = "int"\ndefault = true\n', "`n=True`"),
        ('[parameters.n]\ntype = "int"\ndefault = 1.0\n', "`n=1.0`"),
        ('[parameters.n]\ntype = "int"\ndefault = "1"\n', "`n=1`"),
        ('[parameters.n]\ntype = "int"\ndefault = [1]\n', "`n=[1]`"),
        (f'[parameters.n]\ntype = "int"\ndefault = 1{"0" * 400}\n', "not finite"),
        (f'[parameters.n]\ntype = "float"\ndefault = 1{"0" * 400}\n', "not finite"),
        ('[parameters.n]\ntype = "float"\ndefault = inf\n', "`default` is inf"),
        ('[parameters.n]\ntype = "float"\ndefault = 1\nminimum = nan\n', "`minimum` is nan"),
        ('[parameters.n]\ntype = "float"\ndefault = 1\nminimum = true\n', "`minimum` is True"),
        ('[parameters.n]\ntype = "int"\ndefault = 1\nminimum = 2\n', "out of range"),
        ('[parameters.n]\ntype = "int"\ndefault = 1\nallowed = [2, 3]\n', "not among"),
        ('[parameters.n]\ntype = "int"\ndefault = 1\nallowed = [1, "2"]\n', "`n=2`"),
        ('[parameters.n]\ntype = "int"\ndefault = 1\nallowed = []\n', "`allowed` is empty"),
        ('[parameters.n]\ntype = "switch"\ndefault = true\n', "`n=True`"),
        ('[parameters.n]\ntype = "text"\ndefault = 1\n', "`n=1`"),
        ('[parameters.n]\ntype = "text"\ndefault = "a\\u0000"\n', "text on one line"),
        ('[parameters.n]\ntype = "text"\ndefault = "a"\nminimum = 1\n', "has no minimum"),
        ('[parameters.ranks]\ntype = "int"\ndefault = 1\n', "parameters.ranks is taken"),
        ('[parameters.batch-size]\ntype = "int"\ndefault = 1\n', "name `batch-size`"),
        ('[parameters."--x y"]\ntype = "int"\ndefault = 1\n', "name `--x y`"),
        ("[parameters.n]\n", "`type` is missing"),
        ("[parameters]\nn = 1\n", "parameters.n is 1"),
    ],
)
def test_a_parameter_that_contradicts_itself_is_refused(declared: str, says: str) -> None:
    """`ranks` belongs to presets, and a name must fit into `--name=value` and `--set`."""
    assert says in refused(HEAD + CPU + declared).message


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("[axes]\nsteps = { cup = [1] }\n", "unknown preset `cup`"),
        ("[axes]\nstep = { cpu = [1] }\n", "unknown parameter `step`"),
        ("[axes]\nsteps = { cpu = [0] }\n", "out of range"),
        ("[axes]\nsteps = { cpu = [] }\n", "cpu = []"),
        ("[axes]\nsteps = { cpu = [2, 2] }\n", "cpu = [2, 2]"),
        ("[axes]\nsteps = [1]\n", "axes.steps is [1]"),
        ("[data.d]\nsummary='s'\npresets=['gpu']\ntokenize='a'\ninfo='b'\n", "unknown preset `gpu`"),
        ("[data.d]\nsummary='s'\npresets=[1]\ntokenize='a'\ninfo='b'\n", "unknown preset `1`"),
        ("[data.d]\nsummary='s'\npresets=['cpu']\ntokenize=''\ninfo='b'\n", "the command is empty"),
        ("[data.d]\nsummary='s'\npresets=['cpu']\ntokenize='a'\ninfo='{pyton} b'\n", "pyton"),
        ("[smoke]\n", "`preset` is missing"),
        ("[smoke]\npreset='gpu'\ntimeout='3s'\n", "unknown preset `gpu`"),
        ("[smoke]\npreset='cpu'\ntimeout='3'\n", "`3` is no duration"),
        ("[smoke]\npreset='cpu'\ntimeout='3s'\nparameters={steps=0}\n", "out of range"),
    ],
)
def test_axes_data_and_smoke_name_only_what_is_declared(more: str, says: str) -> None:
    """Parameters, presets, values in range, and commands that can be run."""
    assert says in refused(HEAD + CPU + STEPS + more).message


@pytest.mark.parametrize(
    "command",
    [
        "",
        "  ",
        "{pyton} x",
        "{0} x",
        "{} x",
        "{python",
        "'x",
        "{python.x}",
        "{ranks[a]}",
        "{python!z}",
        "{python:>99999999999}",
    ],
)
def test_a_command_that_cannot_be_expanded_is_refused(command: str) -> None:
    """When the manifest is read, not when it is run."""
    refused(HEAD.replace("{python} -m launch --ranks={ranks} 'my script.py'", command) + CPU)


def test_a_command_is_split_like_a_shell_and_gets_every_parameter() -> None:
    """Quotes keep words together; a value is never split again."""
    argv = expand_command(
        "{python} -m launch --ranks={ranks} 'my script.py'",
        python="/a b/python",
        ranks=2,
        parameters={"steps": 3, "mode": "x y"},
    )

    assert argv == ("/a b/python", "-m", "launch", "--ranks=2", "my script.py", "--steps=3", "--mode=x y")


def test_the_first_preset_for_the_hardware_is_chosen_and_its_values_go_over_the_defaults() -> None:
    """Default, then preset, then what was set."""
    manifest = parse_manifest(WHOLE, where="workload.toml")

    assert choose(manifest, preset=None, hardware="cpu").parameters == {"steps": 10, "rate": 0.5}
    assert choose(manifest, preset=None, hardware="gpu").parameters == {"steps": 99, "rate": 0.5}
    chosen = choose(manifest, preset="big", hardware="cpu", settings=["steps=7", " rate = 2 ", "ranks=3", "steps=8"])
    assert chosen.parameters == {"steps": 8, "rate": 2.0}
    assert chosen.ranks == 3


def test_choosing_changes_nothing_in_the_manifest() -> None:
    """Two requests against one manifest do not see each other's values."""
    manifest = parse_manifest(WHOLE, where="workload.toml")
    choose(manifest, preset="big", hardware="cpu", settings=["steps=7"])

    assert choose(manifest, preset="big", hardware="cpu").parameters["steps"] == 99
    assert manifest.presets["big"].parameters == MappingProxyType({"steps": 99})


def test_dashes_in_a_set_name_are_underscores() -> None:
    """`--set step-time=1` as it would be written as an option."""
    text = HEAD + CPU + '[parameters.step_time]\ntype = "float"\ndefault = 1\n'

    assert choose(
        parse_manifest(text, where="w"), preset=None, hardware="cpu", settings=["step-time=2"]
    ).parameters == {"step_time": 2.0}


@pytest.mark.parametrize(
    ("preset", "settings", "says"),
    [
        ("bgi", [], "unknown preset `bgi`"),
        (None, ["stesp=3"], "unknown parameter `stesp`"),
        (None, ["steps"], "`--set steps`"),
        (None, ["=3"], "`--set =3`"),
        (None, ["steps=0"], "out of range"),
        (None, ["ranks=0"], "out of range"),
        (None, ["ranks=two"], "whole number"),
    ],
)
def test_a_request_that_does_not_fit_is_refused(preset: str | None, settings: list[str], says: str) -> None:
    """A request error and not a manifest error: the file is fine."""
    manifest = parse_manifest(WHOLE, where="workload.toml")

    with pytest.raises(RequestError) as caught:
        choose(manifest, preset=preset, hardware="cpu", settings=settings)

    assert not isinstance(caught.value, ManifestError)
    assert says in caught.value.message
    assert caught.value.hint


def test_a_machine_without_a_preset_is_told_which_there_are() -> None:
    """`--preset` still takes it."""
    with pytest.raises(RequestError, match="no preset for a machine with gpu only"):
        choose(parse_manifest(HEAD + CPU, where="w"), preset=None, hardware="gpu")
