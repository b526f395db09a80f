"""Your data in a real browser: an example to its answer and its explanation, and a bad file that gets one sentence."""

import re

NASTY = "<b>bold</b> **x**"


def button(tab, name):
    return tab.page.get_by_role("button", name=re.compile(name)).first


def test_an_example_goes_from_files_to_an_explanation_and_back(visit):
    tab = visit()
    tab.open("your_data?data_primary=MMD-FUSE")
    tab.page.locator(".st-key-data_example_diabetes").get_by_role("button").first.click()
    tab.page.locator(".st-key-data_samples .js-plotly-plot").wait_for()
    button(tab, "^Next").click()
    tab.page.get_by_text("Recommended:").wait_for()
    button(tab, "^Run MMD-FUSE").click()
    tab.page.locator(".st-key-data_null .js-plotly-plot").wait_for()
    tab.page.get_by_text(re.compile("tested once in this session")).wait_for()
    button(tab, "^Next").click()
    tab.page.locator(".st-key-data_witness .js-plotly-plot").wait_for()
    tab.settle()
    with tab.page.expect_download() as download:
        button(tab, "Report").click()
    report = download.value.path().read_text(encoding="utf-8")
    assert "p ≤ 0.001" in report and "figure-witness" in report
    for _ in range(2):
        button(tab, "Back$").click()
        tab.settle()
    button(tab, "^Run MMD-FUSE").wait_for()
    assert "data_primary=MMD-FUSE" in tab.page.url
    tab.assert_clean()


def test_the_report_opens_by_itself_and_asks_nobody(browser, tmp_path):
    import m2st_core as m2st

    outcome = m2st.carry_out(m2st.prepare(m2st.EXAMPLES["diabetes"].load()), m2st.Plan("MMD-M"))
    (tmp_path / "report.html").write_text(m2st.html_report(outcome), encoding="utf-8")
    page = browser.new_page()
    errors, asked = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "report.html").as_uri())
    page.locator("#figure-witness .main-svg").first.wait_for()
    assert page.locator(".js-plotly-plot").count() == 4
    assert errors == [] and [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


def test_a_bad_file_is_one_sentence_and_names_are_text(visit):
    tab = visit(viewport={"width": 400, "height": 800})
    tab.open("your_data")
    rows = "\n".join(f"{i % 7},{(i * 3) % 5},{'ab'[i % 2]}" for i in range(40))
    good = f"{NASTY},y,group\n{rows}".encode()
    drop = tab.page.locator("input[type=file]").first
    drop.set_input_files({"name": "good.csv", "mimeType": "text/csv", "buffer": good})
    tab.page.get_by_text(re.compile("good.csv:.* 40 rows")).wait_for()
    drop.set_input_files({"name": "bad.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,2\n1,2,3\n"})
    tab.page.get_by_text(re.compile("bad.csv:.* row 3 has 3 cells")).wait_for()
    assert tab.page.get_by_test_id("stAlert").count() == 1
    assert tab.page.get_by_text(re.compile("good.csv:.* 40 rows")).count() == 1
    button(tab, "^Next").click()
    tab.page.locator(".st-key-data_column .js-plotly-plot").wait_for()
    tab.page.locator(".st-key-data_column .xtitle", has_text=NASTY).wait_for()
    wide = tab.page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 1
    tab.assert_clean()
