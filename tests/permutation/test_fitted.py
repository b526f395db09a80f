"""Fused and hedged statistics against their formulas, one labelling at a time."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from m2st_core.criterion import mmd2_unbiased
from m2st_core.kernels.base import Family, KernelBank
from m2st_core.kernels.features import LinearKernel
from m2st_core.kernels.gaussian import GaussianKernel
from m2st_core.learners.meta_witness import WitnessTest
from m2st_core.permutation.fused import RankFuseTest
from m2st_core.permutation.statistics import permutation_p_value, random_memberships

N, M, LABELLINGS = 6, 8, 40
float64 = torch.float64


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=float64)


def labellings(runs=2):
    return random_memberships(N, M, LABELLINGS - 1, [np.random.default_rng(seed) for seed in range(runs)])


def test_families_are_fused_by_the_harmonic_mean_of_their_own_p_values():
    pooled, members = rows(2, N + M, 2), labellings()
    matrices, widths = rows(2, 1, 2, 2, seed=1), torch.tensor([[0.5, 2.0], [1.0, 3.0]], dtype=float64)
    families = (Family(LinearKernel(matrices), ("a",), 0.4), Family(GaussianKernel(widths), ("b", "c"), 0.3))
    found, *_ = RankFuseTest(KernelBank(families)).statistics(pooled, members, N)
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


class Identity(torch.nn.Module):
    def forward(self, x):
        return x


def hedged(surety, pooled, members):
    direction = torch.tensor([[2.0, -1.0]], dtype=float64).expand(len(pooled), -1)
    witness = WitnessTest(Identity(), direction, torch.full((len(pooled),), surety, dtype=float64))
    return witness.statistics(pooled, members, N)[:2]


def test_the_witness_statistic_equals_its_formula():
    pooled, members = rows(2, N + M, 2), labellings()
    found, _ = hedged(0.7, pooled, members)
    for run in range(2):
        score = pooled[run] @ torch.tensor([1.0, -0.5], dtype=float64)
        for value, z in zip(found[run].tolist(), members[run], strict=True):
            ratio = 2 * (score[z].mean() - score[~z].mean()).item() / (1 / N + 1 / M)
            sure = norm.cdf(0.7)
            assert value == pytest.approx(math.log(sure * math.exp(ratio) + (1 - sure) * math.exp(-ratio)), abs=1e-9)


def test_a_wrong_sign_costs_power_but_not_all_of_it():
    """The rows differ clearly, and the training rows said the opposite: with 0.6 % of doubt it is still found."""
    members = labellings()
    for expected, surety, rejects in ((1, 2.5, True), (-1, 2.5, True), (-1, 12.0, False)):
        pooled = rows(2, N + M, 2)
        pooled[:, :N, 0] += expected * 4.0
        p = permutation_p_value(*hedged(surety, pooled, members), "(1+b)/(1+B)")
        assert ((p <= 0.05) == rejects).all(), (expected, surety, p)
