"""β against brute force, and against a solver that knows nothing of quadratic programs."""

import itertools

import numpy as np
import pytest
import torch

from m2st_core.data.related import PairedRows
from m2st_core.kernels.distance import GaussianKernel, LaplaceKernel
from m2st_core.kernels.mixtures import Family
from m2st_core.learners.learned_tests import AGGREGATE, RELATED_ODDS, find_weights, with_generic
from m2st_core.learners.mixtures import KernelTerms, kernel_terms, solve_weights
from tests import naive

WIDTHS = (0.5, 2.0, 8.0)


def data(runs=2, n=15):
    g = torch.Generator().manual_seed(3)
    x, y = torch.randn(2, runs, n, 2, generator=g, dtype=torch.float64)
    return PairedRows(x, 1.5 * y, torch.ones(runs, n, dtype=torch.float64))


def families(runs=2):
    widths = torch.tensor(WIDTHS, dtype=torch.float64).expand(runs, 3)
    return (
        Family(GaussianKernel(widths), ("g1", "g2", "g3"), 1 / 4),
        Family(LaplaceKernel(widths[:, :1]), ("l1",), 1 / 4),
    )


def problem(seed, k=4):
    g = np.random.default_rng(seed)
    root = g.standard_normal((k, k))
    return torch.from_numpy(g.standard_normal((1, k)) + 0.3), torch.from_numpy((root @ root.T)[None] / k)


def criterion(beta, eta, sigma, ridge):
    return (eta @ beta) / np.sqrt(beta @ (sigma + ridge * np.eye(len(beta))) @ beta)


def test_terms_equal_double_loops_and_padding_does_not_count():
    rows = data()
    rows.inside[1, 10:] = 0
    terms = kernel_terms(families(), rows)
    for run, count in enumerate((15, 10)):
        x, y = rows.x[run, :count].tolist(), rows.y[run, :count].tolist()
        kernels = [naive.gaussian(width) for width in WIDTHS] + [naive.laplace(0.5)]
        pairs = list(zip(x, y, strict=True))
        h = [[[k(a, c) + k(b, d) - k(a, d) - k(c, b) for c, d in pairs] for a, b in pairs] for k in kernels]
        h = np.array(h)
        off = h * (1 - np.eye(count))
        assert terms.eta[run].tolist() == pytest.approx(off.sum((1, 2)) / (count * (count - 1)), rel=1e-10)
        means = h.mean(2)
        assert terms.sigma[run].numpy() == pytest.approx(4 * np.cov(means, bias=True), rel=1e-9)
        deviation = np.sqrt(2 * (off**2).sum((1, 2))) / (count * (count - 1))
        assert terms.null_deviation[run].tolist() == pytest.approx(deviation, rel=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_weights_are_the_best_on_a_fine_grid_of_the_simplex(seed):
    eta, sigma = problem(seed)
    beta = solve_weights(eta, sigma, 0.05)[0].numpy()
    assert beta.min() >= 0 and beta.sum() == pytest.approx(1)
    grid = [np.array(c) / 20 for c in itertools.product(range(21), repeat=4) if sum(c) == 20]
    found = criterion(beta, eta[0].numpy(), sigma[0].numpy(), 0.05)
    assert found >= max(criterion(b, eta[0].numpy(), sigma[0].numpy(), 0.05) for b in grid) - 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_weights_agree_with_softmax_and_adam(seed):
    eta, sigma = problem(seed, k=6)
    logits = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([logits], lr=0.05)
    for _ in range(3000):
        beta = logits.softmax(0)
        value = (eta[0] @ beta) / (beta @ (sigma[0] + 0.05 * torch.eye(6)) @ beta).sqrt()
        optimiser.zero_grad()
        (-value).backward()
        optimiser.step()
    ours = solve_weights(eta, sigma, 0.05)[0].numpy()
    assert criterion(ours, eta[0].numpy(), sigma[0].numpy(), 0.05) >= value.item() - 1e-9
    assert ours == pytest.approx(beta.detach().numpy(), abs=0.02)


def test_without_any_effect_the_best_single_kernel_takes_all():
    eta = torch.tensor([[-1.0, -0.1, -0.5]], dtype=torch.float64)
    sigma = torch.diag_embed(torch.tensor([[1.0, 0.01, 1.0]], dtype=torch.float64))
    assert solve_weights(eta, sigma, 0.0).tolist() == [[0, 0, 1]]  # Ĵ = −1, −1, −0.5


def of_kernels(*eta, deviation=1.0):
    count = len(eta)
    spread = torch.full((1, count), deviation, dtype=torch.float64)
    return KernelTerms(torch.tensor([eta]).double(), torch.eye(count).double()[None], spread)


def test_beside_an_aggregate_other_kernels_must_show_an_effect():
    """In null deviations: aggregate 0.5; a single task's at 1.9 stays out, at 2.5 and 11 it joins."""

    def weights(*eta):
        return find_weights(of_kernels(*eta), (AGGREGATE, "a task"), 1.0)[0]

    assert weights(0.5, 1.9).tolist() == [1, 0]
    assert weights(0.5, 2.5).tolist() == pytest.approx([0.5, 0.5])
    assert weights(0.5, 11.0).tolist() == pytest.approx([0.2, 0.8])  # the aggregate keeps its share
    assert weights(-0.5, 2.0).tolist() == [1, 0]


def test_generic_kernels_take_over_where_the_training_rows_speak_for_them():
    """Shares are of null deviations: odds·e^evidence for the meta-tasks, e^z/2 for each of two generic kernels."""
    meta = torch.tensor([[1.0]], dtype=torch.float64)
    terms = of_kernels(0.0, 2.0, 6.0, deviation=2.0)  # z = 0, 1, 3
    weights, share = with_generic(meta, terms, torch.tensor([1.5], dtype=torch.float64))
    odds = np.array([RELATED_ODDS * np.exp(1.5), np.e / 2, np.e**3 / 2])
    assert weights[0].tolist() == pytest.approx(odds / odds.sum()) and share.item() == pytest.approx(
        odds[0] / odds.sum()
    )
    unequal = KernelTerms(terms.eta, terms.sigma, torch.tensor([[4.0, 2.0, 2.0]], dtype=torch.float64))
    weights, share = with_generic(meta, unequal, torch.tensor([-40.0], dtype=torch.float64))
    assert share.item() < 1e-15 and weights[0, 0].item() < 1e-15
    weights, _ = with_generic(meta, unequal, torch.tensor([1.5], dtype=torch.float64))
    assert weights[0, 0] / weights[0, 1] == pytest.approx(odds[0] / odds[1] / 2)  # twice the deviation, half the weight


def test_where_no_kernel_varies_the_largest_difference_takes_all_the_weight():
    """Rows that are all 0 against rows that are all 1: Σ = 0, and its ridge, a share of it, is 0 too."""
    assert solve_weights(torch.tensor([[0.2, 0.9, 0.5]]), torch.zeros(1, 3, 3), 0.0).tolist() == [[0, 1, 0]]
