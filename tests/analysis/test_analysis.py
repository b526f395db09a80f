"""Primary and secondary tests, the size of a difference, and what planning can take from it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import m2st_core as m2st
from m2st_core.analysis.correction import adjusted_p_values
from m2st_core.analysis.effect import effect_size, power_model
from m2st_core.presets import TUNED
from m2st_core.testing import plan
from m2st_core.testing.methods import METHODS
from m2st_core.testing.plan import TestSettings
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample

B99 = {"n_permutations": 99}


def pair(n=40, m=30, shift=1.0, seed=0, dimension=3):
    return m2st.make_task("mean_shift", shift=shift, dimension=dimension).sample(n, m, seed=seed)


@pytest.fixture(scope="module")
def learners():
    tasks = m2st.hdgm_related_tasks(n_tasks=10, rows=60)
    return {name: m2st.meta_train(name, tasks) for name in ("Meta-FUSE", "Meta-WiTS", "Meta-Witness")}


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [([], []), ([0.2], [0.2]), ([0.01, 0.02, 0.03], [0.03, 0.04, 0.04]), ([0.5, 0.6, 0.001], [1.0, 1.0, 0.003])],
)
def test_holm_by_hand(p, adjusted):
    assert m2st.holm(p) == pytest.approx(adjusted)


def test_holm_keeps_the_family_wise_level():
    """2,000 families of four uniform p-values: at most 133 with a rejection, in all but 0.05 % of cases."""
    families = np.random.default_rng(0).random((2000, 4))
    assert sum(min(m2st.holm(family)) <= 0.05 for family in families) <= 133


@pytest.mark.parametrize("p", [[1.2], [-0.1], [float("nan")]])
def test_holm_refuses_what_is_no_p_value(p):
    with pytest.raises(ValueError, match="from 0 to 1"):
        m2st.holm(p)


def test_the_primary_test_is_the_test_itself_and_only_the_others_are_corrected():
    x, y = pair()
    found = m2st.analyse(x, y, "MMD-FUSE", ["MMD-M", "C2ST-L · tuned"], seed=4, n_permutations=99)
    assert found.primary == m2st.two_sample_test(x, y, method="MMD-FUSE", seed=4, n_permutations=99)
    alone = [m2st.two_sample_test(x, y, method=name, seed=4, n_permutations=99) for name in ("MMD-M", "C2ST-L · tuned")]
    assert [verdict.result for verdict in found.secondary] == alone
    assert [v.adjusted_p_value for v in found.secondary] == m2st.holm([result.p_value for result in alone])
    assert all(v.rejected == (v.adjusted_p_value <= 0.05) for v in found.secondary)


def test_one_family_corrects_the_primary_test_too():
    x, y = pair(shift=0.4)
    apart = m2st.analyse(x, y, "MMD-FUSE", ["MMD-M", "C2ST-L · tuned"], n_permutations=99)
    one = m2st.analyse(x, y, "MMD-FUSE", ["MMD-M", "C2ST-L · tuned"], n_permutations=99, family="all")
    alone = [apart.primary.p_value, *(verdict.result.p_value for verdict in apart.secondary)]
    corrected = [one.decision.adjusted_p_value, *(verdict.adjusted_p_value for verdict in one.secondary)]
    assert corrected == m2st.holm(alone) and one.primary == apart.primary
    assert one.corrected == (one.decision, *one.secondary) and apart.corrected == apart.secondary
    assert apart.rejected == apart.primary.rejected and one.rejected == (corrected[0] <= 0.05)
    assert "(primary): Holm-corrected" in one.sentence and apart.sentence == apart.primary.sentence
    assert "any secondary test errs can reach 0.1" in apart.family_sentence
    assert "any of them rejects a true null hypothesis is at most α=0.05" in one.family_sentence
    assert m2st.analyse(x, y, "MMD-M", n_permutations=99, family="all").sentence.startswith("No evidence")
    with pytest.raises(ValueError, match="family must be one of 'primary', 'all'. Got 'none'"):
        m2st.analyse(x, y, "MMD-M", family="none")
    with pytest.raises(ValueError, match="name a test with its settings, such as 'Meta-MKL · tuned'. Got preset='tu"):
        m2st.analyse(x, y, "MMD-O", preset="tuned")


def test_one_family_keeps_its_level_and_two_families_need_not():
    """600 null pairs, MMD-M, C2ST-L and MMD-FUSE: any rejection in at most 5 % as one family (99.9 % quantile)."""
    generator, runs = np.random.default_rng(8), 600
    sample = TwoSample(*(torch.from_numpy(generator.normal(size=(runs, 24, 2))) for _ in range(2)))
    short = replace(TUNED, classifier=replace(TUNED.classifier, epochs=5))
    methods = [replace(METHODS[name], preset=short) for name in ("MMD-M", "C2ST-L · tuned", "MMD-FUSE")]
    p = np.array(
        [[result.p_value for result in run_tests(sample, method, seeds=range(runs), **B99)] for method in methods]
    ).T
    any_of = {family: sum(min(adjusted_p_values(own, family)) <= 0.05 for own in p) for family in ("primary", "all")}
    assert any_of["all"] <= stats.binom.ppf(0.999, runs, 0.05)
    assert any_of["all"] < any_of["primary"] <= stats.binom.ppf(0.999, runs, 0.1)


def test_several_splits_are_for_the_tests_that_split():
    x, y = pair()
    found = m2st.analyse(x, y, "MMD-M", ["MMD-O · tuned"], n_permutations=99, splits=3)
    assert found.primary.split_p_values == () and len(found.secondary[0].result.split_p_values) == 3
    assert found.secondary[0].result == m2st.two_sample_test(x, y, "MMD-O · tuned", n_permutations=99, splits=3)
    with pytest.raises(ValueError, match="MMD-M does not split the rows"):
        m2st.analyse(x, y, "MMD-M", ["MMD-FUSE"], splits=3)


def test_learners_take_part(learners):
    x, y = pair(dimension=2)
    found = m2st.analyse(x, y, "Meta-WiTS", ["Meta-FUSE", "MMD-M"], learners=learners)
    assert found.primary == learners["Meta-WiTS"].test(x, y)
    with pytest.raises(ValueError, match="no learner is given for it"):
        m2st.analyse(x, y, "Meta-FUSE")
    with pytest.raises(ValueError, match="MMD-M is named twice"):
        m2st.analyse(x, y, "MMD-M", ["MMD-M"])


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("method", ["MMD-M", "C2ST-L · tuned", "Meta-WiTS", "Meta-FUSE"])
@pytest.mark.parametrize("blocks", [False, True])
def test_tested_rows_are_known_by_their_positions(method, swap, blocks, learners):
    x, y = pair(n=24, m=30, dimension=2)
    x, y = (y, x) if swap else (x, y)
    labels = tuple(np.arange(len(rows)) % 4 for rows in (x, y)) if blocks else None
    own = learners.get(method)
    found = own.examine(x, y, blocks=labels) if own else m2st.examine(x, y, method, blocks=labels)
    for rows, part, tested in zip((x, y), found.test, found.rows, strict=True):
        assert np.array_equal(rows[tested].numpy(), part[0].numpy())
    assert tuple(map(len, found.rows)) == found.result.n_test
    if blocks:
        assert all(np.array_equal(code[0], rows % 4) for code, rows in zip(found.test.blocks, found.rows, strict=True))


@pytest.mark.parametrize(
    ("method", "task", "n", "m"),
    [("MMD-M", {"shift": 0.5}, 50, 50), ("Meta-Witness", {"delta": 0.8}, 80, 80)],
)
def test_power_after_significance_is_not_overstated(method, task, n, m, learners):
    """Of 60 studies those with p ≤ α estimate at most 0.25 more than the true power (400 studies), on average.

    Uncorrected they estimate 0.2 to 0.4 more. One estimate varies by about 0.2, the mean of 20 or more by 0.05. The
    90 % interval covers the truth in 80 % or more of them.
    """
    source = m2st.make_task("hdgm" if "delta" in task else "mean_shift", **task)
    samples = [source.sample(n, m, seed=seed) for seed in range(400)]
    together = TwoSample(*(torch.stack([getattr(s, side) for s in samples]) for side in "xy"))
    bound = learners[method].bound(together.x.device) if method in learners else METHODS[method]
    true = np.mean([r.rejected for r in run_tests(together, bound, seeds=range(400), n_permutations=99)])
    answers = [m2st.analyse(*s, method, learners=learners, n_permutations=99).effect for s in samples[:60]]
    found = [a for a in answers if a.power is not None]
    assert 0.2 < true < 0.9 and len(found) >= 15
    assert np.mean([a.power for a in found]) - true < 0.25
    assert np.mean([a.power_interval[0] <= true <= a.power_interval[1] for a in found]) >= 0.8


def test_without_significance_no_power_and_no_sample_size_is_named():
    """On 30 null samples only those with p ≤ α, three at most in this seeded run, name anything."""
    found = [m2st.analyse(*pair(40, 40, shift=0.0, seed=seed), "MMD-M", n_permutations=99) for seed in range(30)]
    silent = [f.effect for f in found if not f.primary.rejected]
    assert len(silent) >= 27
    assert all(a.power is a.power_interval is a.rows_for_power is None for a in silent)
    assert {a.sentences for a in silent} == {
        (
            "These data do not determine how many rows a new study needs: the result is not significant, so the "
            "difference may have many sizes, or none.",
        )
    }


def test_a_test_whose_statistic_is_not_shown_names_no_rows():
    answer = m2st.analyse(*pair(60, 60, shift=2.0), "ME · tuned").effect
    assert answer.rows_for_power is None and "how the statistic of ME · tuned grows" in answer.sentences[0]


def test_the_answer_speaks_of_all_rows_at_the_same_split():
    x, y = pair(60, 60, shift=2.5)
    answer = m2st.analyse(x, y, "C2ST-L · tuned", n_permutations=99).effect
    assert "A new study of 60 and 60 rows" in answer.sentences[0]
    assert answer.mmd2 > 0 and answer.criterion is None and "30 and 30 test rows" in answer.how
    assert "a threshold from 499 random relabellings of them, drawn for this estimate alone" in answer.how


def test_rows_are_named_as_far_as_the_estimate_is_reliable():
    """A moderate difference names its rows; after a strong one, no study of fewer than 15 rows is recommended."""
    answer = m2st.analyse(*pair(60, 60, shift=0.9), "MMD-M", n_permutations=199).effect
    n, m = answer.rows_for_power
    assert n == m > 15 and answer.sentences[1].startswith(
        f"By this estimate, about {n} and {m} rows give 80 % power, allow"
    )
    strong = m2st.analyse(*pair(30, 60, shift=3.0), "MMD-M", n_permutations=199).effect
    assert strong.rows_for_power == (15, 30)
    again, rows = strong.sentences[:2]
    assert rows.startswith("By this estimate, 15 and 30 rows give more than 80 % power") and "not reliable" in rows
    assert strong.power > 0.99 and "with probability above 0.99 (rough 90 % interval above 0.99)" in again


def test_the_threshold_of_a_next_study_does_not_count_on_the_other_kernels():
    found = m2st.analyse(*pair(shift=1.5), "MMD-FUSE", n_permutations=99)
    helped = power_model(replace(found.evidence, threshold=-1.0), found.primary)
    assert helped.threshold == pytest.approx(np.quantile(found.evidence.null, 0.95))


def test_near_its_threshold_a_result_names_no_rows_and_says_why():
    found = m2st.analyse(*pair(40, 40, shift=1.5, dimension=2), "C2ST-L · tuned", n_permutations=99)
    signal = float(found.evidence.statistic(found.evidence.sample.pooled, found.evidence.sample.sizes[0])[0])
    close = effect_size(found.primary, replace(found.evidence, threshold=signal))
    assert found.primary.rejected and close.rows_for_power is None and 0.05 < close.power < 0.5
    assert "so close to its threshold that luck may account for most of it" in close.sentences[0]


def test_large_samples_are_thinned_and_it_is_said(monkeypatch):
    monkeypatch.setattr(plan, "LARGEST_ROWS", 60)
    x, y = pair(100, 50, shift=0.5)
    result = m2st.two_sample_test(x, y, method="MMD-M", n_permutations=99)
    assert result.n_test == (30, 30) and "uses 30 of 100 and 30 of 50 rows" in result.notes[0]
    labels = (np.arange(100) % 5, np.arange(50) % 5)
    blocked = m2st.examine(x, y, "MMD-M", TestSettings(n_permutations=99), blocks=labels)
    assert [np.bincount(side[0]).tolist() for side in blocked.test.blocks] == [[6] * 5] * 2


def test_thinning_keeps_the_level(monkeypatch):
    """300 null pairs, thinned to a quarter: between 3 and 30 rejections in all but 0.1 % of cases."""
    monkeypatch.setattr(plan, "LARGEST_ROWS", 20)
    found = [
        m2st.two_sample_test(*pair(40, 40, shift=0.0, seed=seed), method="MMD-M", n_permutations=19, seed=seed).rejected
        for seed in range(300)
    ]
    assert 3 <= sum(found) <= 30
