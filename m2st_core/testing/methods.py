"""The registry of tests: how each one learns, and how what it learned becomes a p-value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from m2st_core.learners.bank import WIDTHS, fit_bank
from m2st_core.learners.classifier import fit_classifier
from m2st_core.learners.embeddings import fit_mean_embedding, fit_smooth_characteristic
from m2st_core.learners.feature_mkl import fit_feature_mixture, learn_feature_mixture
from m2st_core.learners.knowledge import Knowledge, Learn
from m2st_core.learners.meta_kl import learn_agt_kl, learn_agt_mkl, learn_meta_kl, learn_rows
from m2st_core.learners.meta_mkl import (
    base_kernels,
    fit_adapted,
    fit_best,
    fit_deep_with_rows,
    fit_mixture,
    uniform_mixture,
)
from m2st_core.learners.meta_witness import fit_witness, learn_features, meta_bank, witness_kernel
from m2st_core.learners.target_kernels import fit_deep, fit_gaussian, fit_median
from m2st_core.presets import Preset
from m2st_core.registry import Registry
from m2st_core.rng import Streams
from m2st_core.testing.selective import selective_test
from m2st_core.testing.statistics import (
    fuse,
    fuse_by_rank,
    hotelling_test,
    label_difference,
    mmd2,
    probability_difference,
    witness_difference,
)
from m2st_core.types import Origin, Progress, TwoSample, labelled

Fit = Callable[[Any, Preset, Sequence[Streams], Progress | None], Any]
"""Learns from a TwoSample of training rows, or, where nothing is split off, from the pooled rows without labels."""

Adapt = Callable[[Knowledge, Any, Preset, Sequence[Streams], Progress | None], Any]
"""A Fit whose first argument is what the meta-tasks taught."""

Statistics = Callable[[Any, Tensor, Tensor, int, Progress | None], tuple[Tensor, ...]]
"""(what was learned, pooled test rows, memberships, n) → the statistic under every labelling, its rounding error; and
the Monte-Carlo standard error of the p-value, if the share of labellings that reach the statistic is not binomial."""

Asymptotic = Callable[[Any, TwoSample, int, Preset, Sequence[Streams]], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""(what was learned, paired test rows, B, …) → statistics, p-values, B quantiles of the reference distribution."""


ORIGINS: dict[Origin, str] = {
    "no history": "tests that use no related tasks",
    "paper": "deep kernels of Liu et al. (2021)",
    "ours": "learned features, a family of this project",
}


@dataclass(frozen=True)
class Method:
    """One two-sample test: what it is, what it needs, and how it learns and decides.

    A name means one algorithm in every preset; presets choose its settings only.
    """

    name: str
    description: str
    formula: str  # the statistic, or the kernel of its MMD²
    reference: str
    origin: Origin
    by_permutation: bool  # the p-value comes from permutations; otherwise from an asymptotic distribution
    needs_split: bool  # some target rows teach the kernel and are not tested
    uses_related_tasks: bool = False  # learns from related tasks
    symmetric: bool = True  # x and y may be exchanged; otherwise x is P, whose rows the method treats in its own way
    only_recommended: bool = False  # not part of the presets that follow the paper
    two_sided: bool = True  # exchanging the samples leaves the statistic as it is
    min_test_rows: int = 2  # of each sample
    kernels_at_once: int = 1  # about how many Gram matrices are held at the same time
    fit: Fit | None = None
    learn: Learn | None = None  # how a method with meta-tasks learns from them
    adapt: Adapt | None = None  # how it turns what it learned into a fit
    statistics: Statistics | None = None  # what an exact test permutes
    asymptotic: Asymptotic | None = None  # how another test finds its p-value
    learned: Any = None  # what was learned once, from rows that are not tested

    @property
    def label(self) -> str:
        """The name for lists, legends and sentences, with a mark if it is ours."""
        return labelled(self.name, self.origin)


