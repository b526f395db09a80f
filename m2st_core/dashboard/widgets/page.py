"""The frame of every page: the guard around its script, its title, charts, answers, shared figures and status line."""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import plotly.graph_objects as go
import streamlit as st
from streamlit import config
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import get_script_run_ctx

from m2st_core.analysis.answer import Answer, unbroken
from m2st_core.dashboard.jobs.host import host
from m2st_core.dashboard.jobs.jobs import job_manager, poll
from m2st_core.dashboard.jobs.sweeps import sweep_queue
from m2st_core.data.tables.cells import plain
from m2st_core.device import device_words
from m2st_core.environment import dask_address
from m2st_core.figures.theme import WITH_RELATED, WITHOUT_RELATED
from m2st_core.studies.one_test import former_words
from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.grid import forget_grid_tables
from m2st_core.sweeps.spec import origin_of
from m2st_core.testing.method import ORIGINS
from m2st_core.testing.methods import METHODS, label_of

POLL_SECONDS = 3.0
ONLY_DOWNLOAD = {"modeBarButtons": [["toImage"]], "displaylogo": False, "toImageButtonOptions": {"scale": 2}}
log = logging.getLogger(__name__)


def run_page(page: Callable[[], None]) -> None:
    """Run a page. Bad input is answered with its own sentence, and anything else with a reference into the log."""
    if _outside_app() and not config.get_option("global.appTest"):
        PagesManager.uses_pages_directory = False
        st.rerun()
    job_manager()  # it starts before there is a session to hold data
    _guarded(page)


def show_part(part: Callable[[], None]) -> None:
    """Show a part of a page. When one of its own controls changes, it runs alone: nothing else is sent or drawn."""
    st.fragment(lambda: _guarded(part))()


def show_folded(label: str, key: str, part: Callable[[], None]) -> None:
    """Show an expander that is filled when it is opened: code, tables and formulas make a page slow to open."""

    def expander() -> None:
        with st.expander(label, key=f"{key}_unfolded", on_change="rerun") as place:
            if place.open:
                part()

    show_part(expander)


def _guarded(show: Callable[[], None]) -> None:
    try:
        if host().admit():
            show()
    except ValueError as error:
        log.warning("a page could not be shown", exc_info=error)
        st.error(str(error))
    except Exception as error:
        reference = uuid.uuid4().hex[:8]
        log.error("a page failed, reference %s", reference, exc_info=error)
        st.error(f"Something went wrong on our side. Please reload the page. The log has details under {reference}.")


def _outside_app() -> bool:
    """Whether Streamlit runs the page without app.py.

    A server that has just started and finds a folder pages/ does so: it takes app.py for one of the pages.
    """
    if (context := get_script_run_ctx()) is None:
        return False
    pages = context.pages_manager.get_pages().values()
    return any(Path(page["script_path"]) == Path(context.main_script_path).resolve() for page in pages)


def page_title(title: str, *, sidebar: bool = False) -> None:
    """Show the page's title, its only h1. The sidebar starts closed, unless it has controls."""
    st.set_page_config(initial_sidebar_state="auto" if sidebar else "collapsed")
    st.title(title, anchor=False)


def page_finding(sentence: str) -> None:
    """Show the page's one sentence, computed from its numbers, directly under the title."""
    st.container(key="finding").markdown(unbroken(sentence))


class Shown(NamedTuple):
    """The result that a page shows, its settings and, if it is a former one, what those had that is changed now."""

    settings: Any
    result: Any
    former: str

    @property
    def before(self) -> str:
        """The start of a sentence about a former result."""
        return f"Before, with {self.former}: " if self.former else ""

    @contextmanager
    def marked(self) -> Iterator[None]:
        """A place for the result: a former one is pale, and said to be one."""
        with st.container(key="former" if self.former else "latest"):
            if self.former:
                st.caption(f"This is the result with {self.former}. It stays until there is a new one.")
            yield


def latest_of_page(page: str, settings: Hashable, result: Any | None) -> Shown | None:
    """What a page shows: this result or, until there is one, the former one of the session."""
    if result is not None:
        st.session_state[f"{page}_latest"] = settings, result
    if (kept := st.session_state.get(f"{page}_latest")) is None:
        return None
    return Shown(kept[0], kept[1], former_words(kept[0], settings))


def show_status() -> None:
    """Say below the page where computations run and, while there are any, how many sweeps."""
    where = "a Dask cluster" if dask_address() else f"{device_words()} of this server"
    with st.container(horizontal=True, key="status"):
        st.caption(f"Computing on {where}.", width="content")
        poll(_sweeps(), _sweeps, bool, _show_sweeps, POLL_SECONDS)
    host().show_visitor()


