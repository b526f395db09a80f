"""A training run in a real browser: it streams, outlives a reload, and stops when it is told to."""

import re

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402


def test_a_run_streams_and_outlives_a_reload(visit):
    tab = visit()
    tab.open("power_lab?lab_tests=20&lab_repeats=2")
    tab.page.get_by_role("button", name="Train", exact=True).click()
    expect(tab.page.get_by_text(re.compile(r"of \d+ cells")).first).to_be_visible()
    address = tab.page.url
    assert re.search(r"run=[0-9a-f]{12}", address)
    tab.page.reload()
    tab.page.locator(".js-plotly-plot").first.wait_for(timeout=90_000)
    expect(tab.page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0, timeout=120_000)
    other = visit()  # another browser, the same link
    other.page.goto(address)
    other.page.locator(".js-plotly-plot").first.wait_for()
    other.assert_clean()
    tab.assert_clean()


def test_a_run_stops_when_it_is_told_to_and_offers_to_go_on(visit):
    tab = visit()
    tab.open("power_lab?lab_repeats=50&seed=3")
    tab.page.get_by_role("button", name="Train", exact=True).click()
    expect(tab.page.get_by_text(re.compile(r"of \d+ cells")).first).to_be_visible()
    tab.page.get_by_role("button", name="Cancel", exact=True).click()
    expect(tab.page.get_by_text("Stopped on request")).to_be_visible(timeout=10_000)
    expect(tab.page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    tab.assert_clean()
