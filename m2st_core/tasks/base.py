"""A task is a source of sample pairs: a distribution P, a distribution Q, and how to draw from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from m2st_core.rng import Streams
from m2st_core.types import TwoSample


@dataclass(frozen=True)
class Parameter:
    """One setting of a task, as a person sees it. Whole-number settings have an int default."""

    name: str
    label: str
    default: float | int
    minimum: float | int
    maximum: float | int
    step: float | int
    help: str

    def check(self, value: float | int) -> float | int:
        """The value, or a ValueError that names the allowed range."""
        whole = isinstance(self.default, int)
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise ValueError(f"{self.name} must be a number. Got {value!r}.")
        if not self.minimum <= value <= self.maximum or (whole and value != int(value)):
            kind = "a whole number" if whole else "a number"
            raise ValueError(f"{self.name} must be {kind} from {self.minimum} to {self.maximum}. Got {value!r}.")
        return int(value) if whole else float(value)


class Task(ABC):
    """Draws rows of P and of Q. With ``null=True`` both samples come from P."""

    name: ClassVar[str]
    title: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]

    def __init__(self, null: bool = False, **settings: float | int) -> None:
        known = {parameter.name: parameter for parameter in self.parameters}
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise ValueError(f"Task {self.name!r} has no parameter {unknown[0]!r}. It has: {', '.join(known)}.")
        values = {name: settings.get(name, parameter.default) for name, parameter in known.items()}
        self.settings: Mapping[str, float | int] = {name: known[name].check(value) for name, value in values.items()}
        self.null = null

    def sample(self, n: int, m: int | None = None, *, seed: int = 0) -> TwoSample:
        """N rows of P and m (default: n) rows of Q, as float64 tensors (n, d) and (m, d).

        P's and Q's rows come from separate streams of the seed.
        """
        m = n if m is None else m
        for name, size in (("n", n), ("m", m)):
            if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
                raise ValueError(f"{name} must be a whole number ≥ 1. Got {size!r}.")
        x, y = self.draw(int(n), int(m), Streams(seed))
        return TwoSample(torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(np.ascontiguousarray(y)))

    @abstractmethod
    def draw(self, n: int, m: int, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
        """Rows of P (n, d) and of Q (m, d)."""

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value:g}" for name, value in self.settings.items())
        return f"{type(self).__name__}({settings}{', null=True' if self.null else ''})"


class IndependentTask(Task):
    """A task whose two samples are drawn independently, each from a distribution with a sampler."""

    def draw(self, n: int, m: int, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
        """Rows of P (n, d) and of Q (m, d)."""
        q = self.draw_p if self.null else self.draw_q
        return self.draw_p(n, streams.numpy("task P")), q(m, streams.numpy("task Q"))

    @abstractmethod
    def draw_p(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of P: (n, d)."""

    @abstractmethod
    def draw_q(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of Q: (n, d)."""


DIMENSION = Parameter("dimension", "dimension d", 2, 2, 1000, 1, "Columns of each row; the extra ones carry no signal.")
