"""Several random splits in one p-value, and what the error of a p-value covers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import m2st_core as m2st
from m2st_core.presets import TUNED
from m2st_core.testing.plan import combine_splits, split_seeds
from m2st_core.testing.run import combined_error, learn_once, run_tests
from m2st_core.types import TwoSample
from tests.quick import QUICK

SHORT = replace(
    TUNED,
    mmd_o=replace(TUNED.mmd_o, steps=5),
    mmd_d=replace(TUNED.mmd_d, steps=5),
    classifier=replace(TUNED.classifier, epochs=5),
)
METHODS = {name: replace(method, preset=SHORT) for name, method in QUICK.items()}
EXACT = [name for name, method in METHODS.items() if method.by_permutation]
SPLITTING = [name for name, method in METHODS.items() if method.needs_split]


@pytest.fixture(scope="module")
def learners():
    """One learner for each way to learn; methods that learn alike share it."""
    tasks, by_learning = m2st.hdgm_related_tasks(n_tasks=6, rows=60), {}
    for name, method in METHODS.items():
        if method.uses_related_tasks and method.learn not in by_learning:
            by_learning[method.learn] = m2st.meta_train(name, tasks)
    return {n: replace(by_learning[m.learn], method=n) for n, m in METHODS.items() if m.uses_related_tasks}


def ready(name, learners):
    return replace(learners[name].bound(torch.device("cpu")), preset=SHORT) if name in learners else METHODS[name]


def pair(n=40, m=40, seed=0, delta=0.7):
    return m2st.make_task("hdgm", delta=delta).sample(n, m, seed=seed)


@pytest.mark.parametrize("name", EXACT)
def test_the_error_of_a_p_value_is_its_spread_over_permutations(name, learners):
    """Same rows, same kernel, 200 permutation seeds: the mean standard error is 0.8 to 1.25 times the spread of p.

    The spread of 200 values is known to 5 %, a jackknife of 25 groups to 15 % for each seed and 2 % on average.
    """
    seeds = range(200)
    fixed = learn_once(ready(name, learners), pair(seed=1), 0)
    for delta in (0.0, 0.7):
        target = pair(seed=3, delta=delta)
        repeated = TwoSample(*(part.expand(len(seeds), -1, -1) for part in target))
        results = run_tests(repeated, fixed, seeds=seeds, n_permutations=199)
        p_values, errors = np.array([(r.p_value, r.p_value_se) for r in results]).T
        if p_values.mean() < 0.02 or p_values.mean() > 0.98:
            continue
        assert 0.8 < errors.mean() / p_values.std(ddof=1) < 1.25


@pytest.mark.parametrize(
    ("p", "combined"),
    [
        ([0.04], (0.04, 0)),
        ([0.04, 0.3, 0.3], (0.08, 0)),
        ([0.3, 0.02, 0.3], (0.04, 1)),
        ([0.3, 0.2, 0.01, 0.01], (0.02, 3)),
        ([0.9, 0.8, 0.7], (1.0, 1)),
    ],
)
def test_combined_p_values_by_hand(p, combined):
    assert combine_splits(p) == pytest.approx(combined)


def test_more_splits_never_raise_the_combined_p_value():
    p = np.random.default_rng(0).random(21)
    found = [combine_splits(p[:count])[0] for count in range(2, 22)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("spread", [0.05, 0.5, 2.0, 10.0])
def test_the_combined_p_value_keeps_the_level_for_exchangeable_p_values(spread):
    """4,000 families of 11 p-values, uniform each and correlated at random: at most 5 % rejected, 99.9 % band."""
    generator = np.random.default_rng(4)
    shared, own = generator.standard_normal((4000, 1)), generator.standard_normal((4000, 11))
    p = stats.norm.sf((shared + spread * own) / np.hypot(1, spread))
    rejected = sum(combine_splits(family)[0] <= 0.05 for family in p)
    assert rejected <= stats.binom.ppf(0.999, 4000, 0.05)


def test_splits_of_null_rows_keep_the_level():
    """400 null pairs, 5 splits each, C2ST-L: rejections at most the binomial 99.9 % quantile of 5 %."""
    generator = np.random.default_rng(5)
    x, y = (torch.from_numpy(generator.normal(size=(400, 24, 2))).repeat_interleave(5, dim=0) for _ in range(2))
    seeds = [seed for run in range(400) for seed in split_seeds(run, 5)]
    results = run_tests(TwoSample(x, y), METHODS["C2ST-L · tuned"], seeds=seeds, n_permutations=99)
    p = np.array([result.p_value for result in results]).reshape(400, 5)
    assert sum(combine_splits(own)[0] <= 0.05 for own in p) <= stats.binom.ppf(0.999, 400, 0.05)


def test_the_error_of_a_combined_p_value_is_its_spread_over_permutations():
    """True p-values of 11 splits, 300 draws of their Monte-Carlo noise: 0.75 to 1.35 times the spread."""
    generator, count = np.random.default_rng(6), 199
    true = generator.beta(0.7, 3, size=11)
    drawn = (1 + generator.binomial(count, true, size=(300, 11))) / (1 + count)
    combined = [combine_splits(p)[0] for p in drawn]
    errors = [combined_error(p, np.sqrt(p * (1 - p) / (count + 1)), seed) for seed, p in enumerate(drawn[:40])]
    assert 0.75 < np.mean(errors) / np.std(combined, ddof=1) < 1.35


@pytest.mark.parametrize("name", SPLITTING)
def test_a_result_keeps_the_p_values_of_its_splits(name, learners):
    sample = pair(30, 26)
    call = learners[name].test if name in learners else lambda *rows, **s: m2st.two_sample_test(*rows, name, **s)
    single, several = (call(*sample, n_permutations=99, seed=3, splits=splits) for splits in (1, 3))
    assert single.split_p_values == () and len(several.split_p_values) == 3
    assert several.split_p_values[0] == pytest.approx(single.p_value, abs=1e-9)
    assert several.p_value == combine_splits(several.split_p_values)[0]
    assert several.smallest_p == 2 * single.smallest_p and several.seed == 3
    assert several.rejected == (several.p_value <= 0.05) and several.exact == single.exact
    assert call(*sample, n_permutations=99, seed=3, splits=3) == several
    swapped = call(sample.y, sample.x, n_permutations=99, seed=3, splits=3)
    assert (swapped.split_p_values == several.split_p_values) == METHODS[name].symmetric


def test_what_is_shown_belongs_to_the_split_that_decides():
    x, y = pair(40, 40, seed=2)
    result = m2st.two_sample_test(x, y, "MMD-O · tuned", splits=5, seed=1)
    decides = combine_splits(result.split_p_values)[1]
    alone = m2st.two_sample_test(x, y, "MMD-O · tuned", seed=split_seeds(1, 5)[decides])
    assert result.statistic == alone.statistic and (result.null == alone.null).all()
    assert "under each of 5 random splits" in result.sentence
    assert result.error_words.endswith("; the random splits are not included")


@pytest.mark.parametrize(
    ("method", "splits", "words"),
    [
        ("MMD-FUSE", 5, "MMD-FUSE does not split the rows: it tests all of them. splits=5 would change nothing"),
        ("MMD-O · tuned", 0, "splits must be a whole number from 1 to 1,000. Got 0"),
        ("MMD-O · tuned", 2.5, "splits must be a whole number"),
        ("MMD-O · tuned", True, "splits must be a whole number"),
    ],
)
def test_bad_splits_are_named(method, splits, words):
    with pytest.raises(ValueError, match=words):
        m2st.two_sample_test(*pair(), method, splits=splits)
