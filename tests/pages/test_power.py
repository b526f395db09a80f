"""Power: from shipped curves and settings to other curves, and back from a link."""

import pytest

from m2st_core.studies.power import DEFAULT, SHIPPED, shipped_results, shipped_specs
from m2st_core.sweeps.database import Database
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.work import STOPPED
from tests.pages.harness import charts, open_page, run, until, words

PAGE = "power"
SMALL = {
    "lab_methods": ["MMD-M", "limit"], "lab_m_te": ["10", "20"], "lab_repeats": "2", "lab_tests": "8",
    "lab_n_permutations": "99", "lab_m_tr": "8", "n_tasks": "4", "lab_rows_per_task": "8",
}  # fmt: skip


def spec_of(app):
    return SweepSpec.from_toml(app.code[0].value.split('"""')[1])


def curves(app):
    """The curves of the power chart by name."""
    power = next(chart for chart in charts(app) if chart["layout"]["xaxis"]["title"]["text"].startswith("test rows"))
    return {trace["name"]: trace for trace in power["data"] if trace.get("name")}


def test_the_shipped_curves_are_those_of_this_version():
    """After a change of CODE or of a method's revision, ``python -m m2st_core bench shipped_power`` makes them anew."""
    keys = {cell.key for spec in shipped_specs() for cell in spec.cells()}
    assert shipped_results().keys() == keys and SHIPPED.stat().st_size < 100_000


def test_the_page_opens_on_shipped_curves_with_their_finding(store):
    app = open_page(PAGE)
    assert app.title[0].value == "Power" and spec_of(app) == DEFAULT
    assert "**Meta-WiTS (ours)** reaches 80 % power with" in words(app) and "does not with 200" in words(app)
    assert "Shipped results of this version: 4 repeats of 50 tests" in words(app)
    assert {"Meta-WiTS (ours)", "Meta-Witness (ours)", "MMD-M"} <= curves(app).keys()
    assert app.button(key="lab_go").disabled and store.all_runs().empty
    assert "False alarms" in words(app)  # the type-I error stands beside the power
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
    before = curves(app)["Meta-WiTS (ours)"]["y"], curves(app)["MMD-M"]["y"]
    app.slider(key="closeness").set_value(0.6)
    run(app)
    after = curves(app)["Meta-WiTS (ours)"]["y"], curves(app)["MMD-M"]["y"]
    assert after[0] != before[0] and after[1] == before[1] and "Shipped results" in words(app)


def test_refining_doubles_the_repeats_and_starts(store, monkeypatch):
    started = []
    monkeypatch.setattr("m2st_core.dashboard.jobs.runs.SweepQueue.submit", lambda self, spec, *_: started.append(spec))
    open_page(PAGE).button(key="lab_refine").click().run()
    assert started == [DEFAULT.with_(repeats=8)]


def test_a_change_leaves_the_curves_pale(store):
    app = open_page(PAGE)
    app.number_input(key="n_tasks").set_value(40)
    run(app)
    assert (
        "**Meta-WiTS (ours) and Meta-Witness (ours)** have not been run with these settings yet: press **Train**."
        in words(app)
    )
    pale = [f"pale: {name}, N=100" for name in ("Meta-WiTS (ours)", "Meta-Witness (ours)")]
    assert "Pale: N=100." in words(app) and set(pale) <= curves(app).keys()
    assert all(curves(app)[name]["opacity"] < 0.5 and curves(app)[name].get("showlegend", True) for name in pale)
    assert "MMD-M" in curves(app)  # it learns from no related task, so its curve is known, and drawn once
    assert "pale: MMD-M, N=100" not in curves(app)
    assert not app.button(key="lab_go").disabled and "About **" in words(app)


def test_pinned_curves_stay_beside_others(store):
    app = open_page(PAGE)
    app.button(key="lab_pin").click().run()
    app.slider(key="closeness").set_value(0.5)
    run(app)
    assert "Meta-WiTS (ours), C=0.3" in curves(app) and "Meta-WiTS (ours)" in curves(app)
    app.button(key="lab_unpin").click().run()
    assert "Meta-WiTS (ours), C=0.3" not in curves(app)


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
    app = open_page(PAGE, lab_methods=lines)
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
    assert "**MMD-M** has not been run with these settings yet: press **Resume**." in words(app)
    assert "Stopped on request. No cell was finished yet." in words(app) and "kept" not in words(app)


