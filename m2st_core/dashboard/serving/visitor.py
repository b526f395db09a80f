"""Who is asking: a login, a name that a trusted proxy vouches for, a signed cookie, or else this tab only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from m2st_core.dashboard.serving.sessions import session_id
from m2st_core.dashboard.serving.settings import COOKIE, signature, unsign
from m2st_core.environment import admins, is_served

STAMP = "x-m2st-proxied"  # the header by which the gate passes on a proxy's name, signed
PROXIED, KNOWN = "proxy:", "visitor:"  # how signed texts begin, so that none is taken for another
SHARE = "share"  # in a link: the token of a run that somebody shares
PERSON_LENGTH = 24


@dataclass(frozen=True)
class Visitor:
    """Who is asking. ``person`` owns runs; on one's own machine it is empty, and everyone may do everything."""

    session: str
    person: str = ""
    name: str = ""  # shown to the visitor, never stored
    admin: bool = False
    lasting: bool = True  # whether rights survive a restart of the browser
    tokens: tuple[str, ...] = ()  # of runs that others share with this session

    @property
    def asker(self) -> str:
        """Whose requests for sweeps these are: the person's, or on one's own machine the tab's."""
        return self.person or self.session


def visitor() -> Visitor:
    """Who runs this script."""
    session = session_id()
    if not is_served():
        return Visitor(session)
    kind, name, shown = _identity(_user(), dict(st.context.headers), dict(st.context.cookies))
    person = signature(f"{kind} {name or session}")[:PERSON_LENGTH]
    return Visitor(session, person, shown, shown in admins(), kind != "tab", _tokens())


def _identity(user: dict[str, Any], headers: dict[str, str], cookies: dict[str, str]) -> tuple[str, str, str]:
    """The kind of an identity, what identifies it and what is shown of it, from the strongest evidence there is."""
    if user.get("is_logged_in") and (user.get("sub") or user.get("email")):
        email = str(user.get("email") or "") if str(user.get("email_verified", True)).lower() == "true" else ""
        subject = str(user.get("sub") or email)
        return "login", f"{user.get('iss', '')} {subject}", email or subject
    stamp = unsign({name.lower(): value for name, value in headers.items()}.get(STAMP, ""))
    if stamp.startswith(PROXIED) and (name := stamp.removeprefix(PROXIED)):
        return "proxy", name, name
    known = unsign(cookies.get(COOKIE, ""))
    if known.startswith(KNOWN):
        return "cookie", known, ""
    return "tab", "", ""


def _user() -> dict[str, Any]:
    """What ``st.login`` knows of the visitor, without looking for secrets on disk as ``st.user`` does."""
    context = get_script_run_ctx()
    return dict(context.user_info) if context is not None else {}


def _tokens() -> tuple[str, ...]:
    """The tokens that links have brought into this session."""
    known: dict[str, None] = st.session_state.setdefault("shared_tokens", {})
    known |= dict.fromkeys(st.query_params.get_all(SHARE))
    while len(known) > 50:
        known.pop(next(iter(known)))
    return tuple(known)


@lru_cache(maxsize=1)
def can_log_in() -> bool:
    """Whether an identity provider was configured, in the section auth of the secrets, when the server started."""
    try:
        return "auth" in st.secrets
    except (FileNotFoundError, KeyError):
        return False
