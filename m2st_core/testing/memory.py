"""The memory of a test, predicted before it runs and compared with what is free."""

from __future__ import annotations

import os
from pathlib import Path

from m2st_core.kernels.networks import MOST_UNITS
from m2st_core.permutation.blocks import KEYS_AT_ONCE, PIECE_BYTES
from m2st_core.presets import Preset
from m2st_core.testing.method import Method
from m2st_core.types import DEFAULT_TEST

GIGABYTE = 10**9
ROW_COPIES = 6  # of all rows, in float64: as given, split, embedded
NETWORK_COPIES = 6  # of a network's weights: gradient, two moments of Adam, and two passing copies
FEATURE_COPIES = 6  # of the covariance of features learned from related tasks
FOURIER = 600  # features beside the columns themselves
GROUP = Path("/sys/fs/cgroup")


def labelling_bytes(method: Method, rows: int, labellings: int) -> int:
    """Bytes of so many labellings of these rows: who belongs where, the statistics, and the piece being multiplied."""
    keys = 8 * min(labellings * rows, KEYS_AT_ONCE)
    piece = min(16 * labellings * rows * min(method.kernels_at_once, 2), 3 * PIECE_BYTES)
    return labellings * (rows + method.cost.labelling_bytes) + max(keys, piece)


def bytes_of_test(method: Method, preset: Preset, sizes: tuple[int, int], columns: int, labellings: int) -> int:
    """Bytes that one test takes beside the software."""
    units = min(3 * columns, MOST_UNITS)
    network = 8 * NETWORK_COPIES * (columns + 1 + 3 * units) * units
    learns = method.cost.image_fit in ("deep", "classifier") and preset.network.convolutions is None
    rows = 8 * ROW_COPIES * sum(sizes) * columns
    return rows + (network if learns else 0) + labelling_bytes(method, sum(sizes), labellings)


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
        limit, used = (int((GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        found.append(limit - used)
    except (OSError, ValueError):  # no container, or one without a limit
        pass
    return min(found, default=None)


def refuse_beyond_memory(what: str, needed: int, remedy: str) -> None:
    """Refuse work that needs more memory than is free, in one sentence."""
    free = free_bytes()
    if free is not None and needed > free:
        raise ValueError(
            f"{what} needs about {needed / GIGABYTE:,.1f} GB of memory, and {free / GIGABYTE:,.1f} GB are free. "
            f"{remedy}"
        )


def check_memory(method: Method, preset: Preset, sizes: tuple[int, int], columns: int, labellings: int) -> None:
    """Refuse a test that does not fit into memory."""
    refuse_beyond_memory(
        f"{method.name} with {labellings - 1:,} permutations of {sum(sizes):,} rows with {columns:,} columns",
        bytes_of_test(method, preset, sizes, columns, labellings),
        "Use fewer permutations, rows or columns.",
    )


def check_training_memory(method: Method, rows: int, columns: int) -> None:
    """Refuse learning from related tasks of so many rows if it does not fit into memory."""
    features = (columns + FOURIER) ** 2 if method.origin == "ours" else 0
    refuse_beyond_memory(
        f"Learning from {rows:,} rows with {columns:,} columns",
        8 * (ROW_COPIES * rows * columns + FEATURE_COPIES * features),
        f"Leave out columns, or use {DEFAULT_TEST}, which learns nothing.",
    )
