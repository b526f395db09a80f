"""The three presets: values of one frozen configuration, not forks of the code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from m2st_core.registry import Registry

PValueRule = Literal["(1+b)/(1+B)", "b/B, ≥", "b/B, >"]


@dataclass(frozen=True)
class Ascent:
    """How a kernel climbs the power criterion Ĵ_λ: Adam, full batch, a fixed number of steps."""

    steps: int
    learning_rate: float
    regularisation: float  # λ
    largest_batch: int | None = None  # rows of each sample in a step, drawn anew; None: all


@dataclass(frozen=True)
class Network:
    """φ: Linear d→H→H→H→3d with softplus between; H=None means 3d, the paper's text."""

    hidden: int | None = None
    standardise: bool = False  # scale the inputs by the training rows' mean and standard deviation


@dataclass(frozen=True)
class Classifier:
    """How C2ST trains φ and its linear head: Adam on the cross-entropy, batches of min(rows, 128)."""

    epochs: int
    learning_rate: float
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Embedding:
    """How ME and SCF place their J test points."""

    points: int = 5
    steps: int = 300
    learning_rate: float = 0.02
    robust_start: bool = True  # ME's first locations follow the inner half of the rows, not all
    optimise_frequencies: bool = True  # False: SCF keeps its first frequencies and its grid width
    reference: Literal["F", "chi2"] = "F"  # the distribution the statistic is compared with


@dataclass(frozen=True)
class WarmStart:
    """How features are learned from meta-tasks: K networks d→H→H→H→F, a linear head per task, Adam, cosine decay."""

    starts: int = 3  # K
    hidden: int = 30  # H
    features: int = 6  # F
    tasks_per_step: int = 20
    steps: int = 400
    learning_rate: float = 0.01
    held_out: float = 0.25  # share of each task's rows that decides when to stop, and checks what was learned
    check_every: int = 20  # steps


@dataclass(frozen=True)
class Preset:
    """Everything a method may set, by name."""

    name: str
    p_value: PValueRule
    median_start: bool  # widths start at the median heuristic rather than at fixed values
    mmd_o: Ascent
    mmd_d: Ascent
    network: Network
    classifier: Classifier
    embedding: Embedding
    warm_start: WarmStart | None = None  # None: methods that need it are not part of the preset


PRESETS: Registry[Preset] = Registry(
    "preset",
    {
        preset.name: preset
        for preset in (
            Preset(
                name="recommended",
                p_value="(1+b)/(1+B)",
                median_start=True,
                mmd_o=Ascent(steps=150, learning_rate=0.05, regularisation=1e-3, largest_batch=500),
                mmd_d=Ascent(steps=100, learning_rate=5e-3, regularisation=1e-3, largest_batch=500),
                network=Network(hidden=None, standardise=True),
                classifier=Classifier(epochs=200, learning_rate=0.01, weight_decay=1e-4),
                embedding=Embedding(steps=100),
                warm_start=WarmStart(),
            ),
            Preset(
                name="paper",
                p_value="b/B, ≥",
                median_start=False,
                mmd_o=Ascent(steps=1000, learning_rate=1e-3, regularisation=1e-8),
                mmd_d=Ascent(steps=1000, learning_rate=5e-5, regularisation=1e-8),
                network=Network(),
                classifier=Classifier(epochs=1000, learning_rate=1e-3),
                embedding=Embedding(robust_start=False, reference="chi2"),
            ),
            Preset(
                name="released",
                p_value="b/B, >",
                median_start=False,
                mmd_o=Ascent(steps=1000, learning_rate=1e-3, regularisation=1e-8),
                mmd_d=Ascent(steps=1000, learning_rate=5e-5, regularisation=1e-8),
                network=Network(),
                classifier=Classifier(epochs=1000, learning_rate=1e-3),
                embedding=Embedding(robust_start=False, optimise_frequencies=False, reference="chi2"),
            ),
        )
    },
)
