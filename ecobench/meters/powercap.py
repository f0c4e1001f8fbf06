"""CPU packages and DRAM by RAPL, through Linux's powercap tree (`C1`). Intel and AMD expose the same tree.

    intel-rapl:0/              a package: name, energy_uj, max_energy_range_uj, constraint_*_power_*_uw
    intel-rapl:0:0/            a part of it: core, uncore, dram (also found inside intel-rapl:0/)
    intel-rapl:1/              the next package, or psys

Counted are packages and their `dram`: `core` and `uncore` are inside the package, and what `psys` includes differs
between boards, so it is not used. Packages come all or not at all: a sum over some of them is no `cpu` figure. The
counters are read as they are, in uJ; what they mean over time is `ecobench.counter`'s to say.
"""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ecobench.measurement import Boundary, Evidence, Interval, MeterAbsence, MeterInfo, ReadingKind
from ecobench.seams import Sample

ROOT_VARIABLE = "ECOBENCH_POWERCAP_ROOT"
DEFAULT_ROOT = Path("/sys/class/powercap")
INTERFACE = "powercap"

# 10 Hz: tools that poll RAPL at 1 kHz were seen to add 0.25 to 47 % to run times. Source: arXiv 2604.26815.
PERIOD_NS = 100_000_000

# No package draws more: the largest of today are specified at 500 W. DRAM of one package: 24 modules at 20 W.
MOST_PACKAGE_W = 1000.0
MOST_DRAM_W = 500.0
# Stated limits hold over a second and more, not within it: turbo goes over them.
LIMIT_MARGIN = 2.0
LEAST_SANE_LIMIT_W = 5.0

# RAPL counters move about every millisecond. One that stands still for this long is not driven by anything.
OBSERVE_NS = 100_000_000
OBSERVE_EVERY_NS = 10_000_000

# +-5 % rectangular, k = 2: 5 % x 2/sqrt 3. Assumed: neither Intel nor AMD states an accuracy.
INSTRUMENT_SHARE = 0.05 * 2 / 3**0.5

_PACKAGE = re.compile(r"intel-rapl:(\d+)")
_PART = re.compile(r"intel-rapl:(\d+):(\d+)")
_DIGITS = re.compile(rb"[0-9]{1,19}\s*")
_INT64_END = 2**63
_DENIED = "permission denied"
_NOT_THERE = "no such file"


class PowercapFound(NamedTuple):
    """What a powercap tree holds: usable meters, and why others are not."""

    meters: tuple["PowercapMeter", ...]
    absences: tuple[MeterAbsence, ...]


