import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from m2st_core.criterion import mmd2_unbiased
from m2st_core.device import one_thread_per_operation
from m2st_core.kernels.base import LinearKernel
from m2st_core.kernels.distance import GaussianKernel, LaplaceKernel
from m2st_core.kernels.mixtures import Family, MixtureKernel
from m2st_core.permutation import engine
from m2st_core.permutation.combined import FuseTest
from m2st_core.permutation.engine import permuted_mean_difference, permuted_mmd2
from m2st_core.permutation.labellings import permutation_p_value, random_memberships
from tests import naive

float64 = torch.float64


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=float64)


def gaussian(width=1.3):
    return GaussianKernel(torch.tensor(width, dtype=float64))


def direct(kernel, pooled, members):
    """MMD²_u of every labelling from its own Gram matrices."""
    values = []
    for z in members:
        x, y = pooled[z], pooled[~z]
        values.append(mmd2_unbiased(kernel(x, x), kernel(y, y), kernel(x, y)).item())
    return torch.tensor(values, dtype=float64)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (2, 5), (6, 4)])
def test_all_labellings_equal_the_double_loop(n, m):
    pooled, members = rows(n + m, 2), torch.from_numpy(naive.labellings(n, m))
    found, _ = permuted_mmd2(gaussian(), pooled, members, n, float64)
    k = naive.gaussian(1.3)
    expected = [naive.mmd2_unbiased(k, pooled[z].tolist(), pooled[~z].tolist()) for z in members]
    assert found.tolist() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("block_rows", [1, 3, 7, 256])
def test_blocks_do_not_change_the_statistic(block_rows, monkeypatch):
    monkeypatch.setattr(engine, "BLOCK_ROWS", block_rows)
    families = [GaussianKernel(torch.ones(1, dtype=float64)), LaplaceKernel(torch.full((1,), 0.7, dtype=float64))]
    kernel = MixtureKernel(families, [1, 1], torch.tensor([0.4, 0.6]))
    pooled = rows(17, 2)
    members = random_memberships(7, 10, 30, [np.random.default_rng(0)])[0]
    found, _ = permuted_mmd2(kernel, pooled, members, 7, float64)
    assert torch.allclose(found, direct(kernel, pooled, members), atol=1e-12)


@pytest.mark.parametrize("gaussian_share", [0.0, 0.3])
def test_inner_products_permuted_through_sums_equal_their_gram_matrices(gaussian_share):
    """Far from the origin, where sums lose digits; with and without a kernel that needs its Gram matrix."""
    linear = LinearKernel(rows(2, 3, 3, 2, seed=4))  # two runs, three kernels
    generic = GaussianKernel(torch.tensor([[0.8], [2.0]], dtype=float64))
    shares = torch.tensor([0.5, 0.2, 0.3]).double() * (1 - gaussian_share)
    weights = torch.cat([shares, torch.tensor([gaussian_share]).double()]).expand(2, -1)
    mixed = MixtureKernel([linear, generic], [3, 1], weights)
    assert mixed.inner_product is (gaussian_share == 0)
    pooled = rows(2, 17, 3) + 100
    members = random_memberships(7, 10, 30, [np.random.default_rng(seed) for seed in range(2)])
    found, _ = permuted_mmd2(mixed, pooled, members, 7, float64)
    for run in range(2):
        expected = gaussian_share * direct(gaussian([0.8, 2.0][run]), pooled[run], members[run])
        for index, share in enumerate(shares):
            own = LinearKernel(linear.matrix[run, index].detach())
            expected = expected + share * direct(own, pooled[run] - 100, members[run])
        assert torch.allclose(found[run], expected, atol=1e-9)


def test_a_batch_equals_a_loop():
    pooled = rows(4, 30, 2)
    members = random_memberships(12, 18, 50, [np.random.default_rng(seed) for seed in range(4)])
    kernel = GaussianKernel(torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=float64))
    together, rounding = permuted_mmd2(kernel, pooled, members, 12, float64)
    assert together.shape == (4, 51) and rounding.shape == (4,)
    for index, width in enumerate([0.5, 1.0, 2.0, 4.0]):
        assert torch.allclose(together[index], direct(gaussian(width), pooled[index], members[index]), atol=1e-12)


