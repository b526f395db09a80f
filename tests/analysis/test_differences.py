"""Medians, shares and their intervals: against naive computations, and their coverage in simulations."""

import math

import numpy as np
import pytest
from scipy import stats

from m2st_core.analysis.answer import answer_of
from m2st_core.analysis.effect import (
    Difference,
    differences,
    median_error,
    median_interval,
    share_interval,
    split_unit,
)
from m2st_core.analysis.plan import Plan, carry_out
from m2st_core.data.tables.encoding import Cleaning
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.prepare import prepare
from m2st_core.data.tables.upload import Upload


def naive_median_error(values):
    """Price and Bonett (2002), by sums of binomial coefficients."""
    ordered, n = sorted(values), len(values)
    c = max(1, round((n + 1) / 2 - math.sqrt(n)))
    outside = 2 * sum(math.comb(n, i) * 0.5**n for i in range(c))
    z = stats.norm.ppf(1 - outside / 2)
    return (ordered[n - c] - ordered[c - 1]) / (2 * z)


@pytest.mark.parametrize("n", [2, 5, 17, 40])
def test_the_error_of_a_median_is_that_of_the_formula(n):
    values = np.random.default_rng(n).exponential(size=n)
    assert median_error(values) == pytest.approx(naive_median_error(values.tolist()), rel=1e-9)


def test_a_difference_of_percents_is_in_points():
    one = Difference("yield", "%", False, 90.7, 86.9, low=-6.0, high=-1.6, size=-1.0)
    assert (one.words(one.x), one.words(one.difference, signed=True)) == ("90.7 %", "−3.8 points")


def naive_newcombe(a, n, b, m):
    def wilson(k, size):
        z, p = 1.96, k / size
        root = z * math.sqrt(z * z + 4 * size * p * (1 - p))
        return (2 * k + z * z - root) / (2 * (size + z * z)), (2 * k + z * z + root) / (2 * (size + z * z))

    (low_a, high_a), (low_b, high_b) = wilson(a, n), wilson(b, m)
    p, q = a / n, b / m
    below = math.sqrt((q - low_b) ** 2 + (high_a - p) ** 2)
    return q - p - below, q - p + math.sqrt((high_b - q) ** 2 + (p - low_a) ** 2)


@pytest.mark.parametrize("counts", [(3, 20, 9, 30), (0, 12, 12, 12), (7, 7, 7, 7)])
def test_the_interval_of_a_difference_of_shares_is_newcombes(counts):
    assert share_interval(*counts) == pytest.approx(naive_newcombe(*counts), abs=1e-9)


@pytest.mark.parametrize(
    ("shares", "words"),
    [((0.475, 0.485), ("47.5 %", "48.5 %", "+1.0 points")), ((0.25, 0.75), ("25 %", "75 %", "+50 points"))],
)
def test_rounded_shares_have_the_rounded_difference(shares, words):
    share = Difference("ill = yes", "", True, *shares, low=-0.1, high=0.6, size=1.0)
    assert (share.words(share.x), share.words(share.y), share.words(share.difference, signed=True)) == words


DRAWS = {
    "normal": lambda g, size: g.normal(size=size),
    "skewed": lambda g, size: g.exponential(size=size),
    "heavy": lambda g, size: g.standard_t(2, size=size),
}
MEDIANS = {"normal": 0.0, "skewed": math.log(2), "heavy": 0.0}


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize(("n", "m"), [(12, 15), (30, 28), (100, 60)])
def test_intervals_of_medians_cover_the_true_difference(kind, n, m):
    """2,000 draws; y is moved by 1. Coverage lies between 93 and 99 %, with a standard error of 0.5 %."""
    generator = np.random.default_rng([n, m])
    covered = 0
    for _ in range(2000):
        low, high = median_interval(DRAWS[kind](generator, n), DRAWS[kind](generator, m) + 1.0)
        covered += low <= 1.0 <= high
    assert 0.93 <= covered / 2000 <= 0.99


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.7), (0.1, 0.3), (0.05, 0.05)])
def test_intervals_of_shares_cover_the_true_difference(p, q):
    """4,000 draws of 30 and 28 rows. Coverage lies between 93 and 99.5 %, with a standard error of 0.35 %."""
    generator = np.random.default_rng(1)
    drawn = zip(generator.binomial(30, p, 4000).tolist(), generator.binomial(28, q, 4000).tolist(), strict=True)
    covered = [low <= q - p <= high for low, high in (share_interval(a, 30, b, 28) for a, b in drawn)]
    assert 0.93 <= np.mean(covered) <= 0.995


def upload(cells):
    return Upload((read_table("d.csv", cells.encode()),), group="group")


def test_columns_are_in_their_units_and_sorted_by_standardised_size():
    rows = [(150 + i, 5.0 + (i % 5) * 0.1 + shift, ("no", "yes")[(i + shift) % 3 == 0], "ab"[shift])
            for shift in (0, 1) for i in range(15)]  # fmt: skip
    text = "height (cm),dose [mg],ill,group\n" + "\n".join(",".join(map(str, row)) for row in rows)
    found = differences(prepare(upload(text), cleaning=Cleaning(scaling="robust")))
    assert [(one.column, one.unit) for one in found][0] == ("dose", "mg")
    dose, height = found[0], next(one for one in found if one.column == "height")
    assert (dose.x, dose.y, dose.difference) == (5.2, 6.2, pytest.approx(1.0))
    assert (height.words(height.x), height.difference) == ("157.0 cm", 0.0)
    assert [abs(one.size) for one in found] == sorted((abs(one.size) for one in found), reverse=True)
    (ill,) = [one for one in found if one.is_share]
    assert ill.column == "ill = yes" and ill.x == pytest.approx(5 / 15) and ill.words(ill.x) == "33 %"


def test_filled_cells_do_not_count_and_scaling_changes_nothing():
    text = "v,group\n" + "\n".join(["1,a", "2,a", ",a", "9,a", "4,b", "5,b", "6,b"])
    for scaling in ("none", "standard", "robust"):
        found = differences(prepare(upload(text), cleaning=Cleaning("median and indicator", scaling)))
        value = next(one for one in found if one.column == "v")
        assert (value.x, value.y) == (2.0, 5.0)


@pytest.mark.parametrize(
    ("header", "expected"),
    [("mass [kg]", ("mass", "kg")), ("pixel 1,2", ("pixel 1,2", "")), ("x (3)", ("x (3)", "")), ("(cm)", ("(cm)", ""))],
)
def test_a_unit_is_what_stands_in_brackets(header, expected):
    assert split_unit(header) == expected


def test_with_blocks_the_answer_says_that_the_table_ignores_them():
    rows = ["\n".join(f"{(i * 7) % base},site {i % 3}" for i in range(30)) for base in (11, 13)]
    files = [read_table(f"{len(part)}.csv", f"v,site\n{part}".encode()) for part in rows]
    plan = Plan("MMD-M", n_permutations=99)
    with_blocks, without = (
        answer_of(carry_out(prepare(Upload(tuple(files)), cleaning=Cleaning(block=block)), plan, explained=False))
        for block in ("site", "")
    )
    assert "within the blocks of “site”" in with_blocks.basis and "ignores the blocks" in with_blocks.caption
    assert "block" not in without.basis + without.caption