class PowercapMeter:
    """Energy counter of one RAPL zone. `Meter`."""

    def __init__(self, zone: Path, info: MeterInfo) -> None:
        self._path = zone / "energy_uj"
        self._info = info

    @property
    def info(self) -> MeterInfo:
        return self._info

    def read(self, times_ns: Sequence[int]) -> Sequence[Sample]:
        """One reading of the counter for each instant asked for, all of them now."""
        return [self._sample() for _ in times_ns]

    def close(self) -> None:
        """Nothing is held open between readings."""

    def _sample(self) -> Sample:
        before_ns = time.monotonic_ns()
        raw, error = _read_count(self._path)
        call_ns = time.monotonic_ns() - before_ns
        return Sample(before_ns + call_ns // 2, raw, call_ns, error)


def find_powercap(root: Path | None = None) -> PowercapFound:
    """The RAPL meters under `root` (None: `$ECOBENCH_POWERCAP_ROOT`, else the machine's own tree).

    Watches the counters for up to 0.1 s: one that does not move counts as absent.
    """
    root = root or Path(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)
    packages, drams, psys = _zones(root)
    absences = [
        MeterAbsence(
            interface=INTERFACE,
            domain=None,
            reason=f"{zone.name} (psys) is not used: what it includes differs between boards",
            remedy=None,
        )
        for zone in psys
    ]
    if not packages:
        reason = f"no RAPL package in {root}" if os.path.isdir(root) else f"{root} does not exist"
        remedy = "on a bare machine with an Intel or AMD processor: sudo modprobe intel_rapl_msr"
        return PowercapFound(
            (), (*absences, MeterAbsence(interface=INTERFACE, domain=None, reason=reason, remedy=remedy))
        )

    meters = []
    package_absences: list[MeterAbsence] = []
    for zone, why in zip(found := [*packages, *drams], _watch(found), strict=True):
        if why is None:
            meters.append(PowercapMeter(zone.path, _info(zone)))
        elif zone.is_dram:
            absences.append(_absence(zone, why, root))
        else:
            package_absences.append(_absence(zone, why, root))
    if package_absences:
        return PowercapFound((), (*package_absences, *absences))
    return PowercapFound(tuple(meters), tuple(absences))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Zone:
    """One zone that is counted. `index`: of its package in the tree."""

    path: Path
    index: int
    name: str
    is_dram: bool

    @property
    def domain(self) -> str:
        return f"cpu:{self.index}/{'dram' if self.is_dram else 'package'}"


def _zones(root: Path) -> tuple[list[_Zone], list[_Zone], list[Path]]:
    """Packages, their DRAM, and psys zones under `root`."""
    packages: list[_Zone] = []
    drams: dict[str, _Zone] = {}
    psys: list[Path] = []
    for path, match in _matching(root, _PACKAGE):
        index, name = int(match[1]), _read_text(path / "name")
        if name.startswith("psys"):
            psys.append(path)
            continue
        packages.append(_Zone(path=path, index=index, name=name or path.name, is_dram=False))
        for part_path, part in [*_matching(path, _PART), *_matching(root, _PART)]:
            if int(part[1]) == index and _read_text(part_path / "name") == "dram":
                drams.setdefault(part_path.name, _Zone(path=part_path, index=index, name="dram", is_dram=True))
    return packages, list(drams.values()), psys


def _matching(folder: Path, pattern: re.Pattern[str]) -> list[tuple[Path, re.Match[str]]]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return []
    found = [(path, match) for path in paths if (match := pattern.fullmatch(path.name)) is not None]
    return sorted(found, key=lambda each: tuple(int(number) for number in each[1].groups()))


def _watch(zones: Sequence[_Zone]) -> list[str | None]:
    """Why each counter cannot be used; None where it moves. All are watched at once."""
    first = [_read_count(zone.path / "energy_uj") for zone in zones]
    whys = [error for _, error in first]
    still = {index for index, error in enumerate(whys) if error is None}
    deadline_ns = time.monotonic_ns() + OBSERVE_NS
    while still and time.monotonic_ns() < deadline_ns:
        time.sleep(OBSERVE_EVERY_NS / 1e9)
        still -= {index for index in still if _read_count(zones[index].path / "energy_uj") != first[index]}
    for index in still:
        whys[index] = f"the counter did not move in {OBSERVE_NS / 1e9:.1f} s (it stands at {first[index][0]} uJ)"
    return whys


def _info(zone: _Zone) -> MeterInfo:
    largest_uj = _read_count(zone.path / "max_energy_range_uj")[0]
    what = "DRAM attached to" if zone.is_dram else "everything inside"
    return MeterInfo(
        domain=zone.domain,
        kind=ReadingKind.ENERGY_COUNTER,
        interface=INTERFACE,
        boundary=Boundary.CPU,
        evidence=Evidence.C1,
        si_per_count=1e-6,
        period_ns=PERIOD_NS,
        wraps_at_count=_wraps_at(largest_uj) if largest_uj else None,
        max_power_w=_most_power_w(zone),
        instrument_share=Interval(low=-INSTRUMENT_SHARE, high=INSTRUMENT_SHARE),
        counted=f"{what} CPU package {zone.index}, whatever runs on it",
        basis=f"RAPL counter {zone.path.name} ({zone.name}); +-5 % rectangular, k = 2, assumed: no accuracy is stated",
    )


def _wraps_at(largest_uj: int) -> int:
    """Counts in one turn. The range that the kernel states is the last value before 0, not the number of values.

    The hardware counts to 2^32 - 1 in a unit of its own (61 uJ, 15.3 uJ): after the largest value it takes one unit
    more to get to 0. For a range that is too small to hold 2^32 units, the unit is 1 uJ.
    """
    return largest_uj + max(1, round(largest_uj / (2**32 - 1)))


def _most_power_w(zone: _Zone) -> float:
    """More than this the zone cannot draw: twice its highest stated limit where that is sane, else a generous bound."""
    most_w = MOST_DRAM_W if zone.is_dram else MOST_PACKAGE_W
    counts = [
        _read_count(zone.path / f"constraint_{index}_{what}_uw")[0]
        for index in range(3)
        for what in ("max_power", "power_limit")
    ]
    limit_w = max((count / 1e6 for count in counts if count is not None), default=0.0)
    return min(LIMIT_MARGIN * limit_w, most_w) if limit_w >= LEAST_SANE_LIMIT_W else most_w


def _absence(zone: _Zone, why: str, root: Path) -> MeterAbsence:
    remedy = None
    if why == _DENIED:
        remedy = (
            f"until the next boot: sudo chmod a+r {root}/intel-rapl:*/energy_uj (in a container: on its host);"
            " for good: a file /etc/udev/rules.d/70-rapl.rules with the line"
            ' SUBSYSTEM=="powercap", ACTION=="add", RUN+="/bin/chmod a+r /sys%p/energy_uj";'
            " or run with sudo. Readable counters are a known side channel (CVE-2020-8694):"
            " do this where you trust everyone who logs in"
        )
    elif why == _NOT_THERE:
        remedy = "a container may hide it: docker run --security-opt systempaths=unconfined, or run on the host"
    return MeterAbsence(
        interface=INTERFACE, domain=zone.domain, reason=f"{zone.path / 'energy_uj'}: {why}", remedy=remedy
    )


def _read_count(path: Path) -> tuple[int | None, str | None]:
    """The count in a file, or why there is none."""
    try:
        # Opened anew each time, since a tree can be replaced under us; without blocking, whatever kind of file it is.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = os.read(descriptor, 64)
        finally:
            os.close(descriptor)
    except PermissionError:
        return None, _DENIED
    except FileNotFoundError:
        return None, _NOT_THERE
    except OSError as error:
        return None, (error.strerror or type(error).__name__).lower()
    if _DIGITS.fullmatch(data) is None or int(data) >= _INT64_END:
        return None, f"no count: {data[:20]!r}"
    return int(data), None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