def test_fuse_equals_the_double_loop():
    n, m = 4, 6
    pooled = rows(2, n + m, 2)
    members = torch.from_numpy(naive.labellings(n, m)[:30]).expand(2, -1, -1)
    widths = torch.tensor([[0.5, 2.0], [1.0, 3.0]], dtype=float64)
    families = (Family(GaussianKernel(widths), ("a", "b"), 0.2), Family(LaplaceKernel(widths), ("c", "d"), 0.3))
    found, rounding, _ = FuseTest(families).statistics(pooled, members, n)
    assert found.shape == (2, 30) and rounding.shape == (2,)
    for run in range(2):
        kernels = [make(width) for make in (naive.gaussian, naive.laplace) for width in widths[run].tolist()]
        for p, z in enumerate(members[run]):
            x, y = pooled[run][z].tolist(), pooled[run][~z].tolist()
            assert found[run, p].item() == pytest.approx(naive.fuse(kernels, [0.2, 0.2, 0.3, 0.3], x, y), abs=1e-5)


@pytest.mark.parametrize("kernel", [gaussian(), LinearKernel(rows(3, 2, seed=99))], ids=["Gram matrix", "sums"])
def test_float32_and_float64_give_the_same_p_values(kernel):
    differ = 0
    for seed in range(40):
        pooled = rows(120, 3, seed=seed) + 100
        members = random_memberships(50, 70, 499, [np.random.default_rng(seed)])[0]
        values = [
            permutation_p_value(*permuted_mmd2(kernel, pooled, members, 50, dtype), "(1+b)/(1+B)").item()
            for dtype in (torch.float32, float64)
        ]
        differ += values[0] != values[1]
    assert differ == 0


