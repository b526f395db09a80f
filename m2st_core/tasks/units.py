"""Columns in other units: the constant factor between the cells of a target and those of its related tasks."""

from __future__ import annotations

import numpy as np

UNIT_RATIO = 1.5  # spreads of a column that differ by more may be in different units
UNIT_WINDOWS = (1e-6, 1e-4, 3e-3)  # relative errors within which ratios of cells are one factor
UNIT_CELLS = 400  # of each side that vote on a factor
FEWEST_VOTES = 4
OTHER_UNITS = (60.0, 3600.0, 24.0, 7.0, 12.0, 2.54, 25.4, 0.3048, 0.4536, 1.609, 4.184, 1.8)
UNITS = np.array([*(10.0 ** np.arange(-9, 10)), *OTHER_UNITS, *(1 / unit for unit in OTHER_UNITS)])


def spread(rows: np.ndarray) -> np.ndarray:
    """The spread of each column: its interquartile range, or its standard deviation where that is 0; 1 if constant."""
    low, high = np.quantile(rows, [0.25, 0.75], axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.where(high > low, (high - low) / 1.349, rows.std(axis=0))
    return np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)


def unit_factors(rows: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The factor by which each column of the target has to be multiplied to be in the known rows' units: (k,).

    It is the ratio of cells that is far more frequent than others. Where rounding hides that and spreads differ
    clearly, it is the usual factor between units that is nearest to the ratio of the spreads.
    """
    ratio = spread(known) / spread(rows)
    factors = np.ones(rows.shape[1])
    generator = np.random.default_rng(0)
    for column in range(rows.shape[1]):
        own, other = (
            cells if len(cells) <= UNIT_CELLS else generator.choice(cells, UNIT_CELLS, replace=False)
            for cells in (np.unique(rows[:, column]), np.unique(known[:, column]))
        )
        ratios = (other[other != 0] / own[own != 0][:, None]).ravel()
        differs = not 1 / UNIT_RATIO < ratio[column] < UNIT_RATIO
        usual = UNITS[np.abs(np.log(UNITS / ratio[column])).argmin()] if differs else 1.0
        factors[column] = _most_frequent(np.sort(np.log(ratios[ratios > 0]))) or usual
    return factors


def _most_frequent(logs: np.ndarray) -> float | None:
    """The factor around which sorted log-ratios gather far beyond chance, if there is one."""
    for window in UNIT_WINDOWS if logs.size else ():
        counts = np.searchsorted(logs, logs + window, side="right") - np.arange(len(logs))
        best = int(counts.argmax())
        low, high = np.searchsorted(logs, [logs[best] - 50 * window, logs[best] + 50 * window])
        expected = max((high - low - counts[best]) / 100, 0.0)  # in such a window, as its surroundings have them
        if counts[best] >= FEWEST_VOTES + 3 * expected + 4 * expected**0.5:
            factor = float(np.exp(np.median(logs[best : best + counts[best]])))
            rounded = 10.0 ** round(np.log10(factor))
            return rounded if abs(np.log(factor / rounded)) < window else factor
    return None
