"""What a test saw: exploratory, but right where the truth is known."""

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.analysis.explanation import _choose_columns, _from_columns, _from_rows, column_importance
from tests.quick import use_few_steps

TELLING = 2


def shifted(n=70, m=60, columns=5, shift=2.0, seed=0):
    generator = np.random.default_rng(seed)
    x, y = generator.normal(size=(n, columns)), generator.normal(size=(m, columns))
    y[:, TELLING] += shift
    return x, y


@pytest.fixture(scope="module")
def learners():
    tasks = {f"task {seed}": shifted(shift=1.0, seed=10 + seed) for seed in range(6)}
    names = ("Meta-FUSE", "Meta-WiTS", "Meta-Witness", "Feature-MKL", "Meta-MKL-SI · tuned")
    with pytest.MonkeyPatch.context() as patch:
        use_few_steps(patch)
        return {name: m2st.meta_train(name, tasks) for name in names}


METHODS = [
    "MMD-M", "MMD-FUSE", "MMD-O · tuned", "C2ST-S · tuned", "C2ST-L · tuned", "ME · tuned", "Meta-FUSE", "Meta-WiTS",
    "Meta-Witness", "Feature-MKL", "Meta-MKL-SI · tuned",
]  # fmt: skip
WITHOUT_WITNESS = ("MMD-M", "ME · tuned", "Meta-MKL-SI · tuned")  # these are shown by MMD-M's, or have it


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_points_to_the_column_that_differs_and_to_the_right_side(method, swap, learners):
    x, y = shifted()
    first, second = (y, x) if swap else (x, y)
    found = m2st.analyse(first, second, method, learners=learners, n_permutations=99)
    told = m2st.explain(found.evidence)
    assert told.importance.columns[0] == TELLING and told.importance.loss[0] > 2
    values = dict(zip(told.pair, told.axes, strict=True))[TELLING]
    along = told.witness.mean(axis=0 if told.pair[0] == TELLING else 1)
    low, high = along[values < 0].mean(), along[values > 2].mean()
    assert (high > low) if swap else (low > high)
    typical_first, typical_second = first[told.typical_x[0], TELLING], second[told.typical_y[0], TELLING]
    assert bool(typical_first.mean() > typical_second.mean()) is swap
    assert "xploratory" in told.how and ("MMD-M" in told.how) == (method in WITHOUT_WITNESS)


def test_products_over_columns_give_what_changed_rows_give():
    x, y = shifted(30, 25)
    for method in ("MMD-M", "MMD-FUSE"):
        seen = m2st.analyse(x, y, method, n_permutations=99).evidence
        assert seen.by_column
        pooled, orders = seen.sample.pooled[0], torch.stack([torch.randperm(55) for _ in range(3)])
        for column in range(5):
            direct, quick = (
                way(column, orders) for way in (_from_rows(seen, pooled, 30), _from_columns(seen.kernel, pooled, 30))
            )
            assert torch.allclose(direct, quick, atol=1e-9)


def test_one_column_has_a_line():
    x, y = shifted(columns=3)
    told = m2st.explain(m2st.analyse(x[:, 2], y[:, 2], "MMD-M", n_permutations=99).evidence)
    assert told.pair == (0,) and told.witness.shape == told.axes[0].shape and told.at == ""


def test_many_columns_are_bounded_and_it_is_said():
    x, y = shifted(40, 40, columns=3000)
    x[:, 7] = y[:, 7] = 1.0
    told = column_importance(m2st.analyse(x, y, "MMD-M", n_permutations=99).evidence)
    assert len(told.columns) == 200 and "200 of 3000 columns" in told.notes[0]
    assert told.columns[0] == TELLING and 7 not in told.columns


def test_ties_do_not_make_a_column_look_different():
    """A column with equal shares of 0 and 1 in both samples comes after one that differs a little."""
    values = np.tile(np.arange(40) % 2, (2, 1)).T.astype(float)
    values[:4, 1] += 0.5
    columns, _ = _choose_columns(values, 20, 1)
    assert columns.tolist() == [1]


def test_the_mixture_that_represents_a_bank_decides_like_it(learners):
    """On 40 samples near the threshold the mixture's MMD² and its own threshold agree with the test in at least 34."""
    for method in ("MMD-FUSE", "Meta-FUSE"):
        agree = 0
        for seed in range(40):
            found = m2st.analyse(
                *shifted(30, 30, shift=0.7, seed=100 + seed), method, learners=learners, n_permutations=199
            )
            agree += (found.effect.mmd2 >= found.evidence.threshold) == found.primary.rejected
        assert agree >= 34, method


def test_explaining_can_be_cancelled_and_repeats_itself():
    seen = m2st.analyse(*shifted(), "MMD-M", n_permutations=99).evidence

    def stop(step, total, value):
        raise m2st.Cancelled

    with pytest.raises(m2st.Cancelled):
        m2st.explain(seen, progress=stop)
    first, second = m2st.explain(seen), m2st.explain(seen)
    assert np.array_equal(first.importance.loss, second.importance.loss)
    assert np.array_equal(first.witness, second.witness)
