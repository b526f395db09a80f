"""The GPU that is none fails where CUDA fails, lets pass what CUDA lets pass, and counts what is moved."""

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from m2st_core.device import resolve_device
from tests.fake_gpu import fake_gpu

OTHER_DEVICE = "Expected all tensors to be on the same device|but got tensor with cpu Device"


@pytest.fixture
def gpu():
    with fake_gpu() as made:
        yield made


def there(*shape, dtype=torch.float64):
    return torch.arange(1, 1 + int(np.prod(shape)), dtype=dtype, device="cuda").reshape(shape)


def here(*shape, dtype=torch.float64):
    return torch.arange(1, 1 + int(np.prod(shape)), dtype=dtype).reshape(shape)


def test_there_is_one_gpu_inside_only(gpu):
    assert resolve_device("auto") == torch.device("cuda") and resolve_device("cuda:0").index == 0
    with pytest.raises(ValueError, match="1 GPUs"):
        resolve_device("cuda:1")
    with pytest.raises(RuntimeError, match="invalid device"):
        torch.zeros(2, device="cuda:1")


def test_tensors_know_where_they_are(gpu):
    x = there(3)
    for made in (x, x + 1, x.new_zeros(2), torch.zeros_like(x), torch.tensor([1.0], device="cuda"), x.new_tensor([1])):
        assert made.device == torch.device("cuda:0") and made.is_cuda
    for made in (here(3).to(x), here(3).to("cuda"), here(3).cuda(), torch.as_tensor(1.0, device=x.device), x[:2]):
        assert made.is_cuda
    for made in (
        x.cpu(),
        x.to("cpu"),
        torch.arange(3),
        torch.from_numpy(np.ones(3)),
        torch.zeros_like(x, device="cpu"),
    ):
        assert made.device == torch.device("cpu") and not made.is_cuda


MIXED = {
    "operands": lambda: there(3) + here(3),
    "a GPU number and a CPU tensor": lambda: here(3) * there(1)[0],
    "comparison": lambda: there(3) < here(3),
    "a third operand": lambda: torch.lerp(there(3), there(3), here(3)),
    "written to the CPU": lambda: here(3).add_(there(3)),
    "a number written to the CPU": lambda: here(1)[0].add_(there(1)[0]),
    "product": lambda: there(2, 2) @ here(2, 2),
    "product with a number": lambda: torch.mv(there(2, 2), here(2)),
    "einsum": lambda: torch.einsum("i,ij->j", there(2), here(2, 2)),
    "cat": lambda: torch.cat([there(2), here(2)]),
    "stack": lambda: torch.stack([there(1)[0], here(1)[0]]),
    "where, condition": lambda: torch.where(here(3) > 1, there(3), there(3)),
    "where, value": lambda: torch.where(there(3) > 1, there(3), here(3)),
    "take_along_dim": lambda: there(3).take_along_dim(torch.arange(2), dim=0),
    "gather": lambda: there(3).gather(0, torch.arange(2)),
    "gather from the CPU": lambda: here(3).gather(0, torch.arange(2, device="cuda")),
    "index_select": lambda: there(3).index_select(0, torch.arange(2)),
    "masked_fill": lambda: there(3).masked_fill(here(3) > 1, 0.0),
    "isin": lambda: torch.isin(there(3), here(3)),
    "searchsorted": lambda: torch.searchsorted(there(3), here(3)),
    "cdist": lambda: torch.cdist(there(2, 2), here(2, 2)),
    "solve": lambda: torch.linalg.solve(there(2, 2), here(2)),
    "values put in": lambda: there(3).__setitem__(torch.arange(2), here(2)),
    "optimiser": lambda: torch._foreach_add([there(3)], [here(3)]),
}


@pytest.mark.parametrize("what", MIXED)
def test_two_devices_in_one_operation_fail(what, gpu):
    with pytest.raises(RuntimeError, match=OTHER_DEVICE):
        MIXED[what]()


@pytest.mark.parametrize("index", [lambda: torch.arange(2, device="cuda"), lambda: there(3) > 1])
def test_a_cpu_tensor_takes_no_gpu_index(index, gpu):
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        here(3)[index()]
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        here(3)[index()] = 0.0


