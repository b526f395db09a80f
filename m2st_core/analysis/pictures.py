"""The figures of an outcome, with titles, captions and alternative texts, for the page and the report."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from m2st_core.analysis.plan import Outcome
from m2st_core.analysis.related import RelatedCheck
from m2st_core.data.tables.encoding import Numeric
from m2st_core.data.tables.prepare import Prepared
from m2st_core.figures.kernels import bars_figure
from m2st_core.figures.null import null_figure
from m2st_core.figures.power import left_out_figure
from m2st_core.figures.samples import image_grid, pixels_figure, samples_figure, tiles_figure, witness_figure
from m2st_core.figures.theme import colour_of
from m2st_core.learners.mixtures import WEIGHTS_USED

SHOWN_WEIGHTS, SHOWN_COLUMNS = 15, 20
SMALLEST_WEIGHT = 5e-4
PIXEL = re.compile(r"(?:pixel|px)[ _]?(\d+)[ ,_x](\d+)", re.IGNORECASE)
FEWEST_PIXELS = 16
SHEETS = ("first x", "typical x", "first y", "typical y")  # names of contact sheets
FIRST, TYPICAL, SHEET_COLUMNS = 32, 16, 8  # images of a contact sheet, and in a line of it
TILE = 64  # pixels of an image's side there


@dataclass(frozen=True)
class Picture:
    """A figure, or a contact sheet (H, W, 4) of bytes, with its title, caption, and a text for those who cannot see."""

    name: str
    title: str
    figure: go.Figure | np.ndarray
    caption: str
    alt: str


def pictures(outcome: Outcome) -> dict[str, Picture]:
    """Return all figures of an outcome by name; images have tiles and pixels instead of columns and a plane."""
    drawn = [null_picture(outcome), weights_picture(outcome)]
    if images_of(outcome.data) is not None:
        drawn += [look_picture(outcome.data), pixels_picture(outcome), typical_picture(outcome)]
    elif outcome.data.encoding is not None:
        drawn += [witness_picture(outcome), importance_picture(outcome), look_picture(outcome.data)]
    return {picture.name: picture for picture in (*drawn, *contact_sheets(outcome)) if picture is not None}


def contact_sheets(outcome: Outcome) -> list[Picture]:
    """Show the first images of both samples, and those most typical of each in the test that decides."""
    data, evidence = outcome.data, outcome.analysis.evidence
    if data.pictures is None:
        return []
    luck, sheets = "" if outcome.analysis.rejected else ", perhaps by chance", []
    at_x, at_y = evidence.at_rows()
    sides = zip(
        ("x", "y"), (data.x_name, data.y_name), data.pictures, data.rows, (-at_x, at_y), evidence.rows, strict=True
    )
    for side, name, images, files, values, rows in sides:
        typical = rows[np.argsort(values, kind="stable")[:TYPICAL]]
        title = f"The first images of “{name}”"
        sheets.append(Picture(f"first {side}", title, _contact_sheet(images[:FIRST]), "", f"{title}."))
        title = f"Most typical of “{name}”{luck}, the clearest first"
        caption = ", ".join(files[typical])
        sheets.append(Picture(f"typical {side}", title, _contact_sheet(images[typical]), caption, f"{title}."))
    return sheets


def _contact_sheet(images: np.ndarray) -> np.ndarray:
    """Images (n, H, W, 1 or 3), made smaller where they are large, as one picture (H, W, 4), eight in a line."""
    step = max(1, images.shape[1] // TILE)
    n, height, width, channels = images.shape
    parts = images[:, : height - height % step, : width - width % step]
    tiles = parts.reshape(n, height // step, step, width // step, step, channels).mean(axis=(2, 4))
    return image_grid(tiles.transpose(0, 3, 1, 2) / 255, SHEET_COLUMNS)


def null_picture(outcome: Outcome) -> Picture:
    """Draw the observed statistic among those of random labellings."""
    result = outcome.analysis.primary
    alt = f"Histogram of the statistic if P=Q; the observed value is {result.statistic:.3g}."
    caption = "The statistic under random labels. The further right the line, the smaller the p-value."
    return Picture("null", "The statistic, if P = Q", null_figure(result), caption, alt)


def images_of(data: Prepared) -> tuple[np.ndarray, np.ndarray] | None:
    """Return both samples as images (n, h, w), (m, h, w) if all columns are called like "pixel 3,4"; NaN if absent."""
    pixels = [PIXEL.fullmatch(name) for name in data.features]
    if data.units is None or len(pixels) < FEWEST_PIXELS or None in pixels:
        return None
    lines, columns = np.array([[int(pixel[1]), int(pixel[2])] for pixel in pixels if pixel]).T
    centre, scale = data.units
    x, y = (np.full((size, lines.max() + 1, columns.max() + 1), np.nan) for size in data.target.sizes)
    x[:, lines, columns], y[:, lines, columns] = (rows * scale + centre for rows in (data.x, data.y))
    return x, y


def look_picture(data: Prepared) -> Picture:
    """Draw both samples: the first images if rows are images, otherwise all rows in one plane."""
    images, names = images_of(data), (data.x_name, data.y_name)
    if images is not None:
        figure = tiles_figure(*map(np.nan_to_num, images), names=names)
        caption = "The first images of each group. Each tile is a row of the file."
        return Picture("tiles", "The images of both groups", figure, caption, "Tiles of the images of both groups.")
    samples, columns, caption = [data.x, data.y], ("", ""), "Each mark is a row."
    if len(data.features) == 2:
        columns = (data.features[0], data.features[1])
        samples = [np.column_stack([_in_units(data, i, rows[:, i]) for i in (0, 1)]) for rows in samples]
    else:
        caption += " The axes are the two directions in which all rows vary most."
    figure = samples_figure(*samples, names=names, columns=columns)
    return Picture("samples", "The two samples", figure, caption, "Scatter plot of the rows of both groups.")


def pixels_picture(outcome: Outcome) -> Picture | None:
    """Draw the difference of the groups' mean images."""
    images, data = images_of(outcome.data), outcome.data
    if images is None:
        return None
    x, y = (part.mean(axis=0) for part in images)
    figure = pixels_figure(x - y, names=(data.x_name, data.y_name))
    caption = "The mean image of one group minus that of the other. A single pixel may differ by chance."
    return Picture("pixels", "Where the images differ on average", figure, caption, "Heat map of the mean difference.")


