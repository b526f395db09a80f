"""A GPU that is none: tensors that say they are on ``cuda:0``, are computed on the CPU, and fail where CUDA fails.

A :class:`GpuTensor` wraps a CPU tensor. To torch's own code it is on the device "meta", which every torch has and which
autograd and ``torch.func`` carry along. Two modes do the rest. ``_Names`` stands between Python and torch, and says
"cuda:0" where torch says "meta". ``_Kernels`` stands below autograd, so it sees every operation, also those of backward
and double backward passes. It looks where the operands are, counts what passes between host and device, and computes.

Modes belong to a thread: work that is handed to other threads is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

CUDA, CARRIER, CPU = torch.device("cuda:0"), torch.device("meta"), torch.device("cpu")
GPU_NAME, GPU_BYTES = "Fake GPU", 8 * 2**30

aten = torch.ops.aten
MOVING = {aten._to_copy, aten.copy, aten.copy_}
INDEXED = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}
FILLED, MASKED = {aten.fill, aten.fill_}, {aten.masked_fill, aten.masked_fill_}
PRODUCTS = {aten.mm, aten.bmm, aten.mv, aten.dot, aten.addmm, aten.addmv, aten.baddbmm, aten.addbmm}
WAITING = {  # the host must know the size of the result, or whether there is an error, before it goes on
    aten.nonzero,
    aten.masked_select,
    aten._unique2,
    aten.unique_dim,
    aten.unique_consecutive,
    aten._linalg_check_errors,
}


class GpuTensor(Tensor):
    """A tensor on the GPU; ``value`` is what the CPU computes with."""

    value: Tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} of a GPU tensor outside of fake_gpu().")

    def __repr__(self) -> str:
        return f"gpu({self.value})"

    def __format__(self, spec: str) -> str:
        return repr(self) if self.ndim else format(self.item(), spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> GpuTensor:
        if id(self) not in memo:
            made = self.detach().clone().requires_grad_(self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                made._is_param = True
            memo[id(self)] = made
        return memo[id(self)]


def _on_gpu(value: Tensor) -> GpuTensor:
    """The tensor that has this value."""
    made = Tensor._make_wrapper_subclass(
        GpuTensor,
        value.shape,
        strides=value.stride(),
        storage_offset=value.storage_offset(),
        dtype=value.dtype,
        device=CARRIER,
    )
    made.value = value
    return made


class FakeGpu:
    """What happened on the GPU: ``copies`` has the operations that moved something from or to it, in order."""

    def __init__(self) -> None:
        self.copies: list[str] = []

    def count(self, work: Callable[[], Any]) -> int:
        """How many copies this work makes."""
        before = len(self.copies)
        work()
        return len(self.copies) - before


@contextmanager
def fake_gpu() -> Iterator[FakeGpu]:
    """Inside, there is one GPU, ``cuda`` or ``cuda:0``."""
    gpu = FakeGpu()
    with (
        mock.patch.multiple(
            torch.cuda,
            is_available=lambda: True,
            device_count=lambda: 1,
            get_device_properties=lambda device=None: SimpleNamespace(name=GPU_NAME, total_memory=GPU_BYTES),
        ),
        mock.patch.object(torch.autograd, "has_torch_function", lambda tensors: False),  # or backward would lose _Names
        _Kernels(gpu),
        _Names(),
    ):
        yield gpu


class _Names(TorchFunctionMode):
    """Python's side: "cuda" in arguments becomes the carrier, and the carrier in answers becomes "cuda:0"."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in ANSWERS:
            return ANSWERS[func](*args, **kwargs or {})
        if func is Tensor.backward:
            return _backward(self, *args, **kwargs or {})
        found = {name: _carried(value) for name, value in kwargs.items()} if kwargs else {}
        return func(*map(_carried, args), **found)


def _carried(argument: Any) -> Any:
    """The carrier instead of "cuda"."""
    if isinstance(argument, str) and argument.startswith("cuda"):
        argument = torch.device(argument)
    if isinstance(argument, torch.device) and argument.type == "cuda":
        if argument.index:
            raise RuntimeError("CUDA error: invalid device ordinal")
        return CARRIER
    return argument


