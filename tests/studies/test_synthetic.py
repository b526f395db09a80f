"""What the course shows is what the library computes."""

import numpy as np
import pytest

import m2st_core as m2st
from m2st_core.dashboard.learn import pictures
from m2st_core.studies import synthetic
from m2st_core.studies.relatedness import witness_p_values
from tests.fake_gpu import fake_gpu


def test_the_samples_and_the_truth_are_the_tasks():
    x, y = synthetic.two_samples(0.5, 20, 3)
    expected = m2st.make_task("hdgm", delta=0.5).sample(40, seed=3)
    assert (x == expected.x.numpy()).all() and (y == expected.y.numpy()).all()
    ratio = synthetic.truth(0.5)
    place = np.array([synthetic.AXIS[2], synthetic.AXIS[7]])
    assert ratio[7, 2] == pytest.approx(m2st.make_task("hdgm", delta=0.5).log_likelihood_ratio(place))


def test_the_median_test_is_the_librarys():
    result = synthetic.median_test(0.7, 50, 1)
    x, y = m2st.make_task("hdgm", delta=0.7).sample(100, seed=1)
    assert result.p_value == m2st.two_sample_test(x, y, "MMD-M", seed=1).p_value


def test_a_wide_kernel_sees_less_than_a_middling_one():
    views = {width: synthetic.gaussian_view(0.9, 400, width, 0) for width in (1.0, 50.0)}
    assert views[1.0].mmd2 > 10 * abs(views[50.0].mmd2)
    assert views[1.0].witness.shape == (len(synthetic.AXIS), len(synthetic.AXIS))


def test_repeated_tests_keep_their_level_and_find_a_plain_difference():
    found, level = (synthetic.repeated_tests(0.9, 100, 30, 0, null) for null in (False, True))
    assert synthetic.Rate(found, 0.05).share > 0.5 > synthetic.Rate(level, 0.05).share
    low, high = synthetic.Rate(found, 0.05).interval
    assert low < synthetic.Rate(found, 0.05).share < high


def test_few_rows_are_learned_by_heart():
    learning = synthetic.train_deep(0.7, 5, 25, 6, 0)
    assert learning.train[-1] > 0.3 > learning.fresh[-1]
    assert len(learning.p_values) == 6 and len(learning.step) == len(learning.fresh)


def test_lessons_on_a_server_with_a_gpu(monkeypatch):
    """What a lesson learned and what it tests are in one place."""
    monkeypatch.setattr(synthetic, "TRAINING_STEPS", 1)
    monkeypatch.setattr(pictures, "META_TESTS", 2)
    with fake_gpu():
        assert len(synthetic.train_deep.__wrapped__(0.7, 5, 5, 3, 0).p_values) == 3
        assert len(pictures.learn_from_related.__wrapped__(2, 0.3, 0)[1]) == 2
        assert len(witness_p_values(0.3, 2, 5, 2, 0)) == 2
