"""Derivatives written out by hand, against autograd on the definition of Ĵ_λ."""

from dataclasses import replace

import pytest
import torch
from torch.func import functional_call

from m2st_core.criterion import masked_terms, mean_criterion
from m2st_core.data.related import PairedRows
from m2st_core.kernels.deep import DeepKernel, RootDeepKernel
from m2st_core.kernels.networks import MLP
from m2st_core.learners.algorithm1 import Paired, adapt_state, terms
from m2st_core.learners.algorithm1_fast import DeepTerms, FastClimber, Parameters, SignedRows
from m2st_core.presets import MetaAscentSettings

REPEATS, TASKS, PAIRS = 2, 3, 7
LAMBDA = 1e-3
SETTINGS = MetaAscentSettings(
    outer_steps=1, outer_rate=0.01, tasks_per_step=3, inner_steps=3, inner_rate=0.5, regularisation=LAMBDA
)


def deep_kernel(kind):
    network = MLP((2, 5, 5, 4), [torch.Generator().manual_seed(seed) for seed in range(REPEATS)])
    centre = torch.full((REPEATS, 1, 2), 0.3, dtype=torch.float64)
    network.measure_in(centre, 5 * centre)
    g = torch.Generator().manual_seed(3)
    feature, inputs, mixing = torch.rand(3, REPEATS, generator=g, dtype=torch.float64)
    return kind(network, 0.3 + feature, 2 + inputs, 0.1 + 0.5 * mixing)


def padded_rows(seed=0):
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, REPEATS * TASKS, PAIRS, 2, generator=g, dtype=torch.float64)
    inside = torch.ones(REPEATS * TASKS, PAIRS, dtype=torch.float64)
    inside[1, 5:] = 0
    inside[4, 4:] = 0
    return PairedRows(x, y + 0.4, inside)


def repeated(paired):
    return {name: t.repeat_interleave(TASKS, dim=0) for name, t in paired.state_dict(keep_vars=True).items()}


def by_autograd(kernel, rows):
    """MMD², σ̂² and the state they depend on, from the matrix H."""
    paired = Paired(kernel)
    state = repeated(paired)
    own = {name for name, _ in paired.named_parameters()}
    state = {name: value.detach().requires_grad_(name in own) for name, value in state.items()}
    return state, masked_terms(functional_call(paired, state, (rows.x, rows.y)), rows.inside)


def short(parts):
    return {name.removeprefix("kernel."): value for name, value in parts.items()}


@pytest.mark.parametrize("kind", [DeepKernel, RootDeepKernel])
def test_terms_gradient_and_curvature_are_those_of_the_definition(kind):
    kernel, rows = deep_kernel(kind), padded_rows()
    layout = Parameters(kernel)
    state, (mmd2, variance) = by_autograd(kernel, rows)
    vector = layout.join({name: value.detach() for name, value in short(state).items()})
    found = DeepTerms(kernel, layout, vector, SignedRows(kernel, rows))
    assert torch.allclose(found.mmd2, mmd2, atol=1e-12) and torch.allclose(found.variance, variance, atol=1e-12)

    names = [name for name, value in state.items() if value.requires_grad]
    criterion = (mmd2 / (variance + LAMBDA).sqrt()).sum()
    slopes = torch.autograd.grad(criterion, [state[name] for name in names], create_graph=True)
    gradient = layout.split(found.criterion_gradient(LAMBDA))
    for name, slope in zip(names, slopes, strict=True):
        assert torch.allclose(gradient[name.removeprefix("kernel.")], slope, atol=1e-10), name

    g = torch.Generator().manual_seed(5)
    direction = torch.randn(vector.shape, generator=g, dtype=torch.float64)
    along = layout.split(direction)
    total = sum((slope * along[name.removeprefix("kernel.")]).sum() for name, slope in zip(names, slopes, strict=True))
    bends = torch.autograd.grad(total, [state[name] for name in names])
    curvature = layout.split(found.curvature(direction, LAMBDA))
    for name, bend in zip(names, bends, strict=True):
        assert torch.allclose(curvature[name.removeprefix("kernel.")], bend, atol=1e-9), name


@pytest.mark.parametrize(
    "change",
    [
        {"inner_steps": 0},
        {"second_order": True, "adapts": "all"},
        {"second_order": True, "adapts": "network"},
        {"second_order": False, "adapts": "all"},
        {"restart": True, "adapts": "network"},
        {"second_order": True, "ratio_of_means": True},
    ],
    ids=str,
)
def test_the_meta_gradient_is_that_of_autograd_through_the_inner_steps(change):
    """Autograd differentiates θ → objective of the query rows after the steps, for the same settings."""
    settings = replace(SETTINGS, **change)
    kernel, support, query = deep_kernel(DeepKernel), padded_rows(1), padded_rows(2)
    objective = mean_criterion(REPEATS, LAMBDA, settings.ratio_of_means)
    gradient, values = FastClimber(kernel, settings).gradient(support, query, objective)

    paired = Paired(kernel)
    theta = dict(paired.named_parameters())
    adapted = repeated(paired)
    if settings.inner_steps:
        adapted = adapt_state(paired, adapted, support, settings, settings.inner_steps)
    mmd2, variance = (part.reshape(REPEATS, TASKS) for part in terms(paired, adapted, query))
    if settings.ratio_of_means:
        expected = mmd2.mean(dim=1) / (variance.mean(dim=1) + LAMBDA).sqrt()
    else:
        expected = (mmd2 / (variance + LAMBDA).sqrt()).mean(dim=1)
    assert torch.allclose(values, expected.detach(), atol=1e-12)
    slopes = torch.autograd.grad(expected.sum(), list(theta.values()))
    for name, slope in zip(theta, slopes, strict=True):
        assert torch.allclose(gradient[name.removeprefix("kernel.")], slope, atol=1e-9), name
