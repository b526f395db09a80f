"""How a test is carried out, whatever its method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from m2st_core.types import Progress


@dataclass(frozen=True)
class TestSettings:
    """The settings of one test, checked when they are made.

    ``n_permutations`` is B, the number of random relabellings. ``train_fraction`` is the share of each sample that the
    kernel is fitted on. ``splits`` is the number of random splits whose p-values are combined. ``blocks`` are labels of
    (x's rows, y's rows): rows are permuted and split within their block. ``seed`` fixes the split, the fit and the
    permutations.
    """

    __test__ = False  # not a pytest class

    alpha: float = 0.05
    n_permutations: int = 999
    train_fraction: float = 0.5
    splits: int = 1
    blocks: tuple[Any, Any] | None = None
    seed: int = 0
    device: str | torch.device = "auto"
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if not (is_number(self.alpha) and 0 < self.alpha < 1):
            raise ValueError(f"alpha must be a number between 0 and 1, both excluded. Got {self.alpha!r}.")
        if not (is_number(self.train_fraction) and 0.01 <= self.train_fraction <= 0.99):
            raise ValueError(f"train_fraction must be a number from 0.01 to 0.99. Got {self.train_fraction!r}.")
        for name in ("n_permutations", "splits"):
            if not is_whole(getattr(self, name)) or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a whole number ≥ 1. Got {getattr(self, name)!r}.")


def is_number(value: object) -> bool:
    """Whether a value is a number; True and False are not."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Whether a value is a whole number; True and False are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def refuse_unknown(options: dict[str, Any]) -> None:
    """Refuse options that no test has, with a hint for those that were renamed."""
    if "meta_tasks" in options:
        raise TypeError("meta_tasks is now called related_tasks.")
    if options:
        raise TypeError(f"Unknown setting {next(iter(options))!r}.")
