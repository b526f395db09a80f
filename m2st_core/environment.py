"""Every ``M2ST_…`` variable of the environment, read here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any


def home_folder() -> Path:
    """The folder of the store: ``M2ST_HOME``, or ``.m2st`` in the user's home."""
    return Path(os.environ.get("M2ST_HOME") or Path.home() / ".m2st")


def data_folder() -> Path:
    """The folder of image sets: ``M2ST_DATA``, or ``data`` in the folder of the store."""
    return Path(os.environ.get("M2ST_DATA") or home_folder() / "data")


def dask_address() -> str:
    """The address of the Dask cluster that computes sweeps: ``M2ST_DASK``; empty for this machine."""
    return _text("DASK")


def logs_json() -> bool:
    """Whether the log is written as JSON lines: ``M2ST_LOG=json``."""
    return _text("LOG") == "json"


def must_log_in() -> bool:
    """Whether a server for several people needs a login: ``M2ST_LOGIN=required``."""
    return _text("LOGIN").lower() == "required"


def admins() -> frozenset[str]:
    """The names of those who may see the usage of the server: ``M2ST_ADMINS``, separated by commas or blanks."""
    return frozenset(_text("ADMINS").replace(",", " ").split())


def cookie_secret() -> bytes:
    """The secret that signs cookies: ``M2ST_SECRET``; empty if the store keeps one."""
    return _text("SECRET").encode()


def proxy() -> tuple[str, str]:
    """The header with a user's name and the secret of a trusted proxy: ``M2ST_PROXY_HEADER``, ``M2ST_PROXY_SECRET``."""
    return _text("PROXY_HEADER").lower(), _text("PROXY_SECRET")


def frame_ancestors() -> str:
    """The sites that may show the dashboard in a frame: ``M2ST_FRAME_ANCESTORS``; none by default."""
    return _text("FRAME_ANCESTORS") or "'none'"


def limits_of(cls: type, error: type[ValueError] = ValueError, environment: Mapping[str, str] = os.environ) -> Any:
    """A dataclass of whole numbers ≥ 1: its defaults, changed by ``M2ST_MOST_ROWS`` for its field ``rows``, etc."""
    changed = {}
    for field in fields(cls):
        variable = f"MOST_{field.name.upper()}"
        if text := _text(variable, environment).replace("_", ""):
            if not text.isdecimal() or int(text) < 1:
                raise error(f"M2ST_{variable} must be a whole number ≥ 1. Got {text!r}.")
            changed[field.name] = int(text)
    return cls(**changed)


def _text(name: str, environment: Mapping[str, str] = os.environ) -> str:
    return environment.get(f"M2ST_{name}", "").strip()
