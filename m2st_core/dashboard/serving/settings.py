"""The server as a whole: whether it serves others, its limits and its secret, and what it has once per process."""

from __future__ import annotations

import atexit
import functools
import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from m2st_core.environment import cookie_secret, home_folder, limits_of
from m2st_core.sweeps.database import SECRET, Database

COOKIE = "m2st_visitor"
Made = TypeVar("Made")
_once: list[Once] = []  # everything there is once per server


class Once(Generic[Made]):
    """Makes something at the first call and keeps it. Unlike streamlit's cache, no visitor can clear it."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make, self._made, self._lock = make, list[Made](), threading.RLock()
        functools.update_wrapper(self, make)
        _once.append(self)

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


def once_per_server(make: Callable[[], Made]) -> Once[Made]:
    """Make something that has a ``close`` once per server, which closes it when it stops."""
    return Once(make)


def close_server() -> None:
    """Close everything that there is once per server, the latest first."""
    for once in reversed(_once):
        once.close()


# Before Python waits for the processes of its pools, where it can be asked for that.
getattr(threading, "_register_atexit", atexit.register)(close_server)


@dataclass(frozen=True)
class ServerLimits:
    """The most that a served instance gives. Each has an environment variable, ``M2ST_MOST_SWEEPS`` and so on.

    ``sweeps`` wait or run for one person and ``all_sweeps`` for everybody; ``minutes`` of computing a person has a day;
    ``sessions`` are open tabs; ``upload_bytes`` are what the files of all sessions take in memory.
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


@functools.cache
def _secret_in(home: Path) -> bytes:
    """The secret that a store keeps, made at its first use; one for this process if the store cannot be written."""
    path = Database(home).home / SECRET
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    except OSError:
        pass  # it is there already, or cannot be made
    try:
        return path.read_bytes() or secrets.token_bytes(32)
    except OSError:
        return secrets.token_bytes(32)


def signature(text: str) -> str:
    """A signature that only this server can make: with ``M2ST_SECRET``, or with the secret in its store."""
    own = cookie_secret() or _secret_in(home_folder())
    return hmac.new(own, text.encode(), hashlib.sha256).hexdigest()


def sign(text: str) -> str:
    """The text with its signature."""
    return f"{text}.{signature(text)}"


def unsign(signed: str) -> str:
    """The text, if it was signed by this server; otherwise empty."""
    text, _, found = signed.rpartition(".")
    return text if text and hmac.compare_digest(found.encode(), signature(text).encode()) else ""
