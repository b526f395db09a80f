"""Test my data: three stages, from examples, from files, from bad files, from links."""

import gc
import io
import re
import weakref
import zipfile

import numpy as np
import pandas as pd
import pytest

import m2st_core as m2st
from app import PAGES
from m2st_core.analysis.report import html_report
from m2st_core.dashboard.jobs.jobs import job_manager
from tests import practitioner
from tests.data.test_identifiers import NUMBERED, null_file
from tests.pages.harness import charts, metrics, open_page, until
from tests.pages.harness import run as go_on
from tests.pages.harness import words as shown

NASTY = "<b>bold</b> **x** =1+1"


def table(shift, rows=20, seed=0, header="a,b"):
    values = np.random.default_rng(seed).standard_normal((rows, 2)) + shift
    return "\n".join([header, *(f"{a:.6f},{b:.6f}" for a, b in values)]).encode()


P, Q = table(0.0), table(1.5, seed=1)


def drop(app, slot, *files):
    """Drop files as a user does; the uploader has a new key after each success."""
    key = next(u.key for u in app.file_uploader if u.key.startswith(f"data_{slot}_"))
    given = [(name, data, "text/csv") for name, data in files]
    app.file_uploader(key=key).set_value(given if slot == "related" else given[0])
    return go_on(app)


def click(app, key):
    app.button(key=key).click()
    return go_on(app)


def choose_group(app, column, slot="one"):
    """Answer the question which column is the group."""
    next(radio for radio in app.radio if radio.key.startswith(f"data_group_{slot}_")).set_value(column)
    return go_on(app)


def answer(app):
    """Run until the verdict is there, and return the p-value."""
    until(app, lambda app: "p-value" in metrics(app) or app.error)
    return metrics(app)["p-value"].removeprefix("≤ ")


def verdict(app):
    answer(app)
    return words_of(app.header[0].value)


def outcome_of(app):
    return app.session_state["own_data"].memory["data_answer"][1]


def words_of(text):
    """A text without the escapes that show words from files literally, with plain spaces."""
    return text.replace("\\", "").replace("\u2060", "").replace("\u00a0", " ")


def words(app):
    return words_of(shown(app))


def two_files():
    app = open_page("test_my_data")
    app.segmented_control(key="data_layout").set_value(True)
    go_on(app)
    return drop(drop(app, "p", ("p.csv", P)), "q", ("q.csv", Q))


def test_the_page_opens_at_its_first_step_and_states_its_limits():
    app = open_page("test_my_data")
    assert PAGES["pages/test_my_data.py"] == "Test my data"
    assert "At most 20 MB per file" in words(app) and "this session only" in words(app)
    assert app.button(key="data_next").disabled
    assert sum(b.label.startswith("Try ") for b in app.button) == len(m2st.EXAMPLES) == 4


def test_an_example_goes_through_all_three_stages():
    app = click(open_page("test_my_data", data_secondary="MMD-M"), "data_example_diabetes")
    assert app.session_state["data_step"] == "Check" and len(charts(app)) == 2
    assert "Recommended: Meta-FUSE (ours)" in words(app) and any(b.label == "Cancel" for b in app.button)
    assert [b.label for b in app.button if b.key.startswith("data_next")] == ["Run Meta-FUSE (ours) →"] * 2
    assert "“Values” are those of both groups and all related tasks together." in words(app)
    click(app, "data_next_below")
    data = m2st.prepare(m2st.EXAMPLES["diabetes"].load())
    expected = m2st.carry_out(data, m2st.Plan("Meta-FUSE", ("MMD-M",)))
    assert answer(app) == f"{expected.analysis.primary.p_value:.3g}"
    assert verdict(app) == "Evidence that “fast” differs from “slow” (p ≤ 0.001)"
    assert "With the related tasks: evidence (p ≤ 0.001) by Meta-FUSE" in words(app)
    assert "Without: evidence (p ≤ 0.001) by Omnibus" in words(app)
    assert "It does not show that the difference is large" in words(app) and "tested once in this session" in words(app)
    assert "“cholesterol to HDL ratio”, with a median of 3.0 in “slow” and 5.0 in “fast” (+2.0, 95 %" in words(app)
    assert "15 and 29 rows give more than 80 % power" in words(app) and "1.00" not in words(app)
    effects, secondary = app.dataframe[0].value, app.dataframe[1].value
    assert list(effects.columns[:5]) == ["Column", "Unit", "“slow”", "“fast”", "Difference"] and len(effects) == 10
    assert effects.set_index("Column").loc["body mass index", "Unit"] == "kg/m²"
    sizes = [abs(float(size.replace("−", "-"))) for size in effects["In SDs"]]
    assert sizes == sorted(sizes, reverse=True)
    assert secondary["p after Holm"][0] == expected.analysis.secondary[0].adjusted_p_value
    assert len(charts(app)) == 3 and "exchangeable" in words(app)
    assert all(chart.proto.alt for chart in app.get("plotly_chart"))
    assert not app.error and not app.warning


