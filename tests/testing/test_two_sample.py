"""The whole call: levels, invariances, errors, reproducibility."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import m2st_core as m2st
from m2st_core.presets import TUNED
from m2st_core.rng import Streams
from m2st_core.testing.plan import draw_order, plan_test
from m2st_core.testing.run import run, run_tests
from m2st_core.types import Cancelled, TwoSample
from tests.quick import QUICK

METHODS = {name: method for name, method in QUICK.items() if not method.uses_related_tasks}
EXACT = [name for name, method in METHODS.items() if method.by_permutation]
SHORT = replace(
    TUNED,
    mmd_o=replace(TUNED.mmd_o, steps=5),
    mmd_d=replace(TUNED.mmd_d, steps=5),
    classifier=replace(TUNED.classifier, epochs=10),
    embedding=replace(TUNED.embedding, steps=5),
)


def pair(n=40, m=30, shift=0.5, seed=0):
    return m2st.make_task("mean_shift", shift=shift, dimension=3).sample(n, m, seed=seed)


def rejections(method, x, y, **settings):
    runs = len(x)
    results = run_tests(
        TwoSample(torch.from_numpy(x), torch.from_numpy(y)),
        replace(METHODS[method], preset=SHORT),
        seeds=range(runs),
        **settings,
    )
    return sum(result.rejected for result in results)


NULLS = {
    "hdgm": lambda g, shape: g.standard_normal(shape) + 0.5 * g.integers(0, 2, size=(*shape[:2], 1)),
    "heavy tails": lambda g, shape: g.standard_t(1.5, size=shape),
}


@pytest.mark.parametrize("null", NULLS)
@pytest.mark.parametrize("method", EXACT)
def test_exact_tests_keep_their_level_at_small_unequal_sizes(method, null):
    """600 null runs at α=0.05: rejections in the binomial 99 % band."""
    g = np.random.default_rng(11)
    found = rejections(method, NULLS[null](g, (600, 16, 2)), NULLS[null](g, (600, 24, 2)), n_permutations=99)
    low, high = stats.binom.interval(0.99, 600, 0.05)
    assert low <= found <= high


@pytest.mark.parametrize("method", ["ME · tuned", "SCF · tuned"])
def test_asymptotic_tests_keep_their_level_with_500_rows(method):
    """300 null pairs: rejections in the 99 % band of 5 %."""
    g = np.random.default_rng(12)
    found = rejections(method, g.standard_normal((300, 500, 2)), g.standard_normal((300, 500, 2)), n_permutations=19)
    low, high = stats.binom.interval(0.99, 300, 0.05)
    assert low <= found <= high


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_a_clear_difference(method):
    result = m2st.two_sample_test(*pair(80, 80, shift=3.0), method=method)
    assert result.rejected and result.p_value <= 0.01
    assert result.null.shape == (999,) and result.exact == METHODS[method].by_permutation
    assert result.n_train == ((40, 40) if METHODS[method].needs_split else (0, 0))


@pytest.mark.parametrize("method", EXACT)
def test_perfectly_separated_and_identical_samples(method):
    g = np.random.default_rng(3)
    x = g.standard_normal((30, 2))
    assert m2st.two_sample_test(x, x + 100, method=method).p_value == 1 / 1000
    assert m2st.two_sample_test(x, x.copy(), method=method).p_value == 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sizes", [(30, 30), (26, 34)])
def test_swapping_the_samples_changes_nothing(method, sizes):
    x, y = pair(*sizes)
    there = m2st.two_sample_test(x, y, method=method, n_permutations=99)
    back = m2st.two_sample_test(y, x, method=method, n_permutations=99)
    assert (there.p_value, there.statistic) == (back.p_value, back.statistic)
    assert (there.n_train, there.n_test) == (back.n_train[::-1], back.n_test[::-1])


def test_the_order_of_rows_matters_only_through_the_random_stream():
    x, y = pair(25, 20, shift=0.4)
    g = np.random.default_rng(0)
    shuffled = m2st.two_sample_test(x[g.permutation(25)], y[g.permutation(20)], "MMD-M", n_permutations=9999)
    straight = m2st.two_sample_test(x, y, "MMD-M", n_permutations=9999)
    assert shuffled.statistic == pytest.approx(straight.statistic, rel=1e-5)
    assert abs(shuffled.p_value - straight.p_value) < 4.5 * np.hypot(shuffled.p_value_se, straight.p_value_se)


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_result(method):
    x, y = pair()
    first, second = (m2st.two_sample_test(x, y, method=method, seed=9, n_permutations=99) for _ in range(2))
    assert first == second and (first.null == second.null).all()
    torch.manual_seed(123)
    assert m2st.two_sample_test(x, y, method=method, seed=9, n_permutations=99) == first
    other = m2st.two_sample_test(x, y, method=method, seed=10, n_permutations=99)
    assert other.statistic != first.statistic or (other.null != first.null).any()


def test_a_batch_gives_what_single_runs_give():
    pairs = [pair(20, 15, seed=seed) for seed in range(6)]
    together = TwoSample(torch.stack([p.x for p in pairs]), torch.stack([p.y for p in pairs]))
    batch = run_tests(together, METHODS["MMD-M"], seeds=range(6), n_permutations=199)
    for seed, p in enumerate(pairs):
        single = run_tests(TwoSample(p.x[None], p.y[None]), METHODS["MMD-M"], seeds=[seed], n_permutations=199)[0]
        assert batch[seed].p_value == single.p_value
        assert batch[seed].statistic == pytest.approx(single.statistic, abs=1e-6)


@pytest.mark.parametrize("sizes", [(21, 20), (20, 21)])
def test_a_batch_of_unequal_samples_with_equal_training_parts(sizes):
    """Of 21 and 20 rows ten teach in each sample: every run is put into the same order, by size."""
    pairs = [pair(*sizes, seed=seed) for seed in range(8)]
    together = TwoSample(torch.stack([p.x for p in pairs]), torch.stack([p.y for p in pairs]))
    method, settings = replace(METHODS["MMD-O · tuned"], preset=SHORT), {"seeds": range(8), "n_permutations": 99}
    there = run_tests(together, method, **settings)
    back = run_tests(together.swapped(), method, **settings)
    assert there[0].n_train == (10, 10) and there[0].n_test == (sizes[0] - 10, sizes[1] - 10)
    assert [result.p_value for result in there] == [result.p_value for result in back]


def test_no_row_that_teaches_is_tested():
    sample = TwoSample(torch.arange(10.0)[None, :, None], 100 + torch.arange(14.0)[None, :, None])
    train = []

    def fit(rows, *rest):
        train.append(rows)
        return METHODS["C2ST-L · tuned"].fit(rows, *rest)

    plan = plan_test(TwoSample(sample.x[0], sample.y[0]), replace(METHODS["C2ST-L · tuned"], fit=fit, symmetric=False))
    tested = run(plan).test
    for before, taught, test in zip(sample, train[0], tested, strict=True):
        assert not set(taught.flatten().tolist()) & set(test.flatten().tolist())
        assert sorted(taught.flatten().tolist() + test.flatten().tolist()) == before.flatten().tolist()


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.needs_split])
def test_no_test_row_has_a_say_in_what_is_learned(method):
    """Every test row of both samples is changed, far enough to turn any order of the samples: the fit stays."""
    sample = TwoSample(*(part[None] for part in pair(24, 24)))
    touched = []
    orders = draw_order(sample.sizes, (12, 12), [Streams(0)])
    for rows, order, move in zip(sample, orders, (50.0, -50.0), strict=True):
        is_test = torch.zeros(24).index_fill(0, order[0, 12:], 1.0)
        touched.append(rows + move * is_test[None, :, None])
    seen = []

    def fit(train, *rest):
        seen.append(train)
        return METHODS[method].fit(train, *rest)

    for both in (sample, TwoSample(*touched)):
        run_tests(both, replace(METHODS[method], fit=fit, preset=SHORT), seeds=[0], n_permutations=19)
    assert torch.equal(seen[0].x, seen[1].x) and torch.equal(seen[0].y, seen[1].y)


def test_unlabelled_fits_do_not_depend_on_the_labels():
    """MMD-M and MMD-FUSE choose the same kernels whichever rows are called x."""
    x, y = pair(20, 20)
    pooled = torch.cat([x, y])[None]
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    for method in ("MMD-M", "MMD-FUSE"):
        fits = [METHODS[method].fit(rows, SHORT, [Streams(0)], None) for rows in (pooled, pooled[:, order])]
        first, second = ([fit.kernel] if method == "MMD-M" else [f.kernel for f in fit.families] for fit in fits)
        for a, b in zip(first, second, strict=True):
            assert torch.allclose(a.log_width, b.log_width, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shift", [100.0, 1e5])
def test_samples_far_apart_are_told_apart(method, shift):
    x, y = pair(60, 60, shift=0)
    assert m2st.two_sample_test(x, y + shift, method=method).p_value <= 0.002


@pytest.mark.parametrize("method", [name for name in METHODS if not name.startswith(("MMD-D", "C2ST", "Energy"))])
@pytest.mark.parametrize("outlier", [1e4, 1e8, 1e12])
def test_one_absurd_value_does_not_blind_a_test(method, outlier):
    """A sentinel such as 99999999 in one cell, beside a difference of three standard deviations in all columns.

    Networks on the target's rows scale columns by their standard deviation, and do not pass. Nor does the energy
    distance, in which a row counts as much as it is far away.
    """
    x, y = (part.numpy() for part in pair(60, 60, shift=0))
    x[0, 0] = outlier
    result = m2st.two_sample_test(x, y + 3, method=method)
    assert result.p_value <= 0.05


@pytest.mark.parametrize("method", ["ME · tuned", "SCF · tuned"])
def test_asymptotic_tests_count_the_directions_there_are(method):
    """Counts with few values: features repeat each other, and the level must not fall to nothing."""
    g = np.random.default_rng(13)
    found = rejections(method, *(g.poisson(0.5, size=(300, 300, 1)).astype(float) for _ in range(2)))
    low, high = stats.binom.interval(0.999, 300, 0.05)
    assert low <= found <= high


def test_the_report():
    x, y = pair(40, 30)
    r = m2st.two_sample_test(x, y, method="MMD-O · tuned", alpha=0.1, n_permutations=199, train_fraction=0.3, seed=4)
    assert (r.n_train, r.n_test) == ((12, 9), (28, 21))
    assert (r.method, r.alpha, r.seed, r.n_permutations) == ("MMD-O · tuned", 0.1, 4, 199)
    assert r.p_value == (1 + (r.null >= r.statistic).sum()) / 200
    assert r.p_value_se == pytest.approx(np.sqrt(r.p_value * (1 - r.p_value) / 200))
    assert r.rejected == (r.p_value <= 0.1)
    assert r.seconds > 0 and r.criterion is not None
    assert "null" not in r.to_dict() and len(r.null) == 199
    same = replace(r, rejected=False).sentence
    assert same.startswith("No evidence of a difference at α=0.1") and "same" not in same


def test_the_published_p_value_is_asked_for():
    x, y = pair(30, 30, shift=3.0)
    assert m2st.two_sample_test(x, y, "MMD-M").p_value == 0.001
    published = m2st.examine(x, y, "MMD-M", m2st.TestSettings(rule="b/B, >")).result
    assert published.p_value == 0 and not published.exact and published.by_permutation
    assert published.notes == ("The p-value b/B, > rejects slightly too often.",)
    assert m2st.two_sample_test(x, y, "ME · tuned", alpha=1e-4, n_permutations=9).by_permutation is False


def test_pairing_tests_say_which_rows_they_drop():
    result = m2st.two_sample_test(*pair(40, 30), method="ME · tuned")
    assert result.notes == ("This test pairs rows: 5 random test rows of the larger sample were left out.",)
    assert result.n_train == (20, 15) and result.n_test == (15, 15)


def test_single_columns_series_and_constant_columns():
    g = np.random.default_rng(0)
    x, y = g.standard_normal(40), g.standard_normal(40) + 3
    values = {
        m2st.two_sample_test(a, b, "MMD-M").p_value for a, b in ((x, y), (x[:, None], y[:, None]), (pd.Series(x), y))
    }
    assert values == {0.001}
    wide = [np.c_[rows, np.full(40, 2.0)] for rows in (x, y)]
    for method in METHODS:
        result = m2st.two_sample_test(*wide, method=method)
        assert result.rejected and result.notes == ("Constant in both samples, so without information: column 2 of 2.",)


def test_very_different_scales_keep_the_p_value():
    """Offsets and units change no p-value; beside a column of 1e6, one of 1e-3 is 18 digits away in the distances."""
    x, y = (part.numpy() for part in pair(40, 40, shift=1.0))
    offset = np.array([1e6, -1e7, 1e8])
    plain = m2st.two_sample_test(x, y, "MMD-M")
    assert m2st.two_sample_test(x + offset, y + offset, "MMD-M").p_value == plain.p_value
    assert m2st.two_sample_test(1e-6 * x, 1e-6 * y, "MMD-M").p_value == plain.p_value
    scales = np.array([1e6, 1.0, 1e-3])
    only_large = m2st.two_sample_test(x[:, :1] * 1e6, y[:, :1] * 1e6, "MMD-M")
    assert m2st.two_sample_test(x * scales, y * scales, "MMD-M").p_value == only_large.p_value


def test_progress_can_cancel():
    def stop(step, total, value):
        assert 1 <= step <= total
        raise Cancelled

    for method in ("MMD-D · tuned", "MMD-M"):
        with pytest.raises(Cancelled):
            m2st.two_sample_test(*pair(), method=method, progress=stop)


GOOD = np.random.default_rng(0).standard_normal((20, 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "MMD-DD"}, "Unknown method 'MMD-DD'. Did you mean 'MMD-D'"),
        ({"method": "mmd"}, "Unknown method"),
        ({"method": None}, "Unknown method None"),
        ({"method": "Meta-MKL · tuned"}, "Meta-MKL · tuned learns its kernel from related tasks, and none are given"),
        ({"alpha": 0}, "alpha must be a number between 0 and 1"),
        ({"alpha": 1.0}, "alpha must be"),
        ({"alpha": float("nan")}, "alpha must be"),
        ({"alpha": "0.05"}, "alpha must be"),
        ({"train_fraction": 1.5}, "train_fraction must be"),
        ({"train_fraction": 1e-12}, "train_fraction must be a number from 0.01 to 0.99"),
        ({"n_permutations": 0}, "n_permutations must be a whole number"),
        ({"n_permutations": 10.5}, "n_permutations must be a whole number"),
        ({"n_permutations": 10}, "Use at least 19"),
        ({"preset": "tuned"}, "Omnibus has no presets: only tests of the paper have"),
        ({"method": "MMD-D", "preset": "recommended"}, "MMD-D has no preset 'recommended'. It has: 'paper', 'tuned'"),
        ({"method": "SCF · code", "preset": "tuned"}, "SCF · code has the preset 'released'. For 'tuned', ask for SCF"),
        ({"seed": -3}, "seed must be a whole number"),
        ({"device": "gpu"}, "Unknown device 'gpu'"),
    ],
)
def test_bad_settings_say_what_to_do(settings, message):
    with pytest.raises(ValueError, match=message):
        m2st.two_sample_test(GOOD, GOOD + 1, **settings)


@pytest.mark.parametrize(
    ("rows", "method", "fraction", "needed"),
    [
        (3, "MMD-D · tuned", 0.5, 4),
        (7, "MMD-O · tuned", 0.1, 20),
        (12, "ME · tuned", 0.5, 13),
        (1, "MMD-M", 0.5, 2),
        (20, "SCF · tuned", 0.5, 23),
    ],
)
def test_too_few_rows_say_how_many_are_needed(rows, method, fraction, needed):
    """The number in the message is right: one row fewer fails, that many work."""
    with pytest.raises(ValueError, match=r"has 1 row|needs at least"):
        m2st.two_sample_test(GOOD[:rows], GOOD, method=method, train_fraction=fraction)
    enough = np.random.default_rng(1).standard_normal((needed, 2))
    m2st.two_sample_test(enough, GOOD + 1 if needed <= 20 else enough + 1, method=method, train_fraction=fraction)
    if needed > 2:
        with pytest.raises(ValueError, match=f"needs at least {needed} rows"):
            m2st.two_sample_test(enough[:-1], np.r_[GOOD, GOOD + 1], method=method, train_fraction=fraction)


@pytest.mark.parametrize("method", ["MMD-FUSE", "MMDAgg", "Omnibus"])
@pytest.mark.parametrize("cell", [1e20, -3.4e38, 1e90])
def test_one_huge_cell_is_no_evidence_without_related_tasks(method, cell):
    """20 null targets with one cell that stands for a missing value; were it to overflow, p must not be small."""
    g = np.random.default_rng(6)
    x, y = (torch.from_numpy(g.standard_normal((20, 20, 6))) for _ in "xy")
    x[:, 3, 2] = cell
    results = run_tests(TwoSample(x, y), METHODS[method], seeds=range(20), n_permutations=99)
    assert sum(result.rejected for result in results) <= 5  # P(more than 5 of 20 at 5 %) is 0.0003
