"""How large a difference is: effect size, the rows that a new study needs, and the difference of each column."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from m2st_core.analysis.explanation import Evidence
from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.data.tables.encoding import Categorical, Numeric
from m2st_core.data.tables.prepare import Prepared
from m2st_core.numbers import wilson_interval
from m2st_core.testing.methods import METHODS
from m2st_core.types import TestResult

TARGET_POWER = 0.8
CERTAIN = 0.99  # no larger power is written out
SMALLEST_FACTOR, LARGEST_FACTOR = 1e-3, 20.0  # times the present rows; the normal approximation fails beyond
FEWEST_ROWS = 15  # of the smaller sample: smaller recommendations too often had little power (docs/analysis.md)
REACH = 8.0  # standard errors that the integral covers on either side of the observation
GRID = 1001
UNKNOWN = "These data do not determine how many {unit} a new study needs"
TOO_FEW = "Fewer may be enough, but this estimate is not reliable for smaller studies."
CAVEAT = (
    "A significant result tends to overstate the difference, because lucky samples are more likely to be significant. "
    "Power and sample size are therefore given only after a significant result, averaged over all differences that "
    "could have led to it. To plan without one, simulate the smallest difference that would matter."
)
Z = float(ndtri(0.975))
UNIT = re.compile(
    r"(?P<name>.*\S)\s*(?:\((?P<round>[^()]{1,20})\)|\[(?P<square>[^\[\]]{1,20})\]| / (?P<slash>\S{1,12}))"
)
DIGITS = 12  # significant digits of the largest value of a column
MOST_DECIMALS, LARGEST = 5, 1e6  # beyond them numbers are written as powers of ten
YES = ("yes", "y", "true", "1", "positive", "present")


@dataclass(frozen=True)
class PowerModel:
    """A normal model of a statistic that exceeded its threshold, and of its growth with the rows.

    With k times the rows of both samples, the statistic times k^order has mean u = mean·k^order, variance
    noise + slope·u, and the same ``threshold``. ``order`` is 1 for MMD² and 1/2 for a difference of mean scores, whose
    ``slope`` is 0. ``signal`` is the value observed on ``share`` times the tested rows.
    """

    signal: float
    threshold: float
    noise: float
    slope: float
    order: float
    share: float = 1.0

    def distance(self, u: np.ndarray | float) -> np.ndarray:
        """Return the standard errors between 0 and u: ∫₀ᵘ dv/√(noise + slope·v), the variance-stabilised u."""
        u = np.asarray(u, dtype=float)
        return 2 * u / (np.sqrt(np.maximum(self.noise + self.slope * u, 0)) + math.sqrt(self.noise))

    def mean(self, distance: np.ndarray) -> np.ndarray:
        """Return the mean u at these distances: the inverse of ``distance``."""
        return distance * math.sqrt(self.noise) + self.slope * distance**2 / 4

    @cached_property
    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        """Distances t ≥ 0 of the true mean from 0, and their probabilities given the observation: (g,), (g,).

        The observed distance z is N(t, 1) and was reported because it exceeded the threshold's distance c. Its density
        is therefore φ(z − t)/Φ(t − c), with a flat prior on t ≥ 0. The division by Φ corrects for selection: small
        differences rarely reach the threshold, but having reached it once does not rule them out.
        """
        shrink = self.share**self.order
        observed, width = float(self.distance(self.signal)), REACH / shrink
        t = np.linspace(max(observed - width, 0.0), max(observed, 0.0) + width, GRID)
        z = self.distance(self.signal * shrink) - self.distance(self.mean(t) * shrink)
        log_density = -(z**2) / 2 - log_ndtr(t - self.distance(self.threshold))
        density = np.exp(log_density - log_density.max())
        return t, density / density.sum()

    def powers(self, t: np.ndarray, factor: float = 1.0) -> np.ndarray:
        """Return the power with ``factor`` times the rows if the true mean is at distances t."""
        return ndtr(self.distance(self.mean(t) * factor**self.order) - self.distance(self.threshold))

    def power(self, factor: float = 1.0) -> float:
        """Return the expected power with ``factor`` times the rows."""
        t, weights = self.posterior
        return float(weights @ self.powers(t, factor))

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return the equal-tailed interval that holds the power with probability ``level``."""
        t, weights = self.posterior
        ends = np.interp([(1 - level) / 2, (1 + level) / 2], weights.cumsum() - weights / 2, t)
        low, high = self.powers(ends)
        return float(low), float(high)

    def factor_for(self, power: float = TARGET_POWER) -> float | None:
        """Return the factor at which the expected power is ``power``, or None if it exceeds 20."""
        if self.power(LARGEST_FACTOR) < power:
            return None
        if self.power(SMALLEST_FACTOR) >= power:
            return SMALLEST_FACTOR
        ends = math.log(SMALLEST_FACTOR), math.log(LARGEST_FACTOR)
        return math.exp(brentq(lambda log_factor: self.power(math.exp(log_factor)) - power, *ends))


