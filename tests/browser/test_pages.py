"""Every page in a real browser: light, dark and narrow, without an error, and without a request to anywhere else."""

import os
import re
from pathlib import Path

import pytest

from app import PAGES

LOOKS = {
    "light": {"color_scheme": "light"},
    "dark-narrow": {"color_scheme": "dark", "viewport": {"width": 400, "height": 800}},
}


def address(path):
    """The first page is the default one and has no path of its own."""
    return "" if path == next(iter(PAGES)) else Path(path).stem


def keep(tab, name):
    """A screenshot for people to look at, where M2ST_SCREENSHOTS names a folder."""
    folder = os.environ.get("M2ST_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tab.page.wait_for_timeout(1200)  # plotly draws
        tab.page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_opens(visit, look):
    tab = visit(**LOOKS[look])
    for path, (title, _) in PAGES.items():
        tab.open(address(path))
        assert tab.page.locator("h1, h2").first.inner_text(), title
        wide = tab.page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 1, f"{title} is wider than the screen by {wide} px"
        keep(tab, f"{Path(path).stem}-{look}")
    tab.assert_clean()


def test_pages_are_reached_by_clicking(visit):
    tab = visit()
    tab.open()
    for path, (title, _) in PAGES.items():
        tab.page.get_by_role("link", name=re.compile(re.escape(title))).first.click()
        tab.page.wait_for_url(re.compile(f"/{address(path)}|/$|/\\?"))
        tab.settle()
    tab.assert_clean()
