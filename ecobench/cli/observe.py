"""Watches the energy readings of GPUs for some seconds: how often each really changes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ecobench.units import NS_PER_S

if TYPE_CHECKING:
    from ecobench.seams import Meter, Sample

# Several times faster than any sensor that is known updates.
EVERY_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedReading:
    """How often one reading of one domain changed; `update_s` None where it changed too rarely to tell."""

    domain: str
    kind: str
    n_changes: int
    update_s: float | None


def observe(meters: "Sequence[Meter]", *, duration_s: float, tell: Callable[[str], None]) -> list[ObservedReading]:
    """Read the GPUs among `meters` for `duration_s`, and say each second how far it is."""
    from ecobench.aliasing import observed_period
    from ecobench.measurement import Boundary
    from ecobench.trace import trace_of

    watched = [one for one in meters if one.info.boundary is Boundary.GPU and one.info.kind.carries_energy]
    samples: list[list[Sample]] = [[] for _ in watched]
    start_ns = now_ns = time.monotonic_ns()
    told_s = 0
    while watched and (elapsed_s := (now_ns - start_ns) / NS_PER_S) < duration_s:
        if int(elapsed_s) >= told_s:
            tell(f"observing the GPUs' sensors, {told_s} of {duration_s:g} s")
            told_s += 1
        for meter, mine in zip(watched, samples, strict=True):
            mine.extend(meter.read((now_ns,)))
        time.sleep(EVERY_S)
        now_ns = time.monotonic_ns()
    found = []
    for meter, mine in zip(watched, samples, strict=True):
        trace = trace_of(meter.info, mine)
        period = observed_period(trace)
        found.append(
            ObservedReading(
                domain=meter.info.domain,
                kind=meter.info.kind.value,
                n_changes=int((trace.raw[1:] != trace.raw[:-1]).sum()),
                update_s=None if period is None else period.period_s,
            )
        )
    return found


def observed_lines(found: Sequence[ObservedReading], *, duration_s: float) -> list[str]:
    """`gpu:0: energy counter changes every 100 ms; instant power did not change in 3 s`, a line for each domain."""
    lines = []
    for domain in dict.fromkeys(one.domain for one in found):
        parts = []
        for one in (one for one in found if one.domain == domain):
            name = one.kind.replace("_", " ")
            if one.update_s is not None:
                parts.append(f"{name} changes every {one.update_s * 1e3:.0f} ms")
            elif one.n_changes:
                parts.append(f"{name} changed {one.n_changes} times in {duration_s:g} s, too rarely to tell")
            else:
                parts.append(f"{name} did not change in {duration_s:g} s")
        lines.append(f"{domain}: {'; '.join(parts)}")
    return lines