def test_the_first_example_needs_its_history_and_shows_images_instead_of_columns():
    app = open_page("test_my_data")
    shipped = re.findall(r"p [=≤] [\d.]*\d", words(app))
    first = next(b.key for b in app.button if b.label.startswith("Try "))
    assert first == "data_example_handwriting"
    app = click(app, first)
    assert len(charts(app)) == 1 and {trace["type"] for trace in charts(app)[0]["data"]} == {"heatmap"}
    click(app, "data_next")
    assert verdict(app).startswith("Evidence that “another hand” differs from “one hand” (p ")
    without, taught = shipped
    assert f"With the related tasks: evidence ({taught})" in words(app)
    assert f"Without: no evidence ({without})" in words(app)
    pixels, tiles = charts(app)[:2]
    assert np.shape(pixels["data"][0]["z"]) == (8, 8) or pixels["data"][0]["z"]["shape"] == "8, 8"
    assert len(tiles["data"]) == 2 and not app.dataframe


def test_splits_and_family_are_declared_before_the_answer():
    app = click(two_files(), "data_next")
    app.selectbox(key="data_primary").set_value("MMD-O · tuned")
    app.multiselect(key="data_secondary").set_value(["MMD-M"])
    app.segmented_control(key="data_family").set_value("all")
    app.select_slider(key="data_splits").set_value(5)
    go_on(app)
    assert "one family" in words(app)
    click(app, "data_next")
    answer(app)
    result = outcome_of(app).analysis.primary
    assert len(result.split_p_values) == 5 and "p-values of the 5 random splits" in words(app)
    assert "after Holm's correction" in verdict(app)
    assert app.dataframe[1].value["Role"].tolist() == ["primary", "secondary"]


def test_one_split_shows_what_further_splits_would_give(monkeypatch):
    monkeypatch.setattr("m2st_core.dashboard.your_data.answer.UNASKED_SECONDS", 1e9)
    app = click(two_files(), "data_next")
    app.selectbox(key="data_primary").set_value("MMD-O · tuned")
    click(go_on(app), "data_next")
    answer(app)
    until(app, lambda app: "the split alone moves p between" in words(app))
    assert len(app.session_state["own_data"].tested) == 1


def test_a_plan_that_cannot_reject_is_not_run():
    app = open_page("test_my_data")
    app.segmented_control(key="data_layout").set_value(True)
    go_on(app)
    app = drop(drop(app, "p", ("p.csv", b"a,b\n1,2\n2,3\n3,1\n")), "q", ("q.csv", b"a,b\n7,5\n8,9\n"))
    click(app, "data_next")
    assert app.button(key="data_next").disabled and app.button(key="data_next_below").disabled
    assert "its smallest possible p-value is 0.1" in words(app) and "only 10 labellings" in app.error[0].value


def test_two_files_are_tested_and_the_code_repeats_it(tmp_path, monkeypatch, capsys):
    app = click(two_files(), "data_next")
    click(app, "data_next")
    p = answer(app)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.csv").write_bytes(P)
    (tmp_path / "q.csv").write_bytes(Q)
    python, command = (code.value for code in app.code)
    exec(compile(python, "page", "exec"), {})
    assert float(capsys.readouterr().out.split()[0]) == pytest.approx(float(p), rel=1e-2)
    assert (tmp_path / "report.html").stat().st_size > 1_000_000
    assert command.startswith("python -m m2st_core test p.csv q.csv --method Omnibus")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("bad.csv", b"a,b\n1,2\n1,2,3\n", "bad.csv: row 3 has 3 cells and the first row has 2"),
        ("bad.csv", b"\x00\x01\x02\xff" * 50, "bad.csv"),
        ("bad.csv", b"", "bad.csv"),
        ("**x**.csv", b"a,b\n", "**x**.csv: there is a header but no row"),
    ],
)
def test_a_bad_upload_is_one_sentence_and_leaves_the_earlier_one(name, data, said):
    app = drop(two_files(), "p", (name, data))
    assert len(app.error) == 1 and said in words(app)
    assert "p.csv: 20 rows, 2 columns" in words(app) and not app.button(key="data_next").disabled
    assert "**" not in app.error[0].value.replace("\\*", "")
    drop(app, "p", ("better.csv", P))
    assert not app.error and "better.csv: 20 rows" in words(app)


def test_back_and_forward_keep_everything():
    app = two_files()
    click(app, "data_next")
    app.selectbox(key="data_scaling").select("robust")
    left = next(m for m in app.multiselect if m.label == "Columns to leave out")
    left.select("b")
    app.selectbox(key="data_primary").select("MMD-M")
    app.slider(key="data_alpha").set_value(0.1)
    click(go_on(app), "data_next")
    first = answer(app)
    for key in ("data_back", "data_back"):
        click(app, key)
    assert "p.csv: 20 rows" in words(app)
    click(app, "data_next")
    assert app.selectbox(key="data_scaling").value == "robust"
    assert next(m for m in app.multiselect if m.label == "Columns to leave out").value == ["b"]
    assert app.selectbox(key="data_primary").value == "MMD-M" and app.slider(key="data_alpha").value == 0.1
    click(app, "data_next")
    assert answer(app) == first and "tested once in this session" in words(app)


