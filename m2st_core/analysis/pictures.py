"""The figures of an outcome, with titles, captions and alternative texts, for the page and the report."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from m2st_core.analysis.plan import Outcome
from m2st_core.analysis.related_check import RelatedCheck
from m2st_core.data.tables.clean import CleanData
from m2st_core.data.tables.encoding import Numeric
from m2st_core.figures.null import null_figure
from m2st_core.figures.power import left_out_figure
from m2st_core.figures.samples import samples_figure, witness_figure
from m2st_core.figures.theme import colour_of
from m2st_core.figures.weights import bars_figure

SHOWN_WEIGHTS, SHOWN_COLUMNS = 15, 20
SMALLEST_WEIGHT = 5e-4


@dataclass(frozen=True)
class Picture:
    """A figure with its title, its caption, and a text for readers who cannot see it."""

    name: str
    title: str
    figure: go.Figure
    caption: str
    alt: str


def pictures(outcome: Outcome) -> dict[str, Picture]:
    """Return all figures of an outcome by name: null, weights, witness, importance, samples."""
    made = [draw(outcome) for draw in (null_picture, weights_picture, witness_picture, importance_picture)]
    return {picture.name: picture for picture in (*made, samples_picture(outcome.data)) if picture is not None}


def null_picture(outcome: Outcome) -> Picture:
    """Draw the observed statistic among those of random labellings."""
    result = outcome.analysis.primary
    alt = f"Histogram of the statistic if P=Q; the observed value is {result.statistic:.3g}."
    caption = "The statistic under random labels. The further right the line, the smaller the p-value."
    return Picture("null", "The statistic, if P = Q", null_figure(result), caption, alt)


def samples_picture(data: CleanData) -> Picture:
    """Draw both samples in one plane."""
    samples, columns, caption = [data.x, data.y], ("", ""), "Each mark is a row."
    if len(data.features) == 2:
        columns = (data.features[0], data.features[1])
        samples = [np.column_stack([in_units(data, i, rows[:, i]) for i in (0, 1)]) for rows in samples]
    else:
        caption += " The axes are the two directions in which all rows vary most."
    figure = samples_figure(*samples, names=(data.x_name, data.y_name), columns=columns)
    return Picture("samples", "The two samples", figure, caption, "Scatter plot of the rows of both groups.")


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
    axes = [in_units(data, i, axis) for i, axis in zip(pair, explanation.axes, strict=True)]
    x, y = (np.column_stack([in_units(data, i, rows[0, :, i].cpu().numpy()) for i in pair]) for rows in sample)
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
        "much by chance. A loss near 0 means that the column alone says little."
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


def in_units(data: CleanData, feature: int, values: np.ndarray) -> np.ndarray:
    """Return scaled values of a feature in the units of its column."""
    position = 0
    for column in data.encoding.columns:
        if position == feature and isinstance(column, Numeric):
            return values * column.scale + column.centre
        position += len(column.features)
    return values
