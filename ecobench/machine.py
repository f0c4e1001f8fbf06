"""What machine this is, and what software: read once, at the start of a run."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

import ecobench
from ecobench.clock import read_boot_id
from ecobench.records import MachineRecord, Provenance

# Number of the capability. Source: capability.h.
CAP_SYS_ADMIN = 21

PACKAGES = ("torch", "numpy", "scipy", "pandas", "pyarrow", "nvidia-ml-py", "zeus", "psutil", "bokeh", "matplotlib")


def read_machine() -> MachineRecord:
    """The machine, without its name: a report is sent around."""
    return MachineRecord(
        system=platform.system(),
        kernel=platform.release(),
        architecture=platform.machine(),
        cpu_model=_cpu_model(),
        n_logical_cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        python=platform.python_version(),
        boot_id=read_boot_id(),
    )


def read_provenance(workload_path: Path) -> Provenance:
    """Versions of ecobench and of the packages that numbers come from, and the git state of the workload's checkout."""
    commit = _git("rev-parse", "HEAD", at=workload_path)
    status = _git("status", "--porcelain", "--untracked-files=no", at=workload_path) if commit else None
    return Provenance(
        ecobench=ecobench.__version__,
        packages=read_versions(PACKAGES),
        git_commit=commit,
        git_is_dirty=None if status is None else bool(status),
    )


def read_versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of those of `packages` that are installed, from their metadata: nothing is imported."""
    versions = {}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def free_disk_bytes(path: Path) -> int:
    """Free space where `path` is or would be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def read_container() -> str | None:
    """What kind of container this is; None where nothing says that it is one."""
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    try:
        text = Path("/proc/1/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    named = next((name for name in ("kubepods", "docker", "containerd", "lxc") if name in text), None)
    return named or os.environ.get("container") or None  # noqa: SIM112  # systemd's own spelling


def has_admin_capability() -> bool:
    """Whether this process may change settings of devices: CAP_SYS_ADMIN, which root in a container often lacks."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return os.geteuid() == 0
    effective = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)
    return bool(effective >> CAP_SYS_ADMIN & 1)


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("model name", "Model", "cpu model")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _git(*arguments: str, at: Path) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(at), *arguments], capture_output=True, text=True, timeout=5.0, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