def test_every_further_try_is_counted_and_said():
    app = two_files()
    for seed in (0, 1, 2, 1):
        app.segmented_control(key="data_step").set_value("Check")
        go_on(app)
        app.number_input(key="data_seed").set_value(seed)
        click(go_on(app), "data_next")
        answer(app)
    assert "tested 3 times in this session" in words(app)
    assert list(app.dataframe[0].value["Seed"]) == [0, 1, 2]


def test_nonsense_in_the_link_is_ignored():
    nonsense = {"data_step": "<script>", "data_primary": "nothing", "data_alpha": "7", "data_seed": "x"}
    app = open_page("test_my_data", data_missing="whatever", data_scaling="-1", data_n_permutations="3", **nonsense)
    click(app, "data_example_diabetes")
    assert app.selectbox(key="data_primary").value == "As recommended" and app.slider(key="data_alpha").value == 0.05


@pytest.mark.parametrize("step", ["Check", "Answer"])
def test_a_link_to_a_later_step_asks_for_data_first(step):
    app = open_page("test_my_data", data_step=step)
    assert "There are no data yet" in app.info[0].value
    click(app, "data_start")
    assert "Bring two groups of rows" in words(app)


def test_a_test_must_be_declared_before_its_answer_is_shown():
    app = two_files()
    app.segmented_control(key="data_step").set_value("Answer")
    go_on(app)
    assert "No test is declared" in app.info[0].value and not app.metric
    click(app, "data_back")
    click(app, "data_next")
    answer(app)
    click(app, "data_back")
    app.selectbox(key="data_scaling").select("none")
    go_on(app)
    app.segmented_control(key="data_step").set_value("Answer")
    go_on(app)
    assert "No test is declared" in app.info[0].value and not app.metric


def test_sessions_do_not_see_each_other_and_take_their_data_along():
    app, other = two_files(), open_page("test_my_data")
    assert "p.csv" not in words(other) and "own_data" in app.session_state
    assert not other.session_state["own_data"].files
    click(click(app, "data_next"), "data_next")
    answer(app)
    owner = app.session_state["session"].id
    held = lambda: [key for key in job_manager()._jobs if key[0] == owner]  # noqa: E731
    data = weakref.ref(app.session_state["own_data"])
    assert held() and data() is not None
    del app
    gc.collect()
    assert not held() and data() is None


def test_words_from_files_are_shown_as_text():
    header = f'"{NASTY}",b'
    app = open_page("test_my_data")
    app.segmented_control(key="data_layout").set_value(True)
    go_on(app)
    drop(app, "p", ("<i>p.csv", table(0.0, header=header)))
    drop(app, "q", ("q.csv", table(1.0, seed=1, header=header)))
    click(app, "data_next")
    assert NASTY in list(app.dataframe[0].value["Column"])
    spec = str(charts(app))
    assert "&lt;b&gt;bold" in spec and "<b>" not in spec and "&lt;i&gt;p" in spec
    click(app, "data_next")
    answer(app)
    assert NASTY in list(app.dataframe[0].value["Column"])
    assert "<b>" not in str(charts(app))
    shown = [e.value for e in [*app.markdown, *app.caption, *app.header, *app.info, *app.warning]]
    assert not [text for text in shown if "<b>" in text or "<i>" in text]


def test_formulas_are_harmless_in_tables_that_can_be_downloaded():
    cells = "\n".join(f'"=cmd{i % 3}",{i},{"one" if i < 20 else "two"}' for i in range(40))
    app = drop(open_page("test_my_data"), "one", ("x.csv", f'"@word",number,which\n{cells}'.encode()))
    app = choose_group(app, "which")
    for _ in range(2):
        click(app, "data_next")
    answer(app)
    for frame in (d.value for d in app.dataframe):
        assert not [c for c in frame.columns if str(c).startswith(("=", "@"))]
        assert not [c for column in frame.columns for c in frame[column].astype(str) if c.startswith("=")]


def test_missing_values_are_never_filled_in_silently_and_buttons_repair_them():
    app = drop(open_page("test_my_data"), "one", ("x.csv", b"v,g\n1,a\n2,a\n,a\n1,b\n3,b\n4,b\n5,a\n,b\n6,a\n"))
    click(app, "data_next")
    assert "x.csv: row 4, column 'v': the value is missing" in words(app) and app.button(key="data_next").disabled
    assert (app.button(key="data_drop").label, app.button(key="data_fill").label) == ("Drop 2 rows", "Fill in medians")
    assert app.selectbox(key="data_missing").options == ["Stop", "Drop rows", "Fill in medians"]
    click(app, "data_drop")
    assert not app.error and "Rows left out because a cell is missing: 1 of a, 1 of b" in words(app)
    assert app.selectbox(key="data_missing").value == "drop rows" and not app.button(key="data_next").disabled
    app.selectbox(key="data_missing").select("refuse")
    click(go_on(app), "data_fill")
    assert not app.error and "2 missing cells of 'v' were replaced by 3" in words(app)


