"""The powers that ship with the course are those that the code computes."""

import json

import numpy as np
import pytest

from m2st_core.studies import course
from m2st_core.studies.course import OWN_ROWS, Cell
from m2st_core.testing.methods import METHODS


def test_the_file_has_every_setting_of_the_controls_and_no_other():
    assert set(course.shipped()["p_values_in_percent"]) == {cell.key for cell in course.every_cell()}
    assert course.FILE.stat().st_size < 100_000


def test_the_file_was_made_with_the_present_methods():
    """If this fails: python -m m2st_core bench course."""
    assert course.shipped()["revisions"] == {name: METHODS[name].revision for name in course.NAMES}


def test_methods_that_are_not_computed_again_keep_their_numbers():
    assert json.loads(course.make_file(print, ())) == course.shipped()


@pytest.mark.parametrize(
    "cell", [Cell("MMD-M", 50, 0.9), Cell(OWN_ROWS, 50, 0.9, 20), Cell("Meta-Witness", 20, 0.9, 3)], ids=lambda c: c.key
)
def test_an_entry_is_what_the_code_computes(cell):
    """Processors round differently, so that single labellings of a learned test change their rank."""
    assert course.p_values(cell) == pytest.approx(cell.compute(), abs=0.03)


def test_methods_test_the_same_samples():
    first, second = (Cell(name, 20, 0.7, n).samples() for name, n in (("MMD-M", 0), ("Meta-Witness", 40)))
    assert (first.x == second.x).all() and (first.y == second.y).all()


def test_the_story_holds():
    """History finds most, few own rows nothing; a history about something else misleads all but Meta-FUSE."""

    def share(*cell, **more):
        return np.mean(course.p_values(Cell(*cell, **more)) <= 0.05)

    assert share("Meta-Witness", 100, 0.7, 40) > 0.7 > 0.2 > share("MMD-M", 100, 0.7)
    assert share(OWN_ROWS, 100, 0.7, 20) < share("MMD-M", 100, 0.7) + 0.05 < share(OWN_ROWS, 100, 0.7, 800)
    assert share("MMD-M", 800, 0.7) >= 0.8
    generic = share("MMD-M", 100, shifted=True)
    assert share("Meta-Witness", 100, learned_from=40, shifted=True) < generic / 2
    assert share("Meta-FUSE", 100, learned_from=40, shifted=True) > generic - 0.15
    for rows in course.ROWS:
        assert share("MMD-M", rows, 0.0) <= 0.12  # 100 tests at 5 %
