"""What produced the numbers and how to produce them again, as rows and lines of text. Pure."""

import shlex
from pathlib import PurePath

from ecobench.records import RunRecord
from ecobench.units import format_bytes

# The first word of a command line, where it is recorded, is how ecobench was started and not what was asked of it.
_FRONT_DOORS = {"ecobench", "cli.py", "__main__.py"}


def environment_rows(run: RunRecord) -> tuple[tuple[str, str], ...]:
    """`(what, value)` of the machine and the software."""
    machine, spec, provenance = run.machine, run.spec, run.provenance
    commit = f"commit {provenance.git_commit}" if provenance.git_commit is not None else "not from a git checkout"
    if provenance.git_is_dirty:
        commit += ", with changes that are not committed"
    rows = [
        ("processor", f"{machine.cpu_model}, {machine.n_logical_cpus} logical CPUs"),
        ("memory", format_bytes(machine.memory_bytes)),
        ("system", f"{machine.system} {machine.kernel}, {machine.architecture}"),
        ("python", machine.python),
        ("ecobench", f"{provenance.ecobench}, {commit}"),
        ("packages", ", ".join(f"{name} {version}" for name, version in sorted(provenance.packages.items())) or "none"),
        ("workload", f"{spec.workload}, preset {spec.preset}, {spec.ranks} rank{'' if spec.ranks == 1 else 's'}"),
        ("parameters", ", ".join(f"{name}={value}" for name, value in spec.parameters.items()) or "none"),
        ("a token is", spec.token_rule or "not stated"),
        ("stop rule", spec.stop_rule.text if spec.stop_rule is not None else "none, runs to its end"),
        ("started", run.created_utc),
    ]
    if spec.environment:
        rows.insert(-1, ("set for it", ", ".join(f"{name}={value}" for name, value in spec.environment.items())))
    return tuple(rows)


def reproduce_lines(run: RunRecord) -> tuple[str, ...]:
    """Lines for a shell that make this run again, and what it started."""
    provenance, spec = run.provenance, run.spec
    lines = []
    if provenance.git_commit is not None:
        lines.append(f"git checkout {shlex.quote(provenance.git_commit)}")
        if provenance.git_is_dirty:
            lines.append("# the checkout had changes beside this commit; the workload as run is in source/")
    else:
        lines.append(f"# ecobench {provenance.ecobench}; the workload as run is in source/")
    lines.append(command_line(run))
    program = (PurePath(spec.command[0]).name, *spec.command[1:]) if spec.command else ()
    lines.append("# which starts, in each trial, in the workload's folder:")
    lines.append(shlex.join((*(f"{name}={value}" for name, value in spec.environment.items()), *program)))
    return tuple(lines)


def command_line(run: RunRecord) -> str:
    """The `ecobench run ...` that was typed, quoted for a shell."""
    words = run.argv
    if words and PurePath(words[0]).name in _FRONT_DOORS:
        words = words[1:]
    return shlex.join(("ecobench", *words))