def test_the_same_file_twice_is_a_red_stop():
    app = drop(two_files(), "q", ("again.csv", P))
    assert "p.csv and again.csv are the same file" in words_of(app.error[0].value)
    assert app.button(key="data_next").disabled
    app.segmented_control(key="data_step").set_value("Check")
    assert "are the same table" in words_of(go_on(app).error[0].value) and app.button(key="data_next").disabled


def test_a_repeated_patient_is_offered_as_the_block():
    rows = "\n".join(f"P{i % 20:02},{(i * 7) % 11},{'ab'[i // 20 % 2]}" for i in range(40))
    app = drop(open_page("test_my_data"), "one", ("x.csv", f"Patient ID,v,g\n{rows}".encode()))
    click(app, "data_next")
    assert "20 of its 20 values have several rows, 20 of them in both groups" in words_of(app.error[0].value)
    assert app.button(key="data_next").disabled
    click(app, "data_block_0")
    assert not app.error and outcome_block(app) == "Patient ID" and not app.button(key="data_next").disabled
    next(s for s in app.selectbox if s.label == "Block column").select("(none)")
    assert go_on(app).button(key="data_next").disabled
    click(app, "data_compare_0")
    assert not app.error and not app.button(key="data_next").disabled
    assert "20 of its 20 values have several rows" in words(app)  # the note stays, in the report too


def test_a_repeated_patient_can_be_left_out():
    rows = "\n".join(f"P{i % 20:02},{(i * 7) % 11},{'ab'[i // 20 % 2]}" for i in range(40))
    app = drop(open_page("test_my_data"), "one", ("x.csv", f"Patient ID,v,g\n{rows}".encode()))
    click(app, "data_next")
    click(app, "data_leave_0")
    assert not app.error and app.session_state["own_data"].cleaning.left_out == ("Patient ID",)


def outcome_block(app):
    return app.session_state["own_data"].cleaning.block


def test_two_of_three_groups_are_compared_or_one_with_the_rest():
    rows = "\n".join(f"{i * 7 % 11},{('low', 'mid', 'high')[i % 3]}" for i in range(45))
    app = drop(open_page("test_my_data"), "one", ("x.csv", f"v,arm\n{rows}".encode()))
    first, second = (next(s for s in app.selectbox if s.label == f"{which} group") for which in ("First", "Second"))
    assert first.value == "low" and second.options == ["mid", "high", "all others"]
    first.select("mid")
    go_on(app)
    next(s for s in app.selectbox if s.label == "Second group").select("all others")
    click(go_on(app), "data_next")
    assert "“all others” (30 rows) against “mid” (15 rows), by *arm*" in words(app)
    click(app, "data_next")
    assert "No evidence of a difference at α=0.05 with 15 and 30 rows (p = " in verdict(app)
    assert "--groups mid" in app.code[1].value and "groups=('mid',)" in app.code[0].value


def test_a_column_with_units_can_be_read_as_words():
    rows = "".join(f"{i % 7} kg,{(i * 5) % 11}\n" for i in range(40))
    more = "".join(f"{i % 5} kg,{(i * 3) % 11}\n" for i in range(40))
    app = drop(two_files(), "p", ("p.csv", f"w,v\n{rows}".encode()))
    app = click(drop(app, "q", ("q.csv", f"w,v\n{more}".encode())), "data_next")
    kind = app.dataframe[0].value.set_index("Column")["Read as"]
    assert app.selectbox(key="data_reread").options == ["w"] and "kg" in kind["w"]
    click(app, "data_reread_words")
    kind = app.dataframe[0].value.set_index("Column")["Read as"]
    assert "kg" not in kind["w"] and not [box for box in app.selectbox if box.key == "data_reread"]
    assert "Cells are read as you chose" in words(app)


def test_a_block_column_limits_the_tests_and_is_said():
    rows = "\n".join(f"{(i * 7) % 11},{'ab'[i % 2]},site {i % 3}" for i in range(60))
    app = choose_group(drop(open_page("test_my_data"), "one", ("x.csv", f"v,g,site\n{rows}".encode())), "g")
    click(app, "data_next")
    next(s for s in app.selectbox if s.label == "Block column").select("site")
    assert "ME" not in go_on(app).selectbox(key="data_primary").options
    click(app, "data_next")
    answer(app)
    assert "Rows are exchangeable within each block of 'site'" in words(app)


def history():
    return [
        (f"t{i}_{side}.csv", table(1.0 * (side == "Q"), seed=10 + 2 * i + (side == "Q")))
        for i in range(3)
        for side in "PQ"
    ]


