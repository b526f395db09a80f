"""Sweeps in a real browser: progress, a reload in the middle, a second session, and a cancel that stops one run."""

import re

SETTINGS = "power_lab?lab_methods=MMD-M&lab_methods=limit&lab_repeats=40&lab_tests=100"


def train(tab, seed):
    tab.open(f"{SETTINGS}&seed={seed}")
    tab.page.get_by_role("button", name="Train", exact=True).click()
    tab.page.get_by_test_id("stProgress").wait_for()


def test_a_run_survives_a_reload_and_stops_alone(visit):
    first, second = visit(), visit()
    train(first, 11)
    first.page.locator(".js-plotly-plot").first.wait_for()
    train(second, 12)
    second.page.get_by_text("1 sweep comes first").wait_for()
    first.page.reload()
    first.page.get_by_text(re.compile(r"\d+ of 240 cells")).wait_for()
    assert "run=" in first.page.url
    first.page.get_by_role("button", name="Cancel", exact=True).click()
    first.page.get_by_role("button", name="Resume", exact=True).wait_for()
    second.page.get_by_text(re.compile(r"\d+ of 240 cells")).wait_for()
    second.page.get_by_role("button", name="Cancel", exact=True).click()
    second.page.get_by_role("button", name="Resume", exact=True).wait_for()
    first.assert_clean()
    second.assert_clean()


def test_a_link_brings_a_finished_run_to_another_browser(visit):
    tab, other = visit(), visit()
    tab.open("power_lab?lab_tests=20&lab_repeats=2")
    tab.page.get_by_role("button", name="Train", exact=True).click()
    tab.page.get_by_test_id("stProgress").wait_for()
    tab.page.get_by_test_id("stProgress").wait_for(state="hidden", timeout=120_000)
    other.page.goto(tab.page.url)
    other.page.locator(".js-plotly-plot").first.wait_for()
    assert other.page.get_by_role("button", name="Train", exact=True).count() == 0
    tab.assert_clean()
    other.assert_clean()
