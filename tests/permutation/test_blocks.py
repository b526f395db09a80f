from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import m2st_core as m2st
from m2st_core.data.arrays import as_blocks, as_two_sample
from m2st_core.permutation.labellings import random_memberships
from m2st_core.presets import TUNED
from m2st_core.rng import Streams
from m2st_core.testing.methods import METHODS
from m2st_core.testing.plan import TestSettings, draw_order, plan_test
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample
from tests import naive

SHORT = replace(TUNED, classifier=replace(TUNED.classifier, epochs=5))


def within(codes, n):
    """All labellings that keep the number of x's rows in every block, the observed one first."""
    codes = np.asarray(codes)
    first = np.arange(len(codes)) < n
    counts = [codes[z].tolist() for z in naive.labellings(n, len(codes) - n)]
    keep = [sorted(count) == sorted(codes[first].tolist()) for count in counts]
    return naive.labellings(n, len(codes) - n)[keep]


def test_random_labellings_are_uniform_over_those_that_keep_the_blocks():
    codes = [0, 0, 1, 2, 0, 1, 1, 3]  # pooled; the first four are x's
    expected = within(codes, 4)
    assert len(expected) == 3 * 3  # block 0: C(3,2), block 1: C(3,1); blocks 2 and 3 hold one sample only
    drawn = random_memberships(4, 4, 9000, [np.random.default_rng(0)], torch.tensor([codes]))
    assert drawn[0, 0].tolist() == [True] * 4 + [False] * 4
    counts = Counter(tuple(row) for row in drawn[0, 1:].tolist())
    assert set(counts) == {tuple(row) for row in expected.tolist()}
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_the_p_value_is_that_of_full_enumeration():
    """Three blocks, 3·6·4 = 72 labellings: all are counted, whatever the seed and the number of permutations."""
    generator = np.random.default_rng(3)
    blocks_x, blocks_y = [0, 0, 1, 1, 2], [0, 1, 1, 2, 2, 2]
    x, y = generator.normal(size=(5, 2)) + 1.0, generator.normal(size=(6, 2))
    codes, pooled = np.array(blocks_x + blocks_y), np.concatenate([x, y])
    kernel = naive.gaussian(naive.median_squared_distance(pooled))
    values = [naive.mmd2_unbiased(kernel, pooled[z].tolist(), pooled[~z].tolist()) for z in within(codes, 5)]
    assert len(values) == 72
    exact = np.mean(np.array(values) >= values[0] - 1e-12)
    for seed, permutations in ((0, 19), (7, 9999)):
        settings = {"blocks": (blocks_x, blocks_y), "n_permutations": permutations, "seed": seed}
        result = m2st.two_sample_test(x, y, method="MMD-M", **settings)
        assert result.statistic == pytest.approx(values[0], abs=1e-6)
        assert result.p_value == exact and result.p_value_se == 0 and result.smallest_p == 1 / 72
        assert result.enumerated and sorted(result.null) == pytest.approx(sorted(values[1:]), abs=1e-6)
    assert any("72 labellings" in note for note in result.notes)


def block_effects(runs, seed=0):
    """Rows whose mean is their block's; x has most of its rows in the first block, y in the second. The null holds."""
    blocks = ([0] * 18 + [1] * 6, [0] * 8 + [1] * 16)
    generator = np.random.default_rng(seed)
    x, y = (generator.normal(size=(runs, 24, 2)) + 2.0 * np.array(part)[None, :, None] for part in blocks)
    return TwoSample(torch.from_numpy(x), torch.from_numpy(y), blocks=as_blocks(blocks, (24, 24)))


@pytest.mark.parametrize("method", ["MMD-M", "MMD-FUSE", "C2ST-L · tuned"])
def test_blocks_keep_the_level_where_plain_permutations_do_not(method):
    """400 true null hypotheses at α=0.05: in the binomial 99.9 % band within blocks, far above without."""
    sample = block_effects(400)
    short, settings = replace(METHODS[method], preset=SHORT), {"seeds": range(400), "n_permutations": 99}
    plain = sum(r.rejected for r in run_tests(replace(sample, blocks=None), short, **settings))
    kept = sum(r.rejected for r in run_tests(sample, short, **settings))
    low, high = stats.binom.interval(0.999, 400, 0.05)
    assert low <= kept <= high < 0.2 * 400 < plain


def test_a_batch_with_blocks_equals_a_loop():
    sample = block_effects(5)
    together = run_tests(sample, METHODS["MMD-M"], seeds=range(5), n_permutations=99)
    for index, result in enumerate(together):
        alone = replace(sample, x=sample.x[index : index + 1], y=sample.y[index : index + 1])
        assert run_tests(alone, METHODS["MMD-M"], seeds=[index], n_permutations=99) == [result]


