"""A task is a source of sample pairs: a distribution P, a distribution Q, and how to draw from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from m2st_core.rng import Streams
from m2st_core.types import Shape, TwoSample

Setting = bool | int | float


@dataclass(frozen=True)
class Parameter:
    """One setting of a task, as a person sees it; the default's type says whether it is a switch, whole or real."""

    name: str
    label: str
    default: Setting
    help: str
    minimum: int | float = 0
    maximum: int | float = 1
    step: int | float = 1

    def check(self, value: object) -> Setting:
        """The value, or a ValueError that names what is allowed."""
        if isinstance(self.default, bool):
            if isinstance(value, (bool, np.bool_)):
                return bool(value)
            raise ValueError(f"{self.name} must be True or False. Got {value!r}.")
        whole = isinstance(self.default, int)
        if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
            if self.minimum <= value <= self.maximum and not (whole and value != int(value)):
                return int(value) if whole else float(value)
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{self.name} must be {kind} from {self.minimum} to {self.maximum}. Got {value!r}.")


class Task(ABC):
    """Draws rows of P and of Q. With ``null=True`` both samples come from P."""

    name: ClassVar[str]
    title: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]
    rows_per_size: ClassVar[int] = 1  # a size counts this many rows of a sample: 2 where sizes are "per mode"
    strength: ClassVar[str] = ""  # the parameter by which related tasks differ
    shape: ClassVar[Shape | None] = None  # of images

    def __init__(self, null: bool = False, **settings: Setting) -> None:
        known = {parameter.name: parameter for parameter in self.parameters}
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise ValueError(f"Task {self.name!r} has no parameter {unknown[0]!r}. It has: {', '.join(known)}.")
        values = {name: settings.get(name, parameter.default) for name, parameter in known.items()}
        self.settings: Mapping[str, Setting] = {name: known[name].check(value) for name, value in values.items()}
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
        first, second = (torch.from_numpy(np.ascontiguousarray(rows)) for rows in (x, y))
        return TwoSample(first, second, self.shape)

    def to_learn_from(self) -> Task:
        """The source of rows that teach a test: where rows are finite, others than those that are tested."""
        return self

    def to_be_tested(self) -> Task:
        """The source of rows that are tested where ``to_learn_from`` has given rows that teach."""
        return self

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


DIMENSION = Parameter("dimension", "dimension d", 2, "Columns of each row; those beyond the second are noise.", 2, 1000)
