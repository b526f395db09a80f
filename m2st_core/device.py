"""The device of tensors, and the number of threads that compute."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

Item = TypeVar("Item")
Value = TypeVar("Value")

CONTAINER = Path("/sys/fs/cgroup")
TOO_LARGE = (
    "This does not fit into the memory of the GPU: use fewer rows, related tasks or permutations, or compute "
    "on the CPU (device='cpu')."
)

_lock = threading.Lock()
_thread = threading.local()
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


def device_words() -> str:
    """Name the device that ``"auto"`` chooses; a GPU with its memory."""
    device = resolve_device()
    if device.type == "cpu":
        return "the CPU"
    properties = torch.cuda.get_device_properties(device)
    return f"the GPU {properties.name} ({properties.total_memory / 2**30:.0f} GB of memory)"


def free_bytes() -> int | None:
    """Bytes of memory that this process may still allocate, by machine and container; None if unknown."""
    free = []
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free.append(1024 * int(lines["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            free.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        limit, used = (int((CONTAINER / name).read_text()) for name in ("memory.max", "memory.current"))
        free.append(limit - used)
    except (OSError, ValueError):  # no container, or one without a limit
        pass
    return min(free, default=None)


@contextmanager
def short_memory_in_words() -> Iterator[None]:
    """Turn an out-of-memory error of the GPU into a ValueError with remedies."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise ValueError(TOO_LARGE) from None


@contextmanager
def one_thread_per_operation() -> Iterator[None]:
    """Run each torch operation on one thread: sums are added in one order, so results are equal to the bit.

    Work is spread over cores by :func:`map_threads` and by processes instead. Torch keeps the setting per thread, and a
    new thread starts with the last setting. So every exit restores the number of threads before the first entry.
    """
    global _inside, _threads
    if getattr(_thread, "inside", False):
        yield
        return
    with _lock:
        threads = torch.get_num_threads()  # initialises torch here; otherwise its first operation undoes the setting
        if _inside == 0:
            _threads = threads
        _inside += 1
        torch.set_num_threads(1)
    _thread.inside = True
    try:
        yield
    finally:
        _thread.inside = False
        with _lock:
            _inside -= 1
            torch.set_num_threads(_threads)


@contextmanager
def one_core() -> Iterator[None]:
    """Keep :func:`map_threads` in this thread, for items so short that starting them elsewhere costs more."""
    before = getattr(_thread, "alone", False)
    _thread.alone = True
    try:
        yield
    finally:
        _thread.alone = before


def map_threads(function: Callable[[Item], Value], items: Sequence[Item]) -> Iterator[Value]:
    """Map items in order; inside :func:`one_thread_per_operation`, with as many threads as torch had before."""
    workers = min(_threads if _inside and not getattr(_thread, "alone", False) else 1, len(items))
    if workers <= 1:
        yield from map(function, items)
        return
    yield from _pool(_threads).map(function, items)


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    """Threads that are kept, because starting them costs as much as a small batch."""
    return ThreadPoolExecutor(workers, initializer=_begin_worker)


def _begin_worker() -> None:
    """Run nested maps inline, because a worker that waits for its own pool could deadlock."""
    _thread.alone = True
    torch.get_num_threads()  # initialises torch in this thread
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads are not forked
