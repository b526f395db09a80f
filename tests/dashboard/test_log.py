"""The server's log has ids and places, and nothing that a user brought."""

import json
import logging

import pytest

from m2st_core.dashboard.jobs import log


@pytest.fixture
def line(monkeypatch):
    """The line that a record gives."""

    def written(name, message, *arguments, error=None):
        info = (type(error), error, error.__traceback__) if error else None
        record = logging.LogRecord(name, logging.ERROR, __file__, 1, message, arguments, info)
        text = log.JsonLines().format(record)
        assert "\n" not in text
        return json.loads(text), text

    monkeypatch.setattr(log, "session_name", lambda: "0123456789ab")
    return written


def secret_error():
    try:
        float("Ms Secret, 42")
    except ValueError as error:
        return error


def test_our_records_have_ids(line):
    values, _ = line("m2st_core.dashboard.jobs.runs", "sweep %s failed, reference %s", "abc", "r1")
    assert values["event"] == "sweep abc failed, reference r1" and values["session"] == "0123456789ab"
    assert values["level"] == "error" and values["time"][:2] == "20"


def test_the_lines_of_a_request_have_its_id(line, caplog):
    with caplog.at_level(logging.INFO, logger="m2st_core"):
        log.log_page("power")
        first = line("m2st_core.dashboard", "one")[0]["request"]
        assert caplog.messages == ["page power"] and line("m2st_core.dashboard", "two")[0]["request"] == first
        log.log_page("learn")
    assert len(first) == 12 and line("m2st_core.dashboard", "three")[0]["request"] not in ("", first)


@pytest.mark.parametrize("name", ["m2st_core.dashboard", "streamlit.runtime"])
def test_the_words_of_an_error_are_left_out(line, name):
    values, text = line(name, "Uncaught app execution", error=secret_error())
    assert "Secret" not in text and values["error"] == "ValueError"
    assert values["places"][-1].endswith("secret_error") and "test_log.py" in values["places"][-1]


def test_what_libraries_say_about_values_is_left_out(line):
    _, text = line("pandas", "cannot read %s", "Ms Secret")
    assert "Secret" not in text


def test_a_log_starts_once_and_only_if_asked_for(monkeypatch):
    own = logging.getLogger("m2st_core")
    before = list(own.handlers), own.level, own.propagate
    monkeypatch.delenv("M2ST_LOG", raising=False)
    log.start_log()
    assert own.handlers == before[0]
    monkeypatch.setenv("M2ST_LOG", "json")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler())
    library = logging.getLogger("streamlit.of_a_test")
    monkeypatch.setattr(library, "handlers", [logging.StreamHandler()])
    try:
        log.start_log()
        log.start_log()
        assert len(own.handlers) == 1 and isinstance(own.handlers[0].formatter, log.JsonLines)
        assert isinstance(library.handlers[0].formatter, log.JsonLines)
        assert isinstance(logging.lastResort.formatter, log.JsonLines)
    finally:
        own.handlers, own.propagate = before[0], before[2]
        own.setLevel(before[1])
