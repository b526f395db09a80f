"""Kinds of difference invented for the study of the recommendation, after the recommendation was fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from m2st_core.data import make_task
from m2st_core.rng import Streams
from m2st_core.types import TwoSample


class Source(NamedTuple):
    """Draws targets (rows of x, rows of y, seed) and histories of related and of unrelated tasks (seed)."""

    target: Callable[[int, int, int], TwoSample]
    related: Callable[[int], dict[str, TwoSample]]
    unrelated: Callable[[int], dict[str, TwoSample]]


Draw = Callable[[int, float, np.random.Generator], np.ndarray]
"""(rows, strength, generator) → rows; at strength 0 those of P."""


def invented(draw: Draw, columns: int, strength: float, other: str = "mean_shift") -> Source:
    """A kind of difference made for this grid; weaker ones are related, those of a registered task are not."""

    def pair(n: int, m: int, strength: float, seed: int) -> TwoSample:
        streams = Streams(seed)
        rows = draw(n, 0.0, streams.numpy("P")), draw(m, strength, streams.numpy("Q"))
        return TwoSample(*(torch.from_numpy(np.ascontiguousarray(part, dtype=float)) for part in rows))

    def related(seed: int) -> dict[str, TwoSample]:
        streams = Streams(seed)
        weaker = strength * streams.numpy("strengths").uniform(0.5, 0.9, size=20)
        return {f"task {i + 1}": pair(100, 100, w, streams.child(f"task {i}").seed) for i, w in enumerate(weaker)}

    foreign = make_task(other, dimension=max(columns, 2))
    return Source(
        lambda n, m, seed: pair(n, m, strength, seed),
        related,
        lambda seed: foreign.draw_related_tasks(closeness=0.1, n_tasks=20, rows=100, seed=seed),
    )


def rounded(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Lognormal values rounded to whole numbers, of which there are few; Q's are larger by the factor e^s."""
    return np.round(np.exp(0.7 * g.standard_normal((n, 3)) + s))