LIU_2020 = "Liu, Xu, Lu, Zhang, Gretton, Sutherland (2020), Learning deep kernels for non-parametric two-sample tests"
LIU_2021 = "Liu, Xu, Lu, Sutherland (2021), Meta two-sample testing: learning kernels for testing with limited data"
GRETTON_2012 = "Gretton, Borgwardt, Rasch, Schölkopf, Smola (2012), A kernel two-sample test"
SUTHERLAND_2017 = "Sutherland et al. (2017), Generative models and model criticism via optimized MMD"
JITKRITTUM_2016 = "Jitkrittum, Szabó, Chwialkowski, Gretton (2016), Interpretable distribution features"
CHWIALKOWSKI_2015 = "Chwialkowski, Ramdas, Sejdinovic, Gretton (2015), Fast two-sample testing"
BIGGS_2023 = "Biggs, Schrab, Gretton (2023), MMD-FUSE: learning and combining kernels for two-sample testing"
LOPEZ_2017 = "Lopez-Paz, Oquab (2017), Revisiting classifier two-sample tests"
CHENG_2019 = "Cheng, Cloninger (2019), Classification logit two-sample testing by neural networks"
OURS = "this project: discriminant directions of related tasks in random Fourier features (docs/learned_features.md)"
OURS_WITNESS = f"{OURS}, after Kübler, Stimper, Buchholz, Muandet, Schölkopf (2022), A witness two-sample test"
OURS_FUSE = f"{OURS}, after Biggs, Schrab, Gretton (2023), MMD-FUSE: learning and combining kernels"
KUEBLER_2020 = "Kübler, Jitkrittum, Schölkopf, Muandet (2020), Learning kernel tests without data splitting"


