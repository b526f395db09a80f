"""The convolutional network: a batch of networks is its networks, and no feature knows a label."""

import pytest
import torch
from torch import nn

from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.networks import CNN, layer_sides

SHAPE = (2, 8, 6)
PIXELS = 2 * 8 * 6


def rows(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(seeds=(0, 1, 2), upsample=1):
    return CNN(SHAPE, (4, 5, 6), 7, [torch.Generator().manual_seed(seed) for seed in seeds], upsample)


@pytest.mark.parametrize("upsample", [1, 2])
def test_a_batch_of_networks_is_one_network_after_another(upsample):
    x = rows(3, 9, PIXELS)
    together = network(upsample=upsample)
    values = together(together.normalise(x))
    values.square().sum().backward()
    for seed in range(3):
        alone = network((seed,), upsample)
        value = alone(alone.normalise(x[seed][None]))
        value.square().sum().backward()
        assert torch.equal(values[seed], value[0])
        for batched, single in zip(together.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(batched.grad[seed], single.grad[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("upsample", [1, 2])
def test_the_layers_are_the_published_ones(upsample):
    """Convolution, LeakyReLU and, but for the first, batch normalisation with ε=0.8, by torch's own layers."""
    cnn = network((0,), upsample).float()
    layers = [nn.Upsample(scale_factor=upsample, mode="bilinear")] if upsample > 1 else []
    for index, (kernel, offset) in enumerate(zip(cnn.kernels, cnn.offsets, strict=True)):
        layer = nn.Conv2d(kernel.shape[2], kernel.shape[1], 3, stride=2, padding=1)
        layer.weight.data, layer.bias.data = kernel[0].data, offset[0].data
        layers += [layer, nn.LeakyReLU(0.2)] + [nn.BatchNorm2d(kernel.shape[1], eps=0.8)] * (index > 0)
    last = nn.Linear(cnn.weight.shape[1], 7)
    last.weight.data, last.bias.data = cnn.weight[0].T.data, cnn.bias[0, 0].data
    reference = nn.Sequential(*layers, nn.Flatten(), last).train()
    x = rows(1, 9, PIXELS).float()
    expected = reference((x[0] * 2 - 1).unflatten(-1, SHAPE))
    torch.testing.assert_close(cnn(cnn.normalise(x))[0], expected, rtol=1e-4, atol=1e-5)


def test_networks_and_rows_broadcast():
    """One network for several samples, each normalised by itself; and (R, K) networks for (R, 1) samples."""
    one, x = network((0,)), rows(4, 9, PIXELS)
    assert torch.equal(one(x)[2], one(x[2:3])[0])
    grid = network((0, 1, 2, 3, 4, 5))
    for tensor in [*grid.parameters(), *grid.buffers()]:
        tensor.data = tensor.data.reshape(2, 3, *tensor.shape[1:])
    found = grid(x[:2, None])
    assert found.shape == (2, 3, 9, 7)
    alone = network((4,))
    assert torch.equal(found[1, 1], alone(x[1][None])[0])


def test_features_do_not_know_the_order_of_the_rows():
    x, order = rows(1, 12, PIXELS), torch.randperm(12, generator=torch.Generator().manual_seed(1))
    cnn = network((0,))
    torch.testing.assert_close(cnn(x[:, order]), cnn(x)[:, order], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(cnn(x[:, :6]), cnn(x)[:, :6], atol=1e-4)  # so statistics are those of all rows


def test_a_frozen_network_gives_every_row_its_own_features():
    x, cnn = rows(1, 12, PIXELS), network((0,))
    before = cnn(x)
    cnn.freeze(x[0])
    torch.testing.assert_close(cnn(x), before, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(cnn(x[:, 3:4]), cnn(x)[:, 3:4], rtol=1e-4, atol=1e-5)


def test_the_deep_kernel_of_images_is_its_definition():
    cnn = network((0,))
    kernel = DeepKernel(cnn, *(torch.tensor([value], dtype=torch.float64) for value in (0.3, 5.0, 0.2)))
    x = rows(1, 5, PIXELS)
    phi, inputs = cnn(cnn.normalise(x))[0], cnn.normalise(x)[0]
    gram = kernel(x, x)[0]
    for i in range(5):
        for j in range(5):
            features = torch.exp(-(phi[i] - phi[j]).square().sum() / 0.3)
            value = (0.8 * features + 0.2) * torch.exp(-(inputs[i] - inputs[j]).square().sum() / 5)
            torch.testing.assert_close(gram[i, j], value, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("shape", "upsample", "expected"),
    [
        ((3, 32, 32), 1, [(16, 16), (8, 8), (4, 4), (2, 2)]),
        ((3, 32, 32), 2, [(32, 32), (16, 16), (8, 8), (4, 4)]),
        ((1, 8, 8), 1, [(4, 4), (2, 2)]),
        ((1, 2, 9), 1, [(1, 5)]),
    ],
)
def test_convolutions_stop_before_images_vanish(shape, upsample, expected):
    assert layer_sides(shape, upsample, 4) == expected