def binary(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Twelve yes-or-no columns; in Q three are more often 1."""
    return g.uniform(size=(n, 12)) < 0.3 + s * (np.arange(12) < 3)


def sparse_shift(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """A hundred columns; in Q two of them are shifted."""
    return g.standard_normal((n, 100)) + s * (np.arange(100) < 2)


def local_bump(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """A Gaussian in three columns; a share s of Q's rows lie in a small ball off the centre."""
    inside = g.uniform(size=(n, 1)) < s
    return np.where(inside, 1.2 + 0.15 * g.standard_normal((n, 3)), g.standard_normal((n, 3)))


def dependence(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Four columns with the same Gaussian margins; in Q the first two depend through a sign, uncorrelated."""
    rows = g.standard_normal((n, 4))
    tied = g.uniform(size=n) < s
    rows[tied, 1] = rows[tied, 0] * g.choice([-1.0, 1.0], size=int(tied.sum()))
    return rows


def heavy_tails(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Cauchy rows in five columns; Q is wider by the factor 1+s."""
    return (1 + s) * g.standard_cauchy((n, 5))


def unequal_scales(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Columns in units from 0.1 to 1000; in Q the one in the middle is shifted."""
    return (g.standard_normal((n, 5)) + s * (np.arange(5) == 2)) * 10.0 ** np.arange(-1, 4)


def ring(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """A noisy circle; in Q it is thicker by the factor 1+s."""
    angle = g.uniform(0, 2 * np.pi, size=n)
    radius = 3 + 0.3 * (1 + s) * g.standard_normal(n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def mixed_counts(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Two columns of counts and a skewed one; Q's counts are overdispersed, with the same means."""
    rate = 3 * (g.gamma(1 / s, s, size=(n, 2)) if s else np.ones((n, 2)))
    return np.concatenate([g.poisson(rate), g.exponential(size=(n, 1))], axis=1)


def curved(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Six columns; in Q the second has s·(first² − 1) added, and as much less noise."""
    rows = g.standard_normal((n, 6))
    rows[:, 1] = np.sqrt(1 - s**2) * rows[:, 1] + s * (rows[:, 0] ** 2 - 1) / np.sqrt(2)
    return rows


def contaminated(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Eight correlated columns; a share s of Q's rows have three times the deviation."""
    rows = g.standard_normal((n, 8)) + g.standard_normal((n, 1))
    return np.where(g.uniform(size=(n, 1)) < s, 3.0, 1.0) * rows


def zero_inflated(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Four positive columns with many zeros; in Q two of them are 0 more often."""
    zero = g.uniform(size=(n, 4)) < 0.4 + s * (np.arange(4) < 2)
    return np.where(zero, 0.0, g.gamma(2.0, size=(n, 4)))


def moved_cluster(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Five clusters in three columns; in Q one of them is elsewhere."""
    centres = 4.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])
    which = g.integers(5, size=n)
    return centres[which] + s * (which == 4)[:, None] + g.standard_normal((n, 3))


def upper_tail(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Three columns; in Q values above 1 lie further out by the factor 1+s."""
    rows = g.standard_normal((n, 3))
    return np.where(rows > 1, 1 + (1 + s) * (rows - 1), rows)


def equicorrelated(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Eight columns with variance 1; in Q every two have the correlation s."""
    return np.sqrt(1 - s) * g.standard_normal((n, 8)) + np.sqrt(s) * g.standard_normal((n, 1))


def phase(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Twenty values of a noisy sine wave with a random phase; in Q it has a second harmonic of amplitude s."""
    turn = g.uniform(0, 2 * np.pi, size=(n, 1)) + np.linspace(0, 2 * np.pi, 20, endpoint=False)
    return np.sin(turn) + s * np.sin(2 * turn) + 0.5 * g.standard_normal((n, 20))


def ratings(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Six answers from 1 to 5 that share a latent trait; in Q the trait spreads more by the factor 1+s."""
    latent = (1 + s) * g.standard_normal((n, 1)) + g.standard_normal((n, 6))
    return np.clip(np.round(3 + latent), 1, 5)


def circular(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Two times of day on the unit circle, as sine and cosine; in Q the second follows the first more closely."""
    first = g.uniform(0, 2 * np.pi, size=n)
    second = np.where(g.uniform(size=n) < s, first + 0.5 * g.standard_normal(n), g.uniform(0, 2 * np.pi, size=n))
    return np.stack([np.sin(first), np.cos(first), np.sin(second), np.cos(second)], axis=1)


def censored(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Five lognormal columns cut off below a detection limit; in Q two of them are larger by the factor e^s."""
    return np.maximum(np.exp(g.standard_normal((n, 5)) + s * (np.arange(5) < 2)), 0.7)


def composition(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Shares of four parts that sum to 1; in Q they vary more."""
    return g.dirichlet(np.full(4, 4 / (1 + s)), size=n)


def rotated(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """An elongated cloud in three columns; in Q it is turned by s radians in the plane of the first two."""
    rows = g.standard_normal((n, 3)) * [2.0, 1.0, 1.0]
    turn = np.array([[np.cos(s), np.sin(s), 0], [-np.sin(s), np.cos(s), 0], [0, 0, 1]])
    return rows @ turn


def uneven_groups(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Two groups of rows in ten columns; Q has a share s more of the second."""
    second = g.uniform(size=(n, 1)) < 0.3 + s
    return g.standard_normal((n, 10)) + 1.5 * second * (np.arange(10) < 4)


def skewed(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Three columns with mean 0 and variance 1; in Q they are skewed to the right."""
    gamma = g.gamma(1 / s**2, size=(n, 3)) if s else np.zeros((n, 3))
    return s * (gamma - 1 / s**2) if s else g.standard_normal((n, 3))


NEW_KINDS = {  # invented after the recommendation was fixed
    "rounded values, factor e^0.25": invented(rounded, 3, 0.25, "hdgm"),
    "binary columns, 3 of 12": invented(binary, 12, 0.18),
    "sparse shift 0.7, d=100": invented(sparse_shift, 100, 0.7, "variance_shift"),
    "local bump, 10 % of rows": invented(local_bump, 3, 0.1),
    "dependence, equal margins": invented(dependence, 4, 0.7),
    "Cauchy rows, scale 1.6": invented(heavy_tails, 5, 0.6),
    "columns of unequal scale": invented(unequal_scales, 5, 0.7),
    "thicker ring": invented(ring, 2, 0.8),
}
NEWEST_KINDS = {  # invented after Omnibus had got its fifth kernel
    "overdispersed counts": invented(mixed_counts, 3, 0.6),
    "curved dependence": invented(curved, 6, 0.8),
    "contaminated rows, 25 %": invented(contaminated, 8, 0.25),
}
LATEST_KINDS = {  # invented after Omnibus had got MMD-FUSE and robust units
    "zeros, 20 % more in 2 of 4": invented(zero_inflated, 4, 0.2),
    "one cluster of five moved": invented(moved_cluster, 3, 1.5),
    "upper tail × 1.8": invented(upper_tail, 3, 0.8),
    "correlation 0.25, d=8": invented(equicorrelated, 8, 0.25),
    "second harmonic, d=20": invented(phase, 20, 0.35),
    "ratings, trait × 1.6": invented(ratings, 6, 0.6),
}
UNSEEN_KINDS = {  # invented after Meta-FUSE gave half of its weight to learned kernels
    "times of day, tied": invented(circular, 4, 0.35),
    "censored at a limit": invented(censored, 5, 0.45),
    "shares of four parts": invented(composition, 4, 0.7),
    "turned cloud": invented(rotated, 3, 0.45),
    "more of the second group": invented(uneven_groups, 10, 0.2),
    "skewed, same moments": invented(skewed, 3, 0.9),
}