def test_the_type_1_panel_names_methods_that_were_not_measured(store):
    assert "Not measured" not in words(open_page(PAGE))
    app = open_page(PAGE, lab_methods=["Meta-WiTS (ours)", "MMD-M", "Meta-FUSE (ours)", "MMD-D"])
    assert "Not measured with these settings: Meta-FUSE (ours), MMD-D." in words(app)


def test_methods_say_at_first_sight_whose_they_are(store):
    app = open_page(PAGE)
    assert "**Meta-WiTS (ours), Meta-Witness (ours)**: of this project" in words(app)
    assert "**MMD-M**: without related tasks." in words(app) and "deep kernels, of Liu" not in words(app)
    shown = app.multiselect(key="lab_methods").options
    assert "Feature-MKL (ours)" in shown and "Meta-MKL" in shown and "Meta-MKL (ours)" not in shown
    other = open_page(PAGE, lab_methods=["Meta-KL"])
    assert "**Meta-KL**: with deep kernels, of Liu et al. (2021)." in words(other)


def test_a_run_of_another_version_is_refused_with_a_sentence(store, other_run):
    app = open_page(PAGE, run=other_run)
    assert "was made by another version" in words(app) and "run" not in app.query_params
    assert spec_of(app) == DEFAULT


def test_an_empty_choice_is_asked_for(store):
    app = open_page(PAGE, **SMALL)
    app.multiselect(key="lab_methods").set_value([])
    app.run()
    assert "at least one method" in words(app) and not app.error


def test_a_link_with_settings_trains_and_shows_curves(store):
    app = open_page(PAGE, **SMALL)
    app.button(key="lab_go").click()
    app.run()
    until(
        app,
        lambda app: (
            store.all_runs()["state"].tolist() == ["done"] and len(app.dataframe) == 1 and not app.get("progress")
        ),
    )
    assert {"MMD-M", "limit"} <= curves(app).keys()
    table = app.dataframe[0].value
    assert len(table) == 4 and all(" – " in interval for interval in table["95 % interval"])
    assert app.query_params["run"] == spec_of(app).run_id


def test_nonsense_in_the_link_is_ignored(store):
    app = open_page(PAGE, lab_methods="nothing", lab_m_te="-3", lab_repeats="x", lab_alpha="7", run="../../etc")
    assert spec_of(app) == DEFAULT


def test_a_deleted_run_is_named(store):
    assert "There is no run '0123456789ab' here" in words(open_page(PAGE, run="0123456789ab"))


def test_all_problems_are_listed(store):
    app = open_page(PAGE, task="Blobs", lab_methods=["limit", "Meta-WiTS (ours)"])
    assert "no known likelihood ratio" in app.error[0].value


def test_cancelling_keeps_what_is_done(store):
    app = open_page(PAGE, **SMALL | {"lab_repeats": "100", "lab_tests": "300"})
    app.button(key="lab_go").click().run()
    until(app, lambda app: len(app.dataframe) == 1)
    app.button(key="lab_cancel").click().run()
    done = len(store.cells.rows(spec_of(app)))
    assert f"Stopped on request. {done:,} of 400 cells are computed and kept." in words(app) and done
    assert len(app.dataframe) == 1
    assert app.button(key="lab_go").label == "Resume"
    assert store.all_runs()["state"].tolist() == ["cancelled"]


def test_an_interrupted_run_can_go_on(store, finished):
    spec = finished.with_(repeats=3)
    run = store.runs.start(spec)  # as a server leaves it that was killed
    app = open_page(PAGE, run=run)
    assert "interrupted" in words(app) and len(app.dataframe) == 1
    app.button(key="lab_go").click()
    app.run()
    until(app, lambda app: store.runs.get(run).state == "done" and not app.get("progress"))
    assert app.dataframe[0].value["repeats"].tolist() == [3, 3, 3, 3]


def test_a_larger_grid_is_shown_as_it_was_run(store, finished):
    run = store.runs.start(finished.with_(closeness=(0.1, 0.3)))
    store.runs.set_state(run, "done")
    app = open_page(PAGE, run=run)
    assert "larger grid than the controls" in words(app) and len(app.dataframe) == 1


def test_a_store_that_cannot_be_used_is_a_sentence(store, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("M2ST_HOME", str(tmp_path / "file"))
    assert "cannot be made" in words(open_page(PAGE))