@dataclass(frozen=True)
class EffectSize:
    """The size of a difference; values that these rows do not determine are None.

    ``mmd2`` and ``criterion`` (Ĵ) are those of the kernel named in ``how``. For tests without a kernel ``mmd2`` is the
    squared difference of mean scores. ``power`` is the expected power of a new study of the same sizes, with a 90 %
    interval. ``rows_for_power`` are all rows of (x, y) that give 80 % power at the same split and ratio, but at least
    15 of a sample. Both are given only if the test rejects, and both correct for this (``PowerModel.posterior``).
    """

    mmd2: float
    criterion: float | None
    power: float | None
    power_interval: tuple[float, float] | None
    rows_for_power: tuple[int, int] | None
    how: str
    sentences: tuple[str, ...]
    caveat: str = CAVEAT


def effect_size(result: TestResult, evidence: Evidence, unit: str = "rows") -> EffectSize:
    """Return the effect size and, after a significant result, the power of a new study and the rows it needs.

    Sentences call the rows by their ``unit``, such as images.
    """
    n, m = (train + test for train, test in zip(result.n_train, result.n_test, strict=True))
    shown = evidence.sample.sizes
    statistic = float(evidence.statistic(evidence.sample.pooled, shown[0])[0])
    how = f"Effect size of {evidence.how}, on {shown[0]} and {shown[1]} test {unit}."
    power = interval = rows = None
    sentences = []
    unknown = _why_unknown(result, unit)
    if not unknown:
        model = power_model(evidence, result)
        power, interval, factor = model.power(), model.interval(), model.factor_for()
        if factor is None:
            unknown = "the result is significant, but so close to its threshold that luck may account for most of it"
        else:
            fewest = min(1.0, FEWEST_ROWS / min(n, m))
            times = max(factor, fewest)
            rows = math.ceil(round(n * times, 6)), math.ceil(round(m * times, 6))
            sizes, luck = f"{rows[0]} and {rows[1]} {unit}", "allowing for the luck of a significant first result"
            if factor >= fewest:
                sentences.append(f"By this estimate, about {sizes} give 80 % power, {luck}.")
            else:
                sentences.append(f"By this estimate, {sizes} give more than 80 % power, {luck}. {TOO_FEW}")
        sentences.insert(
            0,
            f"A new study of {n} and {m} {unit} would detect the difference again with probability "
            f"{_probability_words(power, interval)}.",
        )
        within = " within blocks" if evidence.sample.blocks is not None else ""
        how += (
            f" Power is computed by a normal approximation of the statistic, with the variance of these {unit} and a "
            f"threshold from {len(evidence.null)} random relabellings of them{within}, drawn for this estimate alone."
        )
    if unknown:
        sentences.insert(0, f"{UNKNOWN.format(unit=unit)}: {unknown}.")
    return EffectSize(
        mmd2=statistic if evidence.kernel is not None else statistic**2,
        criterion=_criterion(evidence) if result.criterion is None else result.criterion,
        power=power,
        power_interval=interval,
        rows_for_power=rows,
        how=how,
        sentences=tuple(sentences),
    )


def _probability_words(power: float, interval: tuple[float, float]) -> str:
    """Return a power with its 90 % interval in words. Nothing is called certain.

    >>> _probability_words(0.892, (0.47, 0.9991)), _probability_words(0.9992, (0.991, 1.0))
    ('about 0.89 (rough 90 % interval 0.47 to above 0.99)', 'above 0.99 (rough 90 % interval above 0.99)')
    """
    written, low, high = (f"{value:.2f}" if value <= CERTAIN else f"above {CERTAIN}" for value in (power, *interval))
    within = low if low == high else f"{low} to {high}"
    return f"{written if power > CERTAIN else f'about {written}'} (rough 90 % interval {within})"


def _why_unknown(result: TestResult, unit: str) -> str:
    """Return why this result does not determine a power; empty if it does."""
    if not result.rejected:
        return "the result is not significant, so the difference may have many sizes, or none"
    if not METHODS[result.method].by_permutation:
        return f"it is not known how the statistic of {result.method} grows with the {unit}"
    return ""