def test_related_files_or_a_zip_teach_and_the_learner_can_be_brought_back():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in history():
            archive.writestr(name, data)
    answers = []
    for files in (history(), [("history.zip", packed.getvalue())]):
        app = drop(two_files(), "related", *files)
        app.segmented_control(key="data_step").set_value("Check")
        go_on(app)
        app.selectbox(key="data_primary").select("Meta-WiTS")
        click(go_on(app), "data_next")
        answers.append(answer(app))
    outcome = outcome_of(app)
    saved = outcome.learners["Meta-WiTS"].packed(outcome.data.encoding)
    app = drop(two_files(), "learner", ("learner.zip", saved))
    assert "learner.zip: Meta-WiTS (ours), 3 tasks" in words(app)
    app.segmented_control(key="data_step").set_value("Check")
    go_on(app)
    offered = app.selectbox(key="data_primary").options
    assert "Meta-FUSE (ours)" in offered and not {"Meta-MKL", "Feature-MKL (ours)"} & set(offered)
    app.selectbox(key="data_primary").select("Meta-WiTS")
    click(go_on(app), "data_next")
    assert answer(app) == answers[0] == answers[1]
    drop(click(click(app, "data_back"), "data_back"), "learner", ("x.zip", b"PK\x03\x04nothing"))
    assert "this is not a ZIP of a learner" in words(app) and "learner.zip: Meta-WiTS (ours)" in words(app)


def test_a_control_group_shared_with_the_history_is_kept_apart():
    shared = [(name, P if name.endswith("_P.csv") else data) for name, data in history()]
    app = drop(two_files(), "related", *shared)
    app.segmented_control(key="data_step").set_value("Check")
    assert "20 rows of the target are also in the related tasks" in words(go_on(app))
    until(app, lambda app: "are used as one task" in words(app))
    assert "No task can be left out" in words(app)
    app.selectbox(key="data_primary").select("Meta-Witness")
    click(go_on(app), "data_next")
    assert answer(app)
    assert "like a common control group" in words(app)
    outcome = outcome_of(app)
    assert outcome.analysis.primary.exact and outcome.data.separation.shared == 20
    saved = m2st.meta_train("Meta-Witness", outcome.data.related).packed(outcome.data.encoding)
    app = drop(two_files(), "learner", ("learner.zip", saved))
    app.segmented_control(key="data_step").set_value("Check")
    go_on(app)
    app.selectbox(key="data_primary").select("Meta-Witness")
    click(go_on(app), "data_next")
    until(app, lambda app: "this learner was trained on" in words(app))
    assert "p-value" not in metrics(app)


def test_controls_explain_themselves():
    app = two_files()
    for _ in range(2):
        for control in [*app.selectbox, *app.multiselect, *app.slider, *app.file_uploader, *app.button]:
            assert control.proto.help, control.label
        click(app, "data_next")


def test_cells_in_doubt_are_asked_about_before_any_test():
    """Both readings of the user's own cells, no run before the answer, and another answer later."""
    cells = {"p": ["5,5", *(f"8.{654 + i}" for i in range(9))], "q": [f"8.{561 + i}" for i in range(10)]}
    files = {
        name: "\n".join(["a;b", *(f"{c};{i * 7 % 5}" for i, c in enumerate(rows))]) for name, rows in cells.items()
    }
    app = open_page("test_my_data")
    app.segmented_control(key="data_layout").set_value(True)
    go_on(app)
    for slot, text in files.items():
        drop(app, slot, (f"{slot}.csv", text.encode()))
    click(app, "data_next")
    assert "How is this meant?" in words(app) and app.button(key="data_next").disabled and not app.error
    shown = app.dataframe[0].value
    assert shown["Your cell"].tolist()[:2] == ["8.654", "8.561"] and len(shown) == 3
    assert [column for column in shown if "Decimal comma" in column] and "8561" in shown.to_string()
    click(app, "data_answer_0_,")
    assert "How is this meant?" not in words(app) and not app.button(key="data_next").disabled
    assert app.session_state["own_data"].upload.decimal == "," and "is read as 8654" in words(app)
    click(app, "data_ask_again")
    assert app.button(key="data_next").disabled
    click(app, "data_file_answer_0_,")  # of the first file only
    assert app.button(key="data_next").disabled and set(app.dataframe[0].value["File"]) == {"q.csv"}
    click(app, "data_answer_0_.")
    assert app.session_state["own_data"].upload.decimal == {"p.csv": ",", "q.csv": "."}
    assert not app.button(key="data_next").disabled and "p.csv = ," in words(app)


