"""Controls that several pages share. Each is bound to the URL, so a link brings the settings back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import plotly.graph_objects as go
import streamlit as st

from m2st_core.dashboard.widgets.words import PRESET_WORDS, WHOSE, interval_in_words
from m2st_core.data import TASKS
from m2st_core.data.task import Parameter, Setting
from m2st_core.presets import PRESETS
from m2st_core.studies.lessons import Rate
from m2st_core.sweeps.spec import label_of
from m2st_core.testing.methods import METHODS


def chart(figure: go.Figure, key: str, alt: str) -> None:
    """A chart as wide as its column, with text for those who can not see it."""
    st.plotly_chart(figure, width="stretch", key=key, alt=alt)


def clickable_chart(figure: go.Figure, key: str, alt: str) -> int | None:
    """The same, and the number of the point, within its trace, that was clicked."""
    state = st.plotly_chart(figure, width="stretch", key=key, alt=alt, on_select="rerun", selection_mode="points")
    return clicked_point(state)


def clicked_point(state: Mapping[str, Any]) -> int | None:
    """The first selected point of a chart's state; None if nothing is selected.

    >>> clicked_point({"selection": {"points": [{"point_index": 3}]}}), clicked_point({"selection": {"points": []}})
    (3, None)
    """
    points = state["selection"]["points"] if state else []
    return int(points[0]["point_index"]) if points else None


def rate_metric(label: str, rate: Rate, help: str) -> None:
    """A share of tests that reject, with its interval beneath."""
    words = interval_in_words(rate.interval)
    st.metric(label, f"{rate.share:.0%}", words, delta_color="off", delta_arrow="off", help=help)


Number = TypeVar("Number", int, float)


def pick_task() -> str:
    """A registered task."""
    names = {task.title: name for name, task in TASKS.items()}
    title: str = st.selectbox(
        "Task",
        list(names),
        key="task",
        bind="query-params",
        help="Where the two samples come from. Each task has a P and a Q that you can make more or less alike.",
    )
    name = names[title]
    st.caption(TASKS[name].description)
    return name


def pick_parameters(task: str) -> dict[str, Setting]:
    """Every parameter of a task, by its kind: a switch, a whole number or a slider."""
    return {parameter.name: _pick(task, parameter) for parameter in TASKS[task].parameters}


def _pick(task: str, parameter: Parameter) -> Setting:
    label = parameter.label[0].upper() + parameter.label[1:]
    key, default = f"{task}_{parameter.name}", parameter.default
    if isinstance(default, bool):
        return bool(st.toggle(label, default, key=key, bind="query-params", help=parameter.help))
    if isinstance(default, int):
        whole = (int(parameter.minimum), int(parameter.maximum), default, 1)
        return int(st.number_input(label, *whole, key=key, bind="query-params", help=parameter.help))
    real = (float(parameter.minimum), float(parameter.maximum), default, float(parameter.step))
    return float(st.slider(label, *real, key=key, bind="query-params", help=parameter.help))


def pick_size(label: str, key: str, maximum: int, help: str) -> int:
    """A number of rows."""
    return int(st.number_input(label, 4, maximum, 100, 10, key=key, bind="query-params", help=help))


def pick_from(label: str, key: str, options: tuple[Number, ...], default: Number, help: str) -> Number:
    """One of a few numbers."""
    return st.select_slider(label, options, default, key=key, bind="query-params", help=help)


def pick_method() -> str:
    """A registered method that needs no meta-tasks."""
    name: str = st.selectbox(
        "Method",
        [name for name, method in METHODS.items() if not method.uses_related_tasks],
        key="method",
        bind="query-params",
        format_func=label_of,
        help="Methods that learn split each sample: one part teaches the kernel, the other is tested.",
    )
    st.caption(METHODS[name].description)
    st.caption("None of these uses related tasks. Those that do, the paper's and ours, are in Power lab and Your data.")
    return name


def pick_methods(label: str, key: str, options: Sequence[str], default: Sequence[str], help: str) -> tuple[str, ...]:
    """Some of several methods; ours are marked, also in the link."""
    chosen: list[str] = st.multiselect(
        label, options, default, key=key, bind="query-params", format_func=label_of, placeholder="none", help=help
    )
    st.caption(WHOSE)
    return tuple(chosen)


def pick_preset(key: str) -> str:
    """One of the presets."""
    preset: str = st.selectbox(
        "Preset",
        list(PRESETS),
        key=key,
        bind="query-params",
        help=" ".join(f"**{name}**: {words}." for name, words in PRESET_WORDS.items())
        + " A name means the same algorithm in every preset.",
    )
    return preset


def pick_alpha(prefix: str = "") -> float:
    """The level."""
    label, key = "Level α", f"{prefix}alpha"
    help_ = "Reject when p ≤ α. A larger α gives more power and more false alarms."
    return float(st.slider(label, 0.01, 0.2, 0.05, 0.01, key=key, bind="query-params", help=help_))


def pick_permutations(prefix: str = "") -> int:
    """The number of permutations."""
    return int(
        st.select_slider(
            "Permutations B",
            [99, 199, 499, 999, 1999, 4999],
            999,
            key=f"{prefix}permutations",
            bind="query-params",
            help="Random relabellings behind the p-value. More make it steadier; the smallest p is 1/(B+1).",
        )
    )


def pick_train_fraction(prefix: str = "") -> float:
    """The share of rows that teach."""
    return float(
        st.slider(
            "Share of rows to learn from",
            0.1,
            0.9,
            0.5,
            0.1,
            key=f"{prefix}train",
            bind="query-params",
            help="For methods that learn: more rows teach a better kernel, fewer are left to test.",
        )
    )


def pick_splits(prefix: str = "") -> int:
    """How many random splits are combined."""
    return int(
        st.select_slider(
            "Random splits",
            [1, 5, 11, 21],
            1,
            key=f"{prefix}splits",
            bind="query-params",
            help="For tests that learn from a part of the rows: how many random splits are combined into one p-value. "
            "One split depends on luck. More take longer, and their combined p-value is valid and steadier.",
        )
    )


def pick_seed(prefix: str = "") -> int:
    """The seed of everything on the page."""
    return int(
        st.number_input(
            "Seed",
            0,
            2**31 - 1,
            0,
            1,
            key=f"{prefix}seed",
            bind="query-params",
            help="Fixes the samples, the split, the learning and the permutations. Another seed is another experiment.",
        )
    )
