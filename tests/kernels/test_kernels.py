"""Each kernel against its double loop."""

import math

import numpy as np
import pytest
import torch

from m2st_core.kernels.base import ComposedKernel, LinearKernel
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.distance import (
    EnergyKernel,
    GaussianKernel,
    LaplaceKernel,
    median_squared_distance,
    negative_squared_distances,
)
from m2st_core.kernels.mixtures import MixtureKernel, weighted_gram
from m2st_core.kernels.networks import MLP
from m2st_core.learners.generic import regularised
from tests import naive

BATCH = 3
float64 = torch.float64


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=float64)


def generators(count=BATCH):
    return [torch.Generator().manual_seed(seed) for seed in range(count)]


def widths(*values):
    return torch.tensor(values, dtype=float64)


def deep_kernel(count=BATCH):
    network = MLP((2, 4, 4, 6), generators(count)).to(float64)
    spread = torch.linspace(0.5, 1.5, count, dtype=float64)
    kernel = DeepKernel(network, feature_width=spread, input_width=2 * spread, mixing=0.2 * spread)
    network.measure_in(rows(count, 1, 2, seed=8), rows(count, 1, 2, seed=9).abs() + 0.5)
    return kernel


def loop(k, x, y):
    return torch.tensor([[k(a, b) for b in y.tolist()] for a in x.tolist()], dtype=float64)


def test_gaussian_and_laplace_equal_their_formulas():
    x, y = rows(5, 3), rows(4, 3, seed=1)
    width = torch.tensor(0.8, dtype=float64)
    assert torch.allclose(GaussianKernel(width)(x, y), loop(naive.gaussian(0.8), x, y), atol=1e-14)
    assert torch.allclose(LaplaceKernel(width)(x, y), loop(naive.laplace(0.8), x, y), atol=1e-14)


def test_deep_kernel_equals_its_formula():
    kernel, x, y = deep_kernel(), rows(BATCH, 4, 2), rows(BATCH, 3, 2, seed=1)
    network, found = kernel.network, kernel(x, y)
    for r in range(BATCH):
        weights = [weight[r].detach().numpy() for weight in network.weights]
        biases = [bias[r, 0].detach().numpy() for bias in network.biases]
        spread = torch.linspace(0.5, 1.5, BATCH).tolist()[r]
        k = naive.deep(naive.mlp(weights, biases), spread, 2 * spread, 0.2 * spread)
        scaled = [(side[r] - network.centre[r]) / network.scale[r] for side in (x, y)]
        assert torch.allclose(found[r], loop(k, *scaled), atol=1e-7)  # spread was rounded to float32


def test_mixture_weights_lie_on_the_simplex():
    kernels = [GaussianKernel(widths(1.0)), LaplaceKernel(widths(1.0))]
    for weights in ([0.5, 0.6], [-0.1, 1.1]):
        with pytest.raises(ValueError, match="sum to 1"):
            MixtureKernel(kernels, [1, 1], torch.tensor(weights))
    with pytest.raises(ValueError, match="One weight per kernel"):
        MixtureKernel(kernels, [1, 1], torch.tensor([1.0]))


def test_a_mixture_is_the_weighted_sum_of_its_kernels():
    """Linear kernels take a shortcut of their own; families without weight are left out."""
    x, y = rows(2, 5, 3), rows(2, 4, 3, seed=1)
    matrices = rows(2, 3, 3, 2, seed=2)  # three linear kernels for each of two runs
    linear, gaussian = LinearKernel(matrices), GaussianKernel(widths(0.5, 2.0).expand(2, 2))
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.0], [0.5, 0.0, 0.0, 0.25, 0.25]], dtype=float64)
    found = MixtureKernel([linear, gaussian], [3, 2], weights)(x, y)
    for run in range(2):
        expected = sum(
            weights[run, k]
            * x[run]
            @ matrices[run, k]
            @ matrices[run, k].T
            @ y[run].T
            / matrices[run, k].square().sum()
            for k in range(3)
        )
        for k, width in enumerate((0.5, 2.0)):
            expected = expected + weights[run, 3 + k] * loop(naive.gaussian(width), x[run], y[run])
        assert torch.allclose(found[run], expected, atol=1e-13)
    only = MixtureKernel([linear, gaussian], [3, 2], torch.tensor([[1.0, 0, 0, 0, 0]] * 2, dtype=float64))
    assert len(only.families) == 1
    composed = ComposedKernel(torch.nn.Softplus(), LinearKernel(matrices[:, 0]))
    assert torch.allclose(composed(x, y), LinearKernel(matrices[:, 0])(x.exp().log1p(), y.exp().log1p()))


