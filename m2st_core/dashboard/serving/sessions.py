"""The browser sessions of this server: who is there, what each holds in memory, and what ends with it."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

import streamlit as st
from streamlit import config, runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from m2st_core.dashboard.serving.settings import COOKIE
from m2st_core.dashboard.widgets.shared import forget_shared
from m2st_core.data.tables.cells import read_cell

LOOK_SECONDS = 3.0
TABS_AT_ONCE = 15  # with more open tabs than this, each asks less often how far its computation is
IDLE_SECONDS = 120.0  # a session whose page has not run for so long may lose its files to one that needs the room
M_ARENA_MAX, M_MMAP_THRESHOLD = -8, -3  # of glibc's malloc.h
LARGE_BYTES = 2**22
log = logging.getLogger(__name__)


class Holding(Protocol):
    """What a session holds in memory and can be asked to let go."""

    @property
    def bytes(self) -> int:
        """About how much it is."""

    def release(self, reason: str) -> None:
        """Let it go, and tell the user why."""


class Session:
    """A browser session, kept in streamlit's state of it, so that it is collected with it."""

    def __init__(self) -> None:
        self.id, self.connection, self.cookie = uuid.uuid4().hex, "", ""
        self.seen, self.left = time.monotonic(), 0.0  # when its page last ran, and since when its tab is closed
        self.admitted = False
        self._holding: weakref.ref[Holding] | None = None
        weakref.finalize(self, _end_of, self.id)

    @property
    def holding(self) -> Holding | None:
        """What it holds, if it still does."""
        return self._holding() if self._holding is not None else None

    @holding.setter
    def holding(self, held: Holding) -> None:
        self._holding = weakref.ref(held)

    @property
    def bytes(self) -> int:
        """About how much memory its files take."""
        return held.bytes if (held := self.holding) is not None else 0

    @property
    def connected(self) -> bool:
        """Whether its tab is open."""
        return not runtime.exists() or bool(runtime.get_instance().is_active_session(self.connection))


_sessions: weakref.WeakValueDictionary[str, Session] = weakref.WeakValueDictionary()
_at_end: list[Callable[[str], None]] = []
_lock = threading.RLock()
_watching: list[threading.Thread] = []


def at_end(do: Callable[[str], None]) -> None:
    """Call this with the id of every session that ends."""
    if do not in _at_end:
        _at_end.append(do)


def this_session() -> Session:
    """The browser session that runs this script."""
    context = get_script_run_ctx()
    if "session" not in st.session_state:
        st.session_state["session"] = Session()
    session: Session = st.session_state["session"]
    session.seen = time.monotonic()
    session.connection = context.session_id if context is not None else ""
    session.cookie = st.context.cookies.get(COOKIE, "")
    with _lock:
        _sessions[session.id] = session
        if not _watching and runtime.exists():
            _watching.append(threading.Thread(target=_watch, name="sessions", daemon=True))
            _watching[0].start()
    return session


def session_id() -> str:
    """The id of the browser session that runs this script."""
    return this_session().id


def all_sessions() -> list[Session]:
    """The sessions in memory, the one that was used longest ago first."""
    with _lock:
        return sorted(_sessions.values(), key=lambda session: session.seen)


def may_go_on(connection: str, cookie: str) -> bool:
    """Whether who has this cookie may go on with a session whose tab was closed: it is the visitor's own."""
    return all(session.cookie == cookie for session in all_sessions() if session.connection == connection)


def is_open(session: str) -> bool:
    """Whether a session's tab is still open."""
    with _lock:
        known = _sessions.get(session)
    return known is not None and known.connected


def poll_seconds(least: float) -> float:
    """How long a page waits before it asks again how far a computation is: longer if many tabs are open."""
    return least * max(1.0, sum(session.connected for session in all_sessions()) / TABS_AT_ONCE)


def held_bytes() -> int:
    """About how much memory the files of all sessions take."""
    return sum(session.bytes for session in all_sessions())


def make_room(session: Session, needed: int, most: int) -> bool:
    """Whether the files of all sessions fit with so many more bytes, if need be without the oldest idle ones."""
    for other in _to_release(session):
        if held_bytes() + needed <= most:
            return True
        if (held := other.holding) is not None:
            held.release(
                "The server needed the memory for others, and your files had not been used for the longest time, so "
                "they were let go. Please bring them again."
            )
            _return_memory()
    return held_bytes() + needed <= most


def _to_release(session: Session) -> Iterator[Session]:
    """Sessions that may lose their files to this one: those that have left, then the idle ones."""
    idle = time.monotonic() - IDLE_SECONDS
    others = [other for other in all_sessions() if other is not session and other.bytes]
    yield from (other for other in others if not other.connected)
    yield from (other for other in others if other.connected and other.seen < idle)


def _watch(ended: bool = False) -> None:
    while True:
        time.sleep(LOOK_SECONDS)
        if ended:
            _return_memory()  # at the next look, when streamlit has let go what they held
        try:
            time_left = float(config.get_option("server.disconnectedSessionTTL"))  # then streamlit cannot find them
            ended = end_left(max(LOOK_SECONDS, time_left - 3 * LOOK_SECONDS))
        except Exception:  # the watch must go on
            log.exception("sessions that have left could not be ended")


def end_left(after: float) -> bool:
    """End the sessions whose tabs have been closed for so many seconds; return whether there were any."""
    ended = False
    for session in all_sessions():
        if session.connected:
            session.left = 0.0
        elif not session.left:
            session.left = time.monotonic()
        if session.left and time.monotonic() - session.left >= after:
            end(session)
            ended = True
    return ended


def end(session: Session) -> None:
    """Stop what the session computes, and let go what it holds, here and in streamlit."""
    with _lock:
        _sessions.pop(session.id, None)
    _end_of(session.id)
    if (held := session.holding) is not None:
        held.release("This page was closed for some time, so its files were let go. Please bring them again.")
    if runtime.exists():
        server = runtime.get_instance()
        server.uploaded_file_mgr.remove_session_files(session.connection)
        with suppress(AttributeError):  # not in streamlit's documented interface; it forgets the session later, too
            server._close_inactive_session_on_event_loop(session.connection)


def _end_of(session: str) -> None:
    for do in list(_at_end):
        do(session)


def _return_memory() -> None:
    """Give memory that was let go back to the system: cells that were read and, if nobody is left, what all shared."""
    read_cell.cache_clear()
    if not all_sessions():
        forget_shared()
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)


def keep_memory_together() -> None:
    """Let all threads share two of glibc's heaps, where each would leave holes in its own; give large arrays back."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            libc = ctypes.CDLL("libc.so.6")
            libc.mallopt(M_ARENA_MAX, 2)
            libc.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
