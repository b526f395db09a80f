"""Fused and predicted statistics against their formulas, one labelling at a time."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm

from m2st_core.criterion import mmd2_unbiased
from m2st_core.kernels.base import LinearKernel
from m2st_core.kernels.distance import EnergyKernel, GaussianKernel, LaplaceKernel
from m2st_core.kernels.mixtures import Family
from m2st_core.learners.learned_tests import Posterior, WitnessTest
from m2st_core.learners.raw_features import MetaFeatures
from m2st_core.permutation import labellings
from m2st_core.permutation.combined import AggregateTest, FuseTest, RankFuseTest
from m2st_core.permutation.engine import permuted_families, permuted_family
from m2st_core.permutation.labellings import permutation_p_value, random_memberships
from m2st_core.testing.methods import METHODS
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample
from tests import naive

N, M, LABELLINGS = 6, 8, 40
float64 = torch.float64


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=float64)


def memberships(runs=2):
    return random_memberships(N, M, LABELLINGS - 1, [np.random.default_rng(seed) for seed in range(runs)])


def test_families_are_fused_by_the_harmonic_mean_of_their_own_p_values():
    pooled, members = rows(2, N + M, 2), memberships()
    matrices, widths = rows(2, 1, 2, 2, seed=1), torch.tensor([[0.5, 2.0], [1.0, 3.0]], dtype=float64)
    families = (Family(LinearKernel(matrices), ("a",), 0.4), Family(GaussianKernel(widths), ("b", "c"), 0.3))
    found, *_ = RankFuseTest(families).statistics(pooled, members, N)
    for run in range(2):
        kernels = [[LinearKernel(matrices[run, 0])], [GaussianKernel(width) for width in widths[run]]]
        evidence = np.zeros(LABELLINGS)
        for family, share in zip(kernels, (0.4, 0.6), strict=True):
            scores = np.zeros(LABELLINGS)
            for kernel in family:
                values = []
                for z in members[run]:
                    x, y = pooled[run][z], pooled[run][~z]
                    values.append(mmd2_unbiased(kernel(x, x), kernel(y, y), kernel(x, y)).item())
                scores += np.exp(np.array(values) / np.std(values, ddof=1))
            evidence += [share / np.mean(scores >= score * (1 - 1e-9)) for score in scores]
        assert found[run].numpy() == pytest.approx(evidence, rel=1e-9)


def test_mmd_fuse_has_the_weight_that_the_families_leave():
    pooled, members = rows(2, N + M, 2), memberships()
    width = torch.tensor([[0.5], [1.0]], dtype=float64)
    fuse = FuseTest((Family(LaplaceKernel(width), ("a",), 1.0),))
    families = (Family(GaussianKernel(2 * width), ("b",), 0.3),)
    found, *_ = RankFuseTest(families, fuse).statistics(pooled, members, N)
    values = [test.statistics(pooled, members, N)[0] for test in (fuse, RankFuseTest(families))]
    for run in range(2):
        own = values[0][run].numpy()
        evidence = [0.7 / np.mean(own >= one - 1e-6) for one in own] + values[1][run].numpy()
        assert found[run].numpy() == pytest.approx(evidence, rel=1e-9)


def test_mmdagg_equals_its_formula():
    pooled, members = rows(2, N + M, 2), memberships()
    widths = torch.tensor([[0.5, 2.0], [1.0, 3.0]], dtype=float64)
    families = (Family(GaussianKernel(widths), ("a", "b"), 0.3), Family(LaplaceKernel(widths), ("c", "d"), 0.2))
    found, _, error = AggregateTest(families).statistics(pooled, members, N)
    assert error.shape == (2,) and (error >= 0).all()
    for run in range(2):
        kernels = [make(width) for make in (naive.gaussian, naive.laplace) for width in widths[run].tolist()]
        values = [
            [naive.mmd2_unbiased(k, pooled[run][z].tolist(), pooled[run][~z].tolist()) for z in members[run]]
            for k in kernels
        ]
        assert found[run].numpy() == pytest.approx(naive.aggregate(values, [0.3, 0.3, 0.2, 0.2]), rel=1e-9)


@pytest.mark.parametrize("kind", [GaussianKernel, LaplaceKernel])
def test_a_family_is_its_kernels_one_by_one(kind):
    """Ten widths are permuted through fewer kernels; what is lost is within the rounding error."""
    pooled, count = rows(2, 150, 2), 60
    members = random_memberships(count, 90, 20, [np.random.default_rng(seed) for seed in range(2)])
    widths = torch.linspace(0.2, 20, 10, dtype=float64) * torch.tensor([[1.0], [2.0]], dtype=float64)
    found, rounding, squares = permuted_family(kind(widths), pooled, members, count)
    assert found.shape == (2, 10, 21) and rounding.shape == squares.shape == (2, 10)
    for run in range(2):
        for k, width in enumerate(widths[run]):
            gram = kind(width)(pooled[run], pooled[run])
            z = members[run].double()
            off = gram - torch.diag(gram.diagonal())
            assert squares[run, k].item() == pytest.approx(off.square().sum().item(), rel=1e-5)
            xx, yy, xy = (torch.einsum("pi,ij,pj->p", a, off, b) for a, b in ((z, z), (1 - z, 1 - z), (z, 1 - z)))
            expected = xx / (60 * 59) + yy / (90 * 89) - 2 * xy / (60 * 90)
            assert (found[run, k] - expected).abs().max() < 2 * rounding[run, k] + 1e-4 * expected.std()


def test_families_of_one_distance_are_permuted_together_and_stay_apart():
    pooled, members = rows(2, N + M, 2), memberships()
    widths = [torch.tensor([[0.5, 2.0], [1.0, 3.0]], dtype=float64), torch.tensor([[1.0], [0.7]], dtype=float64)]
    kinds = (GaussianKernel, LaplaceKernel)
    families = [Family(kind(width), ("k",) * width.shape[-1], 0.2) for width in widths for kind in kinds]
    for family, found in zip(families, permuted_families(families, pooled, members, N), strict=True):
        for part, expected in zip(found, permuted_family(family.kernel, pooled, members, N), strict=True):
            torch.testing.assert_close(part, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("norm", [1, 2])
def test_the_energy_distance_equals_the_double_loop(norm):
    pooled, members = rows(1, N + M, 3), memberships(1)
    centre = rows(1, 1, 1, 3, seed=3)
    found, _, _ = permuted_family(EnergyKernel(centre, float(norm)), pooled, members, N)
    for value, z in zip(found[0, 0].tolist(), members[0], strict=True):
        x, y = pooled[0][z].tolist(), pooled[0][~z].tolist()
        assert value == pytest.approx(naive.mmd2_unbiased(naive.energy(norm), x, y), abs=1e-5)


@pytest.mark.parametrize("name", ["MMDAgg", "Energy", "Omnibus"])
def test_tests_of_many_kernels_keep_their_level_on_tied_rows(name):
    """400 null pairs of 6 and 12 rows that take nine values; a 5 % test stays below the 99.9 % quantile."""
    generator = np.random.default_rng(4)
    drawn = torch.from_numpy(generator.integers(0, 3, size=(400, 18, 2)).astype(float))
    sample = TwoSample(drawn[:, :6], drawn[:, 6:])
    results = run_tests(sample, METHODS[name], seeds=range(400), n_permutations=39, device="cpu")
    assert binom.ppf(0.0005, 400, 0.02) <= sum(result.rejected for result in results) <= binom.ppf(0.999, 400, 0.05)


class Identity(MetaFeatures):
    def __init__(self):
        super().__init__(torch.zeros(1, dtype=float64), 2, 2)
        self.transform[0] = torch.eye(2)

    def raw(self, x):
        return x.float()


def predicted(mean, spread, log_weight=0.0, runs=2):
    """A posterior of the difference of two columns of unit variance."""
    parts = (torch.tensor([part], dtype=float64).expand(runs, -1) for part in (mean, spread, (1.0, 1.0)))
    return Posterior(Identity(), *parts, torch.full((runs,), log_weight, dtype=float64))


@pytest.mark.parametrize("piece", [labellings.PIECE_BYTES, 2**10])
def test_the_witness_statistic_equals_its_formula(piece, monkeypatch):
    monkeypatch.setattr(labellings, "PIECE_BYTES", piece)
    pooled, members = rows(2, N + M, 2).float().double(), memberships()
    noise = 1 / N + 1 / M
    posteriors = (predicted((1.0, -0.5), (0.2, 0.4)), predicted((0.0, 2.0), (1.0, 0.1), -0.7))
    found, rounding, _ = WitnessTest(posteriors).statistics(pooled, members, N)
    assert rounding.max() < 1e-4
    for run in range(2):
        for value, z in zip(found[run].tolist(), members[run], strict=True):
            d = (pooled[run][z].mean(dim=0) - pooled[run][~z].mean(dim=0)).tolist()
            ratio = 0.0
            for mean, spread, weight in (((1.0, -0.5), (0.2, 0.4), 1.0), ((0.0, 2.0), (1.0, 0.1), math.exp(-0.7))):
                for one, at, wide in zip(d, mean, spread, strict=True):
                    weight *= norm.pdf(one, at, math.sqrt(wide + noise)) / norm.pdf(one, 0, math.sqrt(noise))
                ratio += weight
            assert value == pytest.approx(math.log(ratio), rel=0, abs=rounding[run].item())


def test_a_wrong_prediction_costs_power_but_not_all_of_it():
    """The rows differ clearly, and the prediction is the opposite: an uncertain one still finds the difference."""
    members = memberships()
    for expected, spread, rejects in ((1, 4.0, True), (-1, 4.0, True), (-1, 1e-4, False)):
        pooled = rows(2, N + M, 2)
        pooled[:, :N, 0] += expected * 4.0
        test = WitnessTest((predicted((2.0, 0.0), (spread, spread)),))
        p = permutation_p_value(*test.statistics(pooled, members, N)[:2], "(1+b)/(1+B)")
        assert ((p <= 0.05) == rejects).all(), (expected, spread, p)
