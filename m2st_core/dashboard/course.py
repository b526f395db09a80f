"""What a step of the course is made of: an idea, its formula, a few controls, and a picture that follows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st


@dataclass(frozen=True)
class Choice:
    """A slider over a few values, or a switch if they are False and True; bound to the URL."""

    key: str
    label: str
    default: Any
    options: tuple[Any, ...]
    help: str

    def ask(self) -> Any:
        """Show it; its value."""
        if isinstance(self.default, bool):
            return st.toggle(self.label, self.default, key=self.key, bind="query-params", help=self.help)
        if isinstance(self.default, str):
            chosen = st.segmented_control(
                self.label,
                self.options,
                default=self.default,
                required=True,
                key=self.key,
                bind="query-params",
                help=self.help,
            )
            return chosen or self.default  # an address with an empty value selects none
        return st.select_slider(
            self.label, self.options, self.default, key=self.key, bind="query-params", help=self.help
        )


@dataclass(frozen=True)
class Lesson:
    """One screen. ``show(seed, *values)`` draws; the values are those of the controls, in their order."""

    title: str
    idea: str
    formulas: tuple[str, ...]
    controls: tuple[Choice, ...]
    show: Callable[..., None]
    try_this: str

    def reset(self) -> None:
        """Every control back to its default; the seed stays."""
        for control in self.controls:
            st.session_state[control.key] = control.default


def delta_choice(step: int, default: float = 0.7) -> Choice:
    """Δ, for any step."""
    values = tuple(round(0.05 * index, 2) for index in range(20))
    help = "How strongly Q's columns are correlated. 0: P and Q are the same. Larger: easier to tell apart."
    return Choice(f"learn{step}_delta", "Difference Δ", default, values, help)


def size_choice(step: int, default: int, options: tuple[int, ...], label: str = "Rows m per mode") -> Choice:
    """A sample size per mode, for any step."""
    help = "Each sample has two modes, so twice as many rows. More rows show smaller differences."
    return Choice(f"learn{step}_size", label, default, options, help)
