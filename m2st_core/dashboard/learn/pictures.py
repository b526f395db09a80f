"""The pictures of the course: one function per step returns its charts and its sentence; and the teacher's view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from m2st_core.dashboard.widgets.page import shared
from m2st_core.figures.null import p_value_strip, shuffle_figure
from m2st_core.figures.power import found_figure, learning_figure
from m2st_core.figures.samples import heat_figure, samples_figure
from m2st_core.figures.theme import WITH_RELATED, WITHOUT_RELATED, short_labels
from m2st_core.studies import synthetic
from m2st_core.studies.lessons import (
    FEW_ROWS,
    OWN_ROWS,
    ROWS,
    TASK_COUNTS,
    TAUGHT,
    TRAINING_ROWS,
    LessonCell,
    goal_within_reach,
    lesson_p_values,
)
from m2st_core.types import DEFAULT_TAUGHT_TEST, GENERIC_TEST

ALPHA = 0.05
GOAL = 0.8
NOTICEABLE = 0.05  # a difference of two powers
HEIGHT = 520
WIDTHS = (0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0)
SHUFFLES = (0, 1, 2, 5, 10, 20, 50, synthetic.PERMUTATIONS)
LIKE_TASKS, SOMETHING_NEW = "like the related tasks", "something new"


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


@dataclass(frozen=True)
class LessonPicture:
    """A step's sentence, and its charts with their texts."""

    sentence: str
    charts: tuple[tuple[go.Figure, str], ...]


def show_samples(sample: Sample, delta: float) -> LessonPicture:
    """Step 1: two samples that look alike."""
    x, y = synthetic.two_samples(*sample.drawn)
    p = synthetic.shuffle_labels(*sample.drawn).p_value(synthetic.PERMUTATIONS)
    if delta:
        noticed = "notices" if p <= ALPHA else "does not notice"
        sentence = f"P and Q differ here: Δ = {delta:g}. A generic test **{noticed}** it: p = {p:.2f}."
    else:
        verdict = "a false alarm" if p <= ALPHA else "rightly no evidence"
        sentence = f"P and Q are the same here: Δ = 0. A generic test gives p = {p:.2f}, **{verdict}**."
    margins = {"l": 50, "r": 10, "t": 40, "b": 50, "autoexpand": False}  # searching for them would draw all rows twice
    figure = samples_figure(x, y).update_layout(height=HEIGHT, margin=margins)
    return LessonPicture(sentence, ((figure, f"Scatter plot of two samples, {len(x)} rows each, with Δ={delta:g}."),))


def show_shuffles(sample: Sample, shown: int) -> LessonPicture:
    """Step 2: labels that swap while the null distribution fills."""
    test = synthetic.shuffle_labels(*sample.drawn)
    reached, p = test.reached(shown), test.p_value(shown)
    if not shown:
        sentence = "These are the real labels. Press **Play**, or move the slider."
    else:
        sentence = (
            f"{reached} of {shown} shuffles reach{'es' if reached == 1 else ''} the MMD² of the real labels. The real "
            "labels count too: "
            f"**p** = {1 + reached}/{1 + shown} = **{p:.2f}**. "
        )
        if 1 / (1 + shown) > ALPHA:
            sentence += f"With so few shuffles, p cannot be below {1 / (1 + shown):.2f}."
        else:
            often = "rarely do this: **evidence**" if p <= ALPHA else "often do this: **no evidence**"
            sentence += f"Arbitrary labels {often} of a difference."
    alt = f"The rows with their labels, above the MMD² of {shown} shuffles; {reached} reach the observed one."
    return LessonPicture(sentence, ((shared(shuffle_figure, test.rows, test.members, test.statistics, shown), alt),))


def show_kernel(sample: Sample, width: float) -> LessonPicture:
    """Step 3: the witness function of a Gaussian kernel beside the truth."""
    agreements = {one: synthetic.gaussian_view(sample.delta, sample.drawn[1], one, sample.seed) for one in WIDTHS}
    view, best = agreements[width], max(agreements.values(), key=lambda one: one.agreement)
    if not sample.delta:
        sentence = "P and Q are the same here, so there is nothing to see. The kernel shows **noise**."
    else:
        better = (
            "**No other width** here does better." if view.agreement >= best.agreement else "Another width does better."
        )
        sentence = (
            f"With width {width:g} the map and the truth correlate by **r = {view.agreement:.2f}**; 1 would be "
            f"perfect. {better}"
        )
    axis, rows = synthetic.AXIS, synthetic.two_samples(*sample.drawn)
    seen = heat_figure(view.witness, axis, name="what the kernel sees", sample=rows, height=440)
    truth = heat_figure(synthetic.truth(sample.delta), axis, name="the truth, known to no test", height=440)
    alt = f"Where a Gaussian kernel of width {width:g} sees more of P, and where more of Q."
    seen, truth = short_labels(seen), short_labels(truth)
    return LessonPicture(sentence, ((seen, alt), (truth, "Where P is denser than Q, and where Q is denser than P.")))


