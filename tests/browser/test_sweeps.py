"""The researcher's journey in a real browser: change, train, cancel, resume, share, compare, pin; nothing is lost."""

import re
from contextlib import suppress

from tests.browser.test_pages import keep

SLOW = "power?lab_methods=MMD-M&lab_methods=limit&lab_repeats=100&lab_tests=200"  # takes longer than any test
QUICK = "power?lab_methods=MMD-M&lab_methods=limit&lab_repeats=2&lab_tests=20&lab_m_te=10&lab_m_te=20"


def button(tab, name):
    return tab.page.get_by_role("button", name=name, exact=True)


def train(tab, address):
    tab.open(address)
    button(tab, "Train").click()
    tab.wait_url("run=")
    tab.settle()


def finish(tab):
    """Wait until the run that was just started has ended."""
    tab.wait_url("run=")
    tab.settle()
    tab.page.get_by_test_id("stProgress").first.wait_for(state="hidden")
    tab.settle()


def cancel(tab):
    """Cancel the run; again if the click came in the moment in which the page was drawn anew, which loses it."""
    from playwright.sync_api import TimeoutError as Late  # not on every machine

    for _ in range(5):
        with suppress(Late):
            button(tab, "Cancel").click(timeout=10_000)
        with suppress(Late):
            button(tab, "Resume").wait_for(timeout=20_000)
            return
    button(tab, "Resume").wait_for()


def curves(tab, name):
    """Wait for a name in the legend of the chart."""
    tab.page.locator(".st-key-lab_chart .legendtext", has_text=re.compile(f"^{re.escape(name)}$")).first.wait_for()


def delta(tab):
    """The slider of the target's Δ."""
    return tab.page.get_by_role("slider", name=re.compile("Correlation")).first


def test_a_run_survives_a_double_click_and_a_reload_and_stops_alone(visit):
    first, second = visit(), visit()
    first.open(f"{SLOW}&seed=11")
    button(first, "Train").dblclick(delay=200)  # the second click finds the same button, which does nothing now
    first.page.get_by_test_id("stProgress").first.wait_for()
    first.page.wait_for_timeout(1500)
    button(first, "Train").wait_for()
    place = button(first, "Train").bounding_box()
    first.page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    curves(first, "MMD-M")
    first.page.get_by_text(re.compile(r"\d+ of 1200 cells")).first.wait_for()
    train(second, f"{SLOW}&seed=12")
    second.page.get_by_text("1 sweep comes first").first.wait_for()
    first.page.reload()
    first.page.get_by_text(re.compile(r"\d+ of 1200 cells")).first.wait_for()
    assert "run=" in first.page.url
    cancel(first)
    second.page.get_by_text(re.compile(r"\d+ of 1200 cells")).first.wait_for()
    cancel(second)
    button(first, "Resume").click()
    first.page.get_by_test_id("stProgress").first.wait_for()
    cancel(first)
    first.assert_clean()
    second.assert_clean()


def test_a_researcher_changes_pins_shares_and_compares(visit):
    tab, other = visit(), visit()
    tab.open("power")
    curves(tab, "Meta-WiTS (ours)")  # shipped
    train(tab, QUICK)
    finish(tab)
    tab.open(QUICK)  # a saved run: its link is written by the page itself
    tab.wait_url("run=")
    strength = delta(tab)
    strength.press("ArrowLeft")
    tab.wait_url("hdgm_delta=0.65")
    tab.settle()
    assert float(strength.input_value()) == 0.65  # the first change stays
    curves(tab, "pale: MMD-M, Δ=0.7")
    keep(tab, "power-pale")
    strength.press("ArrowRight")
    tab.wait_url("run=")
    tab.settle()
    button(tab, "Pin").click()
    button(tab, "Unpin all").wait_for()
    strength.press("ArrowLeft")
    curves(tab, "MMD-M, Δ=0.7")
    button(tab, "Train").click()
    finish(tab)
    curves(tab, "MMD-M, Δ=0.7")
    keep(tab, "power-pinned")
    other.page.goto(tab.page.url)
    curves(other, "MMD-M")
    assert float(delta(other).input_value()) == 0.65
    other.open("history")
    other.page.get_by_role("combobox", name=re.compile("Runs to look at")).click()
    other.page.get_by_role("option").first.click()
    legend = other.page.locator(".st-key-runs_compare .legendtext")
    legend.filter(has_text="MMD-M, Δ=0.65").wait_for()
    legend.filter(has_text="MMD-M, Δ=0.7").first.wait_for()
    keep(other, "history-compared")
    tab.assert_clean()
    other.assert_clean()