def test_cpu_generators_draw_nothing_on_the_gpu(gpu):
    generator = torch.Generator().manual_seed(0)
    for draw in (
        lambda: torch.rand(3, generator=generator, device="cuda"),
        lambda: torch.randn(3, generator=generator, device="cuda"),
        lambda: torch.randperm(3, generator=generator, device="cuda"),
        lambda: there(3).normal_(generator=generator),
    ):
        with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
            draw()
    assert torch.rand(3, generator=generator).to("cuda").is_cuda


def test_numpy_sees_cpu_tensors_only(gpu):
    for look in (torch.Tensor.numpy, np.asarray, lambda x: x.detach().numpy()):
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
            look(there(3))
    assert there(3).cpu().numpy().tolist() == [1, 2, 3]


def test_whole_numbers_have_no_matrix_product(gpu):
    with pytest.raises(RuntimeError, match="not implemented for torch.int64"):
        there(2, 2, dtype=torch.int64) @ there(2, 2, dtype=torch.int64)


ALLOWED = {
    "a CPU number": lambda: there(3) + torch.tensor(1.0),
    "a CPU number first": lambda: torch.tensor(2.0) * there(3),
    "where with a CPU number": lambda: torch.where(there(3) > 1, there(3), torch.tensor(0.0)),
    "in place": lambda: there(3).mul_(torch.tensor(2.0)),
    "filled with a CPU number": lambda: there(3).fill_(torch.tensor(2.0)),
    "CPU indices": lambda: there(3)[torch.arange(2)],
    "a CPU mask": lambda: there(3)[here(3) > 1],
    "copied in": lambda: there(3).copy_(here(3)),
    "a slice set": lambda: there(3).__setitem__(slice(2), here(2)) or there(3),
    "sum from 0": lambda: sum([there(3), there(3)], torch.zeros(())),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_cuda_allows(what, gpu):
    assert ALLOWED[what]().is_cuda


def test_values_are_those_of_the_cpu(gpu):
    x = there(2, 3)
    view = x[0]
    view *= 2
    assert x.tolist() == [[2, 4, 6], [4, 5, 6]]
    assert (x[:, :2] @ x[:, :2].mT).tolist() == [[20, 28], [28, 41]]
    assert torch.quantile(x[0], 0.5).item() == 4  # torch squeezes in place here
    y = here(3)
    y[:] = there(3)
    assert y.tolist() == [1, 2, 3]


MOVED = {
    "to": (lambda: here(3).to("cuda"), 1),
    "to where it is": (lambda: there(3).to("cuda"), 0),
    "another dtype": (lambda: there(3).float(), 0),
    "cpu": (lambda: there(3).cpu(), 1),
    "tolist": (lambda: there(3).tolist(), 1),
    "item": (lambda: there(1).item(), 1),
    "float": (lambda: float(there(1)), 1),
    "bool": (lambda: bool(there(1)), 1),
    "a format": (lambda: f"{there(1)[0]:.1f}", 1),
    "a choice": (lambda: 1 if (there(3) > 0).all() else 0, 1),
    "a number as index": (lambda: here(3)[int(there(1)[0])], 1),
    "allclose": (lambda: torch.allclose(there(3), there(3)), 1),
    "nonzero": (lambda: there(3).nonzero(), 1),
    "a mask": (lambda: there(3)[there(3) > 1], 1),
    "a mask set to a number": (lambda: there(3).__setitem__(there(3) > 1, 0.0), 0),
    "a mask set to rows": (lambda: there(3).__setitem__(there(3) > 1, there(2)), 1),
    "CPU indices": (lambda: there(3)[torch.arange(2)], 1),
    "GPU indices": (lambda: there(3)[torch.arange(2, device="cuda")], 0),
    "numbers": (lambda: torch.tensor([1.0, 2.0], device="cuda"), 1),
    "copied out": (lambda: here(3).copy_(there(3)), 1),
    "solved and checked": (lambda: torch.linalg.solve(there(2, 2), there(2)), 1),
    "arithmetic": (lambda: (there(3) * 2 + torch.tensor(1.0)).sum(), 0),
    "the CPU's own": (lambda: float(here(3).sum()), 0),
}


@pytest.mark.parametrize("what", MOVED)
def test_copies_are_counted(what, gpu):
    work, copies = MOVED[what]
    assert gpu.count(work) == copies, gpu.copies


class Cubed(torch.autograd.Function):
    """x³, with its derivative by hand, of which the derivative can be taken again."""

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        assert x.is_cuda and gradient.device == x.device
        return gradient * 3 * x**2 * torch.ones_like(x) + torch.zeros(x.shape, device=x.device)


class Forgetful(Cubed):
    """The same with a tensor that nobody moved."""

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.full(gradient.shape, 3.0)


def test_gradients_of_hand_written_functions_twice(gpu):
    x = there(3).requires_grad_()
    (first,) = torch.autograd.grad(Cubed.apply(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.tolist() == [3, 12, 27] and second.tolist() == [6, 12, 18] and second.is_cuda
    Cubed.apply(x).sum().backward()
    assert x.grad.is_cuda and x.grad.tolist() == [3, 12, 27]
    inner = torch.func.grad(lambda v: Cubed.apply(v).sum())
    assert torch.func.grad(lambda v: inner(v).sum())(there(3)).tolist() == [6, 12, 18]


def test_a_backward_pass_is_checked_too(gpu):
    x = there(3).requires_grad_()
    for step in (
        lambda: Forgetful.apply(x).sum().backward(),
        lambda: torch.autograd.grad(Forgetful.apply(x).sum(), x),
        lambda: torch.func.grad(lambda v: Forgetful.apply(v).sum())(there(3)),
    ):
        with pytest.raises(RuntimeError, match=OTHER_DEVICE):
            step()


def test_second_derivatives_through_a_functional_call(gpu):
    layer = nn.Linear(2, 1).double()
    state = {name: value.detach().clone() for name, value in layer.named_parameters()}
    moved = {name: value.to("cuda") for name, value in state.items()}

    def stepped(parameters, rows):
        def loss(changed):
            return torch.func.functional_call(layer, changed, (rows,)).square().sum()

        gradient = torch.func.grad(loss)(parameters)
        return loss({name: parameters[name] - 0.1 * value for name, value in gradient.items()})

    expected, found = torch.func.grad(stepped)(state, here(3, 2)), torch.func.grad(stepped)(moved, there(3, 2))
    for name, value in expected.items():
        assert found[name].is_cuda and torch.equal(found[name].cpu(), value)
    with pytest.raises(RuntimeError, match=OTHER_DEVICE):
        torch.func.grad(stepped)(state, there(3, 2))


@pytest.mark.parametrize("optimiser", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_modules_move_learn_and_are_kept(optimiser, gpu):
    torch.manual_seed(0)
    stays = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).double()
    goes = copy.deepcopy(stays).to("cuda")
    again = copy.deepcopy(goes)
    for module, rows in ((stays, here(4, 2)), (goes, there(4, 2))):
        steps = optimiser(module.parameters(), lr=0.1)
        for _ in range(2):
            steps.zero_grad()
            module(rows).square().sum().backward()
            steps.step()
    assert all(value.is_cuda for value in (*goes.state_dict().values(), *again.parameters()))
    kept = load(save({name: value.cpu() for name, value in goes.state_dict().items()}))
    assert all(torch.equal(kept[name], value) for name, value in stays.state_dict().items())
    assert not torch.equal(again[0].weight.cpu(), stays[0].weight)
    again.load_state_dict(kept)
    assert torch.equal(again[0].weight.cpu(), stays[0].weight) and isinstance(again[0].weight, nn.Parameter)
    again.float().to("cpu")
    assert torch.equal(again[0].weight, stays[0].weight.float()) and not again[0].weight.is_cuda
    again[0].weight.data = torch.zeros(1, 2)
    goes[0].weight.data = there(1, 2)
    assert goes[0].weight.shape == (1, 2) and goes[0].weight.tolist() == [[1, 2]]