def test_files_in_two_encodings_are_asked_about_on_the_page():
    """The words of the UTF-8 file come first among the readings; a header beyond ASCII is asked about, too."""
    cities = ["Москва", "Киев", "Тула"]
    for header in ("city,v", "город,v"):
        app = open_page("test_my_data")
        app.segmented_control(key="data_layout").set_value(True)
        go_on(app)
        for slot, codec, step in (("p", "utf-8", 3), ("q", "cp1251", 5)):
            rows = "".join(f"{cities[i * step % 7 % 3]},{i * step % 11}.5\n" for i in range(24))
            drop(app, slot, (f"{slot}.csv", f"{header}\n{rows}".encode(codec)))
        click(app, "data_next")
        assert "How is this meant?" in words(app) and "q.csv" not in words(app).split("How is this meant?")[0]
        assert app.button(key="data_next").disabled and not app.error
        readings = app.dataframe[0].value
        assert list(readings)[:2] == ["Your cell", "Windows-1251 (cp1251)"]
        assert set(readings["Windows-1251 (cp1251)"]) <= {*cities, "город"} and set(readings["File"]) == {"q.csv"}
        click(app, "data_answer_0_cp1251")
        assert "How is this meant?" not in words(app) and not app.button(key="data_next").disabled
        state = app.session_state["own_data"]
        assert state.upload.encoding == {"q.csv": "cp1251"} and "encoding: q.csv = cp1251" in words(app)
        column = header.split(",")[0]
        assert {*state.prepared(state.upload).features} == {*(f"{column} = {word}" for word in cities), "v"}
        click(app, "data_ask_again")
        assert app.button(key="data_next").disabled


def test_a_group_column_in_another_encoding_is_asked_about_on_the_page():
    """The related tasks are UTF-8; the target's group column has another name there, as its file was guessed."""

    def file(task, codec):
        rows = [f"{'опыт' if i % 2 else 'норма'},{i * 37 % 11}.5" + task for i in range(24)]
        return "\n".join(["группа,v" + ",task" * bool(task), *rows]).encode(codec)

    app = open_page("test_my_data")
    drop(app, "one", ("d.csv", file("", "cp1251")))
    drop(app, "related", ("r.csv", file(",a", "utf-8")))
    choose_group(app, "группа", "related")
    click(app, "data_next")
    assert "How is this meant?" in words(app) and not app.error and app.button(key="data_next").disabled
    click(app, "data_answer_0_cp1251")
    assert "How is this meant?" not in words(app) and not app.error and not app.button(key="data_next").disabled
    assert "“опыт” (12 rows)" in words(app)


@pytest.mark.parametrize("header", NUMBERED)
def test_a_column_that_numbers_the_rows_is_set_aside_and_one_click_compares_it(header):
    app = drop(open_page("test_my_data"), "one", ("x.csv", null_file(header).encode()))
    click(app, "data_next")
    (said,) = [words_of(info.value) for info in app.info if "is not compared" in info.value]
    assert said.startswith(f"'{header}' is not compared: it ") and not app.button(key="data_next").disabled
    click(app, "data_next")
    assert float(answer(app)) > 0.05
    if header != "id":
        return
    app.segmented_control(key="data_step").set_value("Check")
    click(go_on(app), "data_compare_0")
    assert app.session_state["own_data"].cleaning.use == ("id",)
    assert any("'id' is compared, although it numbers rows" in words_of(info.value) for info in app.info)
    click(app, "data_aside_0")
    assert app.session_state["own_data"].cleaning.use == ()


def test_boxes_are_not_repeated_and_the_page_does_not_speak_of_the_shell():
    lines = [
        f"{45_000 + i},{i * 7 % 11} kg,{i * 5 % 13}.5,{'ab'[i % 2]}" for i in np.random.default_rng(0).permutation(40)
    ]
    app = drop(open_page("test_my_data"), "one", ("x.csv", "\n".join(["date,w,v,group", *lines]).encode()))
    click(app, "data_next")
    assert words(app).count("'date' is not compared") == 1 and "'0 kg' is read as" in words(app)
    assert "--" not in words(app) and "shell" not in words(app)
    click(app, "data_next")
    answer(app)
    outcome = outcome_of(app)
    assert "--" not in " ".join(outcome.data.decisions) and "undo, in the shell" not in html_report(outcome)


def test_repeated_rows_are_a_box_a_line_of_the_answer_and_an_assumption():
    rows = np.random.default_rng(2).normal(size=(12, 2)).round(3)
    lines = [f"{a},{b},{'pq'[i % 2]}" for i, (a, b) in enumerate(np.repeat(rows, 5, axis=0))]
    app = drop(open_page("test_my_data"), "one", ("x.csv", "\n".join(["a,b,group", *lines]).encode()))
    click(app, "data_next")
    assert sum("60 rows, only 12 different." in words_of(box.value) for box in app.warning) == 1
    assert not any("only 12 different" in caption.value for caption in app.caption)
    click(app, "data_next")
    answer(app)
    line = "60 rows, only 12 different: the p-value is exact if the repeated rows are independent observations."
    assert words(app).count(line) == 2  # on the card, and among what is assumed
    assert html_report(outcome_of(app)).count(line) == 2


