"""The terms of the bounds against their formulas, and how the bounds change with their settings."""

import math

import numpy as np
import pytest

from m2st_core.studies import theorem as bounds
from m2st_core.studies.theorem import BoundSettings, bound_courses

SETTINGS = {"gamma": 0.1, "n": 10_000, "m": 100, "n_tasks": 10, "parameters": 500, "s": 0.5}


def total(name, **changed):
    return sum(BoundSettings(**SETTINGS | changed).bounds()[name].values())


def test_terms_equal_the_papers_formulas():
    xi = bounds.direct_training(1000, 7, 0.5, lipschitz=3.0)
    assert xi == pytest.approx((2 + math.sqrt(7 * math.log(1000) + math.log(20)) + 3) / (0.25 * 10))
    assert bounds.multiple_kernels(1000, 9, 0.5) == bounds.direct_training(1000, 9, 0.5, lipschitz=3.0)
    zeta = bounds.best_of_many(1000, 4, 0.5)
    assert zeta == pytest.approx((2 + 1 / math.sqrt(1000) + math.sqrt(math.log(80))) / (0.25 * 10))


def test_bounds_move_as_the_theory_says():
    assert total("Meta-MKL", gamma=0.3) - total("Meta-MKL") == pytest.approx(0.4)
    assert total("direct training", gamma=0.3) == total("direct training")
    assert total("Meta-MKL", n=100_000) < total("Meta-MKL") and total("Meta-MKL", m=400) < total("Meta-MKL")
    assert total("Meta-MKL") < total("Meta-MKL", n_tasks=20)
    assert total("choose one best") < total("Meta-MKL")  # choosing one kernel is easier than weighing all


def test_the_courses_fall_with_m():
    sizes, courses = bound_courses(BoundSettings(**SETTINGS))
    assert {name: values[sizes.index(100)] for name, values in courses.items()} == pytest.approx(
        {name: total(name) for name in courses}
    )
    assert all(np.all(np.diff(values) < 0) for values in courses.values())
