"""Power lab: from settings to curves, and back from a link."""

from m2st_core.sweeps.spec import SweepSpec
from tests.pages.harness import charts, open_page, until, words

PAGE = "power_lab"
SMALL = {
    "lab_methods": ["MMD-M", "limit"], "lab_m_te": ["10", "20"], "lab_repeats": "2", "lab_tests": "8",
    "lab_n_permutations": "99", "lab_m_tr": "8", "lab_n_tasks": "4", "lab_rows_per_task": "8",
}  # fmt: skip


def spec_of(app):
    return SweepSpec.from_toml(app.code[0].value.split('"""')[1])


def test_the_defaults_say_what_they_cost(store):
    app = open_page(PAGE)
    assert app.title[0].value == "Power lab"
    assert "36 cells" in words(app) and "press **Train**" in words(app)
    assert spec_of(app) == SweepSpec(
        methods=("Feature-MKL", "Meta-WiTS", "MMD-M"), m_te=(50, 100, 200), repeats=4, tests=50
    )
    assert "python -m m2st_core sweep spec.toml" in app.code[1].value


def test_preset_and_methods_say_at_first_sight_whose_they_are(store):
    app = open_page(PAGE)
    assert "Preset **recommended**: our own settings" in words(app)
    assert (
        "**Feature-MKL (ours), Meta-WiTS (ours)**: tests of this project, on learned features except Omnibus."
        in words(app)
    )
    assert "**MMD-M**: tests that use no related tasks." in words(app) and "**: deep kernels of Liu" not in words(app)
    shown = app.multiselect(key="lab_methods").options
    assert "Feature-MKL (ours)" in shown and "Meta-MKL" in shown and "Meta-MKL (ours)" not in shown
    other = open_page(PAGE, lab_methods=["Meta-KL"], lab_preset="paper")
    assert "Preset **paper**" in words(other) and "**Meta-KL**: deep kernels of Liu et al. (2021)." in words(other)


def test_a_run_of_an_older_version_is_refused_with_a_sentence(store, older_run):
    app = open_page(PAGE, run=older_run)
    assert "was made by an older version" in words(app) and "run" not in app.query_params
    assert "36 cells" in words(app) and not app.dataframe


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
        lambda app: store.runs()["state"].tolist() == ["done"] and len(app.dataframe) == 1 and not app.get("progress"),
    )
    names = [trace.get("name") for trace in charts(app)[0]["data"]]
    assert "MMD-M" in names and "limit" in names
    table = app.dataframe[0].value
    assert len(table) == 4 and all(" – " in interval for interval in table["95 % interval"])
    assert app.query_params["run"] == spec_of(app).run_id


def test_an_edited_setting_asks_for_another_run(finished):
    app = open_page(PAGE, run=finished.run_id)
    assert len(app.dataframe) == 1 and spec_of(app) == finished
    app.number_input(key="lab_repeats").set_value(3)
    app.run()
    assert "press **Train**" in words(app) and not app.dataframe and "run" not in app.query_params


def test_nonsense_in_the_link_is_ignored(store):
    app = open_page(PAGE, lab_methods="nothing", lab_m_te="-3", lab_repeats="x", lab_alpha="7", run="../../etc")
    assert "36 cells" in words(app)


def test_a_deleted_run_is_named(store):
    assert "There is no run '0123456789ab' here" in words(open_page(PAGE, run="0123456789ab"))


def test_all_problems_are_listed(store):
    app = open_page(PAGE, task="Blobs", lab_methods=["limit", "Meta-WiTS (ours)"], lab_preset="paper")
    problems = app.error[0].value
    assert "no known likelihood ratio" in problems and "Meta-WiTS is not part of the preset 'paper'" in problems


def test_no_difference_gives_a_type_1_chart(store):
    app = open_page(PAGE, **SMALL | {"lab_null": "true"})
    app.button(key="lab_go").click()
    app.run()
    until(app, lambda app: len(app.dataframe) == 1 and not app.get("progress"))
    assert charts(app)[0]["layout"]["xaxis"]["title"]["text"].startswith("share rejected at α=0.05")


def test_cancelling_keeps_what_is_done(store):
    app = open_page(PAGE, **SMALL | {"lab_repeats": "100", "lab_tests": "300"})
    app.button(key="lab_go").click().run()
    until(app, lambda app: len(app.dataframe) == 1)
    app.button(key="lab_cancel").click().run()
    assert "finished cells are kept" in words(app) and len(app.dataframe) == 1
    assert [button.label for button in app.button if button.key == "lab_resume"] == ["Resume"]
    assert store.runs()["state"].tolist() == ["cancelled"]


def test_an_interrupted_run_can_go_on(store, finished):
    spec = finished.with_(repeats=3)
    run = store.start_run(spec)  # as a server leaves it that was killed
    app = open_page(PAGE, run=run)
    assert "interrupted" in words(app) and len(app.dataframe) == 1
    app.button(key="lab_resume").click()
    app.run()
    until(app, lambda app: store.run(run).state == "done" and not app.get("progress"))
    assert app.dataframe[0].value["repeats"].tolist() == [3, 3, 3, 3]


def test_a_larger_grid_is_shown_as_it_was_run(store, finished):
    run = store.start_run(finished.with_(closeness=(0.1, 0.3)))
    store.set_state(run, "done")
    app = open_page(PAGE, run=run)
    assert "larger grid than the controls" in words(app) and len(app.dataframe) == 1


def test_a_store_that_cannot_be_used_is_a_sentence(store, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("M2ST_HOME", str(tmp_path / "file"))
    assert "cannot be made" in words(open_page(PAGE))
