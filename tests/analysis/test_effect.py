"""Power after a significant result: against naive integrals, simulated selection, and simulated studies."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad
from scipy.special import ndtr, ndtri

import m2st_core as m2st
from m2st_core.analysis.effect import PowerModel
from m2st_core.testing.methods import METHODS
from m2st_core.testing.run import run_tests
from m2st_core.types import DEFAULT_TEST, TwoSample

C = float(ndtri(0.95))


def z_test(z, **settings):
    """A one-sided z-test that found z at level 5 %; with k times the rows its mean is √k times as large."""
    return PowerModel(signal=z, threshold=C, noise=1.0, slope=0.0, order=0.5, **settings)


@pytest.mark.parametrize("z", [1.7, 2.5, 4.0])
@pytest.mark.parametrize("factor", [0.5, 1.0, 6.0])
def test_expected_power_is_the_integral_over_what_could_have_led_to_the_result(z, factor):
    def density(t):
        return stats.norm.pdf(z - t) / ndtr(t - C)

    power = quad(lambda t: ndtr(np.sqrt(factor) * t - C) * density(t), 0, 14)[0] / quad(density, 0, 14)[0]
    assert z_test(z).power(factor) == pytest.approx(power, abs=2e-3)


def test_expected_power_is_the_mean_among_significant_studies_with_this_result():
    """4 million significant studies, true means uniform on 0 to 8; about 20,000 found z within 0.02 of 2.5."""
    generator = np.random.default_rng(0)
    t = generator.uniform(0, 8, 4_000_000)
    z = t - ndtri(generator.uniform(0, ndtr(t - C)))  # N(t, 1) given z > C
    alike = t[np.abs(z - 2.5) < 0.02]
    assert len(alike) > 10_000
    for factor in (1.0, 4.0):
        assert z_test(2.5).power(factor) == pytest.approx(ndtr(np.sqrt(factor) * alike - C).mean(), abs=0.015)


@pytest.mark.parametrize("slope", [0.0, 0.3, 20.0])
def test_distance_counts_standard_errors_and_has_an_inverse(slope):
    effect = PowerModel(signal=3.0, threshold=2.0, noise=1.5, slope=slope, order=1.0)
    for u in (0.1, 2.0, 30.0):
        assert effect.distance(u) == pytest.approx(quad(lambda v: 1 / np.sqrt(1.5 + slope * v), 0, u)[0])
        assert effect.mean(effect.distance(u)) == pytest.approx(u)


@pytest.mark.parametrize("effect", [z_test(2.6), PowerModel(0.05, 0.03, 2e-4, 0.01, 1.0)], ids=["scores", "MMD²"])
def test_more_rows_give_more_power_and_the_sample_size_is_where_it_is_wanted(effect):
    powers = [effect.power(factor) for factor in (1, 2, 4, 8)]
    assert powers == sorted(powers)
    assert effect.power(effect.factor_for(0.8)) == pytest.approx(0.8, abs=1e-6)
    low, high = effect.interval()
    assert 0 < low < effect.power() < high < 1


def test_a_mean_difference_has_the_power_of_the_textbook():
    """One-sided z-test with effect δ, variance 1 and n rows each: Φ(δ/√(2/n) − 1.645)."""
    n, delta = 50, 0.4
    effect = PowerModel(delta, C * np.sqrt(2 / n), 2 / n, 0.0, 0.5)
    for factor in (1.0, 3.0):
        power = effect.powers(effect.distance(delta), factor)
        assert power == pytest.approx(ndtr(delta / np.sqrt(2 / n / factor) - C))


def test_the_correction_is_large_near_the_threshold_and_vanishes_with_strong_evidence():
    """Uncorrected, a z-test that found z needs (C + 0.84)²/z² times its rows."""
    uncorrected = {z: (C + ndtri(0.8)) ** 2 / z**2 for z in (1.7, 2.5, 6.0, 10.0)}
    ratio = {z: (z_test(z).factor_for() or np.inf) / k for z, k in uncorrected.items()}
    assert ratio[1.7] == np.inf and 3 < ratio[2.5] < 6 and ratio[6.0] < 1.15 and ratio[10.0] < 1.05


@pytest.mark.parametrize("power", [0.3, 0.5, 0.8])
def test_sizes_named_after_significance_have_the_power_they_promise(power):
    """400 significant z-tests of this power: true power at their sizes 0.75 or more on average (uncorrected 0.36)."""
    mean = C + ndtri(power)
    z = mean - ndtri(np.random.default_rng(1).uniform(0, power, 400))
    factors = np.array([z_test(one).factor_for() or np.nan for one in z])
    named = np.isfinite(factors)
    assert named.mean() > 0.6 and ndtr(np.sqrt(factors[named]) * mean - C).mean() >= 0.75
    uncorrected = (C + ndtri(0.8)) / z * mean - C
    assert power > 0.5 or ndtr(uncorrected).mean() < 0.6


def test_what_was_seen_on_few_of_the_rows_is_less_certain():
    few, all_rows = z_test(4.0, share=0.1), z_test(4.0)
    assert few.power() < all_rows.power() and few.interval()[0] < all_rows.interval()[0]


def true_power(task, rows, method, factors, studies, permutations=99):
    """The power at any factor of the rows, interpolated from simulated studies."""
    rates = []
    for factor in factors:
        drawn = [task.sample(round(rows * factor), seed=10_000 + seed) for seed in range(studies)]
        sample = TwoSample(*(torch.stack([getattr(pair, side) for pair in drawn]) for side in "xy"))
        found = run_tests(sample, METHODS[method], seeds=range(studies), n_permutations=permutations, device="cpu")
        rates.append(np.mean([result.rejected for result in found]))
    return lambda named: np.interp(np.log(np.array(named) / rows), np.log(factors), rates)


def test_named_rows_have_the_power_they_promise_also_after_significance():
    """120 pilots of MMD-M with true power 0.5: true power at the rows named after p ≤ α is 0.75 or more on average.

    About 60 pilots name a size; the standard error of their mean is 0.025, that of the power curve (100 studies a
    point) below 0.03. Sizes from the observed difference alone have 0.57, corrected ones 0.84.
    """
    task = m2st.make_task("mean_shift", shift=0.5)
    power = true_power(task, 50, "MMD-M", (0.3, 0.6, 1.0, 2.0, 4.0), 100)
    pilots = [m2st.analyse(*task.sample(50, seed=seed), "MMD-M", n_permutations=99, seed=seed) for seed in range(120)]
    named = [p.effect.rows_for_power[0] for p in pilots if p.primary.rejected and p.effect.rows_for_power]
    assert 0.3 < np.mean([pilot.primary.rejected for pilot in pilots]) < 0.7 and len(named) > 40
    assert power(named).mean() >= 0.75


def test_planning_does_not_count_on_what_the_other_statistics_happened_to_add():
    """Omnibus decides by four statistics; the one that is shown needs a stricter level than 5 % alone, in every pilot.

    Counting on what the others added in the pilot, half of all labellings reached its threshold after clear results.
    """
    task = m2st.make_task("mean_shift", shift=0.5)
    for seed in range(12):
        evidence = m2st.analyse(*task.sample(60, seed=seed), n_permutations=99, seed=seed, device="cpu").evidence
        assert 0.01 < np.mean(evidence.null >= evidence.threshold) < 0.042


@pytest.mark.slow
def test_rows_named_by_the_default_test_have_the_power_they_promise():
    """100 pilots of Omnibus with true power 0.45: power at the rows named is 0.76 or more on average, few below 0.5.

    58 pilots name a size; the standard errors of their mean and of the curve are 0.03 and 0.04. They have 0.83,
    and 10 % below 0.5. Counting on what the other statistics added in the pilot, they had 0.68, and 30 %.
    """
    task = m2st.make_task("mean_shift", shift=0.5)
    power = true_power(task, 60, DEFAULT_TEST, (0.3, 0.6, 1.0, 2.0, 4.0), 60)
    pilots = [m2st.analyse(*task.sample(60, seed=seed), n_permutations=199, seed=seed) for seed in range(100)]
    named = [p.effect.rows_for_power[0] for p in pilots if p.primary.rejected and p.effect.rows_for_power]
    assert len(named) > 30
    assert power(named).mean() >= 0.76 and np.mean(power(named) < 0.5) <= 0.15