def test_columns_that_one_file_lacks_are_listed():
    app = two_files()
    drop(app, "q", ("q.csv", table(1.5, seed=1, header="a,c")))
    click(app, "data_next")
    columns = next(frame.value for frame in app.dataframe if "Preparation" in frame.value)
    said = dict(zip(columns["Column"], columns["Preparation"], strict=True))
    assert said["b"] == "not in q.csv: not used" and said["c"] == "not in p.csv: not used" and "used" in said["a"]
    boxes = [words_of(info.value) for info in app.info]
    assert "Not in all files, so not compared: “b” (not in q.csv), “c” (not in p.csv)." in boxes


def test_text_that_names_rows_is_set_aside_in_a_box_of_its_own():
    rows = [f"S-{i:03},{i * 7 % 11},{'rgb'[i % 3]},{'ab'[i % 2]}" for i in range(40)]
    app = drop(open_page("test_my_data"), "one", ("x.csv", "\n".join(["Sample ID,v,colour,group", *rows]).encode()))
    app = click(choose_group(app, "group") if app.radio else app, "data_next")
    (said,) = [words_of(info.value) for info in app.info if "Sample ID" in info.value]
    assert said.startswith("'Sample ID' is not compared: it names rows, persons or records. It cannot be compared: ")
    assert said.endswith("its 40 different values are too many for categories.")
    prepared = app.dataframe[0].value.set_index("Column")["Preparation"]
    assert prepared["colour"] == "used, as an indicator for each of its 3 levels"


def practitioners_page(history):
    """The files of tests/practitioner.py on the page, with the question still open."""
    given = practitioner.files(4)
    app = drop(open_page("test_my_data"), "one", ("tablets.csv", given["tablets.csv"]))
    return drop(app, "related", (history, given[history]))


def question(app, slot="one"):
    return next((radio for radio in app.radio if radio.key.startswith(f"data_group_{slot}_")), None)


@pytest.mark.parametrize("history", ["six_earlier.csv", "six_months.zip"])
def test_the_group_is_asked_for_with_values_and_rows(history):
    app = practitioners_page(history)
    asked = question(app)
    assert asked.value is None and app.button(key="data_next").disabled and question(app, "related") is None
    assert sorted(map(words_of, asked.options)) == ["**line**: new 30, old 30", "**machine**: A 35, B 25"]
    if history == "six_earlier.csv":  # whose column group has the values of line
        assert words_of(asked.options[0]).startswith("**line**")
        assert words_of(asked.proto.captions[0]) == "the values of “group” in the related tasks"
    app.segmented_control(key="data_step").set_value("Check")  # past the button
    app = go_on(app)
    assert "One question before" in words(app) and app.button(key="data_next").disabled
    app = choose_group(app, "line")
    assert "“new” (30 rows) against “old” (30 rows), by *line*; in the 6 related tasks too" in words(app)
    assert not app.warning and not app.error and not app.button(key="data_next").disabled
    app = click(app, "data_back")
    assert question(app).value == "line"
    app = drop(app, "one", ("again.csv", practitioner.files(1)["tablets.csv"]))
    assert question(app).value == "line", "the answer is remembered for the session"


def test_a_single_column_is_not_taken_for_the_group_of_the_related_tasks():
    """The target is compared by line; the earlier files have a machine, too, and no column called line or group."""
    given = practitioner.files(4)
    earlier = pd.read_csv(io.BytesIO(given["six_earlier.csv"])).drop(columns="group")
    app = choose_group(drop(open_page("test_my_data"), "one", ("tablets.csv", given["tablets.csv"])), "line")
    app = drop(app, "related", ("earlier.csv", earlier.to_csv(index=False).encode()))
    asked = question(app, "related")
    assert asked.value is None and [words_of(option) for option in asked.options] == ["**machine**: B 300, A 420"]
    assert app.button(key="data_next").disabled


def test_swap_turns_the_headline_the_code_and_the_sentence_and_is_no_further_test():
    generator, sides = np.random.default_rng(0), ["old", "new"] * 15

    def rows(task=""):
        shifted = generator.normal(size=30) + [4 * (side == "new") for side in sides]
        return "".join(f"{value:.4f},{side}{task}\n" for value, side in zip(shifted, sides, strict=True))

    app = drop(open_page("test_my_data"), "one", ("x.csv", f"a,g\n{rows()}".encode()))
    app = drop(app, "related", ("m.csv", f"a,g,task\n{rows(',s')}{rows(',t')}".encode()))
    answers = []
    for said, swapped in (("“new” differs from “old”", False), ("“old” differs from “new”", True)):
        app.segmented_control(key="data_step").set_value("Check")
        app = go_on(app)
        if swapped:
            app = click(app, "data_swap")
            assert "“old” (15 rows) against “new” (15 rows), by *g*; in the 2 related tasks too" in words(app)
        app.selectbox(key="data_primary").select("Meta-WiTS")
        app = click(go_on(app), "data_next")
        answers.append(answer(app))
        assert said in verdict(app)
        assert ("groups=('new', 'old')" in app.code[0].value) == ("--groups new old" in app.code[1].value) == swapped
        assert "tested once in this session" in words(app)
    assert answers[0] == answers[1]


