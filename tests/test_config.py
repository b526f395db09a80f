"""The server's settings are read, and the theme's colours have enough contrast, light and dark."""

import re
import tomllib
from pathlib import Path

import pytest

from m2st_core.figures import theme
from m2st_core.testing.methods import METHODS

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
STYLE = (ROOT / "m2st_core" / "dashboard" / "widgets" / "page.css").read_text(encoding="utf-8")
TEXT, GRAPHICS = 4.5, 3.0  # WCAG 2.2 AA
BASES = ("light", "dark")


def channels(colour):
    return [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]


def contrast(one, other):
    """WCAG's ratio of two colours, each three channels from 0 to 1."""

    def luminance(rgb):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def declared(selector, name):
    """The value of a property in the stylesheet."""
    (block,) = re.findall(rf"{re.escape(selector)}[^{{}}]*\{{([^}}]*)\}}", STYLE)
    return re.search(rf"{name}:\s*([^;]+);", block)[1]


def test_nothing_leaves_the_server_and_no_traceback_is_shown():
    assert SETTINGS["server"]["address"] == "127.0.0.1"
    assert SETTINGS["server"]["showEmailPrompt"] is False
    assert SETTINGS["browser"]["gatherUsageStats"] is False
    assert SETTINGS["client"]["showErrorDetails"] == "none"


def test_contrast_of_known_colours():
    assert contrast(channels("#000000"), channels("#FFFFFF")) == pytest.approx(21)
    assert contrast(channels("#777777"), channels("#FFFFFF")) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("place", ["backgroundColor", "secondaryBackgroundColor"])
def test_text_is_legible(base, place):
    colours = SETTINGS["theme"][base]
    behind, ink = channels(colours[place]), channels(colours["textColor"])
    opacity = float(declared('[data-testid="stCaptionContainer"]', "opacity"))
    caption = [opacity * front + (1 - opacity) * back for front, back in zip(ink, behind, strict=True)]
    for colour in (ink, caption, channels(colours["linkColor"])):
        assert contrast(colour, behind) >= TEXT
    assert contrast(channels("#FFFFFF"), channels(colours["primaryColor"])) >= TEXT  # the primary button's label


def test_text_of_charts_has_the_colour_of_the_page():
    assert declared(".yaxislayer-below) text", "fill") == "currentColor !important"


@pytest.mark.parametrize("base", BASES)
def test_marks_and_focus_stand_out(base):
    behind = channels(SETTINGS["theme"][base]["backgroundColor"])
    ring = re.search("#[0-9A-F]{6}", declared(":focus-visible", "outline"))[0]
    marks = (
        theme.P_COLOUR, theme.Q_COLOUR, theme.WITH_RELATED, theme.WITHOUT_RELATED, theme.NULL_COLOUR,
        theme.OBSERVED_COLOUR, *(method.look.colour for method in METHODS.values()),
    )  # fmt: skip
    for colour in (*marks, ring, SETTINGS["theme"][base]["primaryColor"]):
        assert contrast(channels(colour), behind) >= GRAPHICS, colour
