"""The charts as PNG, drawn by matplotlib without a display and without any state of its own (no pyplot)."""

import warnings
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ecobench.report.drawings import BarsDrawing, Drawings, Key, LossDrawing, PowerDrawing

_DPI = 150
_WIDTH_IN = 9.0
_INK, _QUIET, _FAINT = "#1f2328", "#57606a", "#d8dee4"


def pngs(drawings: Drawings) -> dict[str, bytes]:
    """Each chart that there is, by the name of its file without `.png`."""
    images = {}
    if drawings.loss is not None:
        images["loss"] = loss_png(drawings.loss, caption=drawings.caption)
    if drawings.power is not None:
        images["power"] = power_png(drawings.power, caption=drawings.caption)
    if drawings.held is not None:
        images["throttle"] = power_png(drawings.held, caption=drawings.caption)
    if drawings.phases is not None:
        images[drawings.phases.name] = bars_png(drawings.phases, caption=drawings.caption)
    return images


def loss_png(drawing: LossDrawing, *, caption: str) -> bytes:
    """The loss against what it cost."""
    figure, (axes,) = _canvas(height_in=4.2, n_panels=1)
    for curve in drawing.curves:
        if curve.is_main:
            axes.plot(curve.x, curve.y, color=curve.colour, linewidth=1.6, marker="o", markersize=4, zorder=3)
        else:
            axes.plot(curve.x, curve.y, color=curve.colour, linewidth=0.9, alpha=0.8)
    if drawing.target is not None:
        axes.axhline(drawing.target.at_most, color=_INK, linewidth=1, linestyle=(0, (5, 4)))
        axes.annotate(
            f"target {drawing.target.at_most:g}",
            (0, drawing.target.at_most),
            xycoords=("axes fraction", "data"),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=9,
            color=_INK,
            parse_math=False,
        )
    axes.set_xlim(left=drawing.left)
    _label(axes, drawing.x_label, drawing.y_label)
    _legend(figure, drawing.keys)
    return _png(figure, caption)


def power_png(drawing: PowerDrawing, *, caption: str) -> bytes:
    """Power over time, a panel for each trial, phases behind it and named in the strip on top."""
    n = len(drawing.panels)
    figure, panels = _canvas(height_in=1.3 + (2.9 if n == 1 else 1.7 * n), n_panels=n)
    top = drawing.top
    for axes, panel in zip(panels, drawing.panels, strict=True):
        for span in panel.spans:
            colour = drawing.phase_colours[span.phase]
            width = span.stop_s - span.start_s
            axes.broken_barh([(span.start_s, width)], (0, top * 1.06), color=colour, alpha=0.08, linewidth=0)
            axes.broken_barh([(span.start_s, width)], (top * 1.06, top * 0.08), color=colour, linewidth=0)
        for curve in panel.curves:
            axes.step(curve.x, curve.y, where="post", color=curve.colour, linewidth=1.1)
        axes.set_ylim(0, top * 1.14)
        if n > 1:
            axes.set_title(panel.title, loc="left", fontsize=9, color=_QUIET, parse_math=False)
        _label(axes, drawing.x_label if axes is panels[-1] else "", drawing.y_label)
    _legend(figure, drawing.keys)
    return _png(figure, caption)


def bars_png(drawing: BarsDrawing, *, caption: str) -> bytes:
    """Energy (or time) by phase, with whiskers for what the instrument leaves open."""
    figure, (axes,) = _canvas(height_in=1.4 + 0.55 * len(drawing.bars), n_panels=1)
    for place, bar in enumerate(drawing.bars):
        left = 0.0
        for key, value in bar.parts:
            axes.barh(place, value, left=left, height=0.62, color=key.colour)
            left += value
        if bar.open_interval is not None:
            low, high = bar.open_interval.low, bar.open_interval.high
            axes.plot([low, high], [place, place], color=_INK, linewidth=1.1, marker="|", markersize=8, zorder=3)
    axes.set_yticks(range(len(drawing.bars)))
    labels = axes.set_yticklabels([f"{bar.name}\n{bar.text}" for bar in drawing.bars])
    for label in labels:
        label.set_parse_math(False)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    _label(axes, drawing.x_label, "")
    axes.grid(visible=False, axis="y")
    _legend(figure, drawing.keys)
    return _png(figure, caption)


def _canvas(*, height_in: float, n_panels: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(_WIDTH_IN, height_in), dpi=_DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(n_panels, 1, sharex=True, sharey=True, squeeze=False)
    panels: list[Axes] = [row[0] for row in axes]
    for each in panels:
        each.spines[["top", "right"]].set_visible(False)
        each.spines[["left", "bottom"]].set_color(_QUIET)
        each.tick_params(colors=_QUIET, labelsize=9)
        each.grid(visible=True, color=_FAINT, linewidth=0.6)
        each.set_axisbelow(True)
    return figure, panels


def _label(axes: Axes, x_label: str, y_label: str) -> None:
    # Names and units come from a workload's manifest: `$` in them is a letter and no mathematics.
    axes.set_xlabel(x_label, fontsize=10, color=_INK, parse_math=False)
    axes.set_ylabel(y_label, fontsize=10, color=_INK, parse_math=False)


def _legend(figure: Figure, keys: tuple[Key, ...]) -> None:
    if not keys:
        return
    legend = figure.legend(
        handles=[
            Line2D([], [], color=key.colour, linewidth=2.5) if key.is_line else Patch(color=key.colour) for key in keys
        ],
        labels=[key.name if not key.name.startswith("_") else f" {key.name}" for key in keys],
        loc="outside upper left",
        ncols=min(6, len(keys)),
        frameon=False,
        fontsize=9,
        handlelength=1.0,
        handleheight=1.0,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _png(figure: Figure, caption: str) -> bytes:
    text = figure.supxlabel(caption, x=0.995, ha="right", fontsize=7, color=_QUIET)
    text.set_parse_math(False)
    buffer = BytesIO()
    with warnings.catch_warnings():
        # A letter that the font lacks shows as a box; that is no matter for the user's terminal.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="png")
    return buffer.getvalue()