METHODS: Registry[Method] = Registry(
    "method",
    {
        method.name: method
        for method in (
            Method(
                "MMD-M",
                "Gaussian kernel with the median heuristic. Nothing is learned, so every row is tested.",
                "k(x,y) = exp(−‖x−y‖²/σ²), σ² = median ‖z_i−z_j‖²",
                GRETTON_2012,
                "no history",
                by_permutation=True,
                needs_split=False,
                fit=fit_median,
                statistics=mmd2,
            ),
            Method(
                "MMD-FUSE",
                "Ten Gaussian and ten Laplace kernels, combined in one statistic. Nothing is split off.",
                "(1/λ)·log Σ_k π_k exp(λ·MMD²_k/√N_k)",
                BIGGS_2023,
                "no history",
                by_permutation=True,
                needs_split=False,
                only_recommended=True,
                kernels_at_once=WIDTHS,
                fit=fit_bank,
                statistics=fuse,
            ),
            Method(
                "MMD-O",
                "Gaussian kernel whose width is learned on the training rows.",
                "k(x,y) = exp(−‖x−y‖²/σ²), σ maximises Ĵ_λ",
                SUTHERLAND_2017,
                "no history",
                by_permutation=True,
                needs_split=True,
                fit=fit_gaussian,
                statistics=mmd2,
            ),
            Method(
                "MMD-D",
                "Deep kernel learned on the training rows.",
                "k_ω(x,y) = [(1−ε)·exp(−‖φ(x)−φ(y)‖²/σ_φ²) + ε]·exp(−‖x−y‖²/σ_q²), ω maximises Ĵ_λ",
                LIU_2020,
                "no history",
                by_permutation=True,
                needs_split=True,
                fit=fit_deep,
                statistics=mmd2,
            ),
            Method(
                "C2ST-S",
                "Trains a classifier and compares how often it says “P” (an MMD with a sign kernel).",
                "|mean 1[f(x)>0] − mean 1[f(y)>0]|",
                LOPEZ_2017,
                "no history",
                by_permutation=True,
                needs_split=True,
                fit=fit_classifier,
                statistics=label_difference,
            ),
            Method(
                "C2ST-L",
                "Trains a classifier and compares its mean probability of “P” (an MMD with a linear kernel).",
                "|mean p(x) − mean p(y)|",
                CHENG_2019,
                "no history",
                by_permutation=True,
                needs_split=True,
                fit=fit_classifier,
                statistics=probability_difference,
            ),
            Method(
                "ME",
                "Gaussian bumps at five learned places; asymptotic p-value.",
                "n·WᵀΣ⁻¹W, W_j = mean k(x,v_j) − mean k(y,v_j)",
                JITKRITTUM_2016,
                "no history",
                by_permutation=False,
                needs_split=True,
                min_test_rows=7,
                fit=fit_mean_embedding,
                asymptotic=hotelling_test,
            ),
            Method(
                "SCF",
                "Smoothed characteristic functions at five learned frequencies; asymptotic p-value.",
                "n·WᵀΣ⁻¹W, W the differences of smoothed sines and cosines",
                CHWIALKOWSKI_2015,
                "no history",
                by_permutation=False,
                needs_split=True,
                min_test_rows=12,
                fit=fit_smooth_characteristic,
                asymptotic=hotelling_test,
            ),
            Method(
                "Meta-Witness",
                "The inner product of learned features, each weighted by how far related tasks differ in it.",
                "k(x,y) = 0.95·Σ_q w_q ψ_q(x)ψ_q(y)/Σ_q w_q + 0.05·Gaussian",
                OURS,
                "ours",
                by_permutation=True,
                needs_split=False,
                uses_related_tasks=True,
                only_recommended=True,
                learn=learn_features,
                adapt=witness_kernel,
                statistics=mmd2,
            ),
            Method(
                "Meta-WiTS",
                "Training rows tell direction and sign of the difference in learned features, with a prior.",
                "log[π·e^a + (1−π)·e^(−a)], a ∝ mean wᵀψ(x) − mean wᵀψ(y)",
                OURS_WITNESS,
                "ours",
                by_permutation=True,
                needs_split=True,
                uses_related_tasks=True,
                only_recommended=True,
                two_sided=False,
                learn=learn_features,
                adapt=fit_witness,
                statistics=witness_difference,
            ),
            Method(
                "Meta-FUSE",
                "Combines learned features with generic kernels: the safe choice when relatedness is uncertain.",
                "harmonic mean of the families' p-values, permuted",
                OURS_FUSE,
                "ours",
                by_permutation=True,
                needs_split=False,
                uses_related_tasks=True,
                kernels_at_once=WIDTHS,
                only_recommended=True,
                learn=learn_features,
                adapt=meta_bank,
                statistics=fuse_by_rank,
            ),
            Method(
                "Feature-MKL",
                "A mixture of kernels on learned features and Gaussian kernels, weighted on the training rows.",
                "k(x,y) = Σ_i β_i·(A_iψ(x))ᵀ(A_iψ(y)) + Σ_j β_j·Gaussian_j",
                OURS,
                "ours",
                by_permutation=True,
                needs_split=True,
                uses_related_tasks=True,
                kernels_at_once=2,
                only_recommended=True,
                learn=learn_feature_mixture,
                adapt=fit_feature_mixture,
                statistics=mmd2,
            ),
            Method(
                "AGT-KL",
                "One deep kernel for all related tasks together, then adapted to the target.",
                "k_ω(x,y) = [(1−ε)·exp(−‖φ(x)−φ(y)‖²/σ_φ²) + ε]·exp(−‖x−y‖²/σ_q²), ω maximises mean_i Ĵ_λ(task i)",
                LIU_2021,
                "paper",
                by_permutation=True,
                needs_split=True,
                uses_related_tasks=True,
                learn=learn_agt_kl,
                adapt=fit_adapted,
                statistics=mmd2,
            ),
            Method(
                "Meta-KL",
                "A deep kernel that was taught to adapt to a task in a few steps (Algorithms 1 and 2).",
                "k_ω(x,y) = [(1−ε)·exp(−‖φ(x)−φ(y)‖²/σ_φ²) + ε]·exp(−‖x−y‖²/σ_q²), ω = θ + η Σ_t ∇Ĵ_λ(ω_t)",
                LIU_2021,
                "paper",
                by_permutation=True,
                needs_split=True,
                uses_related_tasks=True,
                learn=learn_meta_kl,
                adapt=fit_adapted,
                statistics=mmd2,
            ),
            Method(
                "Meta-MKL",
                "A mixture of the related tasks' deep kernels, weighted on the training rows (Algorithm 3).",
                "k = Σ_i β_i·k_ωi, β ≥ 0 by Ĵ_λ on the training rows, ω_i from Meta-KL's start",
                LIU_2021,
                "paper",
                by_permutation=True,
                needs_split=True,
                uses_related_tasks=True,
                kernels_at_once=2,
                learn=learn_meta_kl,
                adapt=fit_mixture,
                statistics=mmd2,
            ),
            Method(
                "Meta-MKL-A",
                "The uniform mixture of the related tasks' deep kernels. Nothing is split off.",
                "k = Σ_i k_ωi/K, ω_i from Meta-KL's start",
                LIU_2021,
                "paper",
                by_permutation=True,
                needs_split=False,
                uses_related_tasks=True,
                kernels_at_once=2,
                learn=learn_meta_kl,
                adapt=uniform_mixture,
                statistics=mmd2,
            ),
            Method(
                "Meta-Best1",
                "The one of the related tasks' deep kernels that has the largest Ĵ on the training rows.",
                "k = k_ωi, i = argmax Ĵ_λ(k_ωi), ω_i from Meta-KL's start",
                LIU_2021,
                "paper",
                by_permutation=True,
                needs_split=True,
                uses_related_tasks=True,
                kernels_at_once=2,
                learn=learn_meta_kl,
                adapt=fit_best,
                statistics=mmd2,
            ),
            Method(
                "AGT-MKL",
                "A mixture of deep kernels that start from AGT-KL, weighted on the training rows.",
                "k = Σ_i β_i·k_ωi, β ≥ 0 by Ĵ_λ on the training rows, ω_i from AGT-KL's starts",
                LIU_2021,
                "paper",
                by_permutation=True,
                needs_split=True,
                uses_related_tasks=True,
                kernels_at_once=2,
                learn=learn_agt_mkl,
                adapt=fit_mixture,
                statistics=mmd2,
            ),
            Method(
                "AGT-MKL-A",
                "The uniform mixture of deep kernels that start from AGT-KL. Nothing is split off.",
                "k = Σ_i k_ωi/K, ω_i from AGT-KL's starts",
                LIU_2021,
                "paper",
                by_permutation=True,
                needs_split=False,
                uses_related_tasks=True,
                kernels_at_once=2,
                learn=learn_agt_mkl,
                adapt=uniform_mixture,
                statistics=mmd2,
            ),
            Method(
                "Meta-MKL-SI",
                "Weights the related tasks' deep kernels on the tested rows; selective inference accounts for it.",
                "βᵀτ/√(βᵀΣβ), τ the linear-time MMD²s of k_ωi, ω_i from Meta-KL's start",
                f"{LIU_2021}; after {KUEBLER_2020}",
                "paper",
                by_permutation=False,
                needs_split=False,
                uses_related_tasks=True,
                kernels_at_once=2,
                min_test_rows=60,  # with 12 it rejects up to 11 % of true null hypotheses, with 30 up to 8 %
                learn=learn_meta_kl,
                adapt=base_kernels,
                asymptotic=selective_test,
            ),
            Method(
                "MMD-D w/ AC",
                "MMD-D whose training rows of P (called x) include the related tasks' rows, without their labels.",
                "k_ω(x,y) = [(1−ε)·exp(−‖φ(x)−φ(y)‖²/σ_φ²) + ε]·exp(−‖x−y‖²/σ_q²), ω maximises Ĵ_λ",
                LIU_2021,
                "paper",
                by_permutation=True,
                needs_split=True,
                uses_related_tasks=True,
                symmetric=False,
                learn=learn_rows,
                adapt=fit_deep_with_rows,
                statistics=mmd2,
            ),
        )
    },
)


def check_preset(method: Method, preset: Preset) -> None:
    """The presets that follow the paper have the paper's methods only."""
    if method.only_recommended and preset.features is None:
        raise ValueError(f"{method.name} is not part of the preset {preset.name!r}. Choose the preset 'recommended'.")
