"""Few rows: all labellings are counted, the smallest p-value is known, and a test that cannot reject says so."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.data.arrays import as_blocks
from m2st_core.permutation.labellings import all_labellings
from m2st_core.presets import TUNED
from m2st_core.testing.methods import METHODS
from m2st_core.testing.plan import Labellings, labellings_of
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample
from tests import naive

RULE = "(1+b)/(1+B)"


def rows(count, seed=0, d=2):
    return np.random.default_rng(seed).normal(size=(count, d))


def counted(blocks, n):
    return labellings_of(blocks, n, METHODS["MMD-M"], 19, RULE)


def every_labelling_observed(pooled, members, method, seed, blocks=None, **settings):
    """p-values of the same pooled rows, under each labelling as the observed one, all with the same seed."""
    x = torch.from_numpy(np.stack([pooled[own] for own in members]))
    y = torch.from_numpy(np.stack([pooled[~own] for own in members]))
    results = run_tests(TwoSample(x, y, blocks=blocks), METHODS[method], seeds=[seed] * len(members), **settings)
    return np.array([result.p_value for result in results])


@pytest.mark.parametrize("method", ["MMD-M", "MMD-FUSE"])
@pytest.mark.parametrize("seed", range(4))
def test_the_level_holds_for_each_seed(method, seed):
    """n=m=4 and B=19: over all 70 labellings P(p ≤ α) ≤ α for this very seed, and not only on average over seeds."""
    p = every_labelling_observed(rows(8), naive.labellings(4, 4), method, seed, n_permutations=19)
    for alpha in (0.05, 0.1, 0.2, 0.5):
        assert np.mean(p <= alpha) <= alpha
    assert np.mean(p <= 0.05) == 2 / 70


@pytest.mark.parametrize("seed", range(4))
def test_the_level_holds_for_each_seed_within_blocks(seed):
    """Three blocks of 4, 4 and 3 rows: 6·6·3 labellings."""
    codes = np.array([0, 0, 1, 1, 2, 0, 0, 1, 1, 2, 2])
    members = all_labellings(codes, 5)
    p = []
    for own in members:
        blocks = as_blocks((codes[own], codes[~own]), (5, 6))
        p.append(every_labelling_observed(rows(11), own[None], "MMD-M", seed, n_permutations=19, blocks=blocks)[0])
    assert len(p) == 108
    for alpha in (0.05, 0.1, 0.2, 0.5):
        assert 0 < np.mean(np.array(p) <= alpha) <= alpha


@pytest.mark.parametrize("sizes", [(2, 2), (3, 4), (4, 3), (1, 5)])
def test_all_labellings_are_all_and_the_observed_one_is_first(sizes):
    n, m = sizes
    found = all_labellings(np.zeros(n + m, dtype=int), n)
    assert {tuple(row) for row in found} == {tuple(row) for row in naive.labellings(n, m)}
    assert len(found) == counted(np.zeros(n + m, dtype=int), n).used == len({tuple(row) for row in found})
    assert found[0].tolist() == [True] * n + [False] * m


def test_rows_of_one_sided_blocks_keep_their_label():
    codes = np.array([0, 0, 1, 2, 0, 1, 1, 3])
    found = all_labellings(codes, 4)
    assert len(found) == counted(codes, 4).used == 9
    assert found[:, 3].all() and not found[:, 7].any() and (found.sum(axis=1) == 4).all()


def test_huge_samples_are_counted_at_once():
    assert counted(np.zeros(40_000, dtype=int), 20_000) == Labellings(20, False, 1 / 20)


def test_neither_seed_nor_permutations_change_a_p_value_of_few_rows():
    x, y = rows(5), rows(6, seed=1) + 1
    found = {
        m2st.two_sample_test(x, y, method, seed=seed, n_permutations=b).p_value
        for seed, b in ((0, 19), (1, 99), (2, 999))
        for method in ["MMD-M"]
    }
    assert len(found) == 1


def test_every_result_knows_its_smallest_p():
    one = np.zeros(8, dtype=int)
    assert labellings_of(one, 4, METHODS["MMD-M"], 19, RULE).smallest_p == 2 / 70
    assert labellings_of(one, 3, METHODS["MMD-M"], 19, RULE).smallest_p == 1 / 56
    assert labellings_of(one, 4, METHODS["Meta-WiTS"], 19, RULE).smallest_p == 1 / 70
    assert labellings_of(one, 4, METHODS["MMD-M"], 199, "b/B, ≥") == labellings_of(
        one, 4, METHODS["ME · tuned"], 199, RULE
    )  # the published rule draws at random, and its p-value can be 0
    unequal = np.array([0, 0, 0, 1, 1, 0, 1, 1])  # 3 + 1 and 2 + 2 rows: no complement within the blocks
    unequal_x_first = np.concatenate([unequal[:5][unequal[:5] == 0], unequal[:5][unequal[:5] == 1], unequal[5:]])
    assert labellings_of(unequal_x_first, 5, METHODS["MMD-M"], 19, RULE).smallest_p == 1 / 24
    large = m2st.two_sample_test(rows(40), rows(40, 1), "MMD-M", n_permutations=199)
    assert large.smallest_p == 1 / 200 and not large.enumerated
    assert m2st.two_sample_test(rows(40), rows(40, 1), "ME · tuned").smallest_p == 0


def test_the_smallest_p_is_reached_and_said():
    few = m2st.two_sample_test(rows(4), rows(4, 1) + 50, "MMD-M")
    assert few.p_value == few.smallest_p == 2 / 70 and few.at_floor and few.p_value_se == 0
    assert "p = 0.02857, the smallest that the 70 labellings of these rows can give, on 4 and 4" in few.sentence
    assert few.error_words == "all 70 labellings were counted"
    many = m2st.two_sample_test(rows(40), rows(40, 1) + 50, "MMD-O · tuned")
    assert "p ≤ 0.001, the smallest that 999 permutations can give, on 20 and 20 test rows" in many.sentence
    assert "±" not in many.error_words and many.error_words.endswith("the random split is not included")
    usual = m2st.two_sample_test(rows(40), rows(40, 1), "MMD-M")
    assert usual.error_words == f"± {usual.p_value_se:.2g} from the random permutations"


def test_the_published_p_values_draw_at_random():
    settings = m2st.TestSettings(rule="b/B, ≥", n_permutations=200)
    published = m2st.examine(rows(5), rows(5, 1), "MMD-M", settings).result
    assert not published.enumerated and len(published.null) == 200


@pytest.mark.parametrize(
    ("sizes", "settings", "words"),
    [
        ((3, 2), {"method": "MMD-M"}, "cannot reject at alpha=0.05.*0.1, because its 3 and 2 test rows have only 10"),
        ((3, 2), {"method": "MMD-M"}, "It needs more rows"),
        (
            (6, 6),
            {"method": "MMD-O · tuned"},
            r"smallest possible p-value is 0.1.*3 and 3 test rows have only 20 labellings",
        ),
        ((40, 40), {"method": "MMD-M", "n_permutations": 10}, "with 10 permutations. Use at least 19"),
        (
            (40, 40),
            {"method": "MMD-O · tuned", "n_permutations": 19, "splits": 5},
            "with 19 permutations. Use at least 39",
        ),
        ((4, 4), {"method": "MMD-M", "alpha": 0.02}, "have only 70 labellings"),
    ],
)
def test_a_test_that_cannot_reject_says_so_before_it_runs(sizes, settings, words, monkeypatch):
    def never(*_):
        raise AssertionError("something was learned")

    method = settings["method"]
    monkeypatch.setitem(METHODS, method, replace(METHODS[method], fit=never))
    with pytest.raises(ValueError, match=words):
        m2st.two_sample_test(rows(sizes[0]), rows(sizes[1], 1), **settings)


def test_runs_with_different_numbers_of_labellings_share_a_batch():
    """A split within blocks leaves each run its own number of labellings; a batch gives what single runs give."""
    short = replace(TUNED, classifier=replace(TUNED.classifier, epochs=3))
    method = replace(METHODS["C2ST-L · tuned"], preset=short)
    labels = (np.array([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3]), np.array([0, 0, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3]))
    x, y = (torch.from_numpy(np.stack([rows(12, seed) for seed in range(k, k + 6)])) for k in (0, 50))
    sample = TwoSample(x, y, blocks=as_blocks(labels, (12, 12)))
    together = run_tests(sample, method, seeds=range(6), n_permutations=99)
    assert len({result.n_permutations for result in together}) > 1 and all(r.enumerated for r in together)
    for index, result in enumerate(together):
        own = TwoSample(x[index : index + 1], y[index : index + 1], blocks=sample.blocks)
        assert run_tests(own, method, seeds=[index], n_permutations=99)[0].p_value == result.p_value
