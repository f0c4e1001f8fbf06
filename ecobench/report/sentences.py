"""Sentences that say what a report's numbers show: computed from this run's data, never canned. Pure.

Each sentence is plain text. An estimated or simulated number is marked where it stands.
"""

from collections.abc import Sequence
from typing import TypeGuard

from ecobench.measurement import Evidence, MeterInfo, ReadingKind
from ecobench.records import Figure, TrialStatus
from ecobench.report.content import PhaseBar, ReportContent, TrialView, scoped_figure
from ecobench.report.losses import LossLine
from ecobench.report.quantities import count_text, evidence_mark, value_text
from ecobench.report.tables import target_text
from ecobench.units import format_duration, format_number, format_si

_ENDINGS = {
    TrialStatus.DONE: "ran to the end",
    TrialStatus.STOPPED: "was stopped as asked",
    TrialStatus.FAILED: "failed",
    TrialStatus.INTERRUPTED: "was interrupted",
    TrialStatus.LOST: "was lost with its harness",
    TrialStatus.RUNNING: "is still running",
}


def headline(content: ReportContent) -> str:
    """The answer in one sentence: what a token cost, at which speed and power."""
    name = f"{content.run.spec.workload} ({content.run.spec.preset})"
    per_token = scoped_figure(content, "energy_per_token_j")
    speed = scoped_figure(content, "tokens_per_s")
    power = scoped_figure(content, "mean_power_w")
    rate = f" at {value_text(speed)}" if _is_known(speed) else ""
    if per_token is not None and per_token.value is not None:
        draw = f" and {value_text(power)}" if rate and power is not None and power.value is not None else ""
        verb = _verb(per_token.evidence)
        cost = value_text(per_token).replace("/token", "")
        return f"A token of {name} {verb} {cost}{evidence_mark(per_token.evidence)}{rate}{draw}."
    if rate:
        reason = per_token.reason if per_token is not None and per_token.reason else "there is no meter"
        return f"{name} trained{rate}; what it cost is not known: {reason}."
    return f"{name} has no cost of a token to show: {_why_nothing(content)}."


def standfirst(content: ReportContent) -> str:
    """What stands under the headline: how often it was repeated, the loss, and whether it can be believed."""
    summary = content.summary
    planned = count_text(summary.n_trials_planned, "trial")
    parts = [f"{summary.n_trials} of {planned} left numbers."]
    target = target_text(summary)
    if target is not None:
        parts.append(f"Target {target}.")
    per_token = scoped_figure(content, "energy_per_token_j")
    if per_token is not None and per_token.value is not None and per_token.n < 2:
        parts.append("One trial says nothing about repeatability.")
    if summary.status is TrialStatus.RUNNING:
        parts.append("It is still running.")
    elif not summary.is_valid:
        parts.append("This result is not valid.")
    return " ".join(parts)


def loss_sentence(content: ReportContent) -> str:
    """What the loss chart shows."""
    found = _longest_main_line(content.trials)
    if found is None:
        return "No loss was reported in the measured phase."
    index, best = found
    first, last = best.value[0], best.value[-1]
    if len(best.value) < 2:
        return f"{best.metric} was reported once: {format_number(last)} {best.unit}."
    moved = "falls" if last < first else "rises" if last > first else "stays"
    whose = f"In trial {index}, " if len(content.trials) > 1 else ""
    text = f"{whose}{best.metric} {moved} from {format_number(first)} to {format_number(last)} {best.unit}"
    if best.energy_j is not None:
        mark = evidence_mark(content.scope.evidence if content.scope is not None else None)
        text += f" for {format_si(best.energy_j[-1], 'J')}{mark}"
        half = _share_to_half(best)
        if half is not None:
            text += f"; half of that fall came within the first {half:.0%} of it"
        return f"{text}."
    return f"{text} in {format_duration(best.time_s[-1])} of the measured phase; no meter, so no energy beside it."


def power_sentence(content: ReportContent) -> str:
    """What the power chart shows."""
    drawn = [view for view in content.trials if view.power]
    if not drawn:
        return "No power was recorded: " + (
            "no meter was used." if not content.run.meters else "no meter gave two readings."
        )
    peak, line, view = max(
        ((line.peak_w, line, view) for view in drawn for line in view.power), key=lambda found: found[0]
    )
    phase = _phase_at(view, line.time_s[line.power_w.index(peak)])
    where = f", in {phase}" if phase is not None else ""
    power = scoped_figure(content, "mean_power_w")
    text = (
        f"The highest reading is {format_si(peak, 'W', digits=3)}{evidence_mark(line.evidence)} on {line.domain}{where}"
    )
    if len(drawn) > 1:
        text += f" of trial {view.index}"
    if power is not None and power.value is not None:
        together = " of all domains together" if len(view.power) > 1 else ""
        text += f"; the mean{together} in {content.run.spec.measured_phase} is {format_si(power.value, 'W', digits=3)}"
        text += evidence_mark(power.evidence)
    return f"{text}."