def test_distances_survive_offsets_and_very_different_scales():
    generator = np.random.default_rng(0)
    x = generator.standard_normal((50, 3)) * [1e-3, 1.0, 1e6] + [0, 1e7, 1e9]
    expected = ((x[:, None] - x[None]) ** 2).sum(-1)
    found = -negative_squared_distances(torch.from_numpy(x), torch.from_numpy(x)).numpy()
    assert (found >= 0).all()
    off = ~np.eye(50, dtype=bool)
    assert np.allclose(found[off], expected[off], rtol=1e-8, atol=1e-3)  # 1e-3 beside squares of 1e12: 15 digits
    tiny = torch.from_numpy(generator.standard_normal((50, 2)) * [1e-3, 0] + [0, 1e6])
    assert np.allclose(
        -negative_squared_distances(tiny, tiny).numpy(),
        ((tiny[:, None] - tiny[None]) ** 2).sum(-1),
        rtol=1e-6,
        atol=1e-18,
    )


def test_median_heuristic():
    x = rows(2, 7, 3)
    found = median_squared_distance(x)
    assert found.tolist() == pytest.approx([naive.median_squared_distance(part.numpy()) for part in x], rel=1e-12)
    mostly_equal = torch.tensor([[0.0]] * 9 + [[3.0], [5.0]], dtype=float64)
    positive = sorted([9.0] * 9 + [25.0] * 9 + [4.0])
    assert median_squared_distance(mostly_equal).item() == pytest.approx(positive[9])
    assert median_squared_distance(torch.zeros(3, 2, dtype=float64)).item() == 1
    together = torch.stack([mostly_equal, rows(11, 1)])
    assert median_squared_distance(together)[1] == median_squared_distance(together[1:])[0]
    outlier = rows(50, 2)
    outlier[0, 0] = 1e12
    assert median_squared_distance(outlier) == pytest.approx(median_squared_distance(outlier[1:]).item(), rel=0.1)


@pytest.mark.parametrize("factors", [(0.0625, 0.25, 1.0, 4.0, 16.0), (16.0, 0.25), (0.5, 1.0, 3.0)])
def test_a_weighted_family_equals_its_kernels_one_by_one(factors):
    """Widths that are powers of 4 apart are powers of one another; those that are not take another path."""
    x, y = rows(2, 1, 7, 3, seed=1), rows(2, 1, 6, 3, seed=2)
    width = widths(0.3, 2.0)[:, None] * torch.tensor(factors, dtype=float64)
    weights = rows(2, len(factors), seed=3).abs()
    kernel = GaussianKernel(width)
    with torch.no_grad():
        found = weighted_gram(kernel, kernel.embed(x), kernel.embed(y), weights)
    for run in range(2):
        for i in range(7):
            for j in range(6):
                distance = float(((x[run, 0, i] - y[run, 0, j]) ** 2).sum())
                terms = zip(weights[run].tolist(), width[run].tolist(), strict=True)
                naive = sum(w * math.exp(-distance / s) for w, s in terms)
                assert float(found[run, i, j]) == pytest.approx(naive, rel=1e-9, abs=1e-30)


def test_a_regularised_kernel_weighs_directions_by_their_eigenvalues():
    """With all rows as landmarks it is H·K·H with eigenvalues s/(s+λ), λ the fourth largest."""
    z = rows(1, 1, 25, 2, seed=5)
    kernel = GaussianKernel(torch.ones(1, 1, dtype=float64))
    learned = regularised(kernel, z, z, 3)
    mapped = learned.features(z)[0, 0] @ learned.kernel.matrix[0, 0]
    centring = torch.eye(25, dtype=float64) - 1 / 25
    values, vectors = torch.linalg.eigh(centring @ kernel(z, z)[0, 0] @ centring)
    expected = (vectors * (values / (values + values[-4]))) @ vectors.mT
    found = centring @ mapped @ mapped.mT @ centring / 25
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)


def test_equal_rows_have_regularised_kernels_too():
    z = torch.ones(1, 1, 9, 2, dtype=float64)
    assert regularised(EnergyKernel(z[..., :1, :]), z, z, 3).kernel.matrix.isfinite().all()
