"""What the course shows is what the library computes."""

import numpy as np
import pytest

import m2st_core as m2st
from m2st_core.dashboard.learn import learning as course_learning
from m2st_core.studies import lessons
from m2st_core.studies.relatedness import witness_p_values
from m2st_core.studies.theory import BoundSettings, bound_courses, bound_table
from tests.fake_gpu import fake_gpu


def test_the_samples_and_the_truth_are_the_tasks():
    x, y = lessons.two_samples(0.5, 20, 3)
    expected = m2st.make_task("hdgm", delta=0.5).sample(40, seed=3)
    assert (x == expected.x.numpy()).all() and (y == expected.y.numpy()).all()
    ratio = lessons.truth(0.5)
    place = np.array([lessons.AXIS[2], lessons.AXIS[7]])
    assert ratio[7, 2] == pytest.approx(m2st.make_task("hdgm", delta=0.5).log_likelihood_ratio(place))


def test_the_median_test_is_the_librarys_and_its_last_p_value_is_reached():
    result = lessons.median_test(0.7, 50, 1)
    x, y = m2st.make_task("hdgm", delta=0.7).sample(100, seed=1)
    assert result.p_value == m2st.two_sample_test(x, y, "MMD-M", seed=1).p_value
    p_values = lessons.p_values_so_far(result)
    assert p_values[-1] == pytest.approx(result.p_value) and p_values[0] in (0.5, 1.0)


def test_a_wide_kernel_sees_less_than_a_middling_one():
    views = {width: lessons.gaussian_view(0.9, 400, width, 0) for width in (1.0, 50.0)}
    assert views[1.0].mmd2 > 10 * abs(views[50.0].mmd2)
    assert views[1.0].witness.shape == (len(lessons.AXIS), len(lessons.AXIS))


def test_repeated_tests_keep_their_level_and_find_a_plain_difference():
    found, level = (lessons.repeated_tests(0.9, 100, 30, 0, null) for null in (False, True))
    assert lessons.Rate(found, 0.05).share > 0.5 > lessons.Rate(level, 0.05).share
    low, high = lessons.Rate(found, 0.05).interval
    assert low < lessons.Rate(found, 0.05).share < high


def test_few_rows_are_learned_by_heart():
    learning = lessons.learn_deep(0.7, 5, 25, 6, 0)
    assert learning.train[-1] > 0.3 > learning.fresh[-1]
    assert len(learning.p_values) == 6 and len(learning.step) == len(learning.fresh)


def test_lessons_on_a_server_with_a_gpu(monkeypatch):
    """What a lesson learned and what it tests are in one place."""
    monkeypatch.setattr(lessons, "TRAINING_STEPS", 1)
    monkeypatch.setattr(course_learning, "META_TESTS", 2)
    with fake_gpu():
        assert len(lessons.learn_deep.__wrapped__(0.7, 5, 5, 3, 0).p_values) == 3
        assert len(course_learning.related_tasks_found.__wrapped__(2, 0.3, 0)[1]) == 2
        assert len(witness_p_values(0.3, 2, 5, 2, 0)) == 2


def test_the_bounds_add_up_and_fall_with_m():
    settings = BoundSettings(gamma=0.1, n=1000, m=100, n_tasks=10, parameters=500, s=0.3)
    sums = bound_table(settings).groupby("bound")["value"].sum()
    for name, bound in settings.bounds().items():
        assert sums[name] == pytest.approx(bound.value)
    sizes, courses = bound_courses(settings)
    assert courses["direct training"][sizes.index(100)] == pytest.approx(sums["direct training"])
    assert all(np.all(np.diff(values) < 0) for values in courses.values())
