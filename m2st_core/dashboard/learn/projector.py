"""The teacher's view for a projector, and the buttons of the animation: small scripts beside this file."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go
import streamlit as st

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
