"""The charts as Bokeh models, for people who zoom and hover. Nothing here needs a network.

Legends are HTML and not part of a chart. A name from a workload only ever gets into hover fields, which Bokeh shows as
text, and into plain text labels (a bare string with `$$` in it would be taken for mathematics, whose typesetter Bokeh
would fetch from the network).
"""

from typing import Any

from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import BoxZoomTool, ColumnDataSource, HoverTool, PlainText, Range1d
from bokeh.models.annotations import Label, Span, TeeHead, Whisker
from bokeh.plotting import figure
from bokeh.resources import Resources

from ecobench.report.drawings import BarsDrawing, Curve, Drawings, LossDrawing, PowerDrawing

_INK, _QUIET, _FAINT = "#1f2328", "#57606a", "#d8dee4"
_FONT = "system-ui, sans-serif"


def bokeh_script() -> str:
    """Bokeh's own JavaScript as one inline element: the core, without widgets, tables, WebGL and MathJax."""
    return str(Resources(mode="inline", components=["bokeh"]).render_js())


def chart_items(drawings: Drawings) -> dict[str, dict[str, Any]]:
    """Each chart that there is, for `Bokeh.embed.embed_item`, by the names that `figures.pngs` uses."""
    items = {}
    if drawings.loss is not None:
        items["loss"] = loss_item(drawings.loss)
    if drawings.power is not None:
        items["power"] = power_item(drawings.power)
    if drawings.held is not None:
        items["throttle"] = power_item(drawings.held)
    if drawings.phases is not None:
        items[drawings.phases.name] = bars_item(drawings.phases)
    return items


def loss_item(drawing: LossDrawing) -> dict[str, Any]:
    """The loss against what it cost."""
    plot = _plot(height=340, x_label=drawing.x_label, y_label=drawing.y_label)
    plot.x_range.start = drawing.left
    points = []
    for curve in drawing.curves:
        n = len(curve.x)
        source = ColumnDataSource({"x": list(curve.x), "y": list(curve.y), "label": [curve.label] * n})
        width, alpha, size, dot_alpha = (2, 1.0, 7, 1.0) if curve.is_main else (1, 0.8, 5, 0.0)
        plot.line("x", "y", source=source, color=curve.colour, width=width, alpha=alpha)
        points.append(plot.scatter("x", "y", source=source, color=curve.colour, size=size, alpha=dot_alpha))
    if drawing.target is not None:
        plot.add_layout(
            Span(
                location=drawing.target.at_most,
                dimension="width",
                line_color=_QUIET,
                line_dash=[6, 4],
            )
        )
        plot.add_layout(
            Label(
                x=drawing.left,
                y=drawing.target.at_most,
                x_offset=6,
                y_offset=3,
                text=f"target {drawing.target.at_most:g}",
                text_font=_FONT,
                text_font_size="12px",
                text_color=_QUIET,
            )
        )
    plot.add_tools(
        HoverTool(
            renderers=points,
            tooltips=[("", "@label"), ("loss", "@y{0.0000}"), (drawing.x_unit, "@x{0,0.000}")],
            mode="mouse",
        )
    )
    return _item(plot)


def power_item(drawing: PowerDrawing) -> dict[str, Any]:
    """Power over time, panels that zoom together."""
    plots = []
    top = drawing.top
    n = len(drawing.panels)
    x_stop = max((curve.x[-1] for panel in drawing.panels for curve in panel.curves), default=1.0)
    x_start = min((curve.x[0] for panel in drawing.panels for curve in panel.curves), default=0.0)
    x_range = Range1d(start=x_start, end=x_stop, bounds=(x_start, x_stop))
    for place, panel in enumerate(drawing.panels):
        is_last = place == n - 1
        plot = _plot(
            height=320 if n == 1 else 190,
            x_label=drawing.x_label if is_last else "",
            y_label=drawing.y_label,
            x_range=x_range,
            y_range=Range1d(start=0, end=top * 1.14),
            title=panel.title if n > 1 else None,
        )
        spans = ColumnDataSource(
            {
                "left": [span.start_s for span in panel.spans],
                "right": [span.stop_s for span in panel.spans],
                "length": [span.stop_s - span.start_s for span in panel.spans],
                "phase": [span.phase for span in panel.spans],
                "colour": [drawing.phase_colours[span.phase] for span in panel.spans],
            }
        )
        edges = {"left": "left", "right": "right", "source": spans, "fill_color": "colour", "line_color": None}
        plot.quad(bottom=0, top=top * 1.06, fill_alpha=0.08, **edges)
        strip = plot.quad(bottom=top * 1.06, top=top * 1.14, **edges)
        plot.add_tools(
            HoverTool(
                renderers=[strip],
                tooltips=[("phase", "@phase"), ("from", "@left{0.00} s"), ("for", "@length{0.00} s")],
            )
        )
        lines = []
        for curve in panel.curves:
            # Bokeh's own step glyph does not answer to the pointer.
            x, y = _stairs(curve)
            source = ColumnDataSource({"x": x, "y": y, "label": [curve.label] * len(x)})
            lines.append(plot.line("x", "y", source=source, color=curve.colour, width=1.5))
        plot.add_tools(
            HoverTool(
                renderers=lines,
                tooltips=[("", "@label"), (drawing.y_name, f"@y{{0.0}} {drawing.y_unit}"), ("at", "@x{0.00} s")],
                # Of many lines only the one under the pointer answers: all at once would cover each other.
                mode="vline" if len(lines) == 1 else "mouse",
                line_policy="prev",
            )
        )
        plots.append(plot)
    return _item(column(plots, sizing_mode="stretch_width"))


