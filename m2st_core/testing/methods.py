"""The registry of two-sample tests. To add one, add its entry here and, if it learns, its fit in learners/."""

from __future__ import annotations

from m2st_core.learners.classifier import fit_labels, fit_probabilities
from m2st_core.learners.embeddings import fit_mean_embedding, fit_smooth_characteristic
from m2st_core.learners.generic import fit_aggregate, fit_bank, fit_energy, fit_omnibus
from m2st_core.learners.learned_tests import (
    fit_feature_mixture,
    fit_learned,
    fit_witness,
    learn_feature_mixture,
    learn_features,
    meta_bank,
)
from m2st_core.learners.target_kernels import fit_deep, fit_gaussian, fit_median
from m2st_core.presets import RELEASED
from m2st_core.testing.method import GREYS, VIOLETS, Look, Method, MethodCost, method_lines
from m2st_core.testing.paper_methods import DEEP_KERNEL, PAPER_METHODS
from m2st_core.types import Registry

OURS = "this project: discriminant directions of related tasks in random Fourier features (docs/learned_features.md)"
OURS_WITNESS = f"{OURS}, after Kübler, Stimper, Buchholz, Muandet, Schölkopf (2022), A witness two-sample test"
OURS_FUSE = f"{OURS}, after Biggs, Schrab, Gretton (2023), MMD-FUSE: learning and combining kernels"

