"""The server's settings are read: a file that is no TOML would be left out as a whole, without a word."""

import tomllib
from pathlib import Path


def test_nothing_leaves_the_server_and_no_traceback_is_shown():
    settings = tomllib.loads((Path(__file__).parents[1] / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert settings["server"]["address"] == "127.0.0.1"
    assert settings["server"]["showEmailPrompt"] is False
    assert settings["browser"]["gatherUsageStats"] is False
    assert settings["client"]["showErrorDetails"] == "none"
