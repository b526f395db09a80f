"""What the course shows is what the library computes."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

import m2st_core as m2st
from m2st_core.studies import synthetic
from m2st_core.testing.methods import METHODS


def test_the_samples_and_the_truth_are_the_tasks():
    x, y = synthetic.two_samples(0.5, 20, 3)
    expected = m2st.make_task("hdgm", delta=0.5).sample(40, seed=3)
    assert (x == expected.x.numpy()).all() and (y == expected.y.numpy()).all()
    ratio = synthetic.truth(0.5)
    place = np.array([synthetic.AXIS[2], synthetic.AXIS[7]])
    assert ratio[7, 2] == pytest.approx(m2st.make_task("hdgm", delta=0.5).log_likelihood_ratio(place))


def test_shuffles_are_those_of_the_librarys_test():
    for seed in range(3):  # one of them has x and y exchanged
        shuffles = synthetic.shuffle_labels(0.7, 20, seed)
        x, y = synthetic.two_samples(0.7, 20, seed)
        result = m2st.two_sample_test(x, y, "MMD-M", n_permutations=synthetic.PERMUTATIONS, seed=seed)
        assert shuffles.p_value(synthetic.PERMUTATIONS) == pytest.approx(result.p_value)
        assert (shuffles.rows[shuffles.members[0]] == x).all() and (shuffles.rows[~shuffles.members[0]] == y).all()
        width = np.median(pdist(shuffles.rows, "sqeuclidean"))
        for labelling in (0, 5):
            called = shuffles.members[labelling]
            expected = mmd2(shuffles.rows[called], shuffles.rows[~called], width)
            assert shuffles.statistics[labelling] == pytest.approx(expected, abs=1e-6)


def mmd2(x, y, width):
    """The unbiased MMD² of a Gaussian kernel."""
    between = np.exp(-cdist(x, y, "sqeuclidean") / width).mean()
    return sum(np.exp(-pdist(rows, "sqeuclidean") / width).mean() for rows in (x, y)) - 2 * between


def test_the_p_value_settles_as_shuffles_are_added():
    shuffles = synthetic.Shuffles(np.zeros((4, 2)), np.ones((4, 4), dtype=bool), np.array([2.0, 3.0, 1.0, 2.0]))
    assert [shuffles.reached(shown) for shown in range(4)] == [0, 1, 1, 2]
    assert shuffles.p_value(0) == 1 and shuffles.p_value(3) == 3 / 4


def test_a_middling_kernel_agrees_most_with_the_truth():
    views = {width: synthetic.gaussian_view(0.9, 400, width, 0) for width in (0.02, 1.0, 50.0)}
    assert views[1.0].agreement > 0.1 + max(abs(views[width].agreement) for width in (0.02, 50.0))
    assert views[1.0].witness.shape == (len(synthetic.AXIS), len(synthetic.AXIS))
    assert synthetic.gaussian_view(0.0, 20, 1.0, 0).agreement == 0


def test_many_tests_find_a_plain_difference_and_its_rate_has_an_interval():
    found = synthetic.Rate(synthetic.many_tests(METHODS["MMD-M"], 0.9, False, 100, 30, 0), 0.05)
    low, high = found.interval
    assert 0.5 < found.share and low < found.share < high
