"""The course: seven lessons, each with one idea, control, question, picture, sentence and its maths; recap and quiz."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import streamlit as st

from m2st_core.dashboard.learn import pictures
from m2st_core.dashboard.learn.pictures import (
    LIKE_TASKS,
    NOTICEABLE,
    SOMETHING_NEW,
    LessonPicture,
    Sample,
    percent,
    power,
    size_goal,
)
from m2st_core.dashboard.widgets.controls import SEED, Control, controls_under
from m2st_core.dashboard.widgets.page import chart
from m2st_core.figures.relatedness import bound_course_figure, gamma_figure
from m2st_core.paper.published import measured_gamma, published_gamma
from m2st_core.studies.lessons import (
    CLOSENESS,
    DELTAS,
    OWN_ROWS,
    ROWS,
    ROWS_PER_TASK,
    SHIFT,
    SIZE,
    TASK_COUNTS,
    TAUGHT,
    TESTS,
    TRAINING_ROWS,
    LessonCell,
    goal_within_reach,
    home_table,
)
from m2st_core.studies.synthetic import DELTA
from m2st_core.studies.theorem import SIZES, BoundSettings, bound_courses
from m2st_core.types import DEFAULT_TAUGHT_TEST, GENERIC_TEST


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


DIFFERENCE, SAMPLE_ROWS = controls_under(
    "learn_",
    Control("delta", "Difference Δ", 0.7, "At 0, P and Q are the same. A larger Δ is easier to detect.", DELTAS),
    Control("rows", "Rows per sample", 100, "More rows reveal smaller differences.", ROWS),
)
SAMPLE = (DIFFERENCE, SAMPLE_ROWS, SEED)  # carried from step to step


def _own(
    field: str, label: str, default: int | float | str, help: str, options: tuple[int | float | str, ...]
) -> Control:
    return Control(field, label, default, help, options, buttons=isinstance(default, str), prefix="learn_")


def _ask_width(sample: Sample) -> str:
    if not sample.delta:
        return "P and Q are the same here. At which widths does noise look like a difference?"
    return "Which width comes closest to the truth?"


def _ask_rows(sample: Sample) -> str:
    if not sample.delta:
        return "P and Q are the same here. Do more rows change the share of false alarms?"
    goal = size_goal(sample.delta)
    return f"How many rows give {percent(goal)} power?" if goal else "How does power change with the rows?"


def _ask_training(sample: Sample) -> str:
    if not sample.delta:
        return "P and Q are the same here. Does learning raise more false alarms?"
    rows, delta = sample.few_rows, sample.delta
    floor = power(LessonCell(GENERIC_TEST, rows, delta)).share
    pays = [power(LessonCell(OWN_ROWS, rows, delta, one)).share > floor + NOTICEABLE for one in TRAINING_ROWS]
    if any(pays):
        return "How many training rows does it take before learning pays?"
    return "Does learning pay with any number of training rows?"


def _ask_tasks(sample: Sample) -> str:
    if not sample.delta:
        return "P and Q are the same here. Do related tasks raise more false alarms?"
    rows, delta = sample.few_rows, sample.delta
    without = power(LessonCell(GENERIC_TEST, rows, delta)).share
    shares = [power(LessonCell(TAUGHT, rows, delta, one)).share for one in TASK_COUNTS]
    goal = goal_within_reach(shares, 0.5, above=without + NOTICEABLE)
    if goal is None:
        return "Does it matter here how many related tasks there are?"
    often = "half" if goal == 0.5 else percent(goal)
    return f"How many related tasks does it take to find the difference in {often} of the samples?"


LESSONS = (
    Lesson(
        "Can you see it?",
        "Circles were drawn from **P**, diamonds from **Q**. Are P and Q the same? Their means, variances and "
        "overall correlation are. But each is two clouds, and in Q the columns may correlate within each cloud, with "
        "opposite signs. Δ says how much.",
        DIFFERENCE,
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
        _ask_width,
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
        SAMPLE_ROWS,
        _ask_rows,
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
        _ask_training,
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
        _ask_tasks,
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


@dataclass(frozen=True)
class _QuizQuestion:
    """A question, its answers with their explanations, and the position of the right one."""

    words: str
    answers: dict[str, str]
    right: int

    @property
    def key(self) -> str:
        """The key of its widget."""
        return f"learn_quiz{1 + QUIZ.index(self)}"

    def ask(self) -> bool | None:
        """Draw the question and explain the answer; whether it is right, or None without one."""
        options = tuple(self.answers)
        answer = st.radio(self.words, options, index=None, key=self.key, persist_state="session")
        if answer is None:
            return None
        right = answer == options[self.right]
        st.markdown(f"**{'Right.' if right else 'Not quite.'}** {self.answers[answer]}")
        return right


QUIZ = (
    _QuizQuestion(
        "1. A test gives p = 0.03. What is 0.03?",
        {
            "The probability that P and Q are the same": "Many people think so. But p is computed as if P and Q were "
            "the same. It cannot also say how likely that is.",
            "The share of labellings with a difference at least as large": "You saw it happen in step 2: p counts "
            "labellings that reach the observed difference.",
            "The size of the difference": "A tiny difference has a small p if there are many rows. Look at the effect "
            "itself for its size.",
        },
        1,
    ),
    _QuizQuestion(
        "2. With 20 rows per sample, p = 0.40. What follows?",
        {
            "P and Q are the same": "That would be comfortable. But in step 4, small samples missed a real difference "
            "most of the time.",
            "The test is broken": "It does what it can. With few rows, a valid test often stays silent.",
            "These rows give no evidence of a difference": "No evidence of a difference is not evidence of none.",
        },
        2,
    ),
    _QuizQuestion(
        "3. Study A has p = 0.001 with 10,000 rows, study B has p = 0.02 with 30 rows. Which difference is larger?",
        {
            "The p-values do not say": "p mixes the size of a difference with the number of rows.",
            "A's, as its p is smaller": "A's evidence is stronger. But with 10,000 rows, even a tiny "
            "difference gives a small p.",
            "B's, as it needed fewer rows": "A good thought, and B's estimate may well be larger. p alone cannot tell.",
        },
        0,
    ),
    _QuizQuestion(
        "4. You test 20 columns at 5 %, and none differs. How many rejections do you expect?",
        {
            "None": "Each test has its own 5 % chance of a false alarm, and 20 of them add up.",
            "About one": "20 × 5 % = 1. Declare one test beforehand, or correct for all 20.",
            "Five": "5 % is a share: of 20 tests it is one.",
        },
        1,
    ),
    _QuizQuestion(
        "5. You get p = 0.07, change the seed five times and then get p = 0.04. What is 0.04 worth?",
        {
            "As much as any p-value": "Each one alone is valid. The smallest of several is not.",
            "More, as it was confirmed": "The other five tries did not confirm it. They count as well.",
            "Less, as you chose it among six": "The smallest of six p-values is below 5 % far too often. Report the "
            "first, or all.",
        },
        2,
    ),
)


TARGET_ROWS = Control(
    "bound_rows",
    "Rows of the target in the bounds",
    100,
    "The bounds of all three strategies fall with it.",
    tuple(SIZES),
    prefix="learn_",
)


def show_recap(sample: Sample) -> None:
    """Say in five lines what was seen, with the numbers of the carried sample, and where to go."""
    rows, delta, least, most = sample.few_rows, sample.delta, TRAINING_ROWS[1], TASK_COUNTS[-1]
    generic = power(LessonCell(GENERIC_TEST, rows, delta)).share
    learned = power(LessonCell(OWN_ROWS, rows, delta, least)).share
    taught = power(LessonCell(TAUGHT, rows, delta, most)).share
    misled = power(LessonCell(TAUGHT, rows, learned_from=most, shifted=True)).share
    safe = power(LessonCell(DEFAULT_TAUGHT_TEST, rows, learned_from=most, shifted=True)).share
    found, called = ("finds the difference", "power") if delta else ("gives a false alarm", "type-I error")
    with st.container(border=True, key="learn_recap"):
        st.subheader("What you have seen", anchor=False)
        st.markdown(
            "- A **p-value** is the share of labellings that reach the observed difference.\n"
            f"- With {rows} rows at Δ = {delta:g}, a generic kernel {found} in {percent(generic)} of samples. That is "
            f"its **{called}**.\n"
            f"- After **learning** from {least} own rows, a test does so in {percent(learned)}.\n"
            f"- After learning from {most} **related tasks**, a test does so in {percent(taught)}.\n"
            f"- If the difference is a new one, that test finds it in {percent(misled)}, and Meta-FUSE, which keeps "
            f"general kernels, in {percent(safe)}."
        )
        st.caption(_chance_sentence(sample))
        st.page_link("pages/test_my_data.py", label="Test my data", help="Go on with your own two files.")


def _chance_sentence(sample: Sample) -> str:
    """Say how exact the recap's shares are, and why Home has other numbers for the same sample."""
    sentence = f"Each share is of {TESTS} samples, so chance may move it by several points."
    if (sample.delta, sample.few_rows) != (DELTA, 2 * SIZE):
        return sentence
    table = home_table()
    generic, taught = table.powers(table.closeness.tolist().index(CLOSENESS))
    return (
        f"{sentence} Home averages over {TESTS * len(table.generic_power)} others: {percent(generic[0])} without "
        f"related tasks, {percent(taught[0])} with them."
    )