def bars_item(drawing: BarsDrawing) -> dict[str, Any]:
    """Energy (or time) by phase."""
    n = len(drawing.bars)
    plot = _plot(
        height=90 + 46 * n,
        x_label=drawing.x_label,
        y_label="",
        y_range=Range1d(start=n - 0.5, end=-0.5),
        tools="",
    )
    plot.x_range.start = 0
    parts = [
        (place, bar, key, value, sum(one for _, one in bar.parts[:index]))
        for place, bar in enumerate(drawing.bars)
        for index, (key, value) in enumerate(bar.parts)
    ]
    source = ColumnDataSource(
        {
            "y": [place for place, *_ in parts],
            "left": [left for *_, left in parts],
            "right": [left + value for _, _, _, value, left in parts],
            "colour": [key.colour for _, _, key, _, _ in parts],
            "phase": [bar.name for _, bar, *_ in parts],
            "part": [key.name for _, _, key, _, _ in parts],
            "value": [value for _, _, _, value, _ in parts],
        }
    )
    drawn = plot.hbar(y="y", left="left", right="right", height=0.62, color="colour", source=source)
    plot.add_tools(
        HoverTool(
            renderers=[drawn],
            tooltips=[("phase", "@phase"), ("", "@part"), ("", f"@value{{0,0.000}} {drawing.x_unit}")],
        )
    )
    opens = [(place, bar.open_interval) for place, bar in enumerate(drawing.bars) if bar.open_interval is not None]
    if opens:
        whiskers = ColumnDataSource(
            {
                "y": [place for place, _ in opens],
                "low": [interval.low for _, interval in opens],
                "high": [interval.high for _, interval in opens],
            }
        )
        head = TeeHead(size=10, line_color=_QUIET)
        whisker = Whisker(
            lower_head=head,
            upper_head=head,
            base="y",
            lower="low",
            upper="high",
            source=whiskers,
            dimension="width",
            line_color=_QUIET,
            line_width=1.5,
        )
        plot.add_layout(whisker)
        plot.x_range.end = 1.04 * max(*(interval.high for _, interval in opens), *source.data["right"])
    plot.yaxis.ticker = list(range(n))
    plot.yaxis.major_label_overrides = {
        place: PlainText(text=f"{bar.name}\n{bar.text}") for place, bar in enumerate(drawing.bars)
    }
    plot.ygrid.visible = False
    return _item(plot)


def _plot(
    *,
    height: int,
    x_label: str,
    y_label: str,
    tools: str = "xbox_zoom,xpan,reset",
    title: str | None = None,
    **ranges: Any,
) -> Any:
    plot: Any = figure(
        height=height,
        sizing_mode="stretch_width",
        tools=tools,
        toolbar_location="above" if tools else None,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        title=title,
        **ranges,
    )
    plot.toolbar.logo = None
    # Bokeh would rather pan, which the whole of a chart has no use for.
    plot.toolbar.active_drag = next((tool for tool in plot.tools if isinstance(tool, BoxZoomTool)), None)
    if plot.title is not None:
        plot.title.text_color = _QUIET
        plot.title.text_font = _FONT
        plot.title.text_font_style = "normal"
    for axis, label in ((plot.xaxis, x_label), (plot.yaxis, y_label)):
        axis.axis_label = PlainText(text=label) if label else None
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font = axis.major_label_text_font = _FONT
        axis.axis_label_text_color = axis.major_label_text_color = _QUIET
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "12px"
        axis.axis_line_color = axis.major_tick_line_color = _QUIET
        axis.minor_tick_line_color = None
    plot.grid.grid_line_color = _FAINT
    return plot


def _stairs(curve: Curve) -> tuple[list[float], list[float]]:
    """The corners of a staircase whose value holds until the next instant."""
    x = [time for time in curve.x for _ in range(2)][1:]
    y = [value for value in curve.y for _ in range(2)][:-1]
    return x, y


def _item(model: Any) -> dict[str, Any]:
    item: dict[str, Any] = dict(json_item(model))
    return item
