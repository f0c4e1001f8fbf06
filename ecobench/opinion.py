"""The second opinion: Zeus's energy of each GPU beside ours over exactly its window. Pure.

Zeus takes the counter as it stands at each end of its window; that reading is up to one tick old, where ours is
interpolated. So the two may differ by a tick of energy at each end, and by no more: a longer difference is said.
Zeus's faults stay Zeus's: 0 J and less are missing, not energy.
"""

from collections.abc import Sequence

from ecobench.counter import counter_curve
from ecobench.energy import domain_energy
from ecobench.measurement import ReadingKind, SecondOpinion, Segment, Window, ZeusReading, ZeusWindow
from ecobench.trace import Trace
from ecobench.units import NS_PER_S, format_number

SAME_SOURCE = "same source"
# Beyond the ticks: the time between our stamp and the moment within the call at which a board was read.
MOST_UNEXPLAINED_SHARE = 0.002


def second_opinions(window: ZeusWindow | None, traces: Sequence[Trace]) -> tuple[SecondOpinion, ...]:
    """One for each GPU that Zeus was asked about."""
    if window is None or window.start_ns is None or window.stop_ns is None or window.stop_ns <= window.start_ns:
        return ()
    over = Window(phase="zeus", segments=(Segment(start_ns=window.start_ns, stop_ns=window.stop_ns),))
    counters = {trace.info.domain: trace for trace in traces if trace.info.kind is ReadingKind.ENERGY_COUNTER}
    source = f"zeus {window.version}"
    return tuple(_opinion(one, over, counters.get(one.domain), source=source) for one in window.readings)


def opinion_text(window: ZeusWindow | None, opinions: Sequence[SecondOpinion]) -> str | None:
    """One line; None where Zeus was not asked."""
    if window is None:
        return None
    ratios = [one.ratio for one in opinions if one.ratio is not None]
    if window.note is not None or not ratios:
        reason = window.note or next((one.note for one in opinions if one.note is not None), "it gave no energy")
        return f"Zeus gave none: {reason}"
    low, high = f"{min(ratios):.4f}", f"{max(ratios):.4f}"
    span = low if low == high else f"{low} to {high}"
    n_missing = len(opinions) - len(ratios)
    lacking = f", {n_missing} without a number" if n_missing else ""
    return f"Zeus {window.version} / ecobench = {span} over {len(opinions)} GPU(s){lacking} ({SAME_SOURCE})"


def _opinion(reading: ZeusReading, over: Window, trace: Trace | None, *, source: str) -> SecondOpinion:
    ours = domain_energy(trace, over) if trace is not None else None
    ours_j = ours.energy_j if ours is not None else None
    theirs_j = reading.energy_j if reading.energy_j is not None and reading.energy_j > 0 else None
    notes = []
    if reading.energy_j is None:
        notes.append("Zeus gave no energy of it")
    elif theirs_j is None:
        why = "its counter went back" if reading.energy_j < 0 else "its counter did not move"
        notes.append(f"Zeus said {format_number(reading.energy_j)} J: {why}")
    if ours_j is None:
        notes.append(f"ours: {ours.reason}" if ours is not None else "we read no counter of it")
    ratio = theirs_j / ours_j if theirs_j is not None and ours_j else None
    if theirs_j is not None and ours_j is not None and trace is not None:
        notes += _difference(theirs_j, ours_j, over, trace)
    return SecondOpinion(
        domain=reading.domain,
        source=source,
        relation=SAME_SOURCE,
        theirs_j=theirs_j,
        ours_j=ours_j,
        ratio=ratio,
        note="; ".join(notes) or None,
    )


def _difference(theirs_j: float, ours_j: float, over: Window, trace: Trace) -> list[str]:
    """What there is to say where the ticks of the counter do not explain the difference."""
    curve = counter_curve(trace)
    tick_ns = max(curve.tick_ns if curve is not None else 0, trace.info.period_ns)
    most_w = max(ours_j / (over.duration_ns / NS_PER_S), trace.info.max_power_w or 0.0)
    explained_j = 2 * tick_ns / NS_PER_S * most_w + MOST_UNEXPLAINED_SHARE * ours_j
    if abs(theirs_j - ours_j) <= explained_j:
        return []
    return [
        f"Zeus {theirs_j - ours_j:+.3g} J off ours, where the counter's ticks explain {format_number(explained_j)} J"
    ]
