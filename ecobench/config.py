"""The workload's manifest (`workload.toml`): what a workload declares, and how a request is resolved against it.

Pure: text in, frozen records out. Unknown keys are refused with a suggestion, and so are values of another type or out
of range: a typo never becomes a default.
"""

import shlex
import string
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

from ecobench.errors import ManifestError, RequestError
from ecobench.hardware import Architecture, Gpu, Needs, describe_gpus, ranks_for
from ecobench.parameters import Parameter, ParameterType, suggest
from ecobench.records import ParameterValue, Target
from ecobench.table import TableReader
from ecobench.units import parse_duration_s

Hardware = Literal["cpu", "gpu"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A named set of values for one kind of hardware; 0 ranks are one a GPU."""

    name: str
    hardware: Hardware
    ranks: int
    parameters: Mapping[str, ParameterValue]
    environment: Mapping[str, str]
    target: Target | None
    needs: Needs = field(default_factory=Needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """Data that presets need, and the two commands that get it and tell about it.

    Attributes:
        get: makes it on this machine, or downloads it.
    """

    name: str
    summary: str
    presets: tuple[str, ...]
    get: str
    is_download: bool
    info: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """A variant of the workload that takes seconds, for its contract test."""

    preset: str
    parameters: Mapping[str, ParameterValue]
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything that a `workload.toml` declares."""

    name: str
    summary: str
    command: str
    measured_phase: str
    token_rule: str
    parameters: Mapping[str, Parameter]
    axes: Mapping[str, Mapping[str, tuple[ParameterValue, ...]]]
    presets: Mapping[str, Preset]
    data: Mapping[str, DataSource]
    smoke: Smoke | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A request resolved against a manifest: one preset with the values that were set over it."""

    preset: Preset
    ranks: int
    parameters: dict[str, ParameterValue] = field(default_factory=dict)


def parse_manifest(text: str, *, where: str) -> Manifest:
    """The manifest that `text` declares; `where` names the file in errors.

    Raises:
        ManifestError: not TOML, a key that is not known, missing, or of the wrong type, or a value that contradicts
            another.
    """
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and tables without end
        raise ManifestError(f"{where}: {error}", hint="workload.toml is TOML; see docs/reference/workload.md") from None
    reader = TableReader(table, where=where)
    parameters = {name: _parse_parameter(name, sub) for name, sub in reader.tables("parameters").items()}
    presets = {name: _parse_preset(name, sub, parameters) for name, sub in reader.tables("presets").items()}
    if not presets:
        raise ManifestError(f"{where}: no preset", hint='declare one: [presets.cpu] with hardware = "cpu"')
    axes = {}
    for name, sub in reader.tables("axes").items():
        parameter = _lookup(name, parameters, what="parameter", where=sub.where)
        axes[name] = {preset: _parse_points(parameter, preset, sub) for preset in sub.rest()}
        for preset in axes[name]:
            _lookup(preset, presets, what="preset", where=sub.where)
    data = {name: _parse_data(name, sub, presets) for name, sub in reader.tables("data").items()}
    smoke = None
    if (smoke_table := reader.table_or_none("smoke")) is not None:
        smoke = _parse_smoke(smoke_table, presets, parameters)
    manifest = Manifest(
        name=reader.take("name", str),
        summary=reader.take("summary", str),
        command=reader.take("command", str),
        measured_phase=reader.take("measured_phase", str),
        token_rule=reader.take("token_rule", str),
        parameters=parameters,
        axes=axes,
        presets=presets,
        data=data,
        smoke=smoke,
    )
    reader.close()
    if not manifest.name.replace("-", "").replace("_", "").isalnum():
        raise ManifestError(
            f"{where}: name `{manifest.name}`", hint="letters, digits, - and _ only: it is part of run ids"
        )
    for command in (manifest.command, *(one for source in data.values() for one in (source.get, source.info))):
        expand_command(command, python="python", ranks=1)
    return manifest


def choose(
    manifest: Manifest,
    *,
    preset: str | None,
    hardware: Hardware,
    settings: Iterable[str] = (),
    gpus: Sequence[Gpu] = (),
) -> Choice:
    """The preset asked for (else the first that this hardware meets the needs of), with `settings` over it.

    `ranks` is not a parameter of the workload but may be set the same way.

    Raises:
        RequestError: an unknown preset or parameter, or a value that is refused.
    """
    if preset is not None:
        chosen = _lookup(preset, manifest.presets, what="preset", where=manifest.name, error=RequestError)
    else:
        fitting = [
            one
            for one in manifest.presets.values()
            if one.hardware == hardware and (not gpus or one.needs.are_met_by(gpus))
        ]
        if not fitting:
            names = ", ".join(manifest.presets)
            machine = describe_gpus(gpus) if gpus else f"{hardware} only"
            raise RequestError(
                f"{manifest.name} has no preset for a machine with {machine}", hint=f"name one: --preset {names}"
            )
        chosen = fitting[0]
    values: dict[str, ParameterValue] = {name: one.default for name, one in manifest.parameters.items()}
    values.update(chosen.parameters)
    ranks = chosen.ranks or ranks_for(gpus)
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise RequestError(f"`--set {setting}`", hint="write it as --set NAME=VALUE")
        if name == "ranks":
            if "{ranks}" not in manifest.command:
                raise RequestError(
                    f"`--set {setting}`: {manifest.name} does not start ranks", hint="its command has no {ranks}"
                )
            ranks_parameter = Parameter(name="ranks", type="int", default=ranks, minimum=1, help="processes")
            ranks = int(ranks_parameter.parse(text.strip()))
            continue
        known = _lookup(name, manifest.parameters, what="parameter", where=manifest.name, error=RequestError)
        values[name] = known.parse(text.strip())
    return Choice(preset=chosen, ranks=ranks, parameters=values)


def expand_command(
    template: str, *, python: str, ranks: int, parameters: Mapping[str, ParameterValue] | None = None
) -> tuple[str, ...]:
    """The argument list of a command template, every parameter appended as `--name=value`.

    Raises:
        ManifestError: the template is empty, badly quoted, or names a field that is not {python} or {ranks}.
    """
    try:
        words = [_fill(word, {"python": python, "ranks": str(ranks)}) for word in shlex.split(template)]
    except ValueError as error:
        raise ManifestError(
            f"command `{template}`: {error}", hint="it may hold {python} and {ranks}; quote words as in a shell"
        ) from None
    if not words:
        raise ManifestError("the command is empty", hint='for example command = "{python} train.py"')
    return (*words, *(f"--{name}={value}" for name, value in (parameters or {}).items()))


def _fill(word: str, fields: Mapping[str, str]) -> str:
    filled = []
    for text, field_name, form, conversion in string.Formatter().parse(word):
        filled.append(text)
        if field_name is None:
            continue
        if field_name not in fields:
            raise ValueError(f"there is no field `{field_name}`")
        if form or conversion:
            raise ValueError(f"`{field_name}` takes no format")
        filled.append(fields[field_name])
    return "".join(filled)


def _parse_parameter(name: str, reader: TableReader) -> Parameter:
    if name == "ranks":
        raise ManifestError(f"{reader.where} is taken", hint="ranks belong to presets: ranks = 2, --set ranks=2")
    if not name.isidentifier():
        raise ManifestError(
            f"{reader.where}: name `{name}`", hint="letters, digits and _ only: it arrives as --name=value"
        )
    kind = reader.take("type", str)
    if kind not in get_args(ParameterType):
        raise ManifestError(f"{reader.where}: type `{kind}`", hint=suggest(kind, get_args(ParameterType)))
    allowed = reader.take_or("allowed", list, None)
    if allowed == []:
        raise ManifestError(f"{reader.where}: `allowed` is empty", hint="list the values, or leave it out")
    raw_default = reader.rest().get("default")
    parameter = Parameter(
        name=name,
        type=kind,  # type: ignore[arg-type]  # checked against the literal's own values above
        default=reader.take("default", type(raw_default) if raw_default is not None else str),  # type: ignore[arg-type]
        unit=reader.take_or("unit", str, None),
        minimum=reader.take_or("minimum", float, None),
        maximum=reader.take_or("maximum", float, None),
        allowed=None if allowed is None else tuple(allowed),
        help=reader.take_or("help", str, "") or "",
    )
    reader.close()
    if kind in ("text", "switch") and (parameter.minimum is not None or parameter.maximum is not None):
        raise ManifestError(f"{reader.where}: a {kind} has no minimum and no maximum", hint="`allowed` lists values")
    _check(parameter, parameter.default, where=reader.where)
    for value in parameter.allowed or ():
        _check(parameter, value, where=reader.where)
    return parameter


def _parse_preset(name: str, reader: TableReader, parameters: Mapping[str, Parameter]) -> Preset:
    hardware = reader.take("hardware", str)
    if hardware not in get_args(Hardware):
        raise ManifestError(f"{reader.where}: hardware `{hardware}`", hint=suggest(hardware, get_args(Hardware)))
    target = None
    if (sub := reader.table_or_none("target")) is not None:
        target = Target(
            metric=sub.take("metric", str), at_most=sub.take("at_most", float), unit=sub.take_or("unit", str, "") or ""
        )
        sub.close()
    environment = reader.table("environment")
    ranks = reader.take_or("ranks", int, 1)
    if ranks is None or ranks < 0 or (ranks == 0 and hardware == "cpu"):
        raise ManifestError(f"{reader.where}: ranks = {ranks}", hint="at least 1, or with GPUs 0: one a GPU")
    preset = Preset(
        name=name,
        hardware=hardware,  # type: ignore[arg-type]  # checked against the literal's own values above
        ranks=ranks,
        parameters=_parse_values(reader, parameters),
        environment={key: environment.take(key, str) for key in environment.rest()},
        target=target,
        needs=_parse_needs(reader.table("needs")),
    )
    reader.close()
    return preset


def _parse_needs(reader: TableReader) -> Needs:
    architecture = reader.take_or("architecture", str, None)
    if architecture is not None and architecture not in get_args(Architecture):
        hint = suggest(architecture, get_args(Architecture))
        raise ManifestError(f"{reader.where}: architecture `{architecture}`", hint=hint)
    needs = Needs(
        gpus=reader.take_or("gpus", int, 1) or 0,
        architecture=architecture,  # type: ignore[arg-type]  # checked against the literal's own values above
        memory_gib=reader.take_or("memory_gib", float, 0.0) or 0.0,
        is_by_name_only=reader.take_or("by_name_only", bool, False) or False,  # noqa: FBT003  # a default, as above
    )
    reader.close()
    return needs


def _parse_data(name: str, reader: TableReader, presets: Mapping[str, Preset]) -> DataSource:
    made, downloaded = reader.take_or("tokenize", str, None), reader.take_or("download", str, None)
    if (made is None) == (downloaded is None):
        raise ManifestError(
            f"{reader.where}: needs `tokenize` or `download`", hint="one of them: the command that gets the data"
        )
    source = DataSource(
        name=name,
        summary=reader.take("summary", str),
        presets=tuple(
            _lookup(str(one), presets, what="preset", where=reader.where).name for one in reader.take("presets", list)
        ),
        get=made or downloaded or "",
        is_download=made is None,
        info=reader.take("info", str),
    )
    reader.close()
    return source


def _parse_points(parameter: Parameter, preset: str, reader: TableReader) -> tuple[ParameterValue, ...]:
    points = tuple(_check(parameter, value, where=reader.where) for value in reader.take(preset, list))
    if not points or len(set(points)) < len(points):
        raise ManifestError(f"{reader.where}: {preset} = {list(points)}", hint="at least one point, each once")
    return points


def _parse_smoke(reader: TableReader, presets: Mapping[str, Preset], parameters: Mapping[str, Parameter]) -> Smoke:
    smoke = Smoke(
        preset=_lookup(reader.take("preset", str), presets, what="preset", where=reader.where).name,
        parameters=_parse_values(reader, parameters),
        timeout_s=_parse_timeout(reader),
    )
    reader.close()
    return smoke


def _parse_values(reader: TableReader, parameters: Mapping[str, Parameter]) -> dict[str, ParameterValue]:
    sub = reader.table("parameters")
    values = {}
    for name, value in sub.rest().items():
        values[name] = _check(_lookup(name, parameters, what="parameter", where=sub.where), value, where=sub.where)
    return values


def _parse_timeout(reader: TableReader) -> float:
    try:
        return parse_duration_s(reader.take("timeout", str))
    except RequestError as error:
        raise ManifestError(f"{reader.where}: timeout: {error.message}", hint=error.hint) from None


def _check(parameter: Parameter, value: object, *, where: str) -> ParameterValue:
    try:
        return parameter.check(value)
    except RequestError as error:
        raise ManifestError(f"{where}: {error.message}", hint=error.hint) from None


def _lookup(
    name: str, known: Mapping[str, T], *, what: str, where: str, error: type[RequestError] = ManifestError
) -> T:
    if name not in known:
        raise error(f"{where}: unknown {what} `{name}`", hint=suggest(name, known))
    return known[name]