GENERAL_METHODS = (
    Method(
        "MMD-M",
        "Gaussian kernel with the median heuristic. Nothing is learned, so every row is tested.",
        "k(x,y) = exp(−‖x−y‖²/σ²), σ² = median ‖z_i−z_j‖²",
        "Gretton, Borgwardt, Rasch, Schölkopf, Smola (2012), A kernel two-sample test",
        "general",
        Look(GREYS[0], "star", "dot"),
        fit=fit_median,
        needs_split=False,
        cost=MethodCost(image_test=0.001),
    ),
    Method(
        "MMD-FUSE",
        "Ten Gaussian and ten Laplace kernels, combined in one statistic. Nothing is split off.",
        "(1/λ)·log Σ_k π_k exp(λ·MMD²_k/√N_k)",
        "Biggs, Schrab, Gretton (2023), MMD-FUSE: learning and combining kernels for two-sample testing",
        "general",
        Look(GREYS[3], "diamond", "dot"),
        fit=fit_bank,
        needs_split=False,
        kernels_at_once=3,
        cost=MethodCost(test=16.0, image_test=0.045, labelling_bytes=1_000),
    ),
    Method(
        "MMDAgg",
        "Ten Gaussian and ten Laplace kernels; the one with the smallest p-value decides, corrected for the choice.",
        "max_k w_k/p_k, p_k the kernel's own p-value, permuted",
        "Schrab, Kim, Albert, Laurent, Guedj, Gretton (2023), MMD aggregated two-sample test",
        "general",
        Look(GREYS[1], "square", "dashdot"),
        fit=fit_aggregate,
        needs_split=False,
        kernels_at_once=3,
        cost=MethodCost(test=16.0, image_test=0.045, labelling_bytes=8_000),
    ),
    Method(
        "Energy",
        "The energy distance, which has no width to choose. Nothing is learned, so every row is tested.",
        "2·mean‖x−y‖ − mean‖x−x'‖ − mean‖y−y'‖",
        "Székely, Rizzo (2004), Testing for equal distributions in high dimension",
        "general",
        Look(GREYS[2], "circle", "dashdot"),
        fit=fit_energy,
        needs_split=False,
        cost=MethodCost(image_test=0.001),
    ),
    *method_lines(
        Method(
            "MMD-O",
            "Gaussian kernel whose width maximises Ĵ on the training rows.",
            "k(x,y) = exp(−‖x−y‖²/σ²), σ maximises Ĵ_λ",
            "Sutherland et al. (2017), Generative models and model criticism via optimized MMD",
            "general",
            Look(GREYS[2], "triangle-up", "dot"),
            fit=fit_gaussian,
            cost=MethodCost(fit=0.5),
        ),
        tuned="the width starts at the median heuristic; 150 larger steps instead of 1,000, and λ = 0.001",
    ),
    *method_lines(
        Method(
            "MMD-D",
            "Deep kernel learned on the training rows.",
            f"{DEEP_KERNEL}, ω maximises Ĵ_λ",
            "Liu, Xu, Lu, Zhang, Gretton, Sutherland (2020), Learning deep kernels for non-parametric two-sample tests",
            "general",
            Look(GREYS[1], "diamond", "dashdot"),
            fit=fit_deep,
            cost=MethodCost(fit=0.5, image_fit="deep"),
        ),
        tuned="scaled columns, widths from the median heuristic, 100 larger steps instead of 1,000, and λ = 0.001",
    ),
    *method_lines(
        Method(
            "C2ST-S",
            "Trains a classifier and compares how often it predicts P (an MMD with a sign kernel).",
            "|mean 1[f(x)>0] − mean 1[f(y)>0]|",
            "Lopez-Paz, Oquab (2017), Revisiting classifier two-sample tests",
            "general",
            Look(GREYS[0], "square", "dot"),
            fit=fit_labels,
            cost=MethodCost(test=0.3, by_row=True, fit=0.5, image_fit="classifier"),
        ),
        tuned="scaled columns, 200 epochs instead of 1,000, and weight decay",
    ),
    *method_lines(
        Method(
            "C2ST-L",
            "Trains a classifier and compares its mean probability of P (an MMD with a linear kernel).",
            "|mean p(x) − mean p(y)|",
            "Cheng, Cloninger (2019), Classification logit two-sample testing by neural networks",
            "general",
            Look(GREYS[3], "circle", "dot"),
            fit=fit_probabilities,
            cost=MethodCost(test=0.3, by_row=True, fit=0.5, image_fit="classifier"),
        ),
        tuned="scaled columns, 200 epochs instead of 1,000, and weight decay",
    ),
    *method_lines(
        Method(
            "ME",
            "Gaussian bumps at five learned places; asymptotic p-value.",
            "n·WᵀΣ⁻¹W, W_j = mean k(x,v_j) − mean k(y,v_j)",
            "Jitkrittum, Szabó, Chwialkowski, Gretton (2016), Interpretable distribution features",
            "general",
            Look(GREYS[3], "cross", "dot"),
            fit=fit_mean_embedding,
            by_permutation=False,
            min_test_rows=7,
            cost=MethodCost(test=0.3, by_row=True, fit=0.2),
        ),
        tuned="the places start among inner rows; 100 steps instead of 300, and an F distribution as reference",
    ),
    *method_lines(
        Method(
            "SCF",
            "Smoothed characteristic functions at five learned frequencies; asymptotic p-value.",
            "n·WᵀΣ⁻¹W, W the differences of smoothed sines and cosines",
            "Chwialkowski, Ramdas, Sejdinovic, Gretton (2015), Fast two-sample testing",
            "general",
            Look(GREYS[2], "x", "dot"),
            fit=fit_smooth_characteristic,
            by_permutation=False,
            min_test_rows=12,
            cost=MethodCost(test=0.3, by_row=True, fit=0.2),
        ),
        tuned="100 steps instead of 300, and an F distribution as reference",
        code="the frequencies keep their first values",
    ),
)