@pytest.mark.parametrize("method", ["MMD-M", "MMD-FUSE", "C2ST-L · tuned"])
def test_which_sample_is_called_x_does_not_matter(method):
    sample = block_effects(1)
    labels = (["a"] * 18 + ["b"] * 6, ["a"] * 8 + ["b"] * 16)
    x, y = sample.x[0], sample.y[0]
    there = m2st.two_sample_test(x, y, method=method, blocks=labels, seed=5)
    back = m2st.two_sample_test(y, x, method=method, blocks=labels[::-1], seed=5)
    assert there.p_value == back.p_value


def test_every_block_gives_its_share_to_learning():
    generator = np.random.default_rng(0)
    blocks_x, blocks_y = generator.integers(0, 7, 90), generator.integers(0, 7, 61)
    found = as_blocks((blocks_x, blocks_y), (90, 61))
    order = draw_order((90, 61), (30, 20), [Streams(1)], found)
    for codes, side, count, size in zip(found, order, (30, 20), (90, 61), strict=True):
        assert sorted(side[0].tolist()) == list(range(size))
        for block in range(7):
            expected = (codes == block).sum() * count / size
            assert abs((codes[side[0, :count]] == block).sum() - expected) <= 1


def test_pairs_are_split_as_pairs():
    codes = np.random.default_rng(0).permutation(40)
    found = as_blocks((codes, codes[::-1]), (40, 40))
    order = draw_order((40, 40), (20, 20), [Streams(2)], found)
    taught_x, taught_y = (codes[side[0, :20]].tolist() for codes, side in zip(found, order, strict=True))
    assert set(taught_x) == set(taught_y) and len(set(taught_x)) == 20


def test_rows_of_one_sided_blocks_are_left_out_and_named():
    rows = np.random.default_rng(0).normal(size=(12, 2))
    result = m2st.two_sample_test(rows[:6], rows[6:], method="MMD-M", blocks=([1, 1, 1, 1, 2, 2], [1, 1, 1, 1, 1, 3]))
    assert result.n_test == (4, 5)
    assert any("2 rows of x and 1 row of y in 2 blocks" in note for note in result.notes)


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.by_permutation])
def test_methods_that_permute_nothing_refuse_blocks(method):
    x, y = m2st.make_task("mean_shift").sample(40)
    labels = np.arange(40) % 4
    with pytest.raises(ValueError, match=f"{method} finds its p-value without permutations"):
        tasks = m2st.hdgm_related_tasks(n_tasks=2, rows=20) if METHODS[method].uses_related_tasks else None
        m2st.two_sample_test(x, y, method=method, related_tasks=tasks, blocks=(labels, labels))


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ((["a"] * 6, ["b"] * 6), "None of the 2 blocks holds rows of both samples"),
        ((["a"] * 5, ["a"] * 6), "one label for each of its 6 rows. Got 5 labels"),
        (([["a"]] * 6, ["a"] * 6), r"Got the shape \(6, 1\)"),
        (([1.0, np.nan, 1, 1, 1, 1], [1.0] * 6), "blocks of x have a missing label at row 2"),
        (3, "blocks must be a pair"),
    ],
)
def test_bad_blocks_are_named(blocks, words):
    rows = np.random.default_rng(0).normal(size=(12, 2))
    with pytest.raises(ValueError, match=words):
        m2st.two_sample_test(rows[:6], rows[6:], method="MMD-M", blocks=blocks)


def test_labels_of_different_types_meet():
    """A block column that is whole in one file and real in the other names the same blocks."""
    rows = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    sample = as_two_sample(rows, rows + 1, blocks=([1, 2, 3], [1.0, 2.0, 3.5]))
    plan = plan_test(sample, METHODS["MMD-M"], TestSettings(alpha=0.5))
    assert [side.tolist() for side in plan.rows] == [side.tolist() for side in plan.sample.blocks] == [[0, 1]] * 2


def test_learners_honour_blocks():
    sample = block_effects(1, seed=3)
    labels = (["a"] * 18 + ["b"] * 6, ["a"] * 8 + ["b"] * 16)
    learner = m2st.meta_train("Meta-WiTS", m2st.hdgm_related_tasks(n_tasks=3, rows=20))
    plain = learner.test(sample.x[0], sample.y[0])
    kept = learner.test(sample.x[0], sample.y[0], blocks=labels)
    assert kept.n_test == (12, 12) and kept.p_value != plain.p_value
