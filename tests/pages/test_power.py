"""Power: from shipped curves and settings to other curves, and back from a link."""

import pytest

from m2st_core.studies.explore import DEFAULT_SWEEP as DEFAULT
from m2st_core.sweeps.database import Database
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.work import STOPPED
from tests.pages.harness import charts, open_page, run, until, words

PAGE = "power"
SMALL = {
    "lab_methods": ["MMD-M", "limit"], "lab_ours": "false", "lab_m_te": ["10", "20"], "lab_repeats": "2",
    "lab_tests": "8", "lab_n_permutations": "99", "m_tr": "8", "n_tasks": "4", "rows_per_task": "8",
}  # fmt: skip


def spec_of(app):
    return SweepSpec.from_toml(app.code[0].value.split('"""')[1])


def curves(app):
    """The curves of the power chart by name."""
    power = next(chart for chart in charts(app) if chart["layout"]["xaxis"]["title"]["text"].startswith("test rows"))
    return {trace["name"]: trace for trace in power["data"] if trace.get("name")}


def test_the_page_opens_on_the_papers_tests_with_their_finding(store):
    app = open_page(PAGE)
    assert app.title[0].value == "Power" and spec_of(app) == DEFAULT
    said = words(app)
    assert "With 200 rows per mode (400 per sample) to test, **Meta-MKL** finds the difference in **72 of 100**" in said
    assert "**MMD-O** uses no related tasks and is as good or better at every size: it finds it in 78 of 100." in said
    assert {"Meta-MKL", "Meta-KL", "AGT-KL", "MMD-D", "MMD-O", "MMD-M", "Meta-WiTS (ours)"} <= curves(app).keys()
    assert "Computed before: 20 repeats × 100 samples" in said and "published" in curves(app)
    assert app.button(key="lab_go").disabled and store.all_runs().empty
    assert "False alarms" in said and "Measured at C = 0.3, N = 100, m_te = 100, m_tr = 50." in said
    sizes = app.dataframe[0].value
    assert sizes.loc["Meta-MKL", "200"] == "0.72 ± 0.02" and sizes.loc["Meta-MKL", "rows for 80 %"] == "235"
    assert sizes.loc["AGT-KL", "rows for 80 %"] == "over 250"
    assert "python -m m2st_core sweep spec.toml" in app.code[1].value


def test_an_unchanged_rerun_asks_the_store_once_for_runs_and_once_for_rows(finished, monkeypatch):
    """Also with a run in the link, pinned curves and pale ones."""
    app = open_page(PAGE, unfolded=False, **SMALL)
    app.button(key="lab_pin").click().run()
    app.number_input(key="lab_repeats").set_value(3)
    run(app)
    run(app)
    asked, execute = [], Database.execute
    monkeypatch.setattr(
        Database, "execute", lambda self, query, *rest: asked.append(query) or execute(self, query, *rest)
    )
    run(app)
    assert [query.split("FROM ")[1].split()[0] for query in asked] == ["runs", "cells"]


def test_another_closeness_has_shipped_curves_too(store):
    app = open_page(PAGE)
    before = curves(app)["Meta-MKL"]["y"], curves(app)["MMD-M"]["y"]
    app.session_state["closeness"] = 0.5
    run(app)
    after = curves(app)["Meta-MKL"]["y"], curves(app)["MMD-M"]["y"]
    assert after[0] != before[0] and after[1] == before[1] and "have not been run" not in words(app)
    assert app.query_params["closeness"] == "0.5"


def test_refining_doubles_the_repeats_and_starts(store, monkeypatch):
    started = []
    monkeypatch.setattr("m2st_core.dashboard.jobs.runs.SweepQueue.submit", lambda self, spec, *_: started.append(spec))
    open_page(PAGE).button(key="lab_refine").click().run()
    assert started == [DEFAULT.with_(repeats=40, tests=100)]


def test_a_change_leaves_the_curves_pale_and_trains_what_is_not_shipped(store):
    app = open_page(PAGE)
    app.select_slider(key="n_tasks").set_value(40)
    run(app)
    said = words(app)
    assert "**Meta-MKL, Meta-KL, AGT-KL and Meta-WiTS (ours)** have not been run at this setting: press **Train" in said
    assert "Pale curves: N=100." in said and {"pale: Meta-MKL, N=100", "MMD-O", "MMD-D"} <= curves(app).keys()
    assert curves(app)["pale: Meta-MKL, N=100"]["opacity"] < 0.5 and "pale: MMD-O, N=100" not in curves(app)
    assert app.button(key="lab_go").label == "Train 4 tests" and "About **" in said