OUR_METHODS = (
    Method(
        "Omnibus",
        "Combines MMD-FUSE with broad and fine kernels, so that nothing has to be chosen. Every row is tested.",
        "harmonic mean of four statistics' p-values, permuted",
        "this project: kernels combined by rank (docs/methods.md), after Hagrass, Sriperumbudur, Li (2024), Spectral "
        "regularized kernel two-sample tests",
        "ours",
        Look(VIOLETS[2], "star", "dash"),
        revision=1,
        fit=fit_omnibus,
        needs_split=False,
        cost=MethodCost(test=6.0, image_test=0.02, labelling_bytes=1_500),
    ),
    Method(
        "Meta-Witness",
        "Kernels on learned features, each weighted by how far related tasks differ in it.",
        "log Σ_c w_c exp(MMD²_c/spread), k_c(x,y) = Σ_q a_cq ψ_cq(x)ψ_cq(y)",
        OURS,
        "ours",
        Look(VIOLETS[1], "triangle-up", "dash"),
        learn=learn_features,
        training="learn_spaces",
        revision=2,
        adapt=fit_learned,
        needs_split=False,
        cost=MethodCost(test=0.5, labelling_bytes=1_500),
    ),
    Method(
        "Meta-WiTS",
        "Predicts the difference in learned features from training rows and a prior, and tests the prediction.",
        "log Σ_c w_c N(d_c; μ_c, V_c+τ)/N(d_c; 0, τ), d_c = mean ψ_c(x) − mean ψ_c(y)",
        OURS_WITNESS,
        "ours",
        Look(VIOLETS[0], "square", "dash"),
        learn=learn_features,
        training="learn_spaces",
        revision=2,
        adapt=fit_witness,
        two_sided=False,
        cost=MethodCost(test=0.3, by_row=True, labelling_bytes=1_500),
    ),
    Method(
        "Meta-FUSE",
        "Combines learned features with general-purpose kernels: the safer choice when relatedness is uncertain.",
        "harmonic mean of the families' p-values, permuted",
        OURS_FUSE,
        "ours",
        Look(VIOLETS[2], "diamond", "dash"),
        learn=learn_features,
        training="learn_spaces",
        revision=3,
        adapt=meta_bank,
        needs_split=False,
        kernels_at_once=3,
        cost=MethodCost(test=3.5, image_test=0.005, labelling_bytes=2_500),
    ),
    Method(
        "Feature-MKL",
        "A mixture of kernels on learned features and Gaussian kernels, weighted on the training rows.",
        "k(x,y) = Σ_i β_i·(A_iψ(x))ᵀ(A_iψ(y)) + Σ_j β_j·Gaussian_j",
        OURS,
        "ours",
        Look(VIOLETS[3], "circle", "dash"),
        learn=learn_feature_mixture,
        training="learn_space_mixture",
        revision=2,
        adapt=fit_feature_mixture,
        kernels_at_once=2,
        cost=MethodCost(test=1.2, image_test=0.00045, labelling_bytes=500),
    ),
)

METHODS: Registry[Method] = Registry(
    "method", {method.name: method for method in (*PAPER_METHODS, *GENERAL_METHODS, *OUR_METHODS)}
)


def find_method(name: str, preset: str | None = None) -> Method:
    """The method of this name, or the line of the same test with another preset; a ValueError says what there is.

    Where the code follows the paper's text, ``released`` is the line of the text.
    """
    method = METHODS[name if isinstance(name, str) else METHODS.name_of(name)]
    if preset in (None, method.preset.name if method.algorithm else None):
        return method
    settings = {line.preset.name: line for line in METHODS.values() if line.algorithm == method.name}
    if settings and preset == RELEASED.name:
        return settings.get(preset, method)
    if preset in settings:
        return settings[preset]
    if not method.algorithm:
        raise ValueError(f"{method.name} has no presets: only tests of the paper have. Leave out preset={preset!r}.")
    if method.algorithm != method.name:
        raise ValueError(
            f"{method.name} has the preset {method.preset.name!r}. For {preset!r}, ask for {method.algorithm}."
        )
    raise ValueError(f"{method.name} has no preset {preset!r}. It has: {', '.join(map(repr, settings))}.")


def trained_by(training: str) -> Method:
    """The first method with this training; its ``learn`` is that of all of them."""
    return next(method for method in METHODS.values() if method.training == training)


def label_of(method: str) -> str:
    """The name of a method in lists and legends, with a mark if it is ours. Other names stay as they are."""
    return METHODS[method].label if method in METHODS else method