def show_power(sample: Sample, rows: int) -> LessonPicture:
    """Step 4: the p-values of 100 tests, with and without a difference."""
    found, level = power(LessonCell(GENERIC_TEST, rows, sample.delta)), power(LessonCell(GENERIC_TEST, rows, 0.0))
    alarms = f"{percent(level.share)} of samples without a difference raise a false alarm."
    groups = {"P = Q": level.p_values}
    if sample.delta:
        groups["P ≠ Q"] = found.p_values
        goal = size_goal(sample.delta) or GOAL
        reached = f"That reaches {percent(goal)}."
        reached = reached if found.share >= goal else f"Reaching {percent(goal)} takes more rows."
        sentence = f"The test finds the difference in **{percent(found.share)}** of 100 samples. {reached} {alarms}"
    else:
        sentence = f"P and Q are the same here. {alarms} About 5 % may, at any number of rows."
    own = synthetic.shuffle_labels(sample.delta, rows // 2, sample.seed).p_value(synthetic.PERMUTATIONS)
    return LessonPicture(
        sentence, ((p_value_strip(groups, ALPHA, own, height=440), f"100 p-values a band. {sentence}"),)
    )


def show_training(sample: Sample, training_rows: int) -> LessonPicture:
    """Step 5: power against the rows that a test learned from."""
    rows = sample.few_rows
    learned = {one: power(LessonCell(OWN_ROWS, rows, sample.delta, one)) for one in TRAINING_ROWS}
    now, floor = learned[training_rows].share, power(LessonCell(GENERIC_TEST, rows, sample.delta)).share
    if not sample.delta:
        sentence = (
            f"P and Q are the same here. False alarms of a map learned from {training_rows} rows: **{percent(now)}**, "
            f"of a test without learning: **{percent(floor)}**."
        )
    else:
        most = TRAINING_ROWS[-1]
        sentence = (
            f"A map learned from {training_rows} rows finds the difference in **{percent(now)}** of samples, a test "
            f"without learning in **{percent(floor)}**. "
        )
        enough = learned[most].share > floor + NOTICEABLE
        more = (
            f"With {most} it would be {percent(learned[most].share)}." if enough else f"Even {most} are too few here."
        )
        noise = f"So few rows teach noise. {more}" if training_rows < most else more
        sentence += noise if now <= floor + NOTICEABLE else "These rows are enough to learn from."
    powers = np.array([rate.share for rate in learned.values()])
    intervals = np.array([rate.interval for rate in learned.values()])
    figure = learning_figure(TRAINING_ROWS, powers, intervals, training_rows, floor)
    values = ", ".join(f"{percent(rate.share)} with {one} rows" for one, rate in learned.items())
    return LessonPicture(sentence, ((figure, f"Power against training rows: {values}."),))


def _found(cells: Mapping[str, LessonCell]) -> tuple[go.Figure, dict[str, float]]:
    """A figure of the samples that each test found, those that several found first; and the shares."""
    hits = {name: lesson_p_values(cell) <= ALPHA for name, cell in cells.items()}
    order = np.lexsort([~found for found in reversed(hits.values())])
    colours = [WITH_RELATED if cell.learned_from else WITHOUT_RELATED for cell in cells.values()]
    groups = {name: (found[order], colour) for (name, found), colour in zip(hits.items(), colours, strict=True)}
    return found_figure(groups, height=440), {cells[name].method: float(found.mean()) for name, found in hits.items()}


def show_related_tasks(sample: Sample, n_tasks: int) -> LessonPicture:
    """Step 6: the samples that a test finds with and without related tasks."""
    rows, delta = sample.few_rows, sample.delta
    figure, shares = _found(
        {
            "without related tasks": LessonCell(GENERIC_TEST, rows, delta),
            f"with {n_tasks} related tasks": LessonCell(TAUGHT, rows, delta, n_tasks),
        }
    )
    without, with_ = shares[GENERIC_TEST], shares[TAUGHT]
    if not delta:
        sentence = "P and Q are the same here. "
        sentence += f"False alarms with related tasks: **{percent(with_)}**, without: **{percent(without)}**."
    else:
        sentence = (
            f"With {n_tasks} related tasks the test finds the difference in **{percent(with_)}** of samples, without "
            f"them in **{percent(without)}**. The samples are the same, {rows} rows each."
        )
    return LessonPicture(sentence, ((figure, f"Two groups of 100 dots, one per sample. {sentence}"),))


def show_misled(sample: Sample, target: str) -> LessonPicture:
    """Step 7: related tasks that are about something else."""
    most, rows, new = TASK_COUNTS[-1], sample.few_rows, target == SOMETHING_NEW
    figure, shares = _found(
        {
            f"{GENERIC_TEST}<br>no related tasks": LessonCell(GENERIC_TEST, rows, shifted=new),
            f"{TAUGHT}<br>related tasks only": LessonCell(TAUGHT, rows, learned_from=most, shifted=new),
            f"{DEFAULT_TAUGHT_TEST}<br>related tasks and more": LessonCell(
                DEFAULT_TAUGHT_TEST, rows, learned_from=most, shifted=new
            ),
        }
    )
    without, only, more = (shares[name] for name in (GENERIC_TEST, TAUGHT, DEFAULT_TAUGHT_TEST))
    effect = "mislead" if only < without - NOTICEABLE else "help" if only > without + NOTICEABLE else "hardly matter"
    sentence = (
        f"The related tasks **{effect}** here. With them alone, the test finds the difference in **{percent(only)}** "
        f"of samples, without them in **{percent(without)}**. Meta-FUSE, which uses both, finds it in "
        f"**{percent(more)}**."
    )
    return LessonPicture(sentence, ((figure, f"Three groups of 100 dots, one per sample. {sentence}"),))


HERE = Path(__file__).parent
LOOKS = HERE / "learn.css"
LARGE, NARROW = 20, 14  # points, of the text in charts, and beside colours, where there is little room
BUTTONS = """
<button type="button">Play</button> <button type="button">Pause</button>
<p hidden>This device asks for less motion. Move the slider instead.</p>
"""
BUTTON_LOOKS = """
button { font: inherit; color: inherit; background: transparent; cursor: pointer;
  border: 1px solid var(--st-border-color); border-radius: var(--st-button-radius); padding: 0.35rem 0.8rem; }
button:hover { border-color: var(--st-primary-color); }
button:focus-visible { outline: 3px solid #8452D0; outline-offset: 2px; }
p { margin: 0; }
"""


def is_on() -> bool:
    """Whether the teacher's view is on: by its switch, or by ?teacher=1 in the link."""
    return bool(st.session_state.get("projector", st.query_params.get("teacher") == "1"))


def larger(figure: go.Figure) -> go.Figure:
    """A copy of the figure with text that the last row can read."""
    figure = go.Figure(figure)  # others may look at the same one
    axes = {"tickfont_size": LARGE, "title_font_size": LARGE, "title_standoff": LARGE}
    figure.update_annotations(font_size=LARGE).update_traces(textfont_size=LARGE, selector={"mode": "text"})
    figure.update_layout(font_size=LARGE, legend_font_size=LARGE, margin_b=5 * LARGE)
    figure.update_xaxes(axes).update_yaxes(axes)
    if any(trace.type == "heatmap" for trace in figure.data):
        figure.update_xaxes(title_text="")  # it would meet the words beside the colours
        small = {"title": {"font": {"size": NARROW}}, "tickfont": {"size": NARROW}}
        figure.update_traces(colorbar=small, selector={"type": "heatmap"})
    return figure


def show_toggle(step: str) -> None:
    """Draw the switch below a step. While it is on, hide what surrounds the step, enlarge the type and listen to keys.

    On or off, the script shows every new step from its top.
    """
    help_ = "For a projector. Keys: ← → for steps, R for a new sample, Esc to leave a slider."
    on = st.toggle("Teacher's view", is_on(), key="projector", help=help_, persist_state="session")
    listen = st.components.v2.component("learn_keys", js=(HERE / "keys.js").read_text("utf-8"))
    listen(key="learn_keys", data=step)
    if not on:
        st.query_params.pop("teacher", None)
        return
    st.query_params["teacher"] = "1"
    st.html(HERE / "projector.css")


def show_player() -> None:
    """Draw Play and Pause for the animation in the step's picture."""
    script = (HERE / "player.js").read_text("utf-8")
    play = st.components.v2.component("learn_player", html=BUTTONS, css=BUTTON_LOOKS, js=script)
    play(key="learn_player")
