"""The course: seven lessons, each with one idea, one control, one picture, one sentence and its maths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from m2st_core.dashboard.learn import pictures
from m2st_core.dashboard.learn.pictures import LIKE_TASKS, SOMETHING_NEW, LessonPicture
from m2st_core.dashboard.learn.questions import Sample, ask_rows, ask_tasks, ask_training, ask_width
from m2st_core.dashboard.widgets.controls import SEED, Control, controls_under
from m2st_core.studies.lessons import CLOSENESS, DELTAS, ROWS, ROWS_PER_TASK, SHIFT, TASK_COUNTS, TESTS, TRAINING_ROWS


@dataclass(frozen=True)
class Lesson:
    """One step. ``show(sample, value)`` makes its picture and its sentence from the value of the control.

    ``question`` asks what the control can answer with the carried sample.
    """

    name: str
    idea: str
    control: Control
    question: Callable[[Sample], str]
    show: Callable[..., LessonPicture]
    maths: tuple[str, ...]
    drawn: bool = False  # whether another seed changes the picture
    own_target: bool = False  # whether the control, and not the carried Δ, says what differs

    def carried(self, sample: Sample) -> str:
        """What of the carried sample this step uses."""
        if self.drawn:
            return f"Δ = {sample.delta:g}, {sample.rows} rows each, seed {sample.seed}"
        rows = f"{sample.few_rows} rows each" + (", the most in this step" if sample.few_rows < sample.rows else "")
        return rows if self.own_target else f"Δ = {sample.delta:g}, {rows}"


DELTA, SIZE = controls_under(
    "learn_",
    Control("delta", "Difference Δ", 0.7, "At 0, P and Q are the same. A larger Δ is easier to detect.", DELTAS),
    Control("rows", "Rows per sample", 100, "More rows reveal smaller differences.", ROWS),
)
SAMPLE = (DELTA, SIZE, SEED)  # carried from step to step


def _own(
    field: str, label: str, default: int | float | str, help: str, options: tuple[int | float | str, ...]
) -> Control:
    return Control(field, label, default, help, options, buttons=isinstance(default, str), prefix="learn_")


LESSONS = (
    Lesson(
        "Can you see it?",
        "Circles were drawn from **P**, diamonds from **Q**. Are P and Q the same? Their means, variances and "
        "overall correlation are. But each is two clouds, and in Q the columns may correlate within each cloud, with "
        "opposite signs. Δ says how much.",
        DELTA,
        lambda sample: "At which Δ do you begin to see a difference?",
        pictures.show_samples,
        (
            "Each distribution has two modes. Q's modes are correlated, with opposite signs.",
            r"$$P=\tfrac12\mathcal N(0,I)+\tfrac12\mathcal N(\tfrac12\mathbf 1,I)$$",
            r"$$Q=\tfrac12\mathcal N(0,\Sigma_{-\Delta})+\tfrac12\mathcal N(\tfrac12\mathbf 1,\Sigma_{\Delta}),\quad "
            r"\Sigma_\Delta=\begin{bmatrix}1&\Delta\\\Delta&1\end{bmatrix}$$",
        ),
        drawn=True,
    ),
    Lesson(
        "Shuffle the labels",
        "If P and Q were the same, the labels would mean nothing. So **shuffle them**, and measure the difference "
        "again. Each dot below is one shuffle. The line is the real labelling.",
        _own(
            "shown",
            "Shuffles shown",
            pictures.SHUFFLES[-1],
            "Each shuffle gives the same rows other labels and drops one dot.",
            pictures.SHUFFLES,
        ),
        lambda sample: "How many shuffles does it take until the decision at 5 % is stable?",
        pictures.show_shuffles,
        (
            "MMD² is the mean similarity within the samples, minus that between them. The p-value counts labellings:",
            r"$$p=\frac{1+b}{1+B},\quad b=\#\{\mathrm{MMD}^2_{\pi}\ge \mathrm{MMD}^2\}$$",
            "If rows are exchangeable when P = Q, then p ≤ α has probability at most α, with any number of rows.",
        ),
        drawn=True,
    ),
    Lesson(
        "What a kernel sees",
        "A **kernel** says how alike two rows are. It sees more of P in the blue places and more of Q in the orange "
        "ones. A narrow kernel sees single rows. A wide one sees only the means.",
        _own(
            "width",
            "Kernel width σ²",
            5.0,
            "Small widths show detail and noise, large ones only means.",
            pictures.WIDTHS,
        ),
        ask_width,
        pictures.show_kernel,
        (
            "The map is the witness function of a Gaussian kernel:",
            r"$$\hat f(\cdot)=\tfrac1m\sum_i k(\cdot,x_i)-\tfrac1m\sum_j k(\cdot,y_j),\quad "
            r"k(x,y)=\exp\!\left(-\lVert x-y\rVert^2/\sigma^2\right)$$",
            "r is its correlation with log p/q at 1,000 fresh rows.",
        ),
        drawn=True,
    ),
    Lesson(
        "Power is repetition",
        f"Draw {TESTS} fresh samples and test each. The share in which it finds the difference is its **power**. "
        "Without a difference, the share that it rejects is its **type-I error**.",
        SIZE,
        ask_rows,
        pictures.show_power,
        (
            r"$$\text{power}=\Pr\nolimits_{P\ne Q}(p\le\alpha),\qquad \Pr\nolimits_{P=Q}(p\le\alpha)\le\alpha=0.05$$",
            "The test is MMD-M: a Gaussian kernel whose width is the median distance, with 99 shuffles.",
        ),
        drawn=True,
    ),
    Lesson(
        "Few rows teach noise",
        "Why not **learn** what to look for? Learn the map of step 3 from some rows of P and Q. Then test other rows "
        "with it.",
        _own("training", "Training rows per sample", 20, "Rows that the map is learned from.", TRAINING_ROWS),
        ask_training,
        pictures.show_training,
        (
            "The witness function of the training rows scores the test rows:",
            r"$$T=\tfrac1m\sum_i \hat f_{tr}(x_i)-\tfrac1m\sum_j \hat f_{tr}(y_j)$$",
            "Its width is the median distance. Ten tests share a training sample; error bars are Wilson's 95 % "
            r"intervals. The paper learns a deep kernel instead, which maximises $\hat J=\widehat{\mathrm{MMD}}{}^2/"
            r"\hat\sigma$, and meets the same limit.",
        ),
    ),
    Lesson(
        "Related tasks help",
        "You may have made **similar comparisons** before. Each was small, but all differ in a similar way. So they "
        "teach what to look for, and none of the new rows is spent on learning.",
        _own(
            "tasks", "Related tasks N", 40, f"Earlier comparisons, {ROWS_PER_TASK} rows per sample each.", TASK_COUNTS
        ),
        ask_tasks,
        pictures.show_related_tasks,
        (
            "With related tasks: Meta-Witness, a kernel on features ψ along which they differ. Without: MMD-M.",
            r"$$k(x,y)=\sum_q a_q\,\psi_q(x)\,\psi_q(y),\qquad \Delta_i=(0.6-C)+0.1\,i/N$$",
            f"The related tasks have Δ_i, with C = {CLOSENESS:g}. Four sets of them test 25 samples each.",
        ),
    ),
    Lesson(
        "When they mislead",
        f"All {TASK_COUNTS[-1]} related tasks differ in the correlation within clouds, so they teach a test to look "
        f"for it. New samples may differ **{LIKE_TASKS}**, with Δ = 0.7, or in **{SOMETHING_NEW}**: a mean that "
        f"moves by {SHIFT:g}.",
        _own(
            "target",
            "The new difference is",
            SOMETHING_NEW,
            "What the new samples differ in.",
            (SOMETHING_NEW, LIKE_TASKS),
        ),
        lambda sample: "Which test would you choose if you do not know?",
        pictures.show_misled,
        (
            "γ measures how unlike two tasks are. J is a kernel's signal over noise, and γ its largest change from one "
            "task to the other:",
            r"$$\gamma=\sup_{k\in\mathcal K}\lvert J(P,Q;k)-J(P',Q';k)\rvert$$",
            "Meta-FUSE combines learned kernels with generic ones.",
        ),
        own_target=True,
    ),
)
LAST = "Recap and quiz"
STEP = replace(
    _own("step", "Step", LESSONS[0].name, "One idea per step. The address leads back to it.", ()),
    options=(*(lesson.name for lesson in LESSONS), LAST),
    prefix="",
)
