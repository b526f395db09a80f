"""The witness function against its definition, row by row."""

import pytest
import torch

from m2st_core.criterion import mmd2_unbiased, witness, witness_of_rows
from m2st_core.kernels.distance import GaussianKernel
from m2st_core.kernels.mixtures import MixtureKernel
from tests import naive


def rows(count, seed):
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_witness_is_the_difference_of_mean_kernel_values():
    x, y, places = rows(7, 1), rows(5, 2) + 0.5, rows(4, 3)
    k = naive.gaussian(1.7)
    kernel = GaussianKernel(torch.tensor(1.7, dtype=torch.float64))
    expected = [sum(k(t, a) for a in x.tolist()) / 7 - sum(k(t, b) for b in y.tolist()) / 5 for t in places.tolist()]
    assert witness(kernel, x, y, places).tolist() == pytest.approx(expected, abs=1e-12)


def test_its_mean_over_x_less_its_mean_over_y_is_the_biased_mmd():
    x, y = rows(9, 4), 2 * rows(6, 5)
    kernel = GaussianKernel(torch.tensor(0.8, dtype=torch.float64))
    with torch.no_grad():
        mmd2 = kernel(x, x).mean() + kernel(y, y).mean() - 2 * kernel(x, y).mean()
    difference = witness(kernel, x, y, x).mean() - witness(kernel, x, y, y).mean()
    assert difference.item() == pytest.approx(mmd2.item(), abs=1e-12)


def test_a_mixture_sees_the_weighted_sum_of_what_its_kernels_see():
    x, y, places = rows(6, 6)[None], rows(6, 7)[None] + 1, rows(3, 8)[None]
    widths, beta = torch.tensor([[0.5, 2.0]], dtype=torch.float64), torch.tensor([[0.3, 0.7]], dtype=torch.float64)
    mixed = witness(MixtureKernel([GaussianKernel(widths)], [2], beta), x, y, places)
    single = [witness(GaussianKernel(width), x, y, places) for width in widths[0]]
    assert mixed[0].tolist() == pytest.approx((0.3 * single[0] + 0.7 * single[1])[0].tolist(), abs=1e-12)


def test_left_out_of_its_own_mean_a_row_gives_the_unbiased_mmd():
    """Mean over x less mean over y is the U-statistic; without leaving out it would be the biased one."""
    x, y = rows(9, 9), 2 * rows(6, 10)
    kernel = GaussianKernel(torch.tensor(0.8, dtype=torch.float64))
    with torch.no_grad():
        pooled = torch.cat([x, y])
        seen = witness_of_rows(kernel(pooled, pooled), 9)
        expected = mmd2_unbiased(kernel(x, x), kernel(y, y), kernel(x, y))
    assert (seen[:9].mean() - seen[9:].mean()).item() == pytest.approx(expected.item(), abs=1e-12)
