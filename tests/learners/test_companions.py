"""What stands beside learned kernels, and what it does not see."""

import pytest
import torch

import m2st_core as m2st
from m2st_core.kernels.gaussian import GaussianKernel
from m2st_core.learners.bank import FREQUENCIES, GENERIC_NAMES, _null_deviations, generic_families
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.testing.methods import METHODS


@pytest.fixture(scope="module")
def learner():
    return m2st.meta_train("Meta-Witness", m2st.hdgm_related_tasks(n_tasks=6, rows=40), seed=0, device="cpu")


def test_generic_kernels_beside_the_tasks_are_gaussian():
    pooled = m2st.make_task("hdgm").sample(30, seed=1).pooled[None]
    families = generic_families(None, pooled, 0.5, [Streams(0)])
    assert [type(family.kernel) for family in families] == [GaussianKernel]
    assert families[0].names == GENERIC_NAMES


def test_null_deviations_never_compare_the_samples_themselves():
    """x stands before y among the pooled rows: halves taken in order would be the two samples, whatever the seed."""
    pooled = torch.randn(1, 40, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = GaussianKernel(torch.ones(1, 1, dtype=torch.float64))
    found = {_null_deviations([kernel], pooled, [Streams(seed)]).item() for seed in range(4)}
    assert len(found) == 4, "the halves are always the same rows"


def test_the_kernel_of_meta_witness_has_finite_rank(learner):
    """Two features for each frequency and at most three directions: differences that none of them shows are missed."""
    rows = m2st.make_task("hdgm").sample(200, seed=2).pooled[None]
    method, preset = METHODS["Meta-Witness"], PRESETS["recommended"]
    kernel = method.adapt(learner.knowledge, rows, preset, [Streams(0)]).kernel
    gram = kernel(rows[:, None], rows[:, None]).double().squeeze()
    values = torch.linalg.eigvalsh(gram)
    assert gram.shape == (400, 400)
    assert (values > 1e-6 * values[-1]).sum() <= 2 * FREQUENCIES + preset.features.leading + 1
