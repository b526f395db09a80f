"""Two samples, their columns and images, and functions of a row such as the witness."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from m2st_core.figures.theme import DIVERGING, NULL_COLOUR, equal_aspect, figure_label, hatched, laid_out, sample_looks

NAMES = ("x ~ P", "y ~ Q")
COLUMNS = ("column 1", "column 2")
SHOWN_ROWS, HEAT_ROWS = 1000, 300  # of each sample
COMPONENT_ROWS = 1000  # of both samples, from which principal components are computed
CLIPPED = 0.02  # share of the largest values that get the strongest colour
AXIS_TITLE = 72  # pixels below the plot that the axis takes; the colour bar follows
COLUMN_BINS = 30
GROUP_LETTERS = 14  # of a group's name in an axis title on a narrow screen
LENS_HEIGHT = 460
IMAGE_GAP, IMAGE_HEIGHT = 2, 40  # pixels between images, and the least height of an image
SHOWN_TILES, TILE_COLUMNS = 30, 6  # images of a group, and images in a line
BELOW = {"y": -0.02, "yanchor": "top"}


def samples_figure(
    x: np.ndarray, y: np.ndarray, *, names: tuple[str, str] = NAMES, columns: tuple[str, str] = COLUMNS
) -> go.Figure:
    """Draw at most 1,000 rows of each sample, (n, d) and (m, d): two columns, or two principal components."""
    pooled = np.concatenate([x, y])
    plane, axes = (pooled, columns) if pooled.shape[1] == 2 else _plane(pooled)
    figure = go.Figure()
    for rows, (label, colour, marker) in zip((plane[: len(x)], plane[len(x) :]), sample_looks(names), strict=True):
        figure.add_scatter(
            x=rows[:SHOWN_ROWS, 0], y=rows[:SHOWN_ROWS, 1], mode="markers", name=f"{label} ({len(rows)} rows)",
            marker={"color": colour, "symbol": marker, "size": 7, "line": {"color": "white", "width": 0.5}},
            hovertemplate="%{x:.2f}, %{y:.2f}",
        )  # fmt: skip
    laid_out(figure, x_title=figure_label(axes[0]), y_title=figure_label(axes[1]))
    return equal_aspect(figure, *np.ptp(plane, axis=0)) if pooled.shape[1] > 1 else figure


def _plane(pooled: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    """Return two coordinates per row, chosen without the labels, and the names of the axes."""
    if pooled.shape[1] == 1:
        return np.column_stack([pooled, np.zeros(len(pooled))]), ("the one column", "")
    centred = pooled - pooled.mean(axis=0)
    evenly_spaced = centred[:: -(-len(centred) // COMPONENT_ROWS)]
    directions = np.linalg.svd(evenly_spaced, full_matrices=False)[2][:2]
    return centred @ directions.T, ("first principal component", "second principal component")


def heat_figure(
    values: np.ndarray,
    axis: np.ndarray,
    *,
    name: str,
    sample: tuple[np.ndarray, np.ndarray] | None = None,
    height: int = 480,
    second_axis: np.ndarray | None = None,
    titles: tuple[str, str] = COLUMNS,
    labels: tuple[str, str] = NAMES,
    strongest: float | None = None,
) -> go.Figure:
    """Draw values (h, g) at (axis[column], second_axis[row]): P's colour where positive, Q's where negative.

    A dotted line marks zero. At most 300 rows of each sample, (n, 2) and (m, 2), lie on top. The colour is full at ±
    ``strongest``, by default at the largest values.
    """
    rows_axis = axis if second_axis is None else second_axis
    limit = strongest or float(np.quantile(np.abs(values), 1 - CLIPPED)) or 1.0
    below = {"y": -AXIS_TITLE / (height - 2.5 * AXIS_TITLE), "yanchor": "top"}
    figure = go.Figure()
    figure.add_heatmap(
        x=axis, y=rows_axis, z=values, zmin=-limit, zmax=limit, colorscale=DIVERGING, zsmooth="fast", name=name,
        colorbar={"title": {"text": name, "side": "top"}, "orientation": "h", "thickness": 10} | below,
        hovertemplate="%{x:.2f}, %{y:.2f}: %{z:.3g}<extra></extra>",
    )  # fmt: skip
    figure.add_contour(
        x=axis, y=rows_axis, z=values, contours={"start": 0, "end": 0, "size": 1, "coloring": "none"}, name="zero",
        line={"color": NULL_COLOUR, "dash": "dot", "width": 1.5}, showscale=False, hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    for rows, (label, colour, marker) in zip(sample or (), sample_looks(labels), strict=False):
        figure.add_scatter(
            x=rows[:HEAT_ROWS, 0], y=rows[:HEAT_ROWS, 1], mode="markers", name=label, hoverinfo="skip",
            marker={"color": colour, "symbol": marker, "size": 6, "line": {"color": "white", "width": 0.7}},
        )  # fmt: skip
    figure.update_xaxes(range=[axis[0], axis[-1]], showgrid=False)
    figure.update_yaxes(range=[rows_axis[0], rows_axis[-1]], showgrid=False)
    laid_out(figure, x_title=figure_label(titles[0]), y_title=figure_label(titles[1]), height=height)
    return equal_aspect(figure, axis[-1] - axis[0], rows_axis[-1] - rows_axis[0])


def lens_figure(
    values: np.ndarray,
    axis: np.ndarray,
    sample: tuple[np.ndarray, np.ndarray],
    power: tuple[float, float],
    colour: str,
    *,
    strongest: float,
) -> go.Figure:
    """Draw a test's witness (g, g) behind the rows of a sample, and its power as a bar below.

    ``power`` comes with its standard error; the bar has this colour. The witness's colour is full at ± ``strongest``,
    so that several tests can be compared.
    """
    figure = heat_figure(values, axis, name="", sample=sample, height=LENS_HEIGHT, strongest=strongest)
    figure.data = [trace for trace in figure.data if trace.type != "contour"]  # one curve less to redraw
    figure.data[0].update(showscale=False, hoverinfo="skip", hovertemplate=None)
    share, error = (100 * value for value in power)
    bar = {"y": [""], "orientation": "h", "xaxis": "x2", "yaxis": "y2", "showlegend": False, "hoverinfo": "skip"}
    figure.add_bar(x=[100], marker={"color": NULL_COLOUR, "opacity": 0.2}, **bar)
    figure.add_bar(x=[share], marker={"color": colour}, error_x={"array": [error], "thickness": 2}, **bar)
    hidden = {"showticklabels": False, "ticks": "", "title": None, "fixedrange": True, "showgrid": False}
    title = f"finds the difference in {share:.0f} ± {error:.0f} of 100 samples"
    return figure.update_layout(
        barmode="overlay",
        margin={"l": 0, "r": 0, "t": 40, "b": 30, "autoexpand": False},
        xaxis=hidden,
        yaxis=hidden | {"domain": [0.17, 1]},
        xaxis2=hidden | {"range": [0, 100], "anchor": "y2", "title": title},
        yaxis2=hidden | {"domain": [0.04, 0.1], "anchor": "x2"},
    )


def witness_figure(
    values: np.ndarray,
    axes: Sequence[np.ndarray],
    names: Sequence[str],
    sample: tuple[np.ndarray, np.ndarray],
    labels: tuple[str, str] = NAMES,
) -> go.Figure:
    """Draw the witness over two columns or along one, with the rows of both samples, (n, 2) or (n, 1)."""
    name = f"more of {figure_label(labels[0], GROUP_LETTERS)} (+) or of {figure_label(labels[1], GROUP_LETTERS)} (−)"
    if len(axes) == 2:
        titles = (names[0], names[1])
        return heat_figure(values, axes[0], name=name, sample=sample, second_axis=axes[1], titles=titles, labels=labels)
    figure = go.Figure()
    figure.add_hline(y=0, line={"color": NULL_COLOUR, "dash": "dot"})
    figure.add_scatter(x=axes[0], y=values, mode="lines", name="witness", line={"color": NULL_COLOUR, "width": 3})
    edge = 1.15 * (float(np.abs(values).max()) or 1.0)
    for rows, height, (label, colour, marker) in zip(sample, (edge, -edge), sample_looks(labels), strict=True):
        shown = rows[:SHOWN_ROWS, 0]
        figure.add_scatter(
            x=shown, y=np.full(len(shown), height), mode="markers", name=label,
            marker={"color": colour, "symbol": marker, "size": 7, "opacity": 0.6}, hovertemplate="%{x:.3g}",
        )  # fmt: skip
    return laid_out(figure, x_title=figure_label(names[0]), y_title=name)


def numbers_figure(x: np.ndarray, y: np.ndarray, *, column: str, names: tuple[str, str]) -> go.Figure:
    """Draw the share of each group's values, (n,) and (m,), in common bins."""
    pooled = np.concatenate([x, y])
    low, high = (float(pooled.min()), float(pooled.max())) if pooled.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, COLUMN_BINS + 1)
    shares = [np.histogram(values, edges)[0] / max(len(values), 1) for values in (x, y)]
    figure = _group_bars((edges[1:] + edges[:-1]) / 2, shares, column, names)
    return figure.update_layout(barmode="overlay", bargap=0.05)


