"""The server behind the pages: its visitors, their sessions and limits. By default one local user.

A server for several people registers a ``Host`` of its own; the pages ask ``host()`` and know nothing else of it.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from m2st_core.environment import limits_of

TABS_AT_ONCE = 15  # with more open tabs, each asks less often for the progress of its computation
Made = TypeVar("Made")


@dataclass(frozen=True)
class ServerLimits:
    """Limits of a server. Each has an environment variable: ``M2ST_MOST_SWEEPS`` for ``sweeps``, and so on.

    ``sweeps`` may wait or run for one person and ``all_sweeps`` for everybody; ``minutes`` is a person's computing time
    per day; ``sessions`` counts open tabs; ``upload_bytes`` is the memory for the files of all sessions.
    """

    sweeps: int = 3
    all_sweeps: int = 30
    minutes: int = 240
    sessions: int = 80
    upload_bytes: int = 2 * 2**30

    @classmethod
    def from_environment(cls) -> ServerLimits:
        """The defaults, changed by the environment."""
        return limits_of(cls)


@dataclass(frozen=True)
class Visitor:
    """The user of a page. ``person`` owns runs; it is empty for the local user, without permission checks."""

    session: str
    person: str = ""
    tokens: tuple[str, ...] = ()  # of runs that others share with this session

    @property
    def asker(self) -> str:
        """Owner of requests for computations: the person, or the tab of the local user."""
        return self.person or self.session


class Session:
    """A browser session. It lives in ``st.session_state`` and is garbage-collected with it."""

    def __init__(self) -> None:
        self.id, self.connection, self.seen = uuid.uuid4().hex, "", time.monotonic()
        weakref.finalize(self, end_session, self.id)

    def touch(self) -> None:
        """Note that its page runs now."""
        context = get_script_run_ctx()
        self.seen, self.connection = time.monotonic(), context.session_id if context is not None else ""

    @property
    def connected(self) -> bool:
        """Whether its tab is open."""
        return not runtime.exists() or bool(runtime.get_instance().is_active_session(self.connection))


class Files(Protocol):
    """Uploaded files of a session, which the server may remove."""

    @property
    def bytes(self) -> int:
        """Approximate memory use."""

    def release(self, reason: str) -> None:
        """Remove the files, and tell the user why."""


class Host:
    """Single-user mode: one local user, no accounts, no limits on memory."""

    isolates = False  # whether studies are computed in processes of their own

    def new_session(self) -> Session:
        """A record of a new browser session."""
        return Session()

    def visitor(self) -> Visitor:
        """The user of the page that runs."""
        return Visitor(session_id())

    def admit(self) -> bool:
        """Whether the visitor may use the page; if not, the page says why."""
        return True

    def show_visitor(self) -> None:
        """Show the visitor's identity below a page."""

    def show_sharing(self, run: str) -> None:
        """Offer to share a run."""

    def hold(self, files: Files) -> None:
        """Register the files of the session that runs."""

    def make_room(self, needed: int) -> bool:
        """Whether so many more bytes of files fit into memory."""
        return True


_host = [Host()]
_sessions: weakref.WeakValueDictionary[str, Session] = weakref.WeakValueDictionary()
_at_end: list[Callable[[str], None]] = []
_lock = threading.RLock()


def host() -> Host:
    """The server behind the pages."""
    return _host[0]


def register_host(server: Host) -> None:
    """Let this server stand behind the pages."""
    _host[0] = server


def this_session() -> Session:
    """The browser session that runs this script."""
    if "session" not in st.session_state:
        st.session_state["session"] = host().new_session()
    session: Session = st.session_state["session"]
    session.touch()
    with _lock:
        _sessions[session.id] = session
    return session


def session_id() -> str:
    """The id of the browser session that runs this script."""
    return this_session().id


def all_sessions() -> list[Session]:
    """The sessions in memory, least recently used first."""
    with _lock:
        return sorted(_sessions.values(), key=lambda session: session.seen)


def is_open(session: str) -> bool:
    """Whether a session's tab is open."""
    with _lock:
        stored = _sessions.get(session)
    return stored is not None and stored.connected


def poll_seconds(least: float) -> float:
    """Interval at which a page polls a computation: longer if many tabs are open."""
    return least * max(1.0, sum(session.connected for session in all_sessions()) / TABS_AT_ONCE)


def at_session_end(do: Callable[[str], None]) -> None:
    """Call this with the id of every session that ends."""
    if do not in _at_end:
        _at_end.append(do)


def end_session(session: str) -> None:
    """Cancel a session's jobs."""
    with _lock:
        _sessions.pop(session, None)
    for do in list(_at_end):
        do(session)


class Once(Generic[Made]):
    """Lazily created, process-wide singleton. Unlike streamlit's cache, no visitor can clear it."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make, self._made, self._lock = make, list[Made](), threading.RLock()
        functools.update_wrapper(self, make)
        _singletons.append(self)

    def __call__(self) -> Made:
        """Return it."""
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]

    def close(self) -> None:
        """Close and forget it."""
        with self._lock:
            made, self._made = self._made, []
        for each in made:
            each.close()  # type: ignore[attr-defined]


_singletons: list[Once] = []


def close_server() -> None:
    """Close all singletons, the latest first."""
    for once in reversed(_singletons):
        once.close()


# Before Python joins the processes of its pools, where it can be asked for that.
getattr(threading, "_register_atexit", atexit.register)(close_server)