@torch.no_grad()
def power_model(evidence: Evidence, result: TestResult) -> PowerModel:
    """Return the power model at the test's own sizes, fitted to the rows of the evidence.

    A fused test may reject with less from the kernel shown here if its other kernels add evidence. A new study cannot
    count on them, so the threshold is at least that of this kernel alone.
    """
    n, m = evidence.sample.sizes
    signal = float(evidence.statistic(evidence.sample.pooled, n)[0])
    threshold = max(evidence.threshold, float(np.quantile(evidence.null, 1 - result.alpha)))
    if evidence.kernel is None:
        variance_x, variance_y = evidence.score_variances()
        noise, slope, order = variance_x / n + variance_y / m, 0.0, 0.5
    else:
        x, y = evidence.at_rows()
        noise, order = float(np.var(evidence.null)), 1.0
        slope = max(float(4 * np.var(x) / n + 4 * np.var(y) / m) - 2 * noise, 0.0) / max(signal, 1e-24)
    share = (1 / result.n_test[0] + 1 / result.n_test[1]) / (1 / n + 1 / m)  # rows of the evidence per tested row
    shrink = share**order
    return PowerModel(signal, threshold * shrink, max(noise * shrink**2, 1e-24), slope * shrink, order, share)


@torch.no_grad()
def _criterion(evidence: Evidence) -> float | None:
    """Return Ĵ of the evidence's kernel."""
    if evidence.kernel is None:
        return None
    count = min(evidence.sample.sizes)
    h = h_matrix(evidence.kernel, evidence.sample.x[:, :count], evidence.sample.y[:, :count])
    return float(power_criterion(h.reshape(1, count, count), regularisation=1e-8))


@dataclass(frozen=True)
class Difference:
    """One column: its typical value in x and in y, y's minus x's, and a 95 % interval of this difference.

    Typical values are medians, or shares of the rows if ``is_share``. ``size`` is the difference in standard deviations
    within the groups. An ``identifier`` tells rows apart and is compared only because the user chose it.
    """

    column: str
    unit: str
    is_share: bool
    x: float
    y: float
    low: float
    high: float
    size: float
    identifier: bool = False

    @property
    def difference(self) -> float:
        """Y's typical value minus x's."""
        return self.y - self.x

    @property
    def _format(self) -> str:
        """The format of the column's numbers: as many decimals as give its interval two digits."""
        half = (self.high - self.low) / 2
        largest = max(map(abs, (self.x, self.y, self.low, self.high)))
        if not (MOST_DECIMALS > -np.log10(half or 1) and largest < LARGEST):
            return ".4g"
        return f".{max(0, 1 - int(np.floor(np.log10(half)))) if half else 1}f"

    @property
    def _percent(self) -> str:
        """Whole percent, or with a decimal where the rounded shares would not have the rounded difference."""
        x, y, difference = (round(100 * value) for value in (self.x, self.y, self.difference))
        return ".0f" if y - x == difference else ".1f"

    def number(self, value: float, signed: bool = False) -> str:
        """A typical value or a difference, all of a column with the same decimals; shares are in percent."""
        sign = "+" if signed else ""
        shown = f"{100 * value:{sign}{self._percent}}" if self.is_share else f"{value:{sign}{self._format}}"
        return shown.replace("-", "−")

    def words(self, value: float, signed: bool = False) -> str:
        """The number with its unit; differences of shares and of percents are in percentage points."""
        unit = "%" if self.is_share else self.unit
        unit = "points" if signed and unit == "%" else unit
        return f"{self.number(value, signed)} {unit}".strip()

    @property
    def typical_words(self) -> tuple[str, str]:
        """X's and y's typical values in a sentence, after "with"."""
        first, second = self.words(self.x), self.words(self.y)
        return (f"{first} of the rows", second) if self.is_share else (f"a median of {first}", second)

    @property
    def interval_words(self) -> str:
        """The interval in words."""
        return f"{self.number(self.low)} to {self.number(self.high)}"


def differences(data: Prepared) -> tuple[Difference, ...]:
    r"""Return the difference of each column, largest standardised size first, identifiers last.

    Filled-in cells are left out.

    >>> from m2st_core.data.tables.prepare import prepare
    >>> from m2st_core.data.tables.files import read_table
    >>> from m2st_core.data.tables.upload import Upload
    >>> p = read_table("p.csv", b"height (cm),ill\n150,no\n160,no\n170,yes\n")
    >>> q = read_table("q.csv", b"height (cm),ill\n170,yes\n181,yes\n190,no\n")
    >>> [(d.column, d.words(d.x), d.words(d.difference, True)) for d in differences(prepare(Upload((p, q))))]
    [('height', '160 cm', '+21 cm'), ('ill = yes', '33.3 %', '+33.3 points')]
    """
    table, start = [], 0
    for column in data.columns:
        features = slice(start, start + len(column.features))
        start = features.stop
        x, y = data.x[:, features], data.y[:, features]
        shown = _of_numbers(column, x, y) if isinstance(column, Numeric) else _of_levels(column, x, y)
        table += [replace(row, identifier=column.name in data.identifiers) for row in shown]
    return tuple(sorted(table, key=lambda row: (row.identifier, -abs(row.size))))


