"""Units of columns, and columns of related tasks that are in other units than the rest.

A column's unit is its robust spread: the distance between quartiles, in that of a standard normal variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.distance import MEDIAN_ROWS, median_squared_distance
from m2st_core.numbers import NORMAL_QUARTILES
from m2st_core.rng import Streams

QUARTILE_ROWS, QUARTILE_VALUES = 20_000, 2**23  # torch takes no quantiles of more than 2²⁴ values
ODD = 10.0  # ratio of a task's spread to the usual one
FAR = 10.0  # the same, beyond which a value of a related task is taken for an error


@dataclass(frozen=True)
class Units:
    """Shift and scale of rows, (x − centre)/scale: (R, 1, d) each."""

    centre: Tensor
    scale: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Rows in these units: (R, n, d) → (R, n, d)."""
        return (x - self.centre) / self.scale


def column_units(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The median and a robust standard deviation, (Q₃−Q₁)/1.349, of each column of up to 20,000 rows: (d,) each.

    Where half of the values are equal, it is the ordinary standard deviation, or 1 if all are.
    """
    step = max(-(-len(rows) // QUARTILE_ROWS), -(-rows.numel() // QUARTILE_VALUES))
    some = rows[::step].double()
    low, centre, high = some.quantile(some.new_tensor([0.25, 0.5, 0.75]), dim=0)
    deviation = some.std(dim=0, correction=0)
    spread = (high - low) / NORMAL_QUARTILES
    spread = spread.where(spread > 1e-12 * torch.maximum(low.abs(), high.abs()), deviation)
    return centre, spread.where(spread > 0, 1.0)


def in_usual_units(tasks: Sequence[Tensor]) -> list[Tensor]:
    """Convert columns of tasks, (n, d) each, whose spread is more than ten times off the usual, to the usual units.

    The usual spread and centre of a column are medians over tasks.
    """
    centres, spreads = (torch.stack(columns) for columns in zip(*map(column_units, tasks), strict=True))
    usual, middle = spreads.median(dim=0).values, centres.median(dim=0).values
    odd = (spreads > ODD * usual) | (spreads < usual / ODD)
    units = zip(tasks, odd, centres, spreads, strict=True)
    return [torch.where(off, (rows - c) / s * usual + middle, rows) if off.any() else rows for rows, off, c, s in units]


def in_common_units(related: RelatedTasks) -> RelatedTasks:
    """Convert the columns of single tasks to the usual units, as ``in_usual_units`` does, and repair stray values.

    Values more than 10 robust standard deviations from the median become the median, unless half of the column's values
    are equal: rare values of such a column are no errors.
    """
    if related.shape is not None:
        return related
    rows = related.rows.clone()
    for repeat in range(len(rows)):
        indices = [related.where[repeat, task][related.inside[repeat, task]] for task in range(len(related.names))]
        for index, converted in zip(indices, in_usual_units([rows[repeat, i] for i in indices]), strict=True):
            rows[repeat, index] = converted
    common = robust_units(related.with_rows(rows))
    spread_out = (rows == common.centre).double().mean(dim=1, keepdim=True) < 0.5
    return related.with_rows(torch.where((common(rows).abs() > FAR) & spread_out, common.centre.to(rows), rows))


def robust_units(related: RelatedTasks) -> Units:
    """The median and the robust spread of all tasks' rows, per repeat and column: (R, 1, d) each."""
    pairs = [column_units(related.take_inside(repeat)) for repeat in range(len(related.rows))]
    centre, spread = (torch.stack(units)[:, None] for units in zip(*pairs, strict=True))
    return Units(centre, spread)


def median_distance(related: RelatedTasks, units: Units, streams: Sequence[Streams]) -> Tensor:
    """The median squared distance, in these units, of at most 500 rows of the related tasks: (R,)."""
    medians = []
    for repeat, stream in enumerate(streams):
        rows = related.take_inside(repeat)
        index = torch.randperm(len(rows), generator=stream.torch("median heuristic"))[:MEDIAN_ROWS]
        drawn = (rows[index.to(rows.device)] - units.centre[repeat]) / units.scale[repeat]
        medians.append(median_squared_distance(drawn[None]))
    return torch.cat(medians)