def typical_picture(outcome: Outcome) -> Picture | None:
    """Draw the images most typical of each group."""
    images, explanation, data = images_of(outcome.data), outcome.explanation, outcome.data
    if images is None or explanation is None:
        return None
    chosen = (images[0][explanation.typical_x[0]], images[1][explanation.typical_y[0]])
    figure = tiles_figure(*map(np.nan_to_num, chosen), names=(data.x_name, data.y_name))
    caption = f"{explanation.how} These images are the most unlike the other group."
    return Picture("typical", "Images most typical of each group", figure, caption, "Tiles of typical images.")


def weights_picture(outcome: Outcome) -> Picture | None:
    """Draw the weights β by the names of the related tasks, heaviest first."""
    result = outcome.analysis.primary
    if not result.weights:
        return None
    heaviest = sorted(result.weights, key=lambda name: -result.weights[name])[:SHOWN_WEIGHTS]
    names = [name for name in heaviest if result.weights[name] > SMALLEST_WEIGHT]
    values = [result.weights[name] for name in names]
    figure = bars_figure(names, values, x_title="weight β", colour=colour_of(result.method))
    caption = "The weight of each related task's deep kernel in the test."
    if result.origin == "ours":
        caption = (
            "The weight of each related task's kernel on learned features in the test. Gaussian kernels are generic."
        )
    if used := result.diagnostics.get(WEIGHTS_USED):
        least, most = min(used.values()), max(used.values())
        caption += f" The test used a β shrunk towards uniform, from {least:.2f} to {most:.2f}."
    hidden = len(result.weights) - len(names)
    caption += f" {hidden} kernels with smaller or no weights are not shown." if hidden else ""
    return Picture("weights", "Weights β of the related tasks", figure, caption, "Bars of the weights of the kernels.")


def witness_picture(outcome: Outcome) -> Picture | None:
    """Draw where the test finds more of one sample than of the other, over the two most important columns."""
    explanation, data = outcome.explanation, outcome.data
    if explanation is None or not explanation.pair:
        return None
    pair, sample = explanation.pair, outcome.analysis.evidence.sample
    columns = [data.features[i] for i in pair]
    axes = [_in_units(data, i, axis) for i, axis in zip(pair, explanation.axes, strict=True)]
    x, y = (np.column_stack([_in_units(data, i, rows[0, :, i].cpu().numpy()) for i in pair]) for rows in sample)
    figure = witness_figure(explanation.witness, axes, columns, (x, y), labels=(data.x_name, data.y_name))
    caption = f"{explanation.how} {explanation.at}".strip()
    alt = f"The witness function over {' and '.join(columns)}."
    return Picture("witness", "Where the samples differ", figure, caption, alt)


def importance_picture(outcome: Outcome) -> Picture | None:
    """Draw the loss in the statistic when one column is shuffled."""
    if outcome.explanation is None:
        return None
    importance = outcome.explanation.importance
    names = [outcome.data.features[int(i)] for i in importance.columns]
    figure = bars_figure(
        names[:SHOWN_COLUMNS],
        importance.loss[:SHOWN_COLUMNS],
        x_title="loss when shuffled (SD if P = Q)",
        spread=importance.spread[:SHOWN_COLUMNS],
    )
    caption = (
        "Exploratory. Each column is shuffled among the test rows, and the statistic is computed again. The loss is in "
        "standard deviations of the statistic if P = Q. It is not a test of the column: among many columns, some lose "
        "much by chance. A loss near 0 means that the column alone shows little."
    )
    caption += f" The {SHOWN_COLUMNS} largest of {len(names)} are shown." if len(names) > SHOWN_COLUMNS else ""
    return Picture("importance", "Which columns carry the difference", figure, caption, "Bars of column importance.")


def related_picture(check: RelatedCheck) -> Picture:
    """Draw the power on left-out tasks, with and without learning from the others."""
    caption = (
        "Each related task was left out in turn and tested at about your sizes, with and without learning from the "
        "others. Lines are 95 % intervals. No label of your data was used."
    )
    alt = "Bars of power by method, with intervals."
    return Picture("related", "Do the related tasks help?", left_out_figure(check.table), caption, alt)


def _in_units(data: Prepared, feature: int, values: np.ndarray) -> np.ndarray:
    """Return scaled values of a feature in the units of its column."""
    position = 0
    for column in data.columns:
        if position == feature and isinstance(column, Numeric):
            return values * column.scale + column.centre
        position += len(column.features)
    return values
