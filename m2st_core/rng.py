"""One seed → independent, named streams of randomness; random orders and rows of a batch of runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from m2st_core.numbers import is_whole


@dataclass(frozen=True)
class Streams:
    """Generators that depend on (seed, name) only, so different purposes never share state.

    Equal names give generators in the same state. Everything is drawn on the CPU: the same
    seed gives the same numbers on every device.

    >>> a, b = Streams(0).numpy("split").random(), Streams(0).numpy("permutations").random()
    >>> a == Streams(0).numpy("split").random(), a == b
    (True, False)
    """

    seed: int

    def __post_init__(self) -> None:
        if not is_whole(self.seed) or self.seed < 0:
            raise ValueError(f"seed must be a whole number ≥ 0. Got {self.seed!r}.")

    def numpy(self, name: str) -> np.random.Generator:
        """A NumPy generator for this purpose."""
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int(self.seed), spawn_key=_key(name))))

    def torch(self, name: str) -> torch.Generator:
        """A CPU torch generator for this purpose."""
        return torch.Generator().manual_seed(self.child(name).seed)

    def child(self, name: str) -> Streams:
        """A whole family of streams, independent of this one's."""
        sequence = np.random.SeedSequence(int(self.seed), spawn_key=_key(name))
        return Streams(int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1)))


@lru_cache
def _key(name: str) -> tuple[int, ...]:
    return tuple(int(word) for word in np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], dtype=np.uint32))


def random_orders(count: int, generators: Sequence[torch.Generator]) -> Tensor:
    """A random order of ``count`` items for each run: (R, count)."""
    return torch.stack([torch.randperm(count, generator=generator) for generator in generators])


def some_rows(rows: Tensor, most: int, streams: Sequence[Streams], name: str) -> Tensor:
    """At most so many rows of each run, drawn at random for this purpose: (R, n, d) → (R, min(n, most), d)."""
    if rows.shape[-2] <= most:
        return rows
    return draw_rows(rows, most, [stream.torch(name) for stream in streams])


def draw_rows(rows: Tensor, count: int, generators: Sequence[torch.Generator]) -> Tensor:
    """Draw ``count`` rows of each run without replacement: (R, n, d) → (R, count, d)."""
    n = rows.shape[-2]
    if count == n:
        return rows
    index = random_orders(n, generators)[:, :count]
    return rows.take_along_dim(index[..., None].to(rows.device), dim=-2)
