"""Questions of the lessons, with answers computed from the sample at hand, and the quiz."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from m2st_core.dashboard.widgets.controls import Control
from m2st_core.dashboard.widgets.page import chart
from m2st_core.figures.relatedness import bound_course_figure, gamma_figure
from m2st_core.paper.published import measured_gamma, published_gamma
from m2st_core.studies import synthetic
from m2st_core.studies.lessons import (
    CLOSENESS,
    FEW_ROWS,
    OWN_ROWS,
    ROWS,
    SIZE,
    TASK_COUNTS,
    TAUGHT,
    TESTS,
    TRAINING_ROWS,
    LessonCell,
    goal_within_reach,
    home_table,
    lesson_p_values,
)
from m2st_core.studies.relatedness import SIZES, BoundSettings, bound_courses
from m2st_core.studies.synthetic import DELTA
from m2st_core.types import DEFAULT_TAUGHT_TEST, GENERIC_TEST

ALPHA = 0.05
GOAL = 0.8
NOTICEABLE = 0.05  # a difference of two powers


@dataclass(frozen=True)
class Sample:
    """What all steps share: the difference Δ, the rows per sample and the seed."""

    delta: float
    rows: int
    seed: int

    @property
    def few_rows(self) -> int:
        """The rows of the steps that learn. With more of them, no test would need to."""
        return min(self.rows, FEW_ROWS[-1])

    @property
    def drawn(self) -> tuple[float, int, int]:
        """Δ, rows per mode and seed."""
        return self.delta, self.rows // 2, self.seed


def percent(share: float) -> str:
    """A share in words."""
    return f"{100 * share:.0f} %"


def power(cell: LessonCell) -> synthetic.Rate:
    """The stored rejection rate of a cell."""
    return synthetic.Rate(lesson_p_values(cell), ALPHA)


def size_goal(delta: float) -> float | None:
    """The power that step 4 asks for: 80 %, or what its control reaches."""
    return goal_within_reach([power(LessonCell(GENERIC_TEST, size, delta)).share for size in ROWS], GOAL)


def ask_width(sample: Sample) -> str:
    """Step 3's question."""
    if not sample.delta:
        return "P and Q are the same here. At which widths does noise look like a difference?"
    return "Which width comes closest to the truth?"


def ask_rows(sample: Sample) -> str:
    """Step 4's question."""
    if not sample.delta:
        return "P and Q are the same here. Do more rows change the share of false alarms?"
    goal = size_goal(sample.delta)
    return f"How many rows give {percent(goal)} power?" if goal else "How does power change with the rows?"


def ask_training(sample: Sample) -> str:
    """Step 5's question."""
    if not sample.delta:
        return "P and Q are the same here. Does learning raise more false alarms?"
    rows, delta = sample.few_rows, sample.delta
    floor = power(LessonCell(GENERIC_TEST, rows, delta)).share
    pays = [power(LessonCell(OWN_ROWS, rows, delta, one)).share > floor + NOTICEABLE for one in TRAINING_ROWS]
    if any(pays):
        return "How many training rows does it take before learning pays?"
    return "Does learning pay with any number of training rows?"


def ask_tasks(sample: Sample) -> str:
    """Step 6's question."""
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
