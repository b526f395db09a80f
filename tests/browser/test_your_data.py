"""Test my data in a real browser: files to a report, the keyboard alone, and a bad file that gets one sentence."""

import re

import numpy as np

from tests import practitioner

NASTY = "<b>bold</b> **x**"


def button(tab, name):
    return tab.page.get_by_role("button", name=re.compile(name)).first


def lot(shift, seed):
    rows = np.random.default_rng(seed).normal(size=(25, 2)) + [shift, 0]
    text = "\n".join(["mass (mg),length (mm)", *(f"{a:.3f},{b:.3f}" for a, b in rows)])
    return {"name": f"lot {'AB'[seed]}.csv", "mimeType": "text/csv", "buffer": text.encode()}


def test_two_files_are_checked_answered_and_reported(visit, tmp_path):
    tab = visit()
    tab.open("test_my_data")
    tab.page.get_by_text("Two files, P and Q").click()
    for label, data in (("P, the first group", lot(0, 0)), ("Q, the second group", lot(3, 1))):
        tab.page.get_by_label(label).locator("xpath=ancestor-or-self::*[@data-testid='stFileUploader']").locator(
            "input[type=file]"
        ).set_input_files(data)
        tab.page.get_by_text(re.compile(f"{data['name']}:.* 25 rows")).first.wait_for()
    button(tab, "^Next: Check").click()
    tab.page.get_by_text("Recommended: Omnibus").first.wait_for()
    tab.page.locator(".st-key-data_samples .js-plotly-plot").wait_for()
    button(tab, "^Run Omnibus").click()
    card = tab.page.locator(".st-key-data_card")
    card.get_by_role("heading", name="Evidence that “lot B” differs from “lot A” (p ≤ 0.001)").wait_for()
    card.get_by_text(re.compile("What differs most:.* “mass”, with .* mg in “lot A”")).wait_for()
    tab.settle()
    with tab.page.expect_download() as download:
        card.get_by_role("button", name="Download the report").click()
    report = tmp_path / "report.html"
    download.value.save_as(report)
    opened = tab.context.new_page()
    opened.set_viewport_size({"width": 400, "height": 800})
    failed, asked = [], []
    opened.on("pageerror", lambda error: failed.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(report.as_uri())
    opened.locator("#figure-witness .main-svg").first.wait_for()
    verdict = "Evidence that “lot B” differs from “lot A” (p\u00a0≤\u00a00.001)"
    assert opened.locator("h1").inner_text() == verdict
    assert opened.locator(".js-plotly-plot").count() == 4
    assert opened.evaluate("document.documentElement.scrollWidth") <= 400
    assert failed == [] and [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    button(tab, "Back$").click()
    button(tab, "^Run Omnibus").wait_for()
    tab.assert_clean()


def press_until(tab, name, most=120):
    """Tab through the page until this button has the focus."""
    for _ in range(most):
        tab.page.keyboard.press("Tab")
        if tab.page.evaluate("document.activeElement.innerText || ''").strip().startswith(name):
            return
    raise AssertionError(f"{name} cannot be reached by keyboard")


def test_the_keyboard_leads_through_the_three_stages(visit):
    tab = visit()
    tab.open("test_my_data?data_primary=MMD-M")
    press_until(tab, "Try Diabetes")
    tab.page.keyboard.press("Enter")
    button(tab, "^Run MMD-M").wait_for()
    tab.settle()
    press_until(tab, "Run MMD-M")
    tab.page.keyboard.press("Enter")
    tab.page.locator(".st-key-data_card").get_by_role("heading", name=re.compile("^Evidence that “fast”")).wait_for()
    tab.settle()
    press_until(tab, "Download the report")
    tab.assert_clean()


def test_a_bad_file_is_one_sentence_and_names_are_text(visit):
    tab = visit(viewport={"width": 400, "height": 800})
    tab.open("test_my_data")
    rows = "\n".join(f"{i % 7},{(i * 3) % 5},{'ab'[i % 2]}" for i in range(40))
    good = f"{NASTY},y,group\n{rows}".encode()
    drop = tab.page.locator("input[type=file]").first
    drop.set_input_files({"name": "good.csv", "mimeType": "text/csv", "buffer": good})
    tab.page.get_by_text(re.compile("good.csv:.* 40 rows")).first.wait_for()
    drop.set_input_files({"name": "bad.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,2\n1,2,3\n"})
    tab.page.get_by_text(re.compile("bad.csv:.* row 3 has 3 cells")).first.wait_for()
    tab.settle()
    assert tab.page.get_by_test_id("stAlert").count() == 1
    assert tab.page.get_by_text(re.compile("good.csv:.* 40 rows")).count() == 1
    button(tab, "^Next").click()
    tab.page.locator(".st-key-data_column .js-plotly-plot").wait_for()
    tab.page.locator(".st-key-data_column .xtitle", has_text=NASTY).wait_for()
    wide = tab.page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 1
    tab.assert_clean()


def test_a_practitioner_finds_the_new_line_without_a_wrong_turn_on_a_phone(visit):
    """Two columns could be the group; the page asks. By line p is 0.001, by machine it would be 0.34."""
    given, history = practitioner.files(4), "six_earlier.csv"
    tab = visit(color_scheme="dark", viewport={"width": 400, "height": 800})
    tab.open("test_my_data")
    inputs = tab.page.locator("input[type=file]")
    inputs.nth(0).set_input_files({"name": "tablets.csv", "mimeType": "text/csv", "buffer": given["tablets.csv"]})
    tab.page.get_by_text(re.compile("tablets.csv:.* 60 rows")).first.wait_for()
    tab.page.get_by_text("Related tasks, if you have any").click()
    tab.settle()
    inputs.nth(1).set_input_files({"name": history, "mimeType": "application/octet-stream", "buffer": given[history]})
    tab.page.get_by_text(re.compile(f"In use: {history}")).first.wait_for()
    tab.settle()
    assert button(tab, "^Next: Check").is_disabled()
    asked = tab.page.locator("[class*=st-key-data_group_one_]")
    assert {"line: new 30, old 30", "machine: A 35, B 25"} <= set(asked.locator("label p").all_inner_texts())
    asked.get_by_text("line", exact=True).click()
    button(tab, "^Next: Check").click()
    headline = "“new” (30 rows) against “old” (30 rows), by line; in the 6 related tasks too"
    tab.page.get_by_role("heading", name=headline).wait_for()
    button(tab, "^Run Meta-FUSE").click()
    card = tab.page.locator(".st-key-data_card")
    verdict = card.get_by_role("heading", name=re.compile("^Evidence that “new” differs from “old”"))
    verdict.wait_for()
    assert float(re.search(r"p\s*[=≤]\s*([\d.]*\d)", verdict.inner_text())[1]) <= 0.01
    assert tab.page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 1
    tab.assert_clean()