def test_swap_exchanges_two_files_and_their_related_pairs():
    app = drop(drop(two_files(), "p", ("u.csv", P)), "q", ("v.csv", Q))
    app = click(drop(app, "related", *history()), "data_next")
    assert "“v” (20 rows) against “u” (20 rows); in the 3 related tasks too" in words(app) and not app.warning
    app = click(app, "data_swap")
    assert "“u” (20 rows) against “v” (20 rows); in the 3 related tasks too" in words(app) and not app.warning
    upload = app.session_state["own_data"].upload
    assert [table.name for table in upload.target] == ["v.csv", "u.csv"] and upload.related_groups == ("Q", "P")
    app = click(app, "data_swap")
    assert app.session_state["own_data"].upload.related_groups == ("P", "Q")


def test_other_values_in_the_related_tasks_are_a_warning_with_a_swap_of_their_own():
    target = "a,g\n" + "".join(f"{i * 7 % 11},{('old', 'new')[i % 2]}\n" for i in range(20))
    earlier = "a,task,g\n" + "".join(f"{i * 5 % 13},{'st'[i // 20]},{'AB'[i % 2]}\n" for i in range(40))
    app = drop(open_page("test_my_data"), "one", ("x.csv", target.encode()))
    app = click(drop(app, "related", ("m.csv", earlier.encode())), "data_next")
    assert "“A” stands for “old” and “B” for “new”. These values are not the target's" in words_of(app.warning[0].value)
    assert "in the 2 related tasks too" not in words(app)
    app = click(app, "data_swap_related")
    assert "“B” stands for “old” and “A” for “new”" in words_of(app.warning[0].value)
    assert "“new” (10 rows) against “old”" in words(app)
    app = click(app, "data_swap")
    assert "“A” stands for “new” and “B” for “old”" in words_of(app.warning[0].value)
    assert "“old” (10 rows) against “new”" in words(app)
    app.selectbox(key="data_primary").select("Meta-WiTS")
    click(go_on(app), "data_next")
    answer(app)
    said = "In the related tasks “A” stands for “new” and “B” for “old”. These values are not the target's"
    assert said in words(app) and said in html_report(outcome_of(app)).replace("&#x27;", "'")


def test_the_group_of_the_related_tasks_is_asked_for_where_no_name_tells_it():
    pair = ("old", "new")
    target = "a,g\n" + "".join(f"{i * 7 % 11},{pair[i % 2]}\n" for i in range(20))
    rows = [f"{i * 5 % 13},{'st'[i // 20]},{pair[i % 2]},{'AB'[i % 4 // 2]}\n" for i in range(40)]
    app = drop(open_page("test_my_data"), "one", ("x.csv", target.encode()))
    app = drop(app, "related", ("m.csv", "".join(["a,task,arm,site\n", *rows]).encode()))
    assert "Group column: **g** (old 10, new 10)" in words(app) and question(app) is None
    asked = question(app, "related").options
    assert sorted(map(words_of, asked)) == ["**arm**: old 20, new 20", "**site**: A 20, B 20"]
    assert app.button(key="data_next").disabled
    app = click(choose_group(app, "arm", "related"), "data_next")
    assert "by *g*; in the 2 related tasks too" in words(app)
    assert app.session_state["own_data"].upload.related_group == "arm"


def test_a_new_preparation_draws_a_new_look():
    """Its key is what was prepared: an address in memory can be that of earlier data."""
    app = click(two_files(), "data_next")
    state = app.session_state["own_data"]
    before = state.memory["samples"][0]
    assert before == state.prepared(state.upload).digest
    app.selectbox(key="data_scaling").select("robust")
    go_on(app)
    assert state.memory["samples"][0] == state.prepared(state.upload).digest != before


def answers_of(first, seed):
    """A file of 60 persons with two answers from 1 to 3, in two groups."""
    generator = np.random.default_rng(seed)
    rows = [
        f"{a},{b},P{first + i:04d},{('old', 'new')[i % 2]}"
        for i, (a, b) in enumerate(generator.integers(1, 4, (60, 2)))
    ]
    return "\n".join(["a,b,person,group", *rows]).encode()


def test_rows_that_are_alike_are_recognised_by_an_id_column_with_one_click():
    app = open_page("test_my_data")
    drop(app, "one", ("target.csv", answers_of(0, 0)))
    drop(app, "related", *((f"{k}.csv", answers_of(30 if k == 1 else 100 * k, k)) for k in (1, 2, 3)))
    click(app, "data_next")
    (said,) = [words_of(warning.value) for warning in app.warning if "exact if" in warning.value]
    assert said.endswith("is exact if no row of the target is in the related tasks.")
    click(app, "data_ids_0")
    assert not app.exception and not [warning for warning in app.warning if "exact if" in warning.value]
    assert "30 rows of the target are also in the related tasks, by their ids" in " ".join(
        words_of(c.value) for c in app.caption
    )