def test_threads_do_not_change_a_bit(monkeypatch):
    monkeypatch.setattr(engine, "BLOCK_ROWS", 16)
    pooled = rows(100, 2)
    members = random_memberships(40, 60, 99, [np.random.default_rng(0)])[0]
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            with one_thread_per_operation():
                found.append(permuted_mmd2(gaussian(), pooled, members, 40)[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_mean_difference_equals_its_formula():
    scores, members = rows(3, 9), torch.from_numpy(naive.labellings(4, 5)).expand(3, -1, -1)
    found, _ = permuted_mean_difference(scores, members, 4)
    for r, p in itertools.product(range(3), range(members.shape[1])):
        z = members[r, p]
        assert found[r, p].item() == pytest.approx(abs(scores[r][z].mean() - scores[r][~z].mean()).item(), abs=1e-14)


def test_random_labellings_are_uniform_over_all_subsets():
    draws = 30_000
    members = random_memberships(2, 4, draws, [np.random.default_rng(1)])[0]
    assert members[0].tolist() == [True, True, False, False, False, False]
    assert (members.sum(dim=1) == 2).all()
    counts = Counter(tuple(np.flatnonzero(row)) for row in members[1:].numpy())
    assert len(counts) == 15
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize("shape", [(5, 4), (7, 3)])
def test_keys_are_the_generators_integers(shape):
    """Taken as whole words where they fill them: 20 keys of 16 bits do, 21 do not."""
    runs, n = shape[0], 2
    members = random_memberships(n, shape[1] - n, runs, [np.random.default_rng(4)])[0, 1:].numpy()
    keys = np.random.default_rng(4).integers(0, 2**16, size=shape, dtype=np.uint16)
    assert np.array_equal(members, keys <= np.sort(keys, axis=1)[:, n - 1 : n])


class FewKeys:
    """A generator of four keys: with them, ties are as frequent as they are rare with 2¹⁶."""

    def __init__(self):
        self.generator, self.bit_generator = np.random.default_rng(0), self

    def random_raw(self, words):
        return self.integers(0, 4, size=4 * words, dtype=np.uint16).view(np.uint64)

    def integers(self, low, high, size, dtype):
        return self.generator.integers(0, 4, size=size, dtype=dtype)


def test_tied_keys_are_drawn_again():
    members = random_memberships(3, 3, 5000, [FewKeys()])[0]
    assert (members.sum(dim=1) == 3).all()
    counts = Counter(tuple(np.flatnonzero(row)) for row in members[1:].numpy())
    assert len(counts) == 20 and stats.chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize(("n", "m"), [(2, 4), (3, 4)])
def test_full_enumeration_gives_every_p_value_once(n, m):
    """Under exchangeability all labellings are equally likely: p must run through 1/M, 2/M, …, 1 exactly."""
    pooled, all_members = rows(n + m, 2), torch.from_numpy(naive.labellings(n, m))
    count = len(all_members)
    found = []
    for observed in range(count):
        order = [observed, *(i for i in range(count) if i != observed)]
        statistics = permuted_mmd2(gaussian(), pooled, all_members[order], n)
        found.append(permutation_p_value(*statistics, "(1+b)/(1+B)").item())
    assert sorted(found) == pytest.approx([(i + 1) / count for i in range(count)], abs=1e-12)


def test_equal_sizes_tie_each_labelling_with_its_mirror():
    pooled, all_members = rows(6, 2), torch.from_numpy(naive.labellings(3, 3))
    found = []
    for observed in range(20):
        order = [observed, *(i for i in range(20) if i != observed)]
        statistics = permuted_mmd2(gaussian(), pooled, all_members[order], 3)
        found.append(round(20 * permutation_p_value(*statistics, "(1+b)/(1+B)").item()))
    assert Counter(found) == {2 * i: 2 for i in range(1, 11)}


def test_random_permutations_give_uniform_p_values():
    """20+25 fresh null rows, B=9: p is uniform on {1/10, …, 1}; ties of C(45,20) labellings have no room."""
    draws = 4000
    pooled = rows(draws, 45, 2)
    members = random_memberships(20, 25, 9, [np.random.default_rng(seed) for seed in range(draws)])
    p = permutation_p_value(*permuted_mmd2(gaussian(), pooled, members, 20), "(1+b)/(1+B)")
    counts = np.bincount((10 * p).round().long().numpy(), minlength=11)[1:]
    assert counts.sum() == draws and stats.chisquare(counts).pvalue > 1e-3


def test_the_rules_of_the_p_value():
    statistics = torch.tensor([1.0, 2.0, 1.0, 0.0, 0.5], dtype=float64)  # observed 1; one above, one tie
    rounding = torch.tensor(0.0, dtype=float64)
    assert permutation_p_value(statistics, rounding, "(1+b)/(1+B)").item() == 3 / 5
    assert permutation_p_value(statistics, rounding, "b/B, ≥").item() == 2 / 4
    assert permutation_p_value(statistics, rounding, "b/B, >").item() == 1 / 4


def test_rounding_ties_count_as_ties():
    """Rows with many duplicates: equal statistics reached by different sums must tie, in float32 too."""
    generator = np.random.default_rng(0)
    for seed in range(20):
        pooled = torch.from_numpy(generator.integers(0, 2, size=(40, 1)).astype(float))
        members = random_memberships(20, 20, 199, [np.random.default_rng(seed)])[0]
        ones = (members.double() @ pooled)[:, 0]
        exact = (ones - pooled.sum() / 2).abs()  # the MMD of two binary samples grows with this
        p = permutation_p_value(*permuted_mmd2(gaussian(), pooled, members, 20), "(1+b)/(1+B)")
        assert p.item() == pytest.approx((1 + (exact[1:] >= exact[0]).sum().item()) / 200)


@pytest.mark.parametrize(("rule", "p"), [("(1+b)/(1+B)", 1.0), ("b/B, ≥", 1.0), ("b/B, >", 1.0)])
def test_what_overflowed_is_no_evidence(rule, p):
    statistics = torch.tensor([[torch.nan, 1.0, 2.0, 3.0], [torch.nan] * 4], dtype=float64)
    assert permutation_p_value(statistics, torch.zeros(2), rule).tolist() == [p, p]


def test_sums_of_huge_features_stay_finite():
    pooled = rows(14, 3)
    members = random_memberships(6, 8, 50, [np.random.default_rng(0)])[0]
    kernel = LinearKernel(rows(3, 2, seed=4))
    ordinary, _ = permuted_mmd2(kernel, pooled, members, 6)
    huge, error = permuted_mmd2(kernel, 1e30 * pooled, members, 6)
    assert torch.allclose(huge / 1e60, ordinary, rtol=1e-4, atol=1e-6) and bool(error.isfinite().all())
