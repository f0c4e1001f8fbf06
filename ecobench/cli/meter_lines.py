"""Meters as lines: one for each power domain, with all that is read of it."""

from collections.abc import Iterable

from ecobench.measurement import MeterInfo


def meter_lines(infos: Iterable[MeterInfo]) -> list[str]:
    """`gpu:0 by nvml (G1): NVIDIA H100: the board with its memory [energy counter 50 Hz, instant power 50 Hz]`."""
    by_domain: dict[tuple[str, str], list[MeterInfo]] = {}
    for info in infos:
        by_domain.setdefault((info.domain, info.interface), []).append(info)
    return [_line(found) for found in by_domain.values()]


def _line(found: list[MeterInfo]) -> str:
    first = next((info for info in found if info.kind.carries_energy), found[0])
    low, high = (f"{share * 100:+.0f} %" for share in (first.instrument_share.low, first.instrument_share.high))
    kinds = [f"{info.kind.replace('_', ' ')} {1e9 / info.period_ns:g} Hz" for info in found if info.kind.carries_energy]
    n_gauges = len(found) - len(kinds)
    others = [f"{n_gauges} conditions"] if n_gauges else []
    ratios = [f"{info.kind.replace('_', ' ')} {info.calibrated_ratio:.4f}" for info in found if info.calibrated_ratio]
    others += [f"calibrated: {', '.join(ratios)} of the counter"] if ratios else []
    read = f" [{', '.join([*kinds, *others])}]" if len(found) > 1 else ""
    return f"{first.domain} by {first.interface} ({first.evidence}, {low} to {high}): {first.counted}{read}"
