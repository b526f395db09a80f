"""The course: eight lessons, each with its idea, formulas, controls, picture and exercise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from m2st_core.dashboard.learn import pictures
from m2st_core.dashboard.learn.pictures import TESTS
from m2st_core.dashboard.widgets.controls import ALPHA, Control, restore, under

DELTAS = tuple(round(0.05 * index, 2) for index in range(20))
SIZES = (10, 20, 50, 100, 200, 400)
PERMUTATIONS = (1, 2, 5, 9, 19, 49, 99, 199, 299, 499, 749, 999)
WIDTHS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
VIEWS = {"feature": "Feature ψ", "weights": "Weights β", "witness": "Witness"}


@dataclass(frozen=True)
class Lesson:
    """One screen. ``show(seed, **values)`` draws its picture from the values of the controls."""

    title: str
    idea: str
    formulas: tuple[str, ...]
    controls: tuple[Control, ...]
    show: Callable[..., None]
    exercise: str

    def reset(self) -> None:
        """Set every control back to its default. The seed stays."""
        restore(self.controls, {control.field: control.default for control in self.controls})


DELTA = Control("delta", "Difference Δ", 0.7, "At 0, P and Q are the same. A larger Δ is easier to detect.", DELTAS)
SIZE = Control("size", "Rows m per mode", 100, "A sample has two modes. More rows reveal smaller differences.", SIZES)
RELATED_TASKS = Control(
    "n_tasks", "Related tasks N", 40, "Comparisons to learn from, 50 rows per mode each.", (5, 10, 20, 40)
)
BOUND_CONTROLS = (
    Control("gamma", "Relatedness γ", 0.1, "Distance of the most related task.", (0.0, 0.05, 0.1, 1.0, 10.0, 50.0)),
    Control("n", "Rows n per related task, per sample", 10_000, "ξₙ falls with n.", (100, 1_000, 10_000, 100_000)),
    Control("m", "Rows m of the target, per sample", 100, "ξₘ and ζₘ fall with m.", (50, 100, 200, 500, 1_000, 5_000)),
    Control("n_tasks", "Base kernels N", 10, "More kernels have more weights to learn.", (2, 5, 10, 20, 50, 100)),
    Control("parameters", "Parameters D", 1_000, "The size of the deep kernel.", (10, 100, 1_000, 10_000)),
    Control("s", "Smallest deviation s", 0.3, "A small s makes every term large.", (0.1, 0.2, 0.3, 0.5, 1.0)),
)
STEPS = (
    Lesson(
        "Two samples",
        "Rows of **P** are circles, rows of **Q** diamonds. Were they drawn from the same distribution? Both have the "
        "same means and variances. Only the correlation of the two columns differs, with opposite signs in the two "
        "modes.",
        (
            r"P=\tfrac12\mathcal N(0,I)+\tfrac12\mathcal N(\tfrac12\mathbf 1,I)",
            r"Q=\tfrac12\mathcal N(0,\Sigma_{-\Delta})+\tfrac12\mathcal N(\tfrac12\mathbf 1,\Sigma_{\Delta})",
            r"\Sigma_\Delta=\begin{bmatrix}1&\Delta\\\Delta&1\end{bmatrix}",
        ),
        (
            DELTA,
            SIZE,
            Control(
                "revealed",
                "Reveal the truth",
                False,
                "Colour the plane by log p/q: where P is denser, and where Q is. In practice it is unknown.",
            ),
        ),
        pictures.show_samples,
        "Set Δ to 0 and to 0.95. From which Δ on do *you* see a difference with 100 rows per mode?",
    ),
    Lesson(
        "What a kernel sees",
        "A kernel measures how alike two rows are. Its **witness function** is high where it finds more of P and low "
        "where it finds more of Q. A narrow kernel sees every row by itself, and a wide one only the means. Neither "
        "sees the difference.",
        (
            r"k(x,y)=\exp\!\left(-\lVert x-y\rVert^2/\sigma^2\right)",
            r"\hat f(\cdot)=\tfrac1m\sum_i k(\cdot,x_i)-\tfrac1m\sum_j k(\cdot,y_j)",
        ),
        (
            Control(
                "width", "Kernel width σ²", 1.0, "Small widths show detail and noise, large ones only means.", WIDTHS
            ),
            DELTA,
            SIZE,
        ),
        pictures.show_witness,
        "Find the width with the largest Ĵ, then re-seed. Is it still the best?",
    ),
    Lesson(
        "The permutation null",
        "If P = Q, the labels mean nothing: shuffle them and compute MMD² again. The **p-value** is the share of "
        "labellings, the observed one among them, whose MMD² is at least the observed one. If rows are exchangeable "
        "when P = Q, as independent draws are, then p ≤ α has probability at most α at every sample size.",
        (r"p=\frac{1+b}{1+B},\quad b=\#\{\mathrm{MMD}^2_{\pi}\ge \mathrm{MMD}^2\}",),
        (
            Control("shown", "Permutations shown B", 99, "Move right to fill the histogram.", PERMUTATIONS),
            DELTA,
            replace(SIZE, options=SIZES[:-1]),
        ),
        pictures.show_permutations,
        "Start at B = 1 and move right. When does the decision at α = 0.05 stop changing?",
    ),
    Lesson(
        "Power is repeated testing",
        f"Draw {TESTS} fresh pairs and test each. The share that rejects when P ≠ Q is the **power** of the test. When "
        "P = Q it is the **type-I error**, at most α. The kernel here is a Gaussian of median width (MMD-M), tested "
        "with 99 permutations.",
        (r"\text{power}=\Pr\nolimits_{P\ne Q}(p\le\alpha)", r"\Pr\nolimits_{P=Q}(p\le\alpha)\le\alpha"),
        (
            DELTA,
            replace(SIZE, default=50, options=(10, 20, 50, 100, 150)),
            replace(ALPHA, options=(0.01, 0.05, 0.1, 0.2)),
        ),
        pictures.show_power,
        "How many rows give 80 % power at Δ = 0.7? Does the type-I error change with the number of rows?",
    ),
    Lesson(
        "Why learning fails with few rows",
        "A learned kernel can find what a generic one misses. Training maximises Ĵ on the **training rows**. With few "
        "of them the kernel fits their noise: Ĵ soars there, while Ĵ on **fresh rows**, which determines power, stays "
        "or falls.",
        (
            r"\hat J_\lambda=\widehat{\mathrm{MMD}}{}^2_u\big/\sqrt{\hat\sigma^2+\lambda}",
            r"\hat k=\arg\max_{k\in\mathcal K}\hat J_\lambda(S^{tr}_P,S^{tr}_Q;k)",
            r"k_\omega(x,y)=[(1-\epsilon)\,\kappa(\phi(x),\phi(y))+\epsilon]\,q(x,y)",
        ),
        (replace(SIZE, label="Training rows m_tr per mode", default=10, options=(5, 10, 25, 50, 100, 200, 400)),),
        pictures.show_training,
        "Move m_tr from 5 to 400. When do the two curves meet, and when does learning beat the median heuristic?",
    ),
    Lesson(
        "Related tasks to the rescue",
        "Many small comparisons of the same kind tend to differ in the same way. **Base kernels** are learned from "
        "them, and the target's few rows only have to determine the weights **β**. The paper's Meta-MKL learns a deep "
        "kernel from each of several tasks. Our Feature-MKL, shown here, learns **features ψ** along which P and Q "
        "tend to differ, and mixes kernels on them.",
        (
            r"k_\beta=\sum_i\beta_i k_i",
            r"k_i(x,y)=(A_i\psi(x))^\top A_i\psi(y)\ \text{(Feature-MKL)}",
            r"\Delta_i=(0.6-C)+0.1\,i/N",
        ),
        (
            Control(
                "view",
                "Look at",
                "feature",
                "ψ beside the truth, the weights β, or the witness function of the mixture.",
                tuple(VIEWS),
                shown=VIEWS.__getitem__,
                buttons=True,
            ),
            RELATED_TASKS,
            Control(
                "closeness",
                "Closeness C",
                0.3,
                "With a small C the related tasks are much like the target. With a large C less can be learned from "
                "them, and power falls.",
                (0.1, 0.2, 0.3, 0.4, 0.5),
            ),
        ),
        pictures.show_related,
        "With how many related tasks does ψ begin to look like the truth? No row of the target was used for it.",
    ),
    Lesson(
        "How related is related?",
        "Two tasks are **γ-related** if no kernel does much better on one than on the other. As the related tasks move "
        "away from the target (C grows), γ̂ grows and power falls. The first chart shows γ̂, published and measured. "
        "The second shows power, measured now.",
        (r"\gamma=\sup_{k\in\mathcal K}\lvert J(P,Q;k)-J(P',Q';k)\rvert", r"\hat\gamma=\min_i\max_t\hat\gamma_{it}"),
        (replace(RELATED_TASKS, default=20, options=(10, 20, 40)),),
        pictures.show_closeness,
        "Does the meta-learned test ever fall below the one without related tasks? That would be negative transfer.",
    ),
    Lesson(
        "What the theory promises",
        "With high probability, J of the learned kernel is within 2(γ + ξₙ + …) of the best one. Learning a deep "
        "kernel on the target pays for all its D parameters with m rows. With related tasks that price is paid with "
        "n rows, and the m rows only determine β.",
        (
            r"J^*-J(\hat k_\beta)\le 2(\gamma+\xi_n+\xi_m)\ \text{(Meta-MKL)}",
            r"J^*-J(\hat k)\le 2(\gamma+\xi_n+\zeta_m)\ \text{(one best)}",
            r"\xi_m=O\!\Big(\tfrac{1}{s^2m^{1/3}}\big[\tfrac1s+\sqrt{D\log m}+L_k\big]\Big)",
        ),
        BOUND_CONTROLS,
        pictures.show_bounds,
        "Which term dominates the bound of Meta-MKL with 100 target rows? What would a larger n change?",
    ),
)
LESSONS = tuple(
    replace(lesson, controls=under(f"learn{step}_", *lesson.controls)) for step, lesson in enumerate(STEPS, start=1)
)
