"""Every page in a real browser: light, dark and narrow, without an error, and without a request to anywhere else."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from app import NAME, PAGES, TABS

LOOKS = {
    "light": {"color_scheme": "light"},
    "dark-narrow": {"color_scheme": "dark", "viewport": {"width": 400, "height": 800}},
}
GRAVE = ("serious", "critical")
STREAMLITS = "[data-testid=stSidebarNav]"  # Streamlit's own list of pages, which a phone shows
RING = """() => {
    const rings = [...document.querySelectorAll('*')].filter(e => parseFloat(getComputedStyle(e).outlineWidth) >= 3
        && getComputedStyle(e).outlineStyle === 'solid')
    return rings.length && rings.every(e => e === document.activeElement || e.contains(document.activeElement))
}"""


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


def obstacles(page):
    """What axe-core finds serious, or out of order, for readers with a keyboard or a screen reader."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, {"exclude": [[STREAMLITS]]}).response["violations"]
    grave = [one for one in found if one["impact"] in GRAVE or one["id"] == "heading-order"]
    return {one["id"]: [node["html"][:200] for node in one["nodes"]] for one in grave}


def choose(page, path, title):
    """Open a page by the navigation, or one of Explore's tabs by its row of tabs."""
    row = page if path in PAGES else page.locator(".st-key-explore_tabs")
    row.get_by_role("link", name=title, exact=True).first.click()


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_opens_for_everybody(visit, look):
    """By a click where the navigation is wide, by its address where it is narrow."""
    tab = visit(**LOOKS[look])
    tab.open(address(list(PAGES)[-1]))  # not the first: a click on the page that is open proves nothing
    for path, title in [*PAGES.items(), ("pages/explore.py", "Explore"), *list(TABS.items())[1:]]:
        if look == "light":
            choose(tab.page, path, title)
        else:
            tab.open(address(path))
        expect(tab.page).to_have_title(f"{title} · {NAME}")
        tab.settle()
        expect(tab.page.locator("h1")).to_have_count(1)
        wide = tab.page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 1, f"{title} is wider than the screen by {wide} px"
        assert obstacles(tab.page) == {}, title
        keep(tab, f"{Path(path).stem}-{look}")
    tab.assert_clean()


def test_home_answers_the_keyboard_and_leads_on(visit):
    """Tab reaches the slider, arrows move its picture, Enter opens the next page; the focus is always visible."""
    tab = visit()
    tab.open()
    page, finding = tab.page, tab.page.locator(".st-key-finding")
    page.locator(".st-key-home_Meta-Witness .main-svg").first.wait_for()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.type === 'range'"):
            break
    page.wait_for_function(RING)
    before = finding.inner_text()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("before => document.querySelector('.st-key-finding').innerText !== before", arg=before)
    tab.wait_url("home_related=closely")
    page.get_by_text("C = 0.2").first.wait_for()
    tab.settle()
    page.locator(".st-key-home_ways").get_by_role("link", name="Test my data").focus()
    page.keyboard.press("Enter")
    tab.wait_url("/test_my_data")
    tab.assert_clean()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_download_icon_stands_on_the_pages_own_background(visit, scheme):
    tab = visit(color_scheme=scheme)
    tab.open()
    tab.page.locator(".js-plotly-plot").first.hover()
    group = tab.page.locator(".modebar-group").first
    group.wait_for()
    assert group.evaluate("group => getComputedStyle(group).backgroundColor") == "rgba(0, 0, 0, 0)"
    icon = group.locator("path").first.evaluate("path => getComputedStyle(path).fill")
    assert icon == {"light": "rgb(0, 0, 0)", "dark": "rgb(255, 255, 255)"}[scheme]


def test_a_phone_has_a_menu(visit):
    tab = visit(viewport={"width": 400, "height": 800})
    tab.open()
    tab.page.get_by_test_id("stExpandSidebarButton").click()
    tab.page.get_by_role("link", name="Learn", exact=True).click()
    tab.wait_url("/learn")
    tab.settle()
    tab.assert_clean()
