"""Relatedness, as the page computes it."""

import pytest

from m2st_core.studies.relatedness import RelatednessStudy
from m2st_core.types import Cancelled


def stop(step, total, value):
    raise Cancelled


def test_a_study_can_be_stopped():
    with pytest.raises(Cancelled):
        RelatednessStudy("hdgm", (("delta", 0.7),), 10, 0, 20, 2, 2, 3, (0.1,)).run(stop)
