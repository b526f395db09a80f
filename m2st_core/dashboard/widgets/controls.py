"""Controls as data: one list per page draws its widgets, reads them, restores them and puts them into the link."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import streamlit as st

from m2st_core.dashboard.widgets.page import METHOD_MARKS, changes_of_methods
from m2st_core.data import TASKS
from m2st_core.testing.methods import label_of

Scalar = bool | int | float | str


@dataclass(frozen=True)
class Control:
    """One setting of a page: the field it fills, its label, default, help and bounds.

    Its key, ``prefix`` and field, names the widget and the value in the link.

    The default decides on the widget. A bool is a switch and a tuple a multiple choice. With ``options`` a number is a
    slider over them, and a word a select box, or a row of buttons. With ``bounds`` (lowest, highest, step) an int is
    typed in and a float is a slider. ``shown`` words an option, ``note`` says more about the chosen value, and controls
    of one ``section`` share an expander.
    """

    field: str
    label: str
    default: Scalar | tuple[Scalar, ...]
    help: str
    options: tuple[Scalar, ...] = ()
    bounds: tuple[float, float, float] = (0, 1, 1)
    shown: Callable[[Any], str] = str
    note: Callable[[Any], str] | None = None
    buttons: bool = False
    section: str = ""
    prefix: str = ""

    @property
    def key(self) -> str:
        """The key of the widget, and its name in the link."""
        return self.prefix + self.field

    def draw(self) -> Any:
        """Draw the widget and return its value."""
        bind = None if self._endless else "query-params"  # streamlit stops at such a number; others it corrects
        value = self._draw(key=self.key, bind=bind, help=self.help)
        if self.note is not None:
            st.caption(self.note(value))
        return value

    def _draw(self, **common: Any) -> Any:
        label, default, options = self.label, self.default, self.options
        if isinstance(default, bool):
            return st.toggle(label, default, **common)
        if isinstance(default, tuple):
            return tuple(st.multiselect(label, options, default, format_func=self.shown, placeholder="none", **common))
        if self.buttons:
            chosen = st.segmented_control(
                label, options, default=default, required=True, format_func=self.shown, **common
            )
            return default if chosen is None else chosen  # an empty value in the link selects nothing
        if isinstance(default, str):
            return st.selectbox(label, options, options.index(default), format_func=self.shown, **common)
        if options:
            return st.select_slider(label, options, default, **common)
        kind, widget = (int, st.number_input) if isinstance(default, int) else (float, st.slider)
        lowest, highest, step = map(kind, self.bounds)
        return kind(widget(label, lowest, highest, default, step, **common))

    @property
    def _endless(self) -> bool:
        """Whether the link holds a number without end for this control, such as inf or 1e309."""
        try:
            return math.isinf(float(st.query_params.get(self.key, "")))
        except ValueError:
            return False

    def accepts(self, value: Any) -> bool:
        """Whether the widget can show this value."""
        if isinstance(self.default, bool):
            return isinstance(value, bool)
        if self.options:
            return set(value if isinstance(self.default, tuple) else (value,)) <= set(self.options)
        return bool(self.bounds[0] <= value <= self.bounds[1])


def controls_under(prefix: str, *controls: Control, section: str = "") -> tuple[Control, ...]:
    """The same controls with the keys of a page, and in one of its sections."""
    return tuple(replace(control, prefix=prefix, section=section) for control in controls)


def ask_controls(controls: Iterable[Control]) -> dict[str, Any]:
    """Draw the controls, each section in an expander, and return their values by field."""
    values: dict[str, Any] = {}
    for section, group in groupby(controls, key=lambda control: control.section):
        with st.expander(section) if section else nullcontext():
            values |= {control.field: control.draw() for control in group}
    return values


def restore_controls(controls: Iterable[Control], values: Mapping[str, Any]) -> bool:
    """Set the widgets to these values, before they are drawn. If one cannot show its value, change nothing: False."""
    state = {control: values[control.field] for control in controls}
    if not all(control.accepts(value) for control, value in state.items()):
        return False
    st.session_state.update(
        {control.key: list(value) if isinstance(value, tuple) else value for control, value in state.items()}
    )
    return True


def parameter_controls(task: str) -> tuple[Control, ...]:
    """One control for each parameter of a task."""
    return tuple(
        Control(
            field=parameter.name,
            label=parameter.label[0].upper() + parameter.label[1:],
            default=parameter.default,
            help=parameter.help,
            bounds=(parameter.minimum, parameter.maximum, parameter.step),
            prefix=f"{task}_",
        )
        for parameter in TASKS[task].parameters
    )


def methods_control(options: Iterable[str], default: tuple[str, ...], help: str) -> Control:
    """A choice of several methods. Ours carry a mark, in the link too."""
    options = tuple(options)

    def note(chosen: tuple[str, ...]) -> str:
        return "  \n".join([METHOD_MARKS, *changes_of_methods(chosen)])

    return Control("methods", "Methods", default, help, options, shown=label_of, note=note)


NULL = Control(
    "null",
    "No difference (Q = P)",
    False,
    "Draw both samples from P. A valid test then rejects for at most a share α of all seeds.",
)
ALPHA = Control(
    "alpha",
    "Significance level α",
    0.05,
    "A test rejects when p ≤ α. A larger α gives more power and more false alarms.",
    bounds=(0.01, 0.2, 0.01),
)
PERMUTATIONS = Control(
    "n_permutations",
    "Permutations B",
    999,
    "Random relabellings behind the p-value. More of them make it steadier. The smallest possible p is 1/(B+1).",
    (99, 199, 499, 999, 1999, 4999),
)
TRAIN_FRACTION = Control(
    "train_fraction",
    "Share of training rows",
    0.5,
    "For methods that learn. More training rows give a better kernel and leave fewer rows to test.",
    bounds=(0.1, 0.9, 0.1),
)
SEED = Control(
    "seed",
    "Seed",
    0,
    "Fixes the samples, the split, the training and the permutations. Another seed is another experiment.",
    bounds=(0, 2**31 - 1, 1),
)