def effect_table(data: Prepared, columns: Sequence[Difference]) -> tuple[dict[str, str], ...]:
    """Return one row of words per column, largest standardised difference first."""
    return tuple(
        {
            "Column": column.column,
            "Unit": "% of rows" if column.is_share else column.unit,
            f"“{data.x_name}”": column.number(column.x),
            f"“{data.y_name}”": column.number(column.y),
            "Difference": column.number(column.difference, signed=True),
            "95 % interval": column.interval_words,
            "In SDs": f"{column.size:+.2f}".replace("-", "−"),
        }
        for column in columns
    )


def split_unit(header: str) -> tuple[str, str]:
    """Split a header into the column's name and its unit, which is empty if the header has none.

    >>> split_unit("glucose (mg/dL)"), split_unit("length / mm"), split_unit("weight (2)"), split_unit("age")
    (('glucose', 'mg/dL'), ('length', 'mm'), ('weight (2)', ''), ('age', ''))
    """
    match = UNIT.fullmatch(header)
    unit = next(filter(None, match.group("round", "square", "slash")), "") if match else ""
    return (match["name"], unit) if match and not unit.isdigit() else (header, "")


def median_error(values: np.ndarray) -> float:
    """Return the standard error of the median of values (n,), from two order statistics around it.

    X₍c₎ and X₍n−c+1₎, c ≈ (n+1)/2 − √n, enclose the true median with a binomial probability that does not depend on the
    distribution; their distance over twice its normal quantile is the error (Price, Bonett 2002).
    """
    from scipy import stats  # slow to import

    n = len(values)
    c = max(1, round((n + 1) / 2 - n**0.5))
    ordered = np.sort(values)
    quantile = -ndtri(stats.binom.cdf(c - 1, n, 0.5))
    return float((ordered[n - c] - ordered[c - 1]) / (2 * quantile))


def median_interval(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return a 95 % interval of median(y) − median(x)."""
    centre, error = float(np.median(y) - np.median(x)), Z * np.hypot(median_error(x), median_error(y))
    return centre - error, centre + error


def share_interval(x: int, n: int, y: int, m: int) -> tuple[float, float]:
    """Return Newcombe's 95 % interval of y/m − x/n, from Wilson's intervals of both shares (Newcombe 1998)."""
    (x_low, x_high), (y_low, y_high) = wilson_interval(x, n), wilson_interval(y, m)
    p, q = x / n, y / m
    return q - p - float(np.hypot(q - y_low, x_high - p)), q - p + float(np.hypot(y_high - q, p - x_low))


def _of_numbers(column: Numeric, x: np.ndarray, y: np.ndarray) -> list[Difference]:
    """Return the difference of medians, or of the share of the larger value if there are only two values."""
    kept = [rows[rows[:, 1] == 0, 0] if column.indicator else rows[:, 0] for rows in (x, y)]
    if min(map(len, kept)) < 2:
        return []
    largest = max(float(np.abs(rows * column.scale + column.centre).max()) for rows in kept)
    digits = DIGITS - int(np.ceil(np.log10(largest or 1.0)))  # scaling and back left rounding errors
    x, y = ((rows * column.scale + column.centre).round(digits) for rows in kept)
    values = np.unique(np.concatenate([x, y]))
    if len(values) == 2:
        name = f"{column.name} = {values[1]:.4g}"
        return [_share(name, x == values[1], y == values[1])]
    (name, unit), within = split_unit(column.name), _within(x, y)
    unit = column.unit or unit
    difference = float(np.median(y) - np.median(x))
    size = difference / within if within > 0 else 0.0
    return [Difference(name, unit, False, float(np.median(x)), float(np.median(y)), *median_interval(x, y), size)]


def _of_levels(column: Categorical, x: np.ndarray, y: np.ndarray) -> list[Difference]:
    """Return the difference in the share of each level; of two levels, of one."""
    shown = [i for i in range(len(column.features)) if x[:, i].any() or y[:, i].any()]
    if len(shown) == 2 and len(column.levels) == 2:
        shown = [next((i for i in shown if column.levels[i].lower() in YES), shown[1])]
    return [_share(column.features[i], x[:, i] > 0, y[:, i] > 0) for i in shown]


def _share(name: str, x: np.ndarray, y: np.ndarray) -> Difference:
    p, q, within = float(x.mean()), float(y.mean()), _within(x, y)
    interval = share_interval(int(x.sum()), len(x), int(y.sum()), len(y))
    return Difference(name, "", True, p, q, *interval, (q - p) / (within or 1.0))


def _within(x: np.ndarray, y: np.ndarray) -> float:
    """Return the standard deviation within the groups."""
    squares = sum(float(((rows - rows.mean()) ** 2).sum()) for rows in (x.astype(float), y.astype(float)))
    return float(np.sqrt(squares / max(len(x) + len(y) - 2, 1)))
