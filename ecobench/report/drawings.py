"""What each chart draws: lines, bars, labels and colours, scaled and chosen once for PNG and HTML alike. Pure.

Colours are the Okabe-Ito set, told apart by people who are colour-blind (its blue lightened, to be seen on a dark page
as well); nothing is told by colour alone (the charts
carry labels and hover texts, the legend names each colour).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ecobench.measurement import Evidence, Interval
from ecobench.records import Target
from ecobench.report.content import PhaseSpan, ReportContent, TrialView
from ecobench.report.quantities import scale_of, simulated_mark
from ecobench.report.sentences import bar_text

# More trials than this in one timeline are a hairball; the legend says which are drawn.
MOST_PANELS = 6

BLUE = "#1f83c9"
VERMILLION = "#d55e00"
GREEN = "#009e73"
ORANGE = "#e69f00"
PURPLE = "#cc79a7"
SKY = "#56b4e9"
YELLOW = "#f0e442"
GREY = "#8a8f98"
_LINE_COLOURS = (BLUE, VERMILLION, PURPLE, SKY, GREEN, ORANGE)
_PHASE_COLOURS = {
    "train": GREEN,
    "eval": PURPLE,
    "warmup": ORANGE,
    "compile": YELLOW,
    "init": SKY,
    "checkpoint": VERMILLION,
    "job": GREY,
}
_OTHER_PHASE_COLOURS = (SKY, YELLOW, ORANGE, VERMILLION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One entry of a legend; lines and areas may share a colour, and are told apart by their shape."""

    name: str
    colour: str
    is_line: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a chart; `label` says whose it is."""

    label: str
    colour: str
    is_main: bool
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossDrawing:
    """The loss against what it cost."""

    x_label: str
    y_label: str
    x_unit: str
    curves: tuple[Curve, ...]
    target: Target | None
    keys: tuple[Key, ...]
    note: str | None

    @property
    def left(self) -> float:
        """Where the axis begins: a little before 0, so that a point at 0 is seen whole."""
        return -0.01 * max((curve.x[-1] for curve in self.curves), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Power of one trial over time, and its phases."""

    title: str
    curves: tuple[Curve, ...]
    spans: tuple[PhaseSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDrawing:
    """Power over time, or how much of it a GPU was held back, a panel for each trial.

    Attributes:
        note: which trials and stretches of phases are left out; None where none is.
    """

    x_label: str
    y_label: str
    y_name: str
    y_unit: str
    panels: tuple[Panel, ...]
    phase_colours: dict[str, str]
    keys: tuple[Key, ...]
    note: str | None

    @property
    def top(self) -> float:
        """Highest power of all panels, so that they compare by eye."""
        return max((value for panel in self.panels for curve in panel.curves for value in curve.y), default=1.0) or 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One phase: its parts from left to right, and what the instrument leaves open of their sum."""

    name: str
    text: str
    parts: tuple[tuple[Key, float], ...]
    open_interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BarsDrawing:
    """Energy by phase, or time by phase where there is no meter."""

    is_energy: bool
    x_label: str
    x_unit: str
    bars: tuple[Bar, ...]
    keys: tuple[Key, ...]

    @property
    def name(self) -> str:
        """Of its file: a time is never called an energy."""
        return "energy" if self.is_energy else "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawings:
    """The charts of a report; None where a run has nothing for one.

    Attributes:
        caption: which run, on each picture that may be sent around alone.
    """

    caption: str
    loss: LossDrawing | None
    power: PowerDrawing | None
    held: PowerDrawing | None
    phases: BarsDrawing | None


def draw(content: ReportContent) -> Drawings:
    """Everything that can be drawn of `content`."""
    spec = content.run.spec
    return Drawings(
        caption=f"{simulated_mark(content.run)}{spec.workload}, preset {spec.preset}, run {content.run.id}",
        loss=loss_drawing(content),
        power=power_drawing(content),
        held=held_drawing(content),
        phases=bars_drawing(content),
    )


def loss_drawing(content: ReportContent) -> LossDrawing | None:
    """None where no trial reported a loss in the measured phase."""
    found = [(view, line) for view in content.trials for line in view.losses]
    if not found:
        return None
    costed = [(view, line) for view, line in found if line.energy_j is not None]
    phase = content.run.spec.measured_phase
    if costed:
        found = costed
        factor, unit = scale_of(max(_last(line.energy_j) for _, line in found), "J")
        label = f"energy in {phase}, {unit}{_mark(content)}"
    else:
        factor, unit = 1.0, "s"
        label = f"time in {phase}, s (no meter)"
    names = tuple(dict.fromkeys(line.metric for _, line in found))
    colours = dict(zip(names, _cycled((VERMILLION, BLUE, *_LINE_COLOURS[2:]), len(names)), strict=True))
    curves = tuple(
        Curve(
            label=f"trial {view.index}, {line.metric}",
            colour=colours[line.metric],
            is_main=line.is_main,
            x=tuple(x / factor for x in (line.time_s if line.energy_j is None or not costed else line.energy_j)),
            y=line.value,
        )
        for view, line in found
    )
    target = content.run.spec.target
    main = next((line for _, line in found if line.is_main), found[0][1])
    n_undrawn = max(view.n_undrawn_losses for view, _ in found)
    return LossDrawing(
        x_label=label,
        y_label=f"{main.metric if len(names) == 1 else 'loss'}, {main.unit}",
        x_unit=unit,
        curves=curves,
        target=target if target is not None and target.metric in names else None,
        keys=tuple(Key(name=name, colour=colours[name], is_line=True) for name in names),
        note=f"{n_undrawn:,} more metrics are not drawn." if n_undrawn else None,
    )


def power_drawing(content: ReportContent) -> PowerDrawing | None:
    """None where no meter gave two readings."""
    with_power = [view for view in content.trials if view.power]
    if not with_power:
        return None
    drawn = with_power[:MOST_PANELS]
    factor, unit = scale_of(max(line.peak_w for view in drawn for line in view.power), "W")
    domains = tuple(dict.fromkeys(line.domain for view in drawn for line in view.power))
    colours = dict(zip(domains, _cycled(_LINE_COLOURS, len(domains)), strict=True))
    phases = phase_colours(content)
    evidence = {line.evidence for view in drawn for line in view.power}
    left_out = len(with_power) - len(drawn)
    return PowerDrawing(
        x_label="seconds since launch",
        y_label=f"power, {unit}{_evidence_mark(evidence)}",
        y_name="power",
        y_unit=unit,
        panels=tuple(_panel(view, colours, factor) for view in drawn),
        phase_colours=phases,
        keys=_keys(colours, drawn, phases),
        note=_note(left_out, drawn),
    )


def held_drawing(content: ReportContent) -> PowerDrawing | None:
    """None where no GPU counts the time in which it is held back."""
    with_held = [view for view in content.trials if view.held]
    if not with_held:
        return None
    drawn = with_held[:MOST_PANELS]
    names = tuple(dict.fromkeys(f"{line.domain} {line.cause}" for view in drawn for line in view.held))
    colours = dict(zip(names, _cycled(_LINE_COLOURS, len(names)), strict=True))
    phases = phase_colours(content)
    left_out = len(with_held) - len(drawn)
    return PowerDrawing(
        x_label="seconds since launch",
        y_label="time held back, %",
        y_name="held back",
        y_unit="%",
        panels=tuple(
            Panel(
                title=f"trial {view.index}",
                curves=tuple(
                    Curve(
                        label=f"{line.domain} {line.cause}",
                        colour=colours[f"{line.domain} {line.cause}"],
                        is_main=True,
                        x=line.time_s,
                        y=line.held_percent,
                    )
                    for line in view.held
                ),
                spans=view.spans,
            )
            for view in drawn
        ),
        phase_colours=phases,
        keys=_keys(colours, drawn, phases),
        note=_note(left_out, drawn),
    )


def _keys(colours: dict[str, str], drawn: Sequence[TrialView], phases: dict[str, str]) -> tuple[Key, ...]:
    shown = {span.phase for view in drawn for span in view.spans}
    return (
        *(Key(name=name, colour=colour, is_line=True) for name, colour in colours.items()),
        *(
            Key(name=f"phase {phase}", colour=colour, is_line=False)
            for phase, colour in phases.items()
            if phase in shown
        ),
    )


def _note(n_trials: int, drawn: Sequence[TrialView]) -> str | None:
    n_spans = sum(view.n_undrawn_spans for view in drawn)
    notes = [f"{n_trials} more trials are not drawn."] if n_trials else []
    notes += [f"{n_spans:,} shorter stretches of phases are not coloured."] if n_spans else []
    return " ".join(notes) or None


def bars_drawing(content: ReportContent) -> BarsDrawing | None:
    """None where no phase was recorded."""
    if not content.bars:
        return None
    totals = [sum(value for _, value in bar.parts) for bar in content.bars]
    if max(totals) <= 0:
        return _time_drawing(content)
    factor, unit = scale_of(max(totals), "J")
    domains = tuple(dict.fromkeys(domain for bar in content.bars for domain, _ in bar.parts))
    keys = {
        domain: Key(name=domain, colour=colour, is_line=False)
        for domain, colour in zip(domains, _cycled(_LINE_COLOURS, len(domains)), strict=True)
    }
    bars = []
    for bar in content.bars:
        instrument = bar.energy.instrument if bar.energy is not None else None
        bars.append(
            Bar(
                name=bar.phase,
                text=bar_text(bar),
                parts=tuple((keys[domain], value / factor) for domain, value in bar.parts),
                open_interval=None
                if instrument is None
                else Interval(low=instrument.low / factor, high=instrument.high / factor),
            )
        )
    return BarsDrawing(
        is_energy=True,
        x_label=f"energy, {unit}{_mark(content)}",
        x_unit=unit,
        bars=tuple(bars),
        keys=tuple(keys.values()),
    )


def phase_colours(content: ReportContent) -> dict[str, str]:
    """A colour for each phase of the run, the usual ones always the same."""
    phases = dict.fromkeys(span.phase for view in content.trials for span in view.spans)
    others = [phase for phase in phases if phase not in _PHASE_COLOURS]
    mine = dict(zip(others, _cycled(_OTHER_PHASE_COLOURS, len(others)), strict=True))
    return {phase: _PHASE_COLOURS.get(phase) or mine[phase] for phase in phases}


def _time_drawing(content: ReportContent) -> BarsDrawing:
    key = Key(name="time", colour=BLUE, is_line=False)
    return BarsDrawing(
        is_energy=False,
        x_label="time, s",
        x_unit="s",
        bars=tuple(
            Bar(name=bar.phase, text=bar_text(bar), parts=((key, bar.duration_s),), open_interval=None)
            for bar in content.bars
        ),
        keys=(),
    )


def _panel(view: TrialView, colours: dict[str, str], factor: float) -> Panel:
    return Panel(
        title=f"trial {view.index}",
        curves=tuple(
            Curve(
                label=line.domain,
                colour=colours[line.domain],
                is_main=True,
                x=line.time_s,
                y=tuple(power / factor for power in line.power_w),
            )
            for line in view.power
        ),
        spans=view.spans,
    )


def _mark(content: ReportContent) -> str:
    return f" ({content.scope.boundary.value}, {content.scope.evidence.value})" if content.scope is not None else ""


def _evidence_mark(kinds: Iterable[Evidence]) -> str:
    return f" ({', '.join(sorted(kind.value for kind in kinds))})"


def _last(values: tuple[float, ...] | None) -> float:
    return values[-1] if values else 0.0


def _cycled(colours: Sequence[str], n: int) -> list[str]:
    return [colours[place % len(colours)] for place in range(n)]
