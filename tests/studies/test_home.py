"""The table that Home shows was made by this version of the code."""

import json

import numpy as np
import pytest

from m2st_core.studies import home

TABLE = home.home_table()


def test_the_table_is_of_this_version():
    """If not: python -m m2st_core bench home."""
    assert json.loads(TABLE.made_by) == json.loads(home.code_version())
    assert TABLE.closeness.tolist() == list(home.CLOSENESSES)
    assert TABLE.taught_power.shape == (len(home.CLOSENESSES), home.REPEATS)
    assert home.FILE.stat().st_size < 400_000


@pytest.mark.parametrize("seed", [0, 5])
def test_views_through_a_generic_kernel_are_computed_again(seed):
    view = home.view(seed)
    assert view.p_value == pytest.approx(TABLE.generic_p[seed], abs=0.005)
    assert np.abs(view.field.astype(int) - TABLE.generic_field[seed]).max() <= 1


def test_a_view_and_the_power_of_the_taught_test_are_computed_again():
    place = home.CLOSENESSES.index(0.3)
    learner = home.learn(0.3, 0)
    view = home.view(4, learner)
    assert view.p_value == pytest.approx(TABLE.taught_p[place, 4], abs=0.02)
    assert np.abs(view.field.astype(int) - TABLE.taught_field[place, 4]).max() <= 5
    assert home.power(0, learner) == pytest.approx(TABLE.taught_power[place, 0], abs=0.03)


def test_earlier_tasks_help_the_more_the_more_related_they_are():
    generic = TABLE.generic_power.mean()
    taught = TABLE.taught_power.mean(axis=1)
    assert taught[-1] > taught[0] and taught[-1] > 5 * generic