def levels_figure(
    levels: Sequence[str], shares: tuple[np.ndarray, np.ndarray], *, column: str, names: tuple[str, str]
) -> go.Figure:
    """Draw the share of each level among each group's cells."""
    figure = _group_bars(np.arange(len(levels)), shares, column, names)
    return figure.update_xaxes(
        tickvals=list(range(len(levels))), ticktext=[figure_label(level, 20) for level in levels]
    )


def _group_bars(positions: np.ndarray, shares: Sequence[np.ndarray], column: str, names: tuple[str, str]) -> go.Figure:
    figure = go.Figure()
    for share, pattern, (label, colour, _) in zip(shares, ("", "/"), sample_looks(names), strict=True):
        figure.add_bar(
            x=positions, y=share, name=label, opacity=0.65, hovertemplate="%{y:.1%}<extra></extra>",
            marker=hatched(colour, pattern),
        )  # fmt: skip
    return laid_out(figure, x_title=figure_label(column), y_title="share of the group", height=300)


def image_grid(images: np.ndarray, columns: int) -> np.ndarray:
    """Return images (n, c, h, w) in [0, 1] as one picture (H, W, 4) of bytes, row by row, with transparent gaps."""
    count, channels, height, _ = images.shape
    scale, columns = max(1, -(-IMAGE_HEIGHT // height)), min(columns, count)
    lines = -(-count // columns)
    shown = np.clip(images[:, [0, 0, 0] if channels == 1 else [0, 1, 2]], 0, 1).transpose(0, 2, 3, 1)
    shown = (255 * shown).round().astype(np.uint8).repeat(scale, axis=1).repeat(scale, axis=2)
    opaque = np.pad(shown, ((0, 0), (0, 0), (0, 0), (0, 1)), constant_values=255)
    return _mosaic(opaque, lines, columns, IMAGE_GAP, 0)[:-IMAGE_GAP, :-IMAGE_GAP]


def _mosaic(images: np.ndarray, lines: int, columns: int, gap: int, fill: float) -> np.ndarray:
    """Lay images (n, h, w, …) out in lines; ``fill`` is the value of the gaps behind each, and of missing images."""
    more = lines * columns - len(images), gap, gap, *(0 for _ in images.shape[3:])
    cells = np.pad(images, [(0, count) for count in more], constant_values=fill)
    grid = cells.reshape(lines, columns, *cells.shape[1:]).swapaxes(1, 2)
    return grid.reshape(lines * cells.shape[1], columns * cells.shape[2], *cells.shape[3:])


def tiles_figure(x: np.ndarray, y: np.ndarray, *, names: tuple[str, str]) -> go.Figure:
    """Draw grey images (n, h, w) and (m, h, w) of both groups as tiles, dark where a value is large."""
    shown = [images[:SHOWN_TILES] for images in (x, y)]
    lines = max(-(-len(images) // TILE_COLUMNS) for images in shown)
    figure = make_subplots(1, 2, subplot_titles=[figure_label(name) for name in names], horizontal_spacing=0.06)
    span = {"zmin": min(map(np.min, shown)), "zmax": max(map(np.max, shown))}
    for column, images in enumerate(shown, 1):
        figure.add_heatmap(
            z=_mosaic(images.astype(float), lines, TILE_COLUMNS, 1, np.nan), row=1, col=column, colorscale="gray",
            reversescale=True, showscale=False, hoverinfo="skip", **span,
        )  # fmt: skip
        figure.update_xaxes(row=1, col=column, scaleanchor="y" if column == 1 else "y2", constrain="domain")
    laid_out(figure, x_title="", y_title="", height=90 + 62 * lines)
    figure.update_xaxes(visible=False)
    return figure.update_yaxes(visible=False, autorange="reversed", constrain="domain")


def pixels_figure(values: np.ndarray, *, names: tuple[str, str]) -> go.Figure:
    """Draw a difference (h, w) per pixel: P's colour where P has more, Q's where Q has more."""
    limit = float(np.nanmax(np.abs(values))) or 1.0
    more = f"more in {figure_label(names[0], GROUP_LETTERS)} (+) or in {figure_label(names[1], GROUP_LETTERS)} (−)"
    figure = go.Figure()
    figure.add_heatmap(
        z=values, zmin=-limit, zmax=limit, colorscale=DIVERGING, xgap=1, ygap=1,
        colorbar={"title": {"text": more, "side": "top"}, "orientation": "h", "thickness": 10} | BELOW,
        hovertemplate="line %{y}, column %{x}: %{z:.3g}<extra></extra>",
    )  # fmt: skip
    laid_out(figure, x_title="", y_title="")
    figure.update_xaxes(visible=False, scaleanchor="y", constrain="domain")
    return figure.update_yaxes(visible=False, autorange="reversed", constrain="domain")
