"""Where the samples differ, as the test saw it. Exploratory: it suggests, it does not prove."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from m2st_core.testing.importance import Importance, column_importance
from m2st_core.testing.seen import Seen
from m2st_core.types import Progress

GRID = 40
TYPICAL = 5


@dataclass(frozen=True)
class Explanation:
    """What the test saw, on its test rows.

    ``pair``: the two columns of ``importance`` that tell most (one if there is only one). ``axes``: places along each.
    ``witness`` (places of the second, places of the first; or places of the only one): positive where the test saw more
    of x. ``typical_x`` and ``typical_y``: positions, in the samples as given, of the rows most unlike the other sample,
    with their witness values. ``at``: where the other columns stand.
    """

    importance: Importance
    pair: tuple[int, ...]
    axes: tuple[np.ndarray, ...]
    witness: np.ndarray
    typical_x: tuple[np.ndarray, np.ndarray]
    typical_y: tuple[np.ndarray, np.ndarray]
    how: str
    at: str
    notes: tuple[str, ...]


def explain(seen: Seen, *, seed: int = 0, progress: Progress | None = None) -> Explanation:
    """Column importance, the witness over the most telling pair of columns, and the most typical rows.

    >>> import m2st_core as m2st
    >>> x, y = m2st.make_task("mean_shift", shift=2.0, dimension=4).sample(50, seed=1)
    >>> m2st.explain(m2st.analyse(x, y).seen).importance.columns[0]
    np.int64(0)
    """
    importance = column_importance(seen, seed=seed, progress=progress)
    pair = tuple(int(column) for column in importance.columns[:2])
    pooled = seen.sample.pooled[0]
    centre = pooled.median(dim=0).values
    axes = tuple(_axis(pooled[:, column].cpu().numpy()) for column in pair)
    mesh = np.stack(np.meshgrid(*axes), axis=-1) if len(pair) == 2 else axes[0][:, None]
    places = centre.repeat(mesh[..., 0].size, 1)
    for index, column in enumerate(pair):
        places[:, column] = torch.from_numpy(mesh[..., index].ravel()).to(places)
    of_x, of_y = seen.at_rows()
    top_x, top_y = np.argsort(-of_x, kind="stable")[:TYPICAL], np.argsort(of_y, kind="stable")[:TYPICAL]
    others = pooled.shape[1] - len(pair)
    return Explanation(
        importance=importance,
        pair=pair,
        axes=axes,
        witness=seen.witness(places).reshape(mesh.shape[:-1]),
        typical_x=(seen.rows[0][top_x], of_x[top_x]),
        typical_y=(seen.rows[1][top_y], of_y[top_y]),
        how=f"Exploratory, by {seen.how}, on the {sum(seen.sample.sizes)} test rows looked at.",
        at="" if not others else f"The other {others} columns stand at their medians over both samples.",
        notes=importance.notes,
    )


def _axis(values: np.ndarray) -> np.ndarray:
    low, high = np.quantile(values, [0.01, 0.99])
    if low == high:
        low, high = values.min(), values.max()
    margin = 0.05 * (high - low)
    return np.linspace(low - margin, high + margin, GRID)
