"""The figures of an outcome, for the page and for the report alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from m2st_core.analysis.own_data import Outcome
from m2st_core.analysis.related_check import RelatedCheck
from m2st_core.data.tables.clean import CleanData
from m2st_core.data.tables.encoding import Numeric
from m2st_core.figures.explain import SHOWN_COLUMNS, history_figure, importance_figure, witness_figure
from m2st_core.figures.null import null_figure
from m2st_core.figures.samples import bars_figure, samples_figure
from m2st_core.figures.theme import colour_of

SHOWN_BARS = 15
NO_WEIGHT = 5e-4


@dataclass(frozen=True)
class Picture:
    """A figure with its title, what it shows, and text for those who can not see it."""

    name: str
    title: str
    figure: go.Figure
    caption: str
    alt: str


def pictures(outcome: Outcome) -> dict[str, Picture]:
    """All figures that this outcome has, by name: null, weights, witness, importance, samples."""
    made = (null_picture, weights_picture, witness_picture, importance_picture)
    found = [picture for make in made if (picture := make(outcome)) is not None]
    return {picture.name: picture for picture in (*found, samples_picture(outcome.data))}


def null_picture(outcome: Outcome) -> Picture:
    """Where the observed statistic lies among those of random labellings."""
    result = outcome.analysis.primary
    alt = f"Histogram of the statistic if P=Q; the observed value is {result.statistic:.3g}."
    caption = "What the statistic would be if the labels were arbitrary. The further right the line, the smaller p."
    return Picture("null", "The statistic, if P = Q", null_figure(result), caption, alt)


def samples_picture(data: CleanData) -> Picture:
    """Both samples in one plane."""
    names, two = (data.x_name, data.y_name), len(data.features) == 2
    x, y = data.x, data.y
    columns = ("", "")
    if two:
        columns = (data.features[0], data.features[1])
        x, y = (np.column_stack([in_units(data, i)(rows[:, i]) for i in (0, 1)]) for rows in (x, y))
    figure = samples_figure(x, y, names=names, columns=columns)
    caption = "Each row is a mark. " + (
        "" if two else "Of more than two columns, the two directions in which all rows vary most are shown."
    )
    return Picture("samples", "The two samples", figure, caption.strip(), "Scatter plot of the rows of both groups.")


def weights_picture(outcome: Outcome) -> Picture | None:
    """The weights β by the names of the related tasks, heaviest first."""
    result = outcome.analysis.primary
    weights = result.weights
    if not weights:
        return None
    heavy = sorted((item for item in weights.items() if item[1] > NO_WEIGHT), key=lambda item: -item[1])[:SHOWN_BARS]
    colour = colour_of(result.method)
    figure = bars_figure([n for n, _ in heavy], [v for _, v in heavy], x_title="weight β", colour=colour)
    rest = (
        f" {len(weights) - len(heavy)} kernels with less or no weight are not shown."
        if len(weights) > len(heavy)
        else ""
    )
    deep = "How much of each related task's deep kernel the test used."
    learned = "How much of each related task's kernel on learned features the test used; Gaussian ones are generic."
    caption = (learned if result.origin == "ours" else deep) + rest
    return Picture("weights", "Weights β of the related tasks", figure, caption, "Bars of the weights of the kernels.")


def witness_picture(outcome: Outcome) -> Picture | None:
    """Where the test saw more of one sample than of the other, over the most telling pair of columns."""
    found, data = outcome.explanation, outcome.data
    if found is None or not found.pair:
        return None
    names, seen = (data.x_name, data.y_name), outcome.analysis.seen.sample
    columns = [data.features[i] for i in found.pair]
    axes = [in_units(data, i)(axis) for i, axis in zip(found.pair, found.axes, strict=True)]
    rows = [
        np.column_stack([in_units(data, i)(part[0, :, i].cpu().numpy()) for i in found.pair])
        for part in (seen.x, seen.y)
    ]
    alt = "The witness function over " + " and ".join(columns) + "."
    caption = f"{found.how} {found.at}".strip()
    figure = witness_figure(found.witness, axes, columns, (rows[0], rows[1]), labels=names)
    return Picture("witness", "Where the samples differ", figure, caption, alt)


def importance_picture(outcome: Outcome) -> Picture | None:
    """What is lost when one column is shuffled."""
    if outcome.explanation is None:
        return None
    found = outcome.explanation.importance
    figure = importance_figure([outcome.data.features[int(i)] for i in found.columns], found.loss, found.spread)
    count = len(found.columns)
    more = f" The {SHOWN_COLUMNS} largest of {count} are shown." if count > SHOWN_COLUMNS else ""
    caption = (
        "Exploratory. Each column is shuffled among the test rows, and the statistic found again. The loss is in "
        "standard deviations of the statistic if P = Q. It is not a test of the column: among many columns some lose "
        "much by chance. Around 0 the column tells nothing by itself." + more
    )
    return Picture("importance", "Which columns carry the difference", figure, caption, "Bars of column importance.")


def history_picture(check: RelatedCheck) -> Picture:
    """Power on left-out tasks, with and without what the others taught."""
    caption = (
        "Each related task was left out in turn and tested at about your sizes with what the others taught. Lines are "
        "95 % intervals. No label of your data was looked at."
    )
    return Picture(
        "history",
        "Does the history help?",
        history_figure(check.table),
        caption,
        "Bars of power by method, with intervals.",
    )


def in_units(data: CleanData, feature: int) -> Callable[[np.ndarray], np.ndarray]:
    """From the scaled numbers of a feature back to the units of its column."""
    position = 0
    for column in data.encoding.columns:
        if position == feature and isinstance(column, Numeric):
            centre, scale = column.centre, column.scale
            return lambda values: values * scale + centre
        position += len(column.features)
    return lambda values: values