def phases_sentence(content: ReportContent) -> str:
    """What the energy (or, without a meter, the time) by phase shows."""
    known = [(bar, bar.energy.value) for bar in content.bars if bar.energy is not None and bar.energy.value is not None]
    measured = content.run.spec.measured_phase
    if known:
        total_j = sum(value for _, value in known)
        own_j = sum(value for bar, value in known if bar.is_measured)
        mark = evidence_mark(content.scope.evidence if content.scope is not None else None)
        if total_j <= 0:
            return f"No phase took any energy{mark}."
        if not any(bar.is_measured for bar, _ in known):
            return f"What phase {measured} took is not known."
        n_unknown = sum(bar.energy is not None and bar.energy.value is None for bar in content.bars)
        if n_unknown:
            rest = f"{n_unknown} other phase{'s' if n_unknown > 1 else ''}"
            return f"Phase {measured} took {format_si(own_j, 'J')}{mark}; what {rest} took is not known."
        others = sorted(((value, bar.phase) for bar, value in known if not bar.is_measured), reverse=True)
        text = f"Phase {measured} took {own_j / total_j:.0%} of the {format_si(total_j, 'J')}{mark} from launch to exit"
        return (
            f"{text}; most of the rest went to {others[0][1]}, {others[0][0] / total_j:.0%}." if others else f"{text}."
        )
    total_s = sum(bar.duration_s for bar in content.bars)
    if total_s <= 0:
        return "No phase was recorded."
    own_s = sum(bar.duration_s for bar in content.bars if bar.is_measured)
    return f"Phase {measured} took {own_s / total_s:.0%} of the {format_duration(total_s)} from launch to exit."


def methods(content: ReportContent) -> str:
    """How the numbers were made, in a few sentences to quote."""
    spec = content.run.spec
    meters = _meter_words(content)
    tokens = f"A token is {spec.token_rule.rstrip('.')}." if spec.token_rule else ""
    n = content.summary.n_trials
    of_what = f"means over {count_text(n, 'trial')}" if n != 1 else "from one trial"
    means = (
        f"Figures are {of_what} of phase {spec.measured_phase}, "
        "nested phases taken out; the repeatability interval is the 95 % t-interval of that mean between trials, the "
        "instrument interval (k = 2) is what the meter or model leaves open, and the two are never combined."
    )
    return " ".join(part for part in (meters, means, tokens) if part)


def _meter_words(content: ReportContent) -> str:
    meters = content.run.meters
    if not meters:
        return "No meter was used: the run has speed and loss, and no energy."
    words = []
    # One clause for each way of reading: a GPU's counter, its polled power, a processor's counter.
    ways: dict[tuple[str, ReadingKind, Evidence], list[MeterInfo]] = {}
    for meter in meters:
        if meter.kind.carries_energy:
            ways.setdefault((meter.interface, meter.kind, meter.evidence), []).append(meter)
    for (interface, reading, evidence), mine in ways.items():
        domains = ", ".join(dict.fromkeys(meter.domain for meter in mine))
        rates = sorted({1e9 / meter.period_ns for meter in mine})
        how = "estimated through" if evidence is Evidence.EST else "read through"
        kind = reading.value.replace("_", " ")
        words.append(
            f"{domains} ({kind}, {evidence.value}) {how} {interface} at "
            f"{' and '.join(format_number(rate, digits=2) for rate in rates)} Hz"
        )
    return f"Energy: {'; '.join(words)}."


def ending(status: TrialStatus) -> str:
    """`ran to the end`."""
    return _ENDINGS[status]


def bar_text(bar: PhaseBar) -> str:
    """`430.1 J (EST), 92.1 s` beside a bar."""
    if bar.energy is None:
        return format_duration(bar.duration_s)
    if bar.energy.value is None:
        return f"energy not known, {format_duration(bar.duration_s)}"
    return f"{format_si(bar.energy.value, 'J')}{evidence_mark(bar.energy.evidence)}, {format_duration(bar.duration_s)}"


def _verb(evidence: Evidence | None) -> str:
    return "is estimated to cost" if evidence is Evidence.EST else "cost"


def _is_known(figure: Figure | None) -> TypeGuard[Figure]:
    return figure is not None and figure.value is not None


def _why_nothing(content: ReportContent) -> str:
    for view in content.trials:
        if view.record.message is not None:
            return view.record.message.rstrip(".")
    return "no trial was begun" if not content.trials else "no trial reported tokens"


def _longest_main_line(trials: Sequence[TrialView]) -> tuple[int, LossLine] | None:
    mains = [(view.index, line) for view in trials for line in view.losses if line.is_main]
    return max(mains, key=lambda found: len(found[1].value), default=None)


def _share_to_half(line: LossLine) -> float | None:
    """Share of the energy after which half of the fall was done; None where there is no fall to halve."""
    if line.energy_j is None or len(line.value) < 5 or line.value[-1] >= line.value[0]:
        return None
    spent_j = line.energy_j[-1] - line.energy_j[0]
    half = (line.value[0] + line.value[-1]) / 2
    reached = next(energy for energy, value in zip(line.energy_j, line.value, strict=True) if value <= half)
    return (reached - line.energy_j[0]) / spent_j if spent_j > 0 else None


def _phase_at(view: TrialView, time_s: float) -> str | None:
    return next((span.phase for span in view.spans if span.start_s <= time_s < span.stop_s), None)
