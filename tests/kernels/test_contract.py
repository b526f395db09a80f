"""The contract that every kernel class passes."""

import inspect

import pytest
import torch

import m2st_core.kernels.base
import m2st_core.kernels.deep
import m2st_core.kernels.distance
import m2st_core.kernels.mixtures
from m2st_core.kernels.base import ComposedKernel, Kernel, LinearKernel, copy_with, take
from m2st_core.kernels.deep import DeepKernel, RootDeepKernel
from m2st_core.kernels.distance import EnergyKernel, GaussianKernel, LaplaceKernel
from m2st_core.kernels.mixtures import MixtureKernel, summands
from m2st_core.kernels.networks import MLP

BATCH, FLOAT32, DIGITS = 3, 1e-6, 1e-13
WIDTHS = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
MODULES = (m2st_core.kernels.base, m2st_core.kernels.deep, m2st_core.kernels.distance, m2st_core.kernels.mixtures)


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def deep(kind):
    network = MLP((2, 4, 4, 6), [torch.Generator().manual_seed(seed) for seed in range(BATCH)])
    network.measure_in(rows(BATCH, 1, 2, seed=8), rows(BATCH, 1, 2, seed=9).abs() + 0.5)
    return kind(network, feature_width=WIDTHS, input_width=2 * WIDTHS, mixing=0.2 * WIDTHS)


def mixture():
    """Families of one Laplace, two Gaussian and two linear kernels; some weights are 0 in some runs."""
    weights = [[0.3, 0.2, 0.1, 0.2, 0.2], [0.5, 0.0, 0.5, 0.0, 0.0], [0.0, 0.0, 0.4, 0.0, 0.6]]
    families = [
        LaplaceKernel(WIDTHS[:, None]),
        GaussianKernel(WIDTHS[:, None] * torch.tensor([1.0, 3.0])),
        LinearKernel(rows(BATCH, 2, 2, 3, seed=5)),
    ]
    return MixtureKernel(families, [1, 2, 2], torch.tensor(weights, dtype=torch.float64))


KERNELS = {
    GaussianKernel: lambda: GaussianKernel(WIDTHS),
    LaplaceKernel: lambda: LaplaceKernel(WIDTHS),
    EnergyKernel: lambda: EnergyKernel(rows(BATCH, 1, 2, seed=7)),
    DeepKernel: lambda: deep(DeepKernel),
    RootDeepKernel: lambda: deep(RootDeepKernel),
    LinearKernel: lambda: LinearKernel(rows(BATCH, 2, 3, seed=6)),
    ComposedKernel: lambda: ComposedKernel(torch.nn.Softplus(), GaussianKernel(WIDTHS)),
    MixtureKernel: mixture,
}


def test_no_kernel_class_is_missing():
    classes = {value for module in MODULES for value in vars(module).values() if inspect.isclass(value)}
    kinds = {kind for kind in classes if issubclass(kind, Kernel) and not inspect.isabstract(kind)}
    assert {kind for kind in kinds if not kind.__name__.startswith("_")} == set(KERNELS)  # others are their summands


@pytest.fixture(params=KERNELS, ids=lambda kind: kind.__name__)
def kernel(request):
    return KERNELS[request.param]()


def test_a_batch_equals_the_loop_over_it(kernel):
    x, y = rows(BATCH, 5, 2), rows(BATCH, 4, 2, seed=1)
    together = kernel(x, y)
    assert together.shape == (BATCH, 5, 4) and together.dtype == torch.float64
    for index in range(BATCH):
        alone = copy_with(kernel, lambda tensor, at=index: tensor[at : at + 1])
        torch.testing.assert_close(together[index], alone(x[index, None], y[index, None])[0], rtol=0, atol=DIGITS)


def test_symmetric_and_positive_semi_definite(kernel):
    x = rows(BATCH, 12, 2)
    gram = kernel(x, x)
    torch.testing.assert_close(gram, gram.mT, rtol=0, atol=DIGITS)
    assert torch.linalg.eigvalsh(gram).min() > -10 * DIGITS


def test_blocks_of_embedded_rows_give_blocks_of_the_direct_call(kernel):
    x, y = rows(BATCH, 9, 2), rows(BATCH, 6, 2, seed=1)
    first, second = kernel.embed(x), kernel.embed(y)
    assert len(first) == kernel.parts
    block = kernel.gram(take(first, 2, 5), take(second, 4))
    torch.testing.assert_close(block, kernel(x, y)[:, 2:5, 4:], rtol=0, atol=DIGITS)
    rounded = kernel.gram(first, second, torch.float32)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), kernel(x, y), rtol=FLOAT32, atol=FLOAT32)


def test_gradients_by_rows_and_parameters(kernel):
    x, y = rows(BATCH, 3, 2).requires_grad_(), rows(BATCH, 4, 2, seed=1)
    names = [name for name, _ in kernel.named_parameters()]

    def gram(x, *values):
        return torch.func.functional_call(kernel, dict(zip(names, values, strict=True)), (x, y))

    assert torch.autograd.gradcheck(gram, (x, *kernel.parameters()))


def test_a_state_dict_restores_the_kernel(kernel):
    x = rows(BATCH, 5, 2)
    other = copy_with(kernel, lambda tensor: tensor + 0.1)
    assert not torch.equal(other(x, x), kernel(x, x))
    other.load_state_dict(kernel.state_dict())
    assert torch.equal(other(x, x), kernel(x, x))


def test_the_embedding_of_an_inner_product_has_its_features(kernel):
    x = rows(BATCH, 5, 2)
    parts = [part for _, part in summands(kernel)] if isinstance(kernel, MixtureKernel) else [kernel]
    for part in parts:
        if part.inner_product:
            (features,) = part.embed(x)
            torch.testing.assert_close((features @ features.mT).double(), part(x, x), rtol=0, atol=DIGITS)


def test_summands_add_up_to_the_mixture(kernel):
    if not isinstance(kernel, MixtureKernel):
        return
    x = rows(BATCH, 5, 2)
    terms = summands(kernel)
    assert [part.inner_product for _, part in terms] in ([True], [False], [True, False])
    weights = [torch.as_tensor(weight, dtype=torch.float64).expand(BATCH)[:, None, None] for weight, _ in terms]
    total = sum(weight * part(x, x) for weight, (_, part) in zip(weights, terms, strict=True))
    torch.testing.assert_close(total, kernel(x, x), rtol=0, atol=DIGITS)


@pytest.mark.parametrize("kernel", [GaussianKernel, LaplaceKernel, DeepKernel, RootDeepKernel], indirect=True)
def test_distances_do_not_depend_on_where_the_rows_lie(kernel):
    """In float32, from float64 rows a million away from 0."""
    x = rows(BATCH, 6, 2)
    if isinstance(kernel, DeepKernel):
        kernel.network.measure_in(torch.full((BATCH, 1, 2), 1e6), kernel.network.scale)
    embedded = kernel.embed(x + 1e6)
    far = kernel.gram(embedded, embedded, torch.float32).double()
    if isinstance(kernel, DeepKernel):
        kernel.network.measure_in(torch.zeros(BATCH, 1, 2), kernel.network.scale)
    torch.testing.assert_close(far, kernel(x, x), rtol=0, atol=FLOAT32)