def test_pinned_curves_stay_beside_others(store):
    app = open_page(PAGE)
    app.button(key="lab_pin").click().run()
    app.session_state["closeness"] = 0.1
    run(app)
    assert "Meta-MKL, C=0.3" in curves(app) and "Meta-MKL" in curves(app)
    app.button(key="lab_unpin").click().run()
    assert "Meta-MKL, C=0.3" not in curves(app)


def test_the_link_carries_the_closeness(store):
    assert spec_of(open_page(PAGE, closeness="0.1")).closeness == (0.1,)
    assert spec_of(open_page(PAGE, closeness="7")) == spec_of(open_page(PAGE, closeness="x")) == DEFAULT


def test_without_a_difference_rejections_are_false_alarms(store):
    app = open_page(PAGE, hdgm_delta="0.0")
    assert "With Δ = 0, P = Q: every rejection is a false alarm." in words(app)
    app = open_page(PAGE, hdgm_delta="0.3", closeness="0.3")
    assert "All related tasks have Δ = 0, so P = Q in them. They teach nothing." in words(app)
    app = open_page(PAGE, hdgm_delta="0.3", closeness="0.2")
    assert "They teach nothing." not in words(app)


def test_the_first_change_after_opening_a_saved_run_stays(finished):
    """The page writes ?run= itself; a rerun that still carries it must not load its settings again."""
    app = open_page(PAGE, **SMALL)
    assert app.query_params["run"] == finished.run_id
    app.number_input(key="lab_repeats").set_value(3)
    run(app)
    assert app.number_input(key="lab_repeats").value == 3 and "run" not in app.query_params
    app.query_params["run"] = finished.run_id  # as a browser sends it that has not heard of the change yet
    run(app)
    assert app.number_input(key="lab_repeats").value == 3


def test_lines_of_one_algorithm_are_compared_in_one_sweep(store):
    lines = ("Meta-MKL", "Meta-MKL · code", "Meta-MKL · tuned")
    app = open_page(PAGE, lab_methods=lines, lab_ours="false")
    assert not app.error and spec_of(app).methods == lines
    assert "**Meta-MKL · tuned**. Tuned: φ starts as a classifier" in words(app) and "β is shrunk" in words(app)
    assert "**Meta-MKL · code**. As in the code: H = 30" in words(app)


def test_the_type_1_error_is_added_to_the_run(store):
    app = open_page(PAGE, **SMALL | {"lab_level": "true"})
    app.button(key="lab_go").click().run()
    until(app, lambda app: store.all_runs()["state"].tolist() == ["done", "done"] and not app.get("progress"))
    assert {spec.null for spec in map(SweepSpec.from_json, store.all_runs()["text"])} == {False, True}
    level = next(chart for chart in charts(app) if "if P = Q" in chart["layout"]["xaxis"]["title"]["text"])
    assert list(level["data"][0]["y"]) == ["MMD-M", "limit"]


@pytest.mark.parametrize("state", ["cancelled", "failed"])
def test_cancel_is_never_where_train_was(store, finished, state):
    """While a sweep runs the button to train keeps its place, disabled; afterwards it resumes."""
    spec = finished.with_(repeats=3)
    store.runs.set_state(store.runs.start(spec), state)
    app = open_page(PAGE, **SMALL | {"lab_repeats": "3"})
    assert app.button(key="lab_go").label == {"cancelled": "Resume", "failed": "Retry"}[state]
    assert not [each for each in app.button if each.key in ("lab_cancel", "lab_resume")]


def test_a_run_that_was_cancelled_at_once_says_that_nothing_is_kept_and_what_to_press(store):
    spec = spec_of(open_page(PAGE, **SMALL | {"lab_methods": ["MMD-M"]}))
    store.runs.set_state(store.runs.start(spec), "cancelled", STOPPED)
    app = open_page(PAGE, **SMALL | {"lab_methods": ["MMD-M"]})
    assert "**MMD-M** has not been run at this setting: press **Resume**." in words(app)
    assert "Stopped on request. No cell was finished yet." in words(app) and "kept" not in words(app)


def test_the_type_1_panel_names_methods_that_were_not_measured(store):
    assert "Not measured" not in words(open_page(PAGE))
    app = open_page(PAGE, lab_methods=["MMD-M", "Energy", "MMD-D"])
    assert "Not measured with these settings: Energy." in words(app)


