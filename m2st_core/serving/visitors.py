"""Visitors of a server for several people: identity, admission, browser sessions, and links that share a run.

Sessions end some time after their tab was closed, and idle ones free memory for others.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import hmac
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st
from streamlit import config, runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from m2st_core.dashboard.jobs.host import (
    Files,
    Host,
    ServerLimits,
    Session,
    Visitor,
    all_sessions,
    end_session,
    session_id,
    this_session,
)
from m2st_core.dashboard.jobs.jobs import job_manager
from m2st_core.dashboard.jobs.sweeps import server_queue, sweep_queue
from m2st_core.dashboard.widgets.page import forget_shared
from m2st_core.data.tables.cells import read_cell
from m2st_core.environment import admins, cookie_secret, home_folder, must_log_in
from m2st_core.sweeps.database import SECRET, Database

COOKIE = "m2st_visitor"
LOOK_SECONDS = 3.0
IDLE_SECONDS = 120.0  # idle time after which a session's uploads may be evicted
EVICTED = "Your files were removed to free memory, because they had been idle longest. Please upload them again."
CLOSED = "This tab was closed, so its files were removed. Please upload them again."
STAMP = "x-m2st-proxied"  # the header with a proxy's user name, signed by the gate
PROXIED, KNOWN = "proxy:", "visitor:"  # prefixes of signed texts by kind
SHARE = "share"  # in a link: the token of a shared run
PERSON_LENGTH = 24
MOST_TOKENS = 50
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


def _session_tabs() -> list[Tab]:
    """The sessions in memory, least recently used first."""
    return [session for session in all_sessions() if isinstance(session, Tab)]


def may_resume(connection: str, cookie: str) -> bool:
    """Whether the cookie matches the closed session's owner."""
    return all(tab.cookie == cookie for tab in _session_tabs() if tab.connection == connection)


def used_bytes() -> int:
    """Approximate memory use of the files of all sessions."""
    return sum(tab.bytes for tab in _session_tabs())


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
    others = [other for other in _session_tabs() if other is not tab and other.bytes]
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
    for tab in _session_tabs():
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


@functools.cache
def _secret_in(home: Path) -> bytes:
    """The store's secret, made at its first use; one for this process if the store cannot be written."""
    path = Database(home).home / SECRET
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    except OSError:
        pass  # it exists, or cannot be made
    try:
        return path.read_bytes() or secrets.token_bytes(32)
    except OSError:
        return secrets.token_bytes(32)


def signature(text: str) -> str:
    """A signature with ``M2ST_SECRET``, or with the secret in the store."""
    secret = cookie_secret() or _secret_in(home_folder())
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def sign(text: str) -> str:
    """The text with its signature."""
    return f"{text}.{signature(text)}"


def unsign(signed: str) -> str:
    """The text, if this server signed it; otherwise empty."""
    text, _, given = signed.rpartition(".")
    return text if text and hmac.compare_digest(given.encode(), signature(text).encode()) else ""


@dataclass(frozen=True)
class VisitorIdentity(Visitor):
    """A visitor with a name, which is shown to them and never stored."""

    name: str = ""
    admin: bool = False
    lasting: bool = True  # whether rights survive a restart of the browser


def identify_visitor(user: dict[str, Any], headers: dict[str, str], cookies: dict[str, str]) -> tuple[str, str, str]:
    """Kind, key and shown name of an identity, by the strongest evidence: login, proxy, cookie, or the tab only."""
    if user.get("is_logged_in") and (user.get("sub") or user.get("email")):
        email = str(user.get("email") or "") if str(user.get("email_verified", True)).lower() == "true" else ""
        subject = str(user.get("sub") or email)
        return "login", f"{user.get('iss', '')} {subject}", email or subject
    stamp = unsign({name.lower(): value for name, value in headers.items()}.get(STAMP, ""))
    if stamp.startswith(PROXIED) and (name := stamp.removeprefix(PROXIED)):
        return "proxy", name, name
    visitor = unsign(cookies.get(COOKIE, ""))
    if visitor.startswith(KNOWN):
        return "cookie", visitor, ""
    return "tab", "", ""


def user_info() -> dict[str, Any]:
    """Claims of ``st.login``, without the search for secrets on disk that ``st.user`` makes."""
    context = get_script_run_ctx()
    return dict(context.user_info) if context is not None else {}


def _tokens() -> tuple[str, ...]:
    tokens: dict[str, None] = st.session_state.setdefault("shared_tokens", {})
    tokens |= dict.fromkeys(st.query_params.get_all(SHARE))
    while len(tokens) > MOST_TOKENS:
        tokens.pop(next(iter(tokens)))
    return tuple(tokens)


