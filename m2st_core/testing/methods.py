"""The registry of tests: how each one learns, and how what it learned becomes a p-value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from m2st_core.learners import (
    fit_bank,
    fit_classifier,
    fit_deep,
    fit_gaussian,
    fit_mean_embedding,
    fit_median,
    fit_smooth_characteristic,
)
from m2st_core.learners.bank import WIDTHS
from m2st_core.learners.knowledge import Knowledge, Learn, learn_agt_kl, learn_features, learn_meta_kl, learn_rows
from m2st_core.learners.meta_mkl import (
    base_kernels,
    fit_adapted,
    fit_best,
    fit_deep_with_rows,
    fit_mixture,
    learn_agt_mixture,
    learn_meta_mixture,
    uniform_mixture,
)
from m2st_core.learners.meta_witness import fit_witness, meta_bank, witness_kernel
from m2st_core.presets import Preset
from m2st_core.registry import Registry
from m2st_core.rng import Streams
from m2st_core.testing.asymptotic import hotelling_test
from m2st_core.testing.selective import selective_test
from m2st_core.testing.statistics import (
    fuse,
    fuse_by_rank,
    label_difference,
    mmd2,
    probability_difference,
    witness_difference,
)
from m2st_core.types import Progress, TwoSample

Fit = Callable[[Any, Preset, Sequence[Streams], Progress | None], Any]
"""Learns from a TwoSample of training rows, or, where nothing is split off, from the pooled rows without labels."""

Adapt = Callable[[Knowledge, Any, Preset, Sequence[Streams], Progress | None], Any]
"""A Fit whose first argument is what the meta-tasks taught."""

Statistics = Callable[[Any, Tensor, Tensor, int, Progress | None], tuple[Tensor, ...]]
"""(what was learned, pooled test rows, memberships, n) → the statistic under every labelling, its rounding error; and
the Monte-Carlo standard error of the p-value, if the share of labellings that reach the statistic is not binomial."""

Asymptotic = Callable[[Any, TwoSample, int, Preset, Sequence[Streams]], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""(what was learned, paired test rows, B, …) → statistics, p-values, B quantiles of the reference distribution."""


@dataclass(frozen=True)
class Method:
    """One two-sample test: what it is, what it needs, and how it learns and decides."""

    name: str
    description: str
    reference: str
    exact: bool  # the p-value comes from permutations; otherwise from an asymptotic distribution
    needs_split: bool  # some target rows teach the kernel and are not tested
    needs_meta: bool = False  # learns from related tasks
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


LIU_2020 = "Liu, Xu, Lu, Zhang, Gretton, Sutherland (2020), Learning deep kernels for non-parametric two-sample tests"
LIU_2021 = "Liu, Xu, Lu, Sutherland (2021), Meta two-sample testing: learning kernels for testing with limited data"
GRETTON_2012 = "Gretton, Borgwardt, Rasch, Schölkopf, Smola (2012), A kernel two-sample test"
SUTHERLAND_2017 = "Sutherland et al. (2017), Generative models and model criticism via optimized MMD"
JITKRITTUM_2016 = "Jitkrittum, Szabó, Chwialkowski, Gretton (2016), Interpretable distribution features"
CHWIALKOWSKI_2015 = "Chwialkowski, Ramdas, Sejdinovic, Gretton (2015), Fast two-sample testing"
BIGGS_2023 = "Biggs, Schrab, Gretton (2023), MMD-FUSE: learning and combining kernels for two-sample testing"
LOPEZ_2017 = "Lopez-Paz, Oquab (2017), Revisiting classifier two-sample tests"
CHENG_2019 = "Cheng, Cloninger (2019), Classification logit two-sample testing by neural networks"
KUEBLER_2022 = "Kübler, Stimper, Buchholz, Muandet, Schölkopf (2022), A witness two-sample test; with a learned prior"
OURS = "this project: features from multi-task classification, weighted by how tasks have differed before"
KUEBLER_2020 = "Kübler, Jitkrittum, Schölkopf, Muandet (2020), Learning kernel tests without data splitting"


