"""A task is a source of sample pairs: a distribution P, a distribution Q, and how to draw from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch

from m2st_core.numbers import is_number, is_whole
from m2st_core.rng import Streams
from m2st_core.types import Shape, TwoSample

Setting = bool | int | float


@dataclass(frozen=True)
class Parameter:
    """One setting of a task with its words for a control. The default's type makes it a switch, whole or real."""

    name: str
    label: str
    default: Setting
    help: str
    minimum: int | float = 0
    maximum: int | float = 1
    step: int | float = 1

    def check(self, value: object) -> Setting:
        """Return the value, or raise a ValueError that names what is allowed."""
        if isinstance(self.default, bool):
            if isinstance(value, (bool, np.bool_)):
                return bool(value)
            raise ValueError(f"{self.name} must be True or False. Got {value!r}.")
        whole = isinstance(self.default, int)
        if is_number(value) and self.minimum <= value <= self.maximum and not (whole and value != int(value)):
            return int(value) if whole else float(value)
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{self.name} must be {kind} from {self.minimum} to {self.maximum}. Got {value!r}.")


class Task(ABC):
    """Draws rows of P and of Q. With ``null=True`` both samples come from P."""

    name: ClassVar[str]
    title: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]
    rows_per_size: ClassVar[int] = 1  # rows of a sample per unit of size: 2 where sizes are "per mode"
    shape: ClassVar[Shape | None] = None  # set if rows are images

    def __init__(self, null: bool = False, **settings: Setting) -> None:
        parameters = {parameter.name: parameter for parameter in self.parameters}
        unknown = sorted(set(settings) - set(parameters))
        if unknown:
            raise ValueError(f"Task {self.name!r} has no parameter {unknown[0]!r}. It has: {', '.join(parameters)}.")
        self.settings: Mapping[str, Setting] = {
            name: parameter.check(settings.get(name, parameter.default)) for name, parameter in parameters.items()
        }
        self.null = null

    def sample(self, n: int, m: int | None = None, *, seed: int = 0) -> TwoSample:
        """Draw n rows of P and m (default: n) rows of Q, as float64 tensors (n, d) and (m, d).

        P's and Q's rows come from separate streams of the seed.
        """
        m = n if m is None else m
        for name, size in (("n", n), ("m", m)):
            if not is_whole(size) or size < 1:
                raise ValueError(f"{name} must be a whole number ≥ 1. Got {size!r}.")
        x, y = (torch.from_numpy(np.ascontiguousarray(rows)) for rows in self.draw(int(n), int(m), Streams(seed)))
        return TwoSample(x, y, self.shape)

    def to_learn_from(self) -> Self:
        """Return the source of training rows; for a finite data set, it leaves out the rows that are tested."""
        return self

    def to_be_tested(self) -> Self:
        """Return the source of rows to test, where ``to_learn_from`` has given the training rows."""
        return self

    @abstractmethod
    def draw(self, n: int, m: int, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
        """Rows of P (n, d) and of Q (m, d)."""

    @abstractmethod
    def draw_related_tasks(
        self, *, closeness: float = 0.3, n_tasks: int = 100, rows: int = 100, seed: int = 0
    ) -> Mapping[str, TwoSample]:
        """Draw related tasks by name, with this many rows per sample. ``closeness`` is the paper's C."""

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value:g}" for name, value in self.settings.items())
        return f"{type(self).__name__}({settings}{', null=True' if self.null else ''})"


class IndependentTask(Task):
    """A task whose two samples are drawn independently, each from a distribution with a sampler."""

    strength: ClassVar[str]  # the parameter by which related tasks differ
    same_at: ClassVar[float] = 0.0  # its value for which P = Q

    def draw(self, n: int, m: int, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
        """Rows of P (n, d) and of Q (m, d)."""
        q = self.draw_p if self.null else self.draw_q
        return self.draw_p(n, streams.numpy("task P")), q(m, streams.numpy("task Q"))

    def draw_related_tasks(
        self, *, closeness: float = 0.3, n_tasks: int = 100, rows: int = 100, seed: int = 0
    ) -> dict[str, TwoSample]:
        """Draw tasks of strengths θ_i = (θ − 0.1 − C) + 0.1·i/N, i = 1 … N, with θ the strength of this one.

        For HDGM with Δ = 0.7 these are the paper's.
        """
        streams = Streams(seed)
        symbol = "Δ" if self.strength == "delta" else self.strength
        decimals = 3 if n_tasks <= 100 else 4
        tasks: dict[str, TwoSample] = {}
        for index, value in enumerate(self.related_strengths(closeness, n_tasks), 1):
            name = f"{symbol}={value:.{decimals}f}"
            name = name if name not in tasks else f"{name} ({index})"
            task = type(self)(False, **(dict(self.settings) | {self.strength: value}))
            tasks[name] = task.sample(rows, seed=streams.child(f"meta-task {index}").seed)
        return tasks

    def related_strengths(self, closeness: float, n_tasks: int) -> list[float]:
        """The strengths θ_i of the related tasks, inside the parameter's bounds."""
        parameter = next(p for p in self.parameters if p.name == self.strength)
        strength = float(self.settings[self.strength])
        strengths = [strength - 0.1 - closeness + 0.1 * index / n_tasks for index in range(1, n_tasks + 1)]
        return [min(max(value, parameter.minimum), parameter.maximum) for value in strengths]

    @abstractmethod
    def draw_p(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of P: (n, d)."""

    @abstractmethod
    def draw_q(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of Q: (n, d)."""
