"""Selective inference on linear-time terms."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import m2st_core as m2st
from m2st_core.kernels.distance import GaussianKernel
from m2st_core.kernels.mixtures import Family
from m2st_core.learners.mixtures import SelectiveTest, linear_time_terms, selective_statistic
from m2st_core.rng import Streams
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample
from tests import naive
from tests.quick import use_few_steps


def families(*widths):
    kernel = GaussianKernel(torch.tensor([widths], dtype=torch.float64))
    return (Family(kernel, tuple(map(str, widths)), 1 / len(widths)),)


def test_terms_pair_the_first_half_with_the_second_after_shuffling():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 1, 11, 2, generator=g, dtype=torch.float64)
    h = linear_time_terms(families(0.5, 2.0), TwoSample(x, y), [Streams(3)])
    assert h.shape == (1, 2, 5)
    orders = [torch.randperm(11, generator=Streams(3).torch(f"pairing of {side}")) for side in "xy"]
    a, b = (rows[0][order].tolist() for rows, order in zip((x, y), orders, strict=True))
    for index, width in enumerate((0.5, 2.0)):
        k = naive.gaussian(width)
        for i in range(5):
            expected = k(a[i], a[i + 5]) + k(b[i], b[i + 5]) - k(a[i], b[i + 5]) - k(a[i + 5], b[i])
            assert h[0, index, i].item() == pytest.approx(expected, abs=1e-12)


def test_one_kernel_is_a_normal_truncated_to_the_positive_numbers():
    g = torch.Generator().manual_seed(5)
    sample = TwoSample(*(torch.randn(1, 80, 2, generator=g, dtype=torch.float64) * s for s in (1.0, 2.0)))
    h = linear_time_terms(families(1.0), sample, [Streams(0)])[0, 0].numpy()
    t = math.sqrt(40) * h.mean() / h.std(ddof=1)
    assert t > 0
    found = {
        reference: [part[0] for part in SelectiveTest(families(1.0), reference).p_values(sample, 9, [Streams(0)])[:2]]
        for reference in ("chi2", "F")
    }
    assert found["chi2"] == pytest.approx([t, 2 * stats.norm.sf(t)])
    assert found["F"] == pytest.approx([t, 2 * stats.t.sf(t, 39)])


def test_no_positive_effect_and_no_variance_count_as_nothing():
    g = np.random.default_rng(1)
    assert selective_statistic(g.standard_normal((1, 30)) - 2) == (0, 1)
    assert selective_statistic(np.ones((3, 30))) == (0, 1)


def test_many_alike_kernels_cost_no_level():
    """2,000 null draws of 8 strongly correlated kernels: rejections in the 99 % band of 5 %."""
    g = np.random.default_rng(2)
    shared = g.standard_normal((2000, 1, 200))
    h = shared + 0.3 * g.standard_normal((2000, 8, 200))
    rejected = sum(stats.chi.sf(*selective_statistic(run)) <= 0.05 for run in h)
    low, high = stats.binom.interval(0.99, 2000, 0.05)
    assert low <= rejected <= high


def test_separated_samples_are_told_apart():
    x = torch.randn(1, 60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _, p, null = SelectiveTest(families(1.0, 4.0), "F").p_values(TwoSample(x, x + 3), 99, [Streams(0)])
    assert p[0] < 1e-6 and null.shape == (1, 99)


@pytest.fixture(scope="module")
def learners():
    """What six tasks without a difference teach, four times: skewed rows, the worst case that is known."""
    g = np.random.default_rng(3)
    with pytest.MonkeyPatch.context() as patch:
        use_few_steps(patch, outer_steps=20)
        return [
            m2st.meta_train("Meta-MKL-SI · tuned", [tuple(skewed(g, 20, 20)) for _ in range(6)], seed=seed).bound(
                torch.device("cpu")
            )
            for seed in range(4)
        ]


def skewed(g, n, m, *runs):
    x, y = (torch.from_numpy(np.exp(1.2 * g.standard_normal((*runs, size, 3)))) for size in (n, m))
    return TwoSample(x, y)


def test_too_few_rows_for_its_level_are_refused(learners):
    """With 12 against 90 rows it rejected 10 % of null pairs: six terms do not tell how several kernels vary."""
    with pytest.raises(ValueError, match="Meta-MKL-SI · tuned needs at least 60 rows in each sample"):
        run_tests(skewed(np.random.default_rng(0), 12, 90, 1), learners[0], seeds=[0])


@pytest.mark.parametrize("sizes", [(60, 60), (60, 90)])
def test_it_keeps_its_level_at_the_fewest_rows_allowed(learners, sizes):
    """400 null pairs, 100 for each learner: at most the 99.9 % quantile of a binomial with p=0.05."""
    g, rejected = np.random.default_rng(4), 0
    for method in learners:
        found = run_tests(skewed(g, *sizes, 100), method, seeds=range(100), n_permutations=19)
        rejected += sum(result.rejected for result in found)
    assert rejected <= stats.binom.ppf(0.999, 400, 0.05)