def _sweeps() -> str:
    """The sweeps that run and wait; empty without any."""
    try:
        running, waiting = sweep_queue().counts()
    except StoreError as error:
        return str(error)
    return f"Sweeps: {running} running, {waiting} waiting." if running or waiting else ""


def _show_sweeps(sweeps: str) -> None:
    st.caption(sweeps or "No sweep is running.", width="content")


def chart(figure: go.Figure, key: str, alt: str) -> None:
    """Draw a chart as wide as its column, with a text for readers who cannot see it."""
    st.plotly_chart(figure, width="stretch", key=key, alt=alt, config=ONLY_DOWNLOAD)


def clickable_chart(figure: go.Figure, key: str, alt: str) -> int | None:
    """Draw a chart and return the index, within its trace, of the point that was clicked."""
    state = st.plotly_chart(
        figure, width="stretch", key=key, alt=alt, on_select="rerun", selection_mode="points", config=ONLY_DOWNLOAD
    )
    points = state["selection"]["points"] if state else []
    return int(points[0]["point_index"]) if points else None


def noted_metric(column: DeltaGenerator, label: str, value: str, note: str | None, help: str) -> None:
    """Show a number in a column, with a grey note beneath."""
    column.metric(label, value, note, delta_color="off", delta_arrow="off", help=help)


def download(label: str, data: Callable[[], str], file_name: str, key: str) -> None:
    """Offer a file that is made when the button is pressed."""
    st.download_button(
        label, data, file_name, key=f"{key}_{label}", on_click="ignore", help=f"Save {file_name} on your computer."
    )


METHOD_MARKS = (
    f"Marked **(ours)**: {ORIGINS['ours']}. **Meta-…** and **AGT-…** without the mark, and MMD-D w/ AC: "
    f"{ORIGINS['paper']}. All others: {ORIGINS['general']}. The paper's tests have the settings of its text; "
    "**· code** has those of its code, **· tuned** has ours."
)


def changes_of_methods(methods: Sequence[str]) -> list[str]:
    """How the settings of methods differ from the paper's text, where they do."""
    return [f"**{name}**. {METHODS[name].changes}" for name in methods if name in METHODS and METHODS[name].changes]


def choice_sentences(methods: Sequence[str]) -> str:
    """A list that says where each of the methods comes from, and which settings it has."""
    lines = []
    for origin in ORIGINS:
        labels = [label_of(method) for method in methods if origin_of(method) == origin]
        lines += [f"**{', '.join(labels)}**: {ORIGINS[origin]}."] if labels else []
    return "\n".join(f"- {line}" for line in [*lines, *changes_of_methods(methods)])


LONGEST_SENTENCE = 1200


def as_text(sentence: str) -> str:
    """A sentence that may quote a file, escaped so that it is shown literally."""
    return plain(sentence, LONGEST_SENTENCE)


def show_answer(answer: Answer) -> None:
    """Show the sentences of an answer."""
    st.header(unbroken(as_text(answer.verdict)), anchor=False)
    for sentence in (answer.basis, *answer.caveats):
        st.markdown(as_text(sentence))
    if answer.both is not None:
        colours = zip(st.columns(2), (WITH_RELATED, WITHOUT_RELATED), answer.both, strict=True)
        for column, colour, sentence in colours:
            mark = f'<span style="color: {colour}">■</span>'
            column.markdown(f"{mark} {as_text(sentence)}.", unsafe_allow_html=True)
    if answer.differs:
        st.markdown(as_text(answer.differs))
    st.markdown(f"**What this does not mean.** {as_text(answer.not_meant)}")


Made = TypeVar("Made")
MOST_SHARED = 128  # tables and figures in memory


_made: OrderedDict[Hashable, tuple[Any, Any]] = OrderedDict()  # by call: its arguments, and its result


def shared(make: Callable[..., Made], *arguments: Any, **named: Any) -> Made:
    """The cached result of a module's function: one object for all sessions, which must not be changed.

    Equal arguments share it; of arguments that cannot be hashed, such as tables, only the same objects do. Not for
    users' data, which must not outlive their session, nor with functions of a page, which are new at every run.

    >>> shared(sorted, (2, 1)) is shared(sorted, (2, 1))
    True
    """
    call = make, _key((arguments, tuple(named.items())))
    kept = _made.pop(call, None) or ((arguments, named), make(*arguments, **named))
    _made[call] = kept  # with its arguments, so that no other object gets their addresses
    while len(_made) > MOST_SHARED:
        _made.popitem(last=False)
    made: Made = kept[1]
    return made


def _key(value: Any) -> Hashable:
    if isinstance(value, (tuple, list)):
        return tuple(map(_key, value))
    try:
        hash(value)
    except TypeError:
        return _key, id(value)
    return value


def forget_shared() -> None:
    """Let go of everything, and of the tables it was made of; it is made again when it is asked for."""
    _made.clear()
    forget_grid_tables()
