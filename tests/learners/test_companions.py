"""The kernels of learned spaces, what stands beside them, and what they do not see."""

import math

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.kernels.distance import GaussianKernel
from m2st_core.learners.generic import GENERIC_NAMES, generic_families, network_families
from m2st_core.learners.knowledge import Knowledge, learned_spaces
from m2st_core.learners.learned_tests import learned_family, meta_bank
from m2st_core.learners.raw_features import FourierFeatures
from m2st_core.learners.units import Units
from m2st_core.presets import TUNED
from m2st_core.rng import Streams
from m2st_core.testing.methods import METHODS

float64 = torch.float64


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=float64)


def space(coordinates, log_weights, seed):
    """ψ of two columns for as many repeats as there are weights, with random numbers everywhere."""
    repeats = len(log_weights)
    units = Units(torch.zeros(repeats, 1, 2, dtype=float64), torch.ones(repeats, 1, 2, dtype=float64))
    features = FourierFeatures(units, rows(repeats, 2, 3, seed=seed), coordinates)
    return features.aligned(
        {
            "transform": rows(repeats, 8, coordinates, seed=seed + 1),
            "offset": rows(repeats, 1, coordinates, seed=seed + 2),
            "prior": rows(repeats, coordinates, seed=seed + 3).abs(),
            "log_weight": torch.tensor(log_weights, dtype=float64),
        }
    )


@pytest.fixture(scope="module")
def learner():
    return m2st.meta_train("Meta-Witness", m2st.hdgm_related_tasks(n_tasks=6, rows=40), seed=0, device="cpu")


def test_generic_kernels_beside_the_tasks_are_gaussian(learner):
    pooled = m2st.make_task("hdgm").sample(30, seed=1).pooled[None]
    families = generic_families(None, pooled, 0.5, [Streams(0)])
    assert [type(family.kernel) for family in families] == [GaussianKernel]
    assert families[0].names == GENERIC_NAMES
    assert network_families(learned_spaces(learner.knowledge)[0], pooled, 0.5, [Streams(0)]) == []


def test_each_space_has_a_kernel_of_its_formula():
    """Spaces of unequal sizes in two repeats; the weights of the family are those of the spaces."""
    known = Knowledge(spaces=[space(5, [-0.2, -1.0], 0), space(3, [-1.7, -0.5], 10)])
    pooled = rows(2, 9, 2, seed=20)
    family = learned_family(known, pooled, 0.5)
    gram = family.kernel(pooled[:, None], pooled[:, None])
    assert gram.shape == (2, 2, 9, 9) and family.names == ("learned features 1", "learned features 2")
    assert family.share * 2 == pytest.approx(0.5)
    for repeat in range(2):
        for place, one in enumerate(learned_spaces(known)):
            psi = one(pooled)[repeat].numpy()
            s = one.prior[repeat].numpy()
            r = 4 * s / math.sqrt(sum(s**2))
            weights = r / (1 + r) / psi.std(axis=0, ddof=1) ** 2
            assert gram[repeat, place].detach().numpy() == pytest.approx((psi * weights) @ psi.T, rel=1e-5, abs=1e-5)
        weights = np.exp([-0.2, -1.7] if repeat == 0 else [-1.0, -0.5])
        assert family.weights[repeat].tolist() == pytest.approx(weights / weights.sum())


def test_some_of_the_spaces_have_the_same_kernels():
    known = Knowledge(spaces=[space(5, [0.0], 0), space(3, [0.0], 10), space(4, [0.0], 20)])
    pooled = rows(1, 9, 2, seed=20)[:, None]
    whole = learned_family(known, pooled[:, 0], 1.0).kernel
    some = whole.some(torch.tensor([True, False, True]))
    torch.testing.assert_close(some(pooled, pooled), whole(pooled, pooled)[:, [0, 2]])


def test_coordinates_that_a_repeat_does_not_have_do_not_count():
    """Zeros before the coordinates, as where another repeat has more of them."""
    one = space(4, [0.0], 0)
    padded = space(4, [0.0], 0)
    for name in ("transform", "offset", "prior"):
        setattr(padded, name, torch.nn.functional.pad(getattr(padded, name), (3, 0)))
    pooled = rows(1, 9, 2, seed=20)
    grams = [
        learned_family(Knowledge(spaces=[s]), pooled, 1.0).kernel(pooled[:, None], pooled[:, None])
        for s in (one, padded)
    ]
    torch.testing.assert_close(*grams)


def test_half_of_meta_fuse_is_learned(learner):
    pooled = m2st.make_task("hdgm").sample(30, seed=1).pooled[None]
    bank = meta_bank(learner.knowledge, pooled, TUNED, [Streams(0)])
    shares = [family.share * len(family.names) for family in bank.families]
    assert shares[0] == pytest.approx(1 / 2) and len(shares) == 4
    fine = 0.6 * 60 / (60 + 600)
    assert sum(shares) == pytest.approx(1 - 1 / 2 * 0.35 * (1 - fine))  # the rest is MMD-FUSE's
    assert bank.families[0].weights.sum().item() == pytest.approx(1) and bank.families[1].weights is None


def test_the_kernels_of_meta_witness_have_finite_rank(learner):
    """No more than the coordinates of their spaces: differences that none of them shows are missed."""
    pooled = m2st.make_task("hdgm").sample(200, seed=2).pooled[None]
    (family,) = METHODS["Meta-Witness"].adapt(learner.knowledge, pooled, TUNED, [Streams(0)]).families
    grams = family.kernel(pooled[:, None], pooled[:, None])[0].detach()
    for gram, one in zip(grams, learned_spaces(learner.knowledge), strict=True):
        values = torch.linalg.eigvalsh(gram)
        assert gram.shape == (400, 400)
        assert (values > 1e-6 * values[-1]).sum() <= one.prior.shape[-1] <= TUNED.features.most_coordinates
