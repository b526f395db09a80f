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
    place = resolve_device()
    if place.type == "cpu":
        return "the CPU"
    about = torch.cuda.get_device_properties(place)
    return f"the GPU {about.name} ({about.total_memory / 2**30:.0f} GB of memory)"


def free_bytes() -> int | None:
    """Memory that this process may still take, by its machine and by its container; None if unknown."""
    found = []
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(1024 * int(lines["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        limit, used = (int((CONTAINER / name).read_text()) for name in ("memory.max", "memory.current"))
        found.append(limit - used)
    except (OSError, ValueError):  # no container, or one without a limit
        pass
    return min(found, default=None)


@contextmanager
def short_memory_in_words() -> Iterator[None]:
    """Turn an out-of-memory error of the GPU into a ValueError that says what helps."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise ValueError(
            "This does not fit into the memory of the GPU: use fewer rows, related tasks or permutations, or compute "
            "on the CPU (device='cpu')."
        ) from None


def in_batches(function: Callable[[slice], Value], start: int, end: int, at_once: int) -> Iterator[Value]:
    """``function`` of one slice after another of start … end, each ``at_once`` long.

    Where the GPU's memory does not hold one, it and those after it are halved; a single item must fit.

    >>> list(in_batches(lambda part: part.stop - part.start, 0, 5, 2))
    [2, 2, 1]
    """
    while start < end:
        part = slice(start, min(start + at_once, end))
        try:
            found = function(part)
        except torch.OutOfMemoryError:
            if part.stop - part.start == 1:
                raise
            at_once = (part.stop - part.start) // 2
            continue
        yield found
        start = part.stop


@contextmanager
def one_thread_per_operation() -> Iterator[None]:
    """Torch operations run on one thread each, so sums are added in one order and results have the same bits.

    Work is spread over cores by :func:`map_threads` and by processes instead. Torch keeps the setting per thread, and
    a new thread starts with the one set last; so whoever leaves returns to what the first one in had found.
    """
    global _inside, _threads
    if getattr(_thread, "inside", False):
        yield
        return
    with _lock:
        if _inside == 0:
            _threads = torch.get_num_threads()
        _inside += 1
        _use_one_thread()
    _thread.inside = True
    try:
        yield
    finally:
        _thread.inside = False
        with _lock:
            _inside -= 1
            torch.set_num_threads(_threads)


def _use_one_thread() -> None:
    """Asking first makes torch initialise this thread; it would otherwise forget the setting at its first operation."""
    torch.get_num_threads()
    torch.set_num_threads(1)


@contextmanager
def one_core() -> Iterator[None]:
    """:func:`map_threads` stays in this thread: for steps so short that handing them over costs more than they do."""
    before = getattr(_thread, "alone", False)
    _thread.alone = True
    try:
        yield
    finally:
        _thread.alone = before


def map_threads(function: Callable[[Item], Value], items: Sequence[Item]) -> Iterator[Value]:
    """Values in the order of the items; inside :func:`one_thread_per_operation`, by as many threads as torch had."""
    workers = min(_threads if _inside and not getattr(_thread, "alone", False) else 1, len(items))
    if workers <= 1:
        yield from map(function, items)
        return
    yield from _pool(_threads).map(function, items)


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    """Threads that stay: starting new ones for every batch costs as much as a small batch does."""
    return ThreadPoolExecutor(workers, initializer=_begin_worker)


def _begin_worker() -> None:
    """Run nested maps inline: a worker that waits on its own pool could deadlock."""
    _thread.alone = True
    _use_one_thread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has none of the threads
