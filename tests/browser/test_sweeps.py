"""The researcher's journey in a real browser: change, train, cancel, resume, share, compare, pin; nothing is lost."""

import re
from contextlib import suppress

from tests.browser.test_pages import keep

SLOW = "power?lab_methods=MMD-M&lab_methods=limit&lab_ours=false&lab_repeats=100&lab_tests=200"
QUICK = "power?lab_methods=MMDAgg&lab_methods=limit&lab_ours=false&lab_repeats=2&lab_tests=20&lab_m_te=10&lab_m_te=20"


def button(tab, name):
    return tab.page.get_by_role("button", name=re.compile(f"^{name}( \\d+ tests?)?$"))


def train(tab, address):
    tab.open(address)
    button(tab, "Train").click()
    tab.wait_url("run=")


def finish(tab):
    """Wait until the run that was just started has ended."""
    tab.wait_url("run=")
    tab.page.get_by_test_id("stProgress").first.wait_for(state="hidden")
    button(tab, "Refine").wait_for()


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
    """Wait for a name at the end of a curve, or in the legend of former ones."""
    names = tab.page.locator(".st-key-lab_chart :is(.annotation-text, .legendtext)")
    names.filter(has_text=re.compile(f"^{re.escape(name)}$")).first.wait_for()


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
    first.page.get_by_text(re.compile(r"\d+ of 1400 cells")).first.wait_for()
    train(second, f"{SLOW}&seed=12")
    second.page.get_by_text("1 sweep comes first").first.wait_for()
    first.page.reload()
    first.page.get_by_text(re.compile(r"\d+ of 1400 cells")).first.wait_for()
    assert "run=" in first.page.url
    cancel(first)
    second.page.get_by_text(re.compile(r"\d+ of 1400 cells")).first.wait_for()
    cancel(second)
    button(first, "Resume").click()
    first.page.get_by_test_id("stProgress").first.wait_for()
    cancel(first)
    first.assert_clean()
    second.assert_clean()


def test_a_researcher_changes_pins_shares_and_compares(visit):
    tab, other = visit(), visit()
    tab.open("power")
    curves(tab, "Meta-MKL")  # shipped
    train(tab, QUICK)
    finish(tab)
    tab.open(QUICK)  # a saved run: its link is written by the page itself
    tab.wait_url("run=")
    strength = delta(tab)
    strength.press("ArrowLeft")
    tab.wait_url("hdgm_delta=0.65")
    tab.settle()
    assert float(strength.input_value()) == 0.65  # the first change stays
    curves(tab, "pale: MMDAgg, Δ=0.7")
    keep(tab, "power-pale")
    strength.press("ArrowRight")
    tab.wait_url("run=")
    tab.settle()
    button(tab, "Pin").click()
    button(tab, "Unpin all").wait_for()
    strength.press("ArrowLeft")
    curves(tab, "MMDAgg, Δ=0.7")
    button(tab, "Train").click()
    finish(tab)
    curves(tab, "MMDAgg, Δ=0.7")
    keep(tab, "power-pinned")
    other.page.goto(tab.page.url)
    curves(other, "MMDAgg")
    assert float(delta(other).input_value()) == 0.65
    other.open("history")
    other.page.get_by_role("combobox", name=re.compile("Runs to look at")).click()
    other.page.get_by_role("option").first.click()
    legend = other.page.locator(".st-key-runs_compare .legendtext")
    legend.filter(has_text="MMDAgg, Δ=0.65").wait_for()
    legend.filter(has_text="MMDAgg, Δ=0.7").first.wait_for()
    keep(other, "history-compared")
    tab.assert_clean()
    other.assert_clean()


def test_a_researcher_at_another_closeness_trains_cancels_resumes_shares_and_exports(visit):
    """From the overview at C = 0.1 and N = 20, where the paper's tests are shipped, to a seed of one's own."""
    tab, other = visit(accept_downloads=True), visit()
    tab.open("explore?n_tasks=20")
    band = tab.page.locator(".band .tasks")
    for _ in range(2):
        band.press("ArrowRight")  # nearer to the target
        tab.settle()
    tab.wait_url("closeness=0.1")
    tab.page.get_by_text(re.compile(r"At C.=.0\.1 the related tasks are")).first.wait_for()
    keep(tab, "explore-near")
    tab.page.locator(".st-key-explore_tabs").get_by_role("link", name="Power", exact=True).click()
    curves(tab, "Meta-KL")  # shipped, at the same setting
    methods = "".join(f"&lab_methods={name}" for name in ("Meta-MKL", "Meta-KL", "MMD-D"))
    tab.open(f"power?closeness=0.1&n_tasks=20{methods}&lab_ours=false&seed=3&lab_repeats=2")
    button(tab, "Train").click()
    tab.wait_url("run=")
    tab.page.get_by_test_id("stProgress").first.wait_for()
    cancel(tab)
    button(tab, "Resume").click()
    tab.page.get_by_test_id("stProgress").first.wait_for()
    other.page.goto(tab.page.url)  # the link carries the setting and the run
    other.page.get_by_test_id("stProgress").first.wait_for()
    assert "closeness=0.1" in other.page.url and "seed=3" in other.page.url
    cancel(tab)
    tab.open("power?closeness=0.1&n_tasks=20")
    tab.page.get_by_text("Numbers and downloads").click()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="All cells (CSV)").click()
    text = download.value.path().read_text("utf-8")
    assert "Meta-KL" in text and ",0.1," in text
    tab.assert_clean()
    other.assert_clean()
