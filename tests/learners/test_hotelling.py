import numpy as np
import pytest
import torch
from scipy import stats

from m2st_core.learners.embeddings import HotellingTest, hotelling
from m2st_core.types import TwoSample


def hotelling_test(sample, n_quantiles, reference):
    return HotellingTest(lambda rows: rows, reference).p_values(sample, n_quantiles, [])


def normal_pair(runs, n, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(runs, n, columns, generator=generator, dtype=torch.float64) for _ in range(2))
    return TwoSample(x, y)


def test_with_gaussian_features_the_f_reference_is_exact_and_chi2_is_not():
    """12 rows, 4 Gaussian features, 2,000 runs: F gives uniform p-values; χ² rejects several times too often."""
    sample = normal_pair(2000, 12, 4, seed=1)
    p = {name: hotelling_test(sample, 9, name)[1] for name in ("F", "chi2")}
    assert stats.kstest(p["F"], "uniform").pvalue > 1e-3
    assert (p["chi2"] <= 0.05).mean() > 0.15


def test_features_that_hardly_vary_do_not_count():
    sample = normal_pair(5, 40, 3, seed=2)
    dead = TwoSample(sample.x * torch.tensor([1, 1, 1e-9]), sample.y * torch.tensor([1, 1, 1e-9]))
    alive = TwoSample(sample.x[..., :2], sample.y[..., :2])
    for a, b in zip(*(hotelling_test(s, 9, "chi2") for s in (dead, alive)), strict=True):
        assert a == pytest.approx(b)
    nothing = TwoSample(0 * sample.x, 0 * sample.y)
    assert (hotelling_test(nothing, 9, "chi2")[1] == 1).all()


def test_the_quantiles_are_those_of_the_reference():
    sample = normal_pair(3, 30, 4, seed=3)
    statistic, p, null = hotelling_test(sample, 4999, "F")
    assert statistic == pytest.approx(hotelling(*sample).numpy())
    assert p == pytest.approx((null >= statistic[:, None]).mean(axis=1), abs=1e-3)
    assert (np.diff(null) > 0).all()
