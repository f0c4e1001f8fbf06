"""How much of a run is shown: what a workload makes thousands of is cut to what can be read, the rest counted. Pure.

Nothing is lost by it: `--json`, the stored summary and the events hold all.
"""

from collections.abc import Sequence

from ecobench.records import Figure, PhaseSummary, Target

MOST_PHASES = 12
MOST_METRICS = 12
MOST_EVIDENCE = 8
MOST_TEXT = 1000


def shown_phases(phases: Sequence[PhaseSummary]) -> tuple[tuple[PhaseSummary, ...], str | None]:
    """The measured phase and the longest others, in the order they had; and what is left out, None for nothing."""
    longest = sorted(phases, key=lambda phase: (not phase.is_measured, -phase.duration_s))[:MOST_PHASES]
    chosen = {phase.phase for phase in longest}
    shown = tuple(phase for phase in phases if phase.phase in chosen)
    return shown, _left_out(len(phases) - len(shown), "phases that took less time are")


def shown_figures(figures: Sequence[Figure], target: Target | None) -> tuple[tuple[Figure, ...], str | None]:
    """All that is measured, and the final values of the target's and the first other metrics; and what is left out."""
    aim = f"final_{target.metric}" if target is not None else None
    finals = dict.fromkeys(figure.key for figure in figures if figure.key.startswith("final_"))
    hidden = set(sorted(finals, key=lambda key: key != aim)[MOST_METRICS:])
    shown = tuple(figure for figure in figures if figure.key not in hidden)
    return shown, _left_out(len(hidden), "final values are")


def shown_evidence(evidence: Sequence[str]) -> tuple[str, ...]:
    """The first of what a flag was raised for, and how many more there are."""
    shown = [shortened(one) for one in evidence[:MOST_EVIDENCE]]
    more = len(evidence) - len(shown)
    return (*shown, *((f"and {more:,} more like these",) if more else ()))


def shortened(text: str) -> str:
    """Text of a length that can be read."""
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}... ({len(text) - MOST_TEXT:,} more characters)"


def _left_out(n: int, what: str) -> str | None:
    return f"{n:,} more {what} in --json, not here" if n else None
