"""The server's log: one JSON object per line, with ids of sessions and runs and without any user's data."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import traceback
import uuid
from pathlib import Path
from typing import Any

from streamlit.runtime.scriptrunner import get_script_run_ctx

from m2st_core.environment import logs_json

OURS = "m2st_core"
FRAMES = 12  # the innermost places of an error
LIBRARY = Path(__file__).parents[3]
_this = threading.local()  # streamlit runs a page on a thread of its own
log = logging.getLogger(__name__)


class JsonLines(logging.Formatter):
    """Writes a record as JSON.

    Messages of our own code hold ids only. Those of libraries, and the words of every error, may quote a cell of
    somebody's table, so only the template of the message, the kind of the error and its places in the code are written.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        ours = record.name.split(".")[0] == OURS
        values: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage() if ours else str(record.msg).split("\n")[0],
        }
        if session := session_name():
            values |= {"session": session, "request": getattr(_this, "request", "")}
        if record.exc_info and record.exc_info[1] is not None:
            values |= _without_words(record.exc_info[1])
        return json.dumps(values, ensure_ascii=False)


def _without_words(error: BaseException) -> dict[str, Any]:
    """The kind of an error and where it came from."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    places = [f"{os.path.relpath(frame.filename, LIBRARY)}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "places": places}


def log_page(page: str) -> None:
    """Write that a page is asked for, and give this request an id, which all its lines have."""
    _this.request = uuid.uuid4().hex[:12]
    log.info("page %s", page)


def session_name() -> str:
    """A hash of the session's id, which cannot be used to resume it; empty outside a session."""
    context = get_script_run_ctx(suppress_warning=True)
    return hashlib.sha256(context.session_id.encode()).hexdigest()[:12] if context is not None else ""


def start_log() -> None:
    """Write JSON lines if ``M2ST_LOG`` asks for them. Called at every run of a page, as loggers may be new."""
    if not logs_json():
        return
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]  # streamlit gives each of its own a handler
    handlers = [handler for logger in loggers if isinstance(logger, logging.Logger) for handler in logger.handlers]
    for handler in [*handlers, *([logging.lastResort] if logging.lastResort else [])]:
        if not isinstance(handler.formatter, JsonLines):
            handler.setFormatter(JsonLines())
    logger = logging.getLogger(OURS)
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonLines())
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