def _to_numpy(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    if tensor.is_meta:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor first.")
    return tensor.numpy(*args, **kwargs)


def _to_array(tensor: Tensor, dtype: Any = None) -> Any:
    return _to_numpy(tensor).astype(dtype or _to_numpy(tensor).dtype, copy=False)


def _set_data(tensor: Tensor, value: Tensor) -> None:
    Tensor.data.__set__(tensor, value)
    if isinstance(value, GpuTensor):
        tensor.value = value.value


def _new_tensor(data: Any, *, device: Any = None, **settings: Any) -> Tensor:
    """Torch fills these where no mode can see it: on the CPU, then moved."""
    made = torch.tensor(data, **settings)
    return made if device is None else made.to(_carried(device))


def _as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    made = torch.as_tensor(data, dtype=dtype)
    return made if device is None else made.to(_carried(device))


def _backward(mode: _Names, tensor: Tensor, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
    """With the mode on: functions written by hand ask where their tensors are."""
    given = dict(zip(("retain_graph", "create_graph", "inputs"), args, strict=False)) | kwargs
    with mode:
        torch.autograd.backward(tensor, gradient, **given)


ANSWERS: dict[Any, Callable[..., Any]] = {
    torch.device: torch.device,
    Tensor.device.__get__: lambda tensor, *_: CUDA if tensor.is_meta else tensor.device,
    Tensor.is_cuda.__get__: lambda tensor, *_: tensor.is_meta,
    Tensor.is_meta.__get__: lambda tensor, *_: False,
    Tensor.get_device: lambda tensor: 0 if tensor.is_meta else -1,
    Tensor.cuda: lambda tensor, *_: tensor.to(CARRIER),
    Tensor.tolist: lambda tensor: tensor.cpu().tolist(),
    Tensor.numpy: _to_numpy,
    Tensor.__array__: _to_array,
    Tensor.data.__set__: _set_data,
    Tensor.new_tensor: lambda tensor, data, **settings: _new_tensor(
        data, **{"dtype": tensor.dtype, "device": tensor.device} | settings
    ),
    torch.tensor: _new_tensor,
    torch.as_tensor: _as_tensor,
}


@dataclass(frozen=True)
class _Operation:
    """What an operation is like, for the rules below."""

    moves: bool
    indexes: bool
    fills: bool
    masks: bool
    multiplies: bool
    waits: bool
    chooses: bool
    pointwise: bool
    writes: bool
    reshapes: bool  # in place

    @classmethod
    @cache
    def of(cls, func: Any) -> _Operation:
        packet = func.overloadpacket
        return cls(
            moves=packet in MOVING,
            indexes=packet in INDEXED,
            fills=packet in FILLED,
            masks=packet in MASKED,
            multiplies=packet in PRODUCTS,
            waits=packet in WAITING,
            chooses=packet is aten.where,
            pointwise=torch.Tag.pointwise in func.tags,
            writes=func._schema.is_mutable,
            reshapes=torch.Tag.inplace_view in func.tags,
        )


class _Kernels(TorchDispatchMode):
    """Torch's side: every operation, one by one."""

    def __init__(self, gpu: FakeGpu) -> None:
        super().__init__()
        self.gpu = gpu

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and importing the compiler takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():
            return self._computed(func, args, kwargs or {})

    def _computed(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        operands: list[Tensor] = []
        bare = [_bare(value, operands) for value in args]
        named = {name: _bare(value, operands) for name, value in kwargs.items()}
        on_gpu = {id(operand.value): operand for operand in operands if type(operand) is GpuTensor}
        asked = kwargs.get("device")
        if not on_gpu and (asked is None or asked.type == "cpu"):
            return func(*args, **kwargs)
        like = _Operation.of(func)
        if asked is not None:
            there = asked.type == "meta"
        else:
            there = type(operands[0]) is GpuTensor or not (like.moves or like.indexes or like.fills)
        _check(func, like, there, operands, args, kwargs)
        if like.moves or like.waits or like.fills or like.indexes:
            self.gpu.copies += [f"{func}: {what}" for what in _moved(like, there, operands, args)]
        found = func(*bare, **named)
        if like.reshapes:
            with torch._C._DisableTorchDispatch():
                func(*args, **kwargs)  # the wrapper has sizes and strides of its own
        if isinstance(found, (bool, int, float)):
            self.gpu.copies.append(f"{func}: a number for the host")
        return _wrapped(found, on_gpu) if there else found


def _check(
    func: Any,
    like: _Operation,
    there: bool,
    operands: Sequence[Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Fail where CUDA fails; ``there`` says whether the result is on the GPU."""
    generator = kwargs.get("generator")
    if there and generator is not None:
        raise RuntimeError(f"Expected a 'cuda' device type for generator but found '{generator.device.type}' ({func})")
    if there and like.multiplies and not operands[0].is_floating_point():
        raise RuntimeError(f'"{func}" not implemented for {operands[0].dtype} on cuda')
    if like.moves or (len(operands) == 1 and not like.writes):
        return
    if like.indexes:
        if not there and any(type(index) is GpuTensor for index in args[1]):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        operands = [args[0], *args[2:3]]
    last = len(operands) - 1
    numbers = there and (like.chooses or (like.pointwise and last == 1))  # CPU operands without a dimension are welcome
    for position, operand in enumerate(operands):
        if (type(operand) is GpuTensor) is there:
            continue
        value = position == last > 0 and (like.fills or (there and (like.masks or like.indexes)))
        number = operand.ndim == 0 and (value or numbers) and not (like.writes and position == 0)
        if not number:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                f"({func}, operand {position + 1} of {len(operands)})"
            )


def _moved(like: _Operation, there: bool, operands: Sequence[Tensor], args: Sequence[Any]) -> list[str]:
    """What this operation moves between host and device, or has the host wait for."""
    if like.moves:
        return [] if (type(operands[-1]) is GpuTensor) is there else ["a copy"]
    if like.waits:
        return ["the host waits"]
    if like.fills:
        return [] if there else ["a number for the host"]
    indices = [index for index in args[1] if index is not None]
    number = len(args) > 2 and args[2].ndim == 0  # one number put in under a mask is a masked fill: no size is asked
    moved = ["an index from the host" for index in indices if (type(index) is GpuTensor) is not there]
    return moved + ["the host waits" for index in indices if there and index.dtype is torch.bool and not number]


def _bare(value: Any, operands: list[Tensor]) -> Any:
    """CPU tensors and the CPU instead of the GPU's; tensors are noted on the way."""
    kind = type(value)
    if isinstance(value, Tensor):
        operands.append(value)
        return value.value if kind is GpuTensor else value
    if kind is list or kind is tuple:
        return kind([_bare(part, operands) for part in value])
    return CPU if kind is torch.device else value


def _wrapped(value: Any, known: Mapping[int, GpuTensor]) -> Any:
    """GPU tensors instead of CPU tensors; what was changed in place stays the tensor that it was."""
    if isinstance(value, Tensor):
        return known[id(value)] if id(value) in known else _on_gpu(value)
    return type(value)(_wrapped(part, known) for part in value) if isinstance(value, (list, tuple)) else value
