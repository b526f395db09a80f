"""Browser sessions of a server for several people: their memory use, and cleanup on close."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterator

import streamlit as st
from streamlit import config, runtime

from m2st_core.dashboard.jobs.host import Files, ServerLimits, Session, all_sessions, end_session
from m2st_core.dashboard.widgets.page import forget_shared
from m2st_core.data.tables.cells import read_cell

COOKIE = "m2st_visitor"
LOOK_SECONDS = 3.0
IDLE_SECONDS = 120.0  # idle time after which a session's uploads may be evicted
EVICTED = "Your files were removed to free memory, because they had been idle longest. Please upload them again."
CLOSED = "This tab was closed, so its files were removed. Please upload them again."
log = logging.getLogger(__name__)


class Tab(Session):
    """A browser session with the cookie of its visitor and its files."""

    def __init__(self) -> None:
        super().__init__()
        self.cookie, self.closed, self.admitted = "", 0.0, False  # closed: time at which its tab was
        self._files: weakref.ref[Files] | None = None

    def touch(self) -> None:
        """Note that its page runs now."""
        super().touch()
        self.cookie = st.context.cookies.get(COOKIE, "")
        _start_cleanup()

    @property
    def files(self) -> Files | None:
        """The session's uploaded files."""
        return self._files() if self._files is not None else None

    def hold(self, files: Files) -> None:
        """Register the session's files."""
        self._files = weakref.ref(files)

    @property
    def bytes(self) -> int:
        """Approximate memory use of its files."""
        return files.bytes if (files := self.files) is not None else 0


def session_tabs() -> list[Tab]:
    """The sessions in memory, least recently used first."""
    return [session for session in all_sessions() if isinstance(session, Tab)]


def may_resume(connection: str, cookie: str) -> bool:
    """Whether the cookie matches the closed session's owner."""
    return all(tab.cookie == cookie for tab in session_tabs() if tab.connection == connection)


def used_bytes() -> int:
    """Approximate memory use of the files of all sessions."""
    return sum(tab.bytes for tab in session_tabs())


def make_room(tab: Tab, needed: int) -> bool:
    """Whether ``needed`` more bytes fit into the memory for files, after evicting closed and idle sessions' files."""
    most = ServerLimits.from_environment().upload_bytes
    for other in _evictable(tab):
        if used_bytes() + needed <= most:
            return True
        if (files := other.files) is not None:
            files.release(EVICTED)
            clear_caches()
    return used_bytes() + needed <= most


def _evictable(tab: Tab) -> Iterator[Tab]:
    """Sessions whose files may be evicted for this one: closed ones, then idle ones."""
    idle = time.monotonic() - IDLE_SECONDS
    others = [other for other in session_tabs() if other is not tab and other.bytes]
    yield from (other for other in others if not other.connected)
    yield from (other for other in others if other.connected and other.seen < idle)


_cleanup: list[threading.Thread] = []


def _start_cleanup() -> None:
    if not _cleanup and runtime.exists():
        _cleanup.append(threading.Thread(target=_clean_up, name="sessions", daemon=True))
        _cleanup[0].start()


def _clean_up(ended: bool = False) -> None:
    while True:
        time.sleep(LOOK_SECONDS)
        if ended:
            clear_caches()  # one interval later, when streamlit has dropped the sessions' state
        try:
            ttl = float(
                config.get_option("server.disconnectedSessionTTL")
            )  # then streamlit drops it, but not its files
            ended = end_closed_sessions(max(LOOK_SECONDS, ttl - 3 * LOOK_SECONDS))
        except Exception:  # the thread must go on
            log.exception("closed sessions could not be ended")


def end_closed_sessions(after: float) -> bool:
    """End sessions whose tab has been closed for ``after`` seconds. Return whether any ended."""
    ended = False
    for tab in session_tabs():
        if tab.connected:
            tab.closed = 0.0
        elif not tab.closed:
            tab.closed = time.monotonic()
        if tab.closed and time.monotonic() - tab.closed >= after:
            _end(tab)
            ended = True
    return ended


def _end(tab: Tab) -> None:
    """Cancel the session's jobs and free its uploads."""
    end_session(tab.id)
    if (files := tab.files) is not None:
        files.release(CLOSED)
    if runtime.exists():
        runtime.get_instance().uploaded_file_mgr.remove_session_files(tab.connection)


def clear_caches() -> None:
    """Clear the cells that were read and, without sessions, all shared tables and figures."""
    read_cell.cache_clear()
    if not all_sessions():
        forget_shared()
    gc.collect()
