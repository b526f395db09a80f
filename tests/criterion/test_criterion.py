import pytest
import torch

from m2st_core.criterion import h_matrix, mmd2_unbiased, paired_terms, power_criterion
from m2st_core.kernels.distance import GaussianKernel, LaplaceKernel
from tests import naive

float64 = torch.float64
WIDTH = torch.tensor(1.3, dtype=float64)
KERNELS = [(GaussianKernel(WIDTH), naive.gaussian(1.3)), (LaplaceKernel(WIDTH), naive.laplace(1.3))]


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=float64)


@pytest.mark.parametrize(("kernel", "k"), KERNELS, ids=["gaussian", "laplace"])
def test_estimators_equal_double_loops(kernel, k):
    x, y, longer = rows(2, 6, 3), 0.5 + rows(2, 6, 3, seed=1), rows(2, 9, 3, seed=2)
    h = h_matrix(kernel, x, y)
    full = mmd2_unbiased(kernel(x, x), kernel(longer, longer), kernel(x, longer))
    for b in range(2):
        a, c, e = x[b].tolist(), y[b].tolist(), longer[b].tolist()
        assert full[b].item() == pytest.approx(naive.mmd2_unbiased(k, a, e), abs=1e-10)
        mmd2, variance = (term[b].item() for term in paired_terms(h))
        assert mmd2 == pytest.approx(naive.mmd2_paired(k, a, c), abs=1e-10)
        assert variance == pytest.approx(naive.variance(k, a, c), abs=1e-10)
        for lam in (1e-8, 1e-2):
            expected = naive.power_criterion(k, a, c, lam)
            assert power_criterion(h, lam)[b].item() == pytest.approx(expected, abs=1e-10)


def test_the_unbiased_estimate_averages_to_zero_under_the_null():
    kernel = GaussianKernel(WIDTH)
    x, y = rows(4000, 5, 2), rows(4000, 8, 2, seed=1)
    values = mmd2_unbiased(kernel(x, x), kernel(y, y), kernel(x, y)).detach()
    assert abs(values.mean() / (values.std() / 4000**0.5)) < 4  # a z-score: beyond 4 with p ≈ 6e-5


def test_criterion_gradients():
    x, y = rows(5, 2).requires_grad_(), (rows(5, 2, seed=1) + 0.3).requires_grad_()

    def value(x, y, log_width):
        return power_criterion(h_matrix(GaussianAt(log_width), x, y), 1e-3)

    assert torch.autograd.gradcheck(value, (x, y, WIDTH.log().requires_grad_()))


class GaussianAt(GaussianKernel):
    """A Gaussian kernel whose width is an input of the graph rather than a parameter."""

    def __init__(self, log_width):
        super().__init__(torch.ones(()))
        del self.log_width
        self.log_width = log_width


def test_the_paired_form_needs_equal_sizes():
    with pytest.raises(ValueError, match="needs n=m"):
        h_matrix(KERNELS[0][0], rows(4, 2), rows(5, 2))