METHODS: Registry[Method] = Registry(
    "method",
    {
        method.name: method
        for method in (
            Method(
                "MMD-M",
                "Gaussian kernel with the median heuristic; nothing is learned, so every row is tested.",
                GRETTON_2012,
                exact=True,
                needs_split=False,
                fit=fit_median,
                statistics=mmd2,
            ),
            Method(
                "MMD-FUSE",
                "Ten Gaussian and ten Laplace kernels, fused into one statistic; nothing is split off.",
                BIGGS_2023,
                exact=True,
                needs_split=False,
                only_recommended=True,
                kernels_at_once=WIDTHS,
                fit=fit_bank,
                statistics=fuse,
            ),
            Method(
                "MMD-O",
                "Gaussian kernel whose width is learned on the training rows.",
                SUTHERLAND_2017,
                exact=True,
                needs_split=True,
                fit=fit_gaussian,
                statistics=mmd2,
            ),
            Method(
                "MMD-D",
                "Deep kernel learned on the training rows.",
                LIU_2020,
                exact=True,
                needs_split=True,
                fit=fit_deep,
                statistics=mmd2,
            ),
            Method(
                "C2ST-S",
                "A classifier is trained; the test compares how often it says “P” (an MMD with a sign kernel).",
                LOPEZ_2017,
                exact=True,
                needs_split=True,
                fit=fit_classifier,
                statistics=label_difference,
            ),
            Method(
                "C2ST-L",
                "A classifier is trained; the test compares its mean probability of “P” (an MMD with a linear kernel).",
                CHENG_2019,
                exact=True,
                needs_split=True,
                fit=fit_classifier,
                statistics=probability_difference,
            ),
            Method(
                "ME",
                "Gaussian bumps at five learned places; asymptotic p-value.",
                JITKRITTUM_2016,
                exact=False,
                needs_split=True,
                min_test_rows=7,
                fit=fit_mean_embedding,
                asymptotic=hotelling_test,
            ),
            Method(
                "SCF",
                "Smoothed characteristic functions at five learned frequencies; asymptotic p-value.",
                CHWIALKOWSKI_2015,
                exact=False,
                needs_split=True,
                min_test_rows=12,
                fit=fit_smooth_characteristic,
                asymptotic=hotelling_test,
            ),
            Method(
                "Meta-Witness",
                "The kernel of the differences seen in the meta-tasks; nothing is split off.",
                OURS,
                exact=True,
                needs_split=False,
                needs_meta=True,
                only_recommended=True,
                learn=learn_features,
                adapt=witness_kernel,
                statistics=mmd2,
            ),
            Method(
                "Meta-WiTS",
                "Training rows tell the direction and sign of the difference, with the meta-tasks as prior.",
                KUEBLER_2022,
                exact=True,
                needs_split=True,
                needs_meta=True,
                only_recommended=True,
                two_sided=False,
                learn=learn_features,
                adapt=fit_witness,
                statistics=witness_difference,
            ),
            Method(
                "Meta-FUSE",
                "The meta-tasks' kernels and generic ones, fused: for when nobody knows how related the tasks are.",
                OURS,
                exact=True,
                needs_split=False,
                needs_meta=True,
                kernels_at_once=WIDTHS,
                only_recommended=True,
                learn=learn_features,
                adapt=meta_bank,
                statistics=fuse_by_rank,
            ),
            Method(
                "AGT-KL",
                "One deep kernel for all meta-tasks together, then adapted to the target.",
                LIU_2021,
                exact=True,
                needs_split=True,
                needs_meta=True,
                learn=learn_agt_kl,
                adapt=fit_adapted,
                statistics=mmd2,
            ),
            Method(
                "Meta-KL",
                "A deep kernel that adapts to the target in a few steps.",
                LIU_2021,
                exact=True,
                needs_split=True,
                needs_meta=True,
                learn=learn_meta_kl,
                adapt=fit_adapted,
                statistics=mmd2,
            ),
            Method(
                "Meta-MKL",
                "A learned mixture of the meta-tasks' kernels.",
                LIU_2021,
                exact=True,
                needs_split=True,
                needs_meta=True,
                kernels_at_once=2,
                learn=learn_meta_mixture,
                adapt=fit_mixture,
                statistics=mmd2,
            ),
            Method(
                "Meta-MKL-A",
                "The uniform mixture of the meta-tasks' kernels; nothing is split off.",
                LIU_2021,
                exact=True,
                needs_split=False,
                needs_meta=True,
                kernels_at_once=2,
                learn=learn_meta_mixture,
                adapt=uniform_mixture,
                statistics=mmd2,
            ),
            Method(
                "Meta-Best1",
                "The one of the meta-tasks' kernels that has the largest Ĵ on the training rows.",
                LIU_2021,
                exact=True,
                needs_split=True,
                needs_meta=True,
                kernels_at_once=2,
                learn=learn_meta_mixture,
                adapt=fit_best,
                statistics=mmd2,
            ),
            Method(
                "AGT-MKL",
                "A learned mixture of kernels that start from AGT-KL.",
                LIU_2021,
                exact=True,
                needs_split=True,
                needs_meta=True,
                kernels_at_once=2,
                learn=learn_agt_mixture,
                adapt=fit_mixture,
                statistics=mmd2,
            ),
            Method(
                "AGT-MKL-A",
                "The uniform mixture of kernels that start from AGT-KL; nothing is split off.",
                LIU_2021,
                exact=True,
                needs_split=False,
                needs_meta=True,
                kernels_at_once=2,
                learn=learn_agt_mixture,
                adapt=uniform_mixture,
                statistics=mmd2,
            ),
            Method(
                "Meta-MKL-SI",
                "The weights of the mixture are learned on the tested rows, and selective inference accounts for it.",
                KUEBLER_2020,
                exact=False,
                needs_split=False,
                needs_meta=True,
                kernels_at_once=2,
                min_test_rows=60,  # with 12 it rejects up to 11 % of true null hypotheses, with 30 up to 8 %
                learn=learn_meta_mixture,
                adapt=base_kernels,
                asymptotic=selective_test,
            ),
            Method(
                "MMD-D w/ AC",
                "MMD-D whose training rows of P (called x) include the meta-tasks' rows, without their labels.",
                LIU_2021,
                exact=True,
                needs_split=True,
                needs_meta=True,
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
    if method.only_recommended and preset.warm_start is None:
        raise ValueError(f"{method.name} is not part of the preset {preset.name!r}. Choose the preset 'recommended'.")