def test_tests_are_chosen_in_three_groups(store):
    app = open_page(PAGE)
    assert "**Meta-MKL, Meta-KL, AGT-KL**: with deep kernels, of Liu et al. (2021)." in words(app)
    assert "**Meta-WiTS (ours)**: of this project" in words(app)
    assert {"**The paper's tests**", "**Without related tasks**", "**Ours**"} <= {one.value for one in app.markdown}
    assert app.checkbox(key="use_Meta-KL").value and not app.checkbox(key="use_ME").value
    app.checkbox(key="use_ME").check().run()
    assert spec_of(app).methods[-2:] == ("ME", "Meta-WiTS") and "ME" in app.query_params["lab_methods"]
    app.checkbox(key="use_ME").uncheck().run()
    assert spec_of(app) == DEFAULT and "lab_methods" not in app.query_params


def test_a_test_that_cannot_run_here_is_grey_with_its_reason(store):
    app = open_page(PAGE, task="Blobs", lab_methods=["limit", "MMD-M"])
    limit = app.checkbox(key="use_limit")
    assert limit.disabled and limit.proto.help == "The likelihood ratio is known for HDGM only."
    assert spec_of(app).methods == ("MMD-M", "Meta-WiTS") and not app.error
    app = open_page(PAGE, lab_m_te=["10", "50"])
    assert app.checkbox(key="use_Meta-MKL-SI").disabled and not app.checkbox(key="use_ME").disabled


def test_algorithms_as_in_the_code_or_tuned(store):
    app = open_page(PAGE, algorithms="tuned")
    assert spec_of(app).methods[:2] == ("Meta-MKL · tuned", "Meta-KL · tuned")
    assert app.checkbox(key="use_Meta-MKL").label == "Meta-MKL · tuned" and "β is shrunk" in words(app)


def test_a_run_of_another_version_is_refused_with_a_sentence(store, other_run):
    app = open_page(PAGE, run=other_run)
    assert "was made by another version" in words(app) and "run" not in app.query_params
    assert spec_of(app) == DEFAULT


def test_an_empty_choice_is_asked_for(store):
    app = open_page(PAGE, **SMALL)
    for name in ("MMD-M", "limit"):
        app.checkbox(key=f"use_{name}").uncheck().run()
    assert "at least one test" in words(app) and not app.error


def test_a_link_with_settings_trains_and_shows_curves(store):
    app = open_page(PAGE, **SMALL)
    app.button(key="lab_go").click()
    app.run()
    until(
        app,
        lambda app: (
            store.all_runs()["state"].tolist() == ["done"] and len(app.dataframe) == 2 and not app.get("progress")
        ),
    )
    assert {"MMD-M", "limit"} <= curves(app).keys()
    table = app.dataframe[1].value
    assert len(table) == 4 and all(" – " in interval for interval in table["95 % interval"])
    assert app.query_params["run"] == spec_of(app).run_id


def test_nonsense_in_the_link_is_ignored(store):
    app = open_page(PAGE, lab_methods="nothing", lab_m_te="-3", lab_repeats="x", lab_alpha="7", run="../../etc")
    assert spec_of(app) == DEFAULT


def test_a_deleted_run_is_named(store):
    assert "There is no run '0123456789ab' here" in words(open_page(PAGE, run="0123456789ab"))


def test_cancelling_keeps_what_is_done(store):
    app = open_page(PAGE, **SMALL | {"lab_repeats": "100", "lab_tests": "300"})
    app.button(key="lab_go").click().run()
    until(app, lambda app: len(app.dataframe) == 2)
    app.button(key="lab_cancel").click().run()
    done = len(store.cells.rows(spec_of(app)))
    assert f"Stopped on request. {done:,} of 400 cells are computed and kept." in words(app) and done
    assert len(app.dataframe) == 2
    assert app.button(key="lab_go").label == "Resume"
    assert store.all_runs()["state"].tolist() == ["cancelled"]


def test_an_interrupted_run_can_go_on(store, finished):
    spec = finished.with_(repeats=3)
    run = store.runs.start(spec)  # as a server leaves it that was killed
    app = open_page(PAGE, run=run)
    assert "interrupted" in words(app) and len(app.dataframe) == 2
    app.button(key="lab_go").click()
    app.run()
    until(app, lambda app: store.runs.get(run).state == "done" and not app.get("progress"))
    assert app.dataframe[1].value["repeats"].tolist() == [3, 3, 3, 3]


def test_a_larger_grid_is_shown_as_it_was_run(store, finished):
    run = store.runs.start(finished.with_(closeness=(0.1, 0.3)))
    store.runs.set_state(run, "done")
    app = open_page(PAGE, run=run)
    assert "larger grid than the controls" in words(app) and len(app.dataframe) == 2


def test_a_store_that_cannot_be_used_is_a_sentence(store, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("M2ST_HOME", str(tmp_path / "file"))
    assert "cannot be made" in words(open_page(PAGE))
