"""The theory's terms against their formulas, written out once more with numbers."""

import math

import pytest

from m2st_core.studies import theory as bounds


def test_terms_equal_the_paper_s_formulas():
    xi = bounds.direct_training(1000, dimension=7, delta=0.1, s=0.5, radius=2.0, lipschitz=3.0)
    assert xi.value == pytest.approx((2 + math.sqrt(7 * math.log(2000) + math.log(10)) + 3) / (0.25 * 10))
    mkl = bounds.multiple_kernels(1000, n_kernels=4, delta=0.1, s=0.5, radius=2.0, largest=1.5)
    assert mkl.value == bounds.direct_training(1000, dimension=4, delta=0.1, s=0.5, radius=2.0, lipschitz=3.0).value
    zeta = bounds.best_of_many(1000, n_kernels=4, delta=0.1, s=0.5)
    assert zeta.value == pytest.approx((2 + 1 / math.sqrt(1000) + math.sqrt(math.log(40))) / (0.25 * 10))
    assert xi.is_rate and mkl.is_rate and zeta.is_rate
    mmd = bounds.mmd_deviation(50, n_kernels=4, delta=0.1)
    assert mmd.value == pytest.approx(16 / 10 * math.sqrt(math.log(160))) and not mmd.is_rate
    spread = bounds.variance_deviation(50, n_kernels=4, delta=0.1, largest=2.0)
    assert spread.value == pytest.approx(448 * math.sqrt(math.log(160) / 25) + 1152 * 4 / 50) and not spread.is_rate
    whole = bounds.best_of_many_with_constants(1000, n_kernels=4, delta=0.1, s=0.5)
    variance = bounds.variance_deviation(1000, n_kernels=4, delta=0.1).value
    mmd = bounds.mmd_deviation(1000, n_kernels=4, delta=0.1).value
    assert whole.value == pytest.approx(16 * variance * math.sqrt(10) + 2 * 0.1 * 8 + 2 * mmd) and not whole.is_rate


def test_bounds_move_as_the_theory_says():
    def mkl(gamma=0.1, n=10_000, m=100, kernels=10):
        learning = bounds.direct_training(n, dimension=500, s=0.5)
        return bounds.meta_mkl_bound(gamma, learning, bounds.multiple_kernels(m, n_kernels=kernels, s=0.5))

    assert mkl(gamma=0.3).value - mkl(gamma=0.1).value == pytest.approx(0.4)
    assert mkl(n=100_000).value < mkl().value and mkl(m=400).value < mkl().value < mkl(kernels=20).value
    assert mkl().confidence == pytest.approx(0.9) and mkl().is_rate and len(mkl().terms) == 3
    choice = bounds.best_of_many(100, n_kernels=10, s=0.5)
    best = bounds.best_one_bound(0.1, bounds.direct_training(10_000, dimension=500, s=0.5), choice)
    assert best.value < mkl().value  # choosing one is easier than weighing all


@pytest.mark.parametrize("bad", [{"m": 0}, {"m": 10, "delta": 1.0}, {"m": 10, "s": 0.0}, {"m": 10, "n_kernels": 0}])
def test_bad_values_are_named(bad):
    with pytest.raises(ValueError, match="must be positive"):
        bounds.best_of_many(**({"n_kernels": 3} | bad))
    with pytest.raises(ValueError, match="gamma must be ≥ 0"):
        bounds.relatedness_term(-1)
