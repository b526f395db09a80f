"""The tests of Liu, Xu, Lu and Sutherland (2021): deep kernels learned from related tasks."""

from __future__ import annotations

from m2st_core.learners.algorithm1 import fit_adapted, learn_agt_kl, learn_agt_mkl, learn_meta_kl
from m2st_core.learners.mixtures import fit_best, fit_mixture, fit_selective, uniform_mixture
from m2st_core.learners.target_kernels import fit_deep_with_rows, learn_rows
from m2st_core.testing.method import GREENS, Look, Method, MethodCost, method_lines

LIU_2021 = "Liu, Xu, Lu, Sutherland (2021), Meta two-sample testing: learning kernels for testing with limited data"
KUEBLER_2020 = "Kübler, Jitkrittum, Schölkopf, Muandet (2020), Learning kernel tests without data splitting"
DEEP_KERNEL = "k_ω(x,y) = [(1−ε)·exp(−‖φ(x)−φ(y)‖²/σ_φ²) + ε]·exp(−‖x−y‖²/σ_q²)"
TUNED_START = (
    "φ starts as a classifier of all tasks; short training of first order, which tasks held out decide when to stop"
)
RELEASED_START = "H = 30, narrower first widths, and pairs of tasks pooled"
RELEASED_LOOP = f"{RELEASED_START}; inner steps are of first order, restart each time and change the network only"

PAPER_METHODS = (
    *method_lines(
        Method(
            "AGT-KL",
            "One deep kernel for all related tasks together, then adapted to the target.",
            f"{DEEP_KERNEL}, ω maximises mean_i Ĵ_λ(task i)",
            LIU_2021,
            "paper",
            Look(GREENS[2], "star", "solid"),
            learn=learn_agt_kl,
            training="learn_agt_kl",
            adapt=fit_adapted,
        ),
        tuned=f"{TUNED_START} and how far to adapt",
        code=f"{RELEASED_START}; 50 small steps of Adam adapt to the target",
    ),
    *method_lines(
        Method(
            "Meta-KL",
            "A deep kernel trained to adapt to a new task in a few gradient steps (Algorithms 1 and 2).",
            f"{DEEP_KERNEL}, ω = θ + η Σ_t ∇Ĵ_λ(ω_t)",
            LIU_2021,
            "paper",
            Look(GREENS[1], "x", "solid"),
            learn=learn_meta_kl,
            training="learn_meta_kl",
            adapt=fit_adapted,
        ),
        tuned=f"{TUNED_START} and how far to adapt",
        code=f"{RELEASED_LOOP}; 50 small steps of Adam adapt to the target",
    ),
    *method_lines(
        Method(
            "Meta-MKL",
            "A mixture of the related tasks' deep kernels, weighted on the training rows (Algorithm 3).",
            "k = Σ_i β_i·k_ωi, β ≥ 0 by Ĵ_λ on the training rows, ω_i from Meta-KL's start",
            LIU_2021,
            "paper",
            Look(GREENS[0], "cross", "solid"),
            learn=learn_meta_kl,
            training="learn_meta_kl",
            adapt=fit_mixture,
            kernels_at_once=2,
            cost=MethodCost(test=2.5),
        ),
        tuned=f"{TUNED_START}. Five kernels instead of ten, and β is shrunk: 80 % of it is uniform",
        code=RELEASED_LOOP,
    ),
    *method_lines(
        Method(
            "Meta-MKL-A",
            "The uniform mixture of the related tasks' deep kernels. Nothing is split off.",
            "k = Σ_i k_ωi/K, ω_i from Meta-KL's start",
            LIU_2021,
            "paper",
            Look(GREENS[3], "circle", "solid"),
            learn=learn_meta_kl,
            training="learn_meta_kl",
            adapt=uniform_mixture,
            needs_split=False,
            kernels_at_once=2,
            cost=MethodCost(test=2.5),
        ),
        tuned=f"{TUNED_START}. Five kernels instead of ten",
        code=RELEASED_LOOP,
    ),
    *method_lines(
        Method(
            "Meta-Best1",
            "The related tasks' deep kernel with the largest Ĵ on the training rows.",
            "k = k_ωi, i = argmax Ĵ_λ(k_ωi), ω_i from Meta-KL's start",
            LIU_2021,
            "paper",
            Look(GREENS[1], "square", "solid"),
            learn=learn_meta_kl,
            training="learn_meta_kl",
            adapt=fit_best,
            kernels_at_once=2,
        ),
        tuned=f"{TUNED_START}. Five kernels instead of ten",
        code=RELEASED_LOOP,
    ),
    *method_lines(
        Method(
            "AGT-MKL",
            "A mixture of deep kernels that start from AGT-KL, weighted on the training rows.",
            "k = Σ_i β_i·k_ωi, β ≥ 0 by Ĵ_λ on the training rows, ω_i from AGT-KL's starts",
            LIU_2021,
            "paper",
            Look(GREENS[2], "diamond", "solid"),
            learn=learn_agt_mkl,
            training="learn_agt_mkl",
            adapt=fit_mixture,
            kernels_at_once=2,
            cost=MethodCost(test=2.5),
        ),
        tuned=f"{TUNED_START}. Five kernels instead of ten, and β is shrunk: 80 % of it is uniform",
        code=RELEASED_START,
    ),
    *method_lines(
        Method(
            "AGT-MKL-A",
            "The uniform mixture of deep kernels that start from AGT-KL. Nothing is split off.",
            "k = Σ_i k_ωi/K, ω_i from AGT-KL's starts",
            LIU_2021,
            "paper",
            Look(GREENS[3], "triangle-up", "solid"),
            learn=learn_agt_mkl,
            training="learn_agt_mkl",
            adapt=uniform_mixture,
            needs_split=False,
            kernels_at_once=2,
            cost=MethodCost(test=2.5),
        ),
        tuned=f"{TUNED_START}. Five kernels instead of ten",
        code=RELEASED_START,
    ),
    *method_lines(
        Method(
            "Meta-MKL-SI",
            "Weights the related tasks' deep kernels on the tested rows; selective inference accounts for it.",
            "βᵀτ/√(βᵀΣβ), τ the linear-time MMD²s of k_ωi, ω_i from Meta-KL's start",
            f"{LIU_2021}; after {KUEBLER_2020}",
            "paper",
            Look(GREENS[0], "cross", "longdash"),
            learn=learn_meta_kl,
            training="learn_meta_kl",
            adapt=fit_selective,
            needs_split=False,
            by_permutation=False,
            min_test_rows=60,
            kernels_at_once=2,
            cost=MethodCost(test=0.3, by_row=True),
        ),
        tuned=f"{TUNED_START}. Five kernels instead of ten, and an F distribution as reference",
        code=RELEASED_LOOP,
    ),
    *method_lines(
        Method(
            "MMD-D w/ AC",
            "MMD-D whose training rows of P (called x) include the related tasks' rows, without their labels.",
            f"{DEEP_KERNEL}, ω maximises Ĵ_λ",
            LIU_2021,
            "paper",
            Look(GREENS[3], "x", "longdash"),
            learn=learn_rows,
            training="learn_rows",
            adapt=fit_deep_with_rows,
            symmetric=False,
            cost=MethodCost(fit=1.0, image_fit="deep"),
        ),
        tuned="scaled columns, widths from the median heuristic, 100 larger steps instead of 1,000, and λ = 0.001",
    ),
)
