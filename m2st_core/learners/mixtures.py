"""Mixtures Σ β_i k_i of a bank of kernels, and what a run has to say about its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from m2st_core.kernels import Kernel, MixtureKernel
from m2st_core.learners.ascent import draw_rows
from m2st_core.learners.bank import KernelBank
from m2st_core.learners.knowledge import Knowledge
from m2st_core.learners.weights import KernelTerms
from m2st_core.rng import Streams
from m2st_core.tasks.meta import PairedRows
from m2st_core.types import TwoSample


@dataclass(frozen=True)
class Adapted:
    """A kernel for R runs, and what each run has to say about it."""

    kernel: Kernel
    weights: list[dict[str, float]]  # β by kernel
    diagnostics: list[dict[str, Any]]


def mixture(bank: KernelBank, weights: Tensor) -> Kernel:
    """Σ β_i k_i, weights (R, k)."""
    return MixtureKernel([f.kernel for f in bank.families], [len(f.names) for f in bank.families], weights)


def paired_rows(train: TwoSample, streams: Sequence[Streams]) -> PairedRows:
    """As many rows of x as of y, at random."""
    generators = [stream.torch("rows for the weights") for stream in streams]
    x, y = (draw_rows(rows, min(train.sizes), generators) for rows in train)
    return PairedRows(x, y, torch.ones_like(x[..., 0]))


def explained(bank: KernelBank, weights: Tensor, terms: KernelTerms | None, known: Knowledge) -> Adapted:
    """The mixture with β, each kernel's Ĵ on the training rows, and what was decided before the target came."""
    names = bank.names
    betas = [dict(zip(names, row.tolist(), strict=True)) for row in weights]
    about: list[dict[str, Any]] = [dict(known.choices) for _ in betas]
    if terms is not None:
        for entry, row in zip(about, terms.criterion(1e-8), strict=True):
            entry["criterion by kernel"] = dict(zip(names, row.tolist(), strict=True))
    return Adapted(mixture(bank, weights), betas, about)
