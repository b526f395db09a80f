"""How far apart the groups are, column by column and in the units of the files, with 95 % intervals."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from m2st_core.data.tables.encoding import Categorical, Numeric
from m2st_core.data.tables.prepare import Prepared
from m2st_core.numbers import wilson_interval

Z = float(ndtri(0.975))
UNIT = re.compile(
    r"(?P<name>.*\S)\s*(?:\((?P<round>[^()]{1,20})\)|\[(?P<square>[^\[\]]{1,20})\]| / (?P<slash>\S{1,12}))"
)
DIGITS = 12  # significant digits of the largest value of a column
MOST_DECIMALS, LARGEST = 5, 1e6  # beyond them numbers are written as powers of ten
YES = ("yes", "y", "true", "1", "positive", "present")


@dataclass(frozen=True)
class Difference:
    """One column: its typical value in x and in y, y's minus x's, and a 95 % interval of this difference.

    Typical values are medians, or shares of the rows if ``is_share``. ``size`` is the difference in standard deviations
    within the groups. An ``identifier`` tells rows apart and is compared only because the user said so.
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
        """How the column's numbers are written: with as many decimals as give its interval two digits."""
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
    found, start = [], 0
    for column in data.encoding.columns:
        own = slice(start, start + len(column.features))
        start = own.stop
        x, y = data.x[:, own], data.y[:, own]
        own_found = _of_numbers(column, x, y) if isinstance(column, Numeric) else _of_levels(column, x, y)
        found += [replace(one, identifier=column.name in data.identifiers) for one in own_found]
    return tuple(sorted(found, key=lambda one: (one.identifier, -abs(one.size))))


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
    n = len(values)
    c = max(1, round((n + 1) / 2 - n**0.5))
    ordered = np.sort(values)
    quantile = -ndtri(binom.cdf(c - 1, n, 0.5))
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
    """Return the difference in the share of each level; of two levels, one says it all."""
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