def show_quiz() -> None:
    """Ask five questions, explain each answer, and count the right ones."""
    st.subheader("Quiz: what a p-value is not", anchor=False)
    answers = [question.ask() for question in QUIZ]
    right, given = sum(answer is True for answer in answers), sum(answer is not None for answer in answers)
    words = f"**{right} of {len(QUIZ)} right.**"
    if given < len(QUIZ):
        words = f"{given} of {len(QUIZ)} answered, {right} right."
    elif right == len(QUIZ):
        words += " You read p-values better than many papers do."
    else:
        words += " Change an answer to read its explanation."
    with st.container(key="learn_score"):
        st.markdown(words)


def show_theory() -> None:
    """Show the bounds and the relatedness γ behind an expander."""
    with st.expander("The maths: what the theory promises"):
        st.markdown(
            "With high probability, J of the learned kernel is within the bound of the best one. Learning a deep "
            "kernel on the target pays for all its parameters with m rows. With related tasks, n rows pay for them, "
            "and the m rows only determine the weights β."
        )
        st.latex(r"J^*-J(\hat k_\beta)\le 2(\gamma+\xi_n+\xi_m)\ \text{(Meta-MKL)}")
        st.latex(r"\xi_m=O\!\Big(\tfrac{1}{s^2m^{1/3}}\big[\tfrac1s+\sqrt{D\log m}+L_k\big]\Big)")
        rows = TARGET_ROWS.draw()
        sizes, courses = bound_courses(BoundSettings(0.1, 10_000, rows, 10, 1_000, 0.3))
        chart(bound_course_figure(sizes, courses, rows), "learn_bounds", "The three bounds fall as m grows.")
        st.caption(
            "γ = 0.1, n = 10,000, N = 10, D = 1,000, s = 0.3. ξ is known up to a constant, which is 1 here: trust how "
            "the bounds change, not how high they are."
        )
        st.markdown("γ measures how far the related tasks are from the target. It grows with C.")
        st.latex(
            r"\gamma=\sup_{k\in\mathcal K}\lvert J(P,Q;k)-J(P',Q';k)\rvert,\quad\hat\gamma=\min_i\max_t\hat\gamma_{it}"
        )
        gamma = gamma_figure(published_gamma(), measured_gamma(), height=360)
        chart(gamma, "learn_gamma", "γ̂ against the closeness C: published and measured values grow with C.")