@functools.lru_cache(maxsize=1)
def can_log_in() -> bool:
    """Whether the secrets had an identity provider, in their section auth, when the server started."""
    try:
        return "auth" in st.secrets
    except (FileNotFoundError, KeyError):
        return False


class SharedHost(Host):
    """A server for several people: runs have owners, and tabs, memory and computing time have limits."""

    isolates = True

    def new_session(self) -> Session:
        """A record of a new browser session."""
        return Tab()

    def visitor(self) -> VisitorIdentity:
        """The user of the page that runs."""
        session = session_id()
        kind, key, name = identify_visitor(user_info(), dict(st.context.headers), dict(st.context.cookies))
        person = signature(f"{kind} {key or session}")[:PERSON_LENGTH]
        return VisitorIdentity(session, person, _tokens(), name, name in admins(), kind != "tab")

    def admit(self) -> bool:
        """Whether the visitor may use the page; if not, the page says why."""
        if must_log_in() and not self.visitor().name:
            st.title("Please sign in", anchor=False)
            st.write("This server is for people with an account. Your runs and files will be yours alone.")
            _show_login("Sign in")
            return False
        tab, most = _this_tab(), ServerLimits.from_environment().sessions
        if not tab.admitted and sum(other.admitted and other.connected for other in _session_tabs()) >= most:
            st.warning(f"All {most} places on this server are taken. Please reload this page in a few minutes.")
            return False
        tab.admitted = True
        return True

    def show_visitor(self) -> None:
        """Show the visitor's identity and how long it lasts, and offer to sign in or out."""
        visitor = self.visitor()
        if visitor.name:
            st.caption(f"Signed in as {visitor.name}. Your runs are yours alone, unless you share them.")
            if can_log_in() and st.button("Sign out", key="sign_out", help="Leave; your runs stay."):
                st.logout()
        elif visitor.lasting:
            st.caption("Your runs are yours alone, unless you share them. This browser remembers that by a cookie.")
        else:
            st.caption("Your runs are yours alone until you close this tab, as your browser accepts no cookie.")
        if not visitor.name:
            _show_login("Sign in to find your runs from any browser")
        if visitor.admin:
            with st.expander("Usage of this server"):
                _show_usage()

    def show_sharing(self, run: str) -> None:
        """Offer a link to a run."""
        with st.popover("Share…", help="Let others read this run by a link."):
            st.write("Anyone with the link can read this run and its progress. Only you can change it.")
            if st.button("Make a link", key=f"run_share_{run}", help="The link is long and random."):
                st.code(f"history?run={run}&{SHARE}={sweep_queue().store.runs.share(run)}", language=None)

    def hold(self, files: Files) -> None:
        """Register the files of the session that runs."""
        _this_tab().hold(files)

    def make_room(self, needed: int) -> bool:
        """Whether so many more bytes of files fit into memory."""
        return make_room(_this_tab(), needed)


def _this_tab() -> Tab:
    tab = this_session()
    assert isinstance(tab, Tab)
    return tab


def _show_login(label: str) -> None:
    if not can_log_in():
        return
    auth = st.secrets["auth"]
    providers = [name for name, entry in auth.items() if hasattr(entry, "keys") and "client_id" in entry]
    for provider in providers or [None]:
        words = f"{label} with {provider}" if provider else label
        if st.button(words, key=f"sign_in_{provider}", help="You are sent to its page and back."):
            st.login(provider)


def _show_usage() -> None:
    """Show an admin the load of the server and the minutes by person, and no runs or files."""
    most, queue = ServerLimits.from_environment(), server_queue()
    (running, waiting), jobs = queue.counts(), job_manager().scheduler.counts()
    lines = {
        "open tabs": f"{sum(tab.connected for tab in _session_tabs())} of {most.sessions}",
        "sweeps": f"{running} running, {waiting} waiting",
        "computations of pages": f"{jobs[0]} running, {jobs[1]} waiting",
        "files in memory": f"{used_bytes() / 2**20:,.0f} of {most.upload_bytes / 2**20:,.0f} MB",
    }
    st.dataframe(pd.DataFrame(lines.items(), columns=["what", "now"]), hide_index=True, key="usage_now")
    people = [(person[:8], seconds / 60) for person, seconds in queue.store.usage.by_person()]
    st.dataframe(pd.DataFrame(people, columns=["person", "minutes today"]), hide_index=True, key="usage_people")
