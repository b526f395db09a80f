"""Where tensors live, and how many threads work on them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Value = TypeVar("Value")

_lock = threading.Lock()
_inside = 0
_threads = 1


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """``"auto"`` is the GPU when there is one, else the CPU.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"Unknown device {device!r}. Use 'auto', 'cpu', 'cuda' or 'cuda:1'.") from None
    if resolved.type not in ("cpu", "cuda"):
        raise ValueError(f"Unsupported device {device!r}. Use 'auto', 'cpu', 'cuda' or 'cuda:1'.")
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"Device {device!r} is not available: this machine has {torch.cuda.device_count()} GPUs.")
    return resolved


@contextmanager
def one_thread_per_operation() -> Iterator[None]:
    """Torch operations run on one thread each, so sums are added in one order and results have the same bits.

    Work is spread over cores by :func:`map_threads` and by processes instead. Reentrant, and safe when several
    threads are inside: the last one out restores the setting.
    """
    global _inside, _threads
    with _lock:
        if _inside == 0:
            _threads = torch.get_num_threads()
            torch.set_num_threads(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                torch.set_num_threads(_threads)


def map_threads(function: Callable[[Item], Value], items: Sequence[Item]) -> Iterator[Value]:
    """Values in the order of the items, computed by as many threads as torch was given."""
    workers = min(_threads if _inside else 1, len(items))
    if workers <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(function, items)
