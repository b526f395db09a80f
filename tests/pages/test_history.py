"""History: all runs, one run, several runs, and a spec from a file."""

import json
import sqlite3

from m2st_core.sweeps.cells import digest
from tests.pages.harness import charts, open_page, until, words

PAGE = "history"


def upload(app, data):
    app.file_uploader[0].upload("spec.toml", data, "application/toml")
    return app.run()


def test_an_empty_store_shows_the_shipped_curves_and_says_what_to_do(store):
    app = open_page(PAGE)
    assert "there are no runs yet" in words(app).lower()
    assert "What you train in **Power** appears here" in words(app) and not app.dataframe
    assert "**Meta-MKL** finds the difference" in words(
        app
    ) and "These curves are shipped: there are no runs yet." in words(app)
    assert len(charts(app)) == 1


def test_the_newest_run_is_shown(finished):
    app = open_page(PAGE)
    history, _, table = (frame.value for frame in app.dataframe)
    assert history["name"].tolist() == ["A small run"] and history["state"].tolist() == ["✅ done"]
    assert history["open"].tolist() == [f"power?run={finished.run_id}"]
    assert len(table) == 4 and len(charts(app)) == 1


def test_runs_are_named_by_what_differs(store, finished):
    specs = [finished.with_(methods=("Meta-WiTS", "MMD-M"), closeness=(c,)) for c in (0.3, 0.5)]
    for spec in (*specs, specs[0].with_(seed=3)):
        store.runs.start(spec)
    names = open_page(PAGE).dataframe[0].value["name"].tolist()
    assert "C=0.5, N=4, m_tr=8 · Meta-WiTS, MMD-M" in names
    assert {"C=0.3, N=4, m_tr=8 · Meta-WiTS, MMD-M · seed 0", "C=0.3, N=4, m_tr=8 · Meta-WiTS, MMD-M · seed 3"} <= set(
        names
    )


def test_compared_curves_say_what_differs(store, finished):
    other = store.runs.start(finished.with_(repeats=1), "The first repeat")
    app = open_page(PAGE, run=[finished.run_id, other])
    assert sorted(app.dataframe[0].value["state"]) == ["⚠️ interrupted", "✅ done"]
    differences = app.dataframe[1].value
    assert differences.index[0] == "repeats" and set(differences.iloc[0]) == {"1", "2"}
    names = [trace["name"] for trace in charts(app)[0]["data"]]
    assert sorted(names) == ["MMD-M, 1 repeats", "MMD-M, 2 repeats", "limit, 1 repeats", "limit, 2 repeats"]


def test_a_nonsense_link_shows_the_newest(finished):
    assert open_page(PAGE, run=["%", "<script>"]).query_params["run"] == finished.run_id


def test_an_empty_choice_says_what_to_do(finished):
    app = open_page(PAGE)
    app.multiselect(key="runs_shown").set_value([]).run()
    assert not app.exception and "Choose a run above" in words(app) and "run" not in app.query_params


def test_a_link_wins_over_the_last_choice(store, finished):
    other = store.runs.start(finished.with_(repeats=1))
    app = open_page(PAGE, run=[finished.run_id])
    app.query_params["run"] = other
    app.run()
    assert app.multiselect(key="runs_shown").value == [other]


def test_deleting_asks_first(store, finished):
    app = open_page(PAGE)
    assert "For a week this can be undone" in words(app)
    app.button(key=f"runs_delete_{finished.run_id}").click().run()
    assert store.all_runs().empty and "there are no runs yet" in words(app).lower()
    app.button(key="run_undo").click().run()
    assert store.all_runs()["name"].tolist() == ["A small run"] and len(store.cells.rows(finished)) == 8


def test_a_run_is_renamed(store, finished):
    app = open_page(PAGE)
    app.text_input(key=f"run_name_{finished.run_id}").set_value("My first curve")
    app.button(key=f"run_rename_{finished.run_id}").click().run()
    assert store.all_runs()["name"].tolist() == ["My first curve"] and app.header[0].value == "My first curve"


def test_a_run_with_unknown_settings_is_listed_beside_the_others(store, finished):
    spec = finished.to_dict() | {"task": "tomorrow"}
    run = digest(spec)[:12]
    with sqlite3.connect(store.home / "store.sqlite") as db:
        columns = "(id, name, spec, state, message, created, updated)"
        db.execute(f"INSERT INTO runs {columns} VALUES (?, 'new', ?, 'done', '', 1, 1)", (run, json.dumps(spec)))
    app = open_page(PAGE, run=[run, finished.run_id])
    assert "❔ other version" in app.dataframe[0].value["state"].tolist() and len(charts(app)) == 1
    app.button(key=f"runs_delete_{run}").click().run()
    assert store.all_runs()["id"].tolist() == [finished.run_id]


def test_a_run_of_another_version_is_listed_explained_and_deleted(store, other_run):
    app = open_page(PAGE, run=[other_run])
    listed = app.dataframe[0].value
    assert listed["state"].tolist() == ["❔ other version"] and "another version" in listed["note"].item()
    assert "was made by another version" in words(app) and "or delete the run" in words(app)
    assert not charts(app) and not app.code
    app.button(key=f"runs_delete_{other_run}").click().run()
    assert store.all_runs().empty


def test_a_run_of_another_version_leaves_the_others_as_they_are(other_run, finished):
    app = open_page(PAGE, run=[other_run, finished.run_id])
    assert len(app.dataframe[0].value) == 2 and len(charts(app)) == 1 and app.header[0].value == "A small run"


def test_a_spec_is_imported_and_run(store, finished):
    spec = finished.with_(methods=("limit",), repeats=3)
    app = upload(open_page(PAGE), spec.to_toml().encode())
    app.button(key="runs_import").click().run()
    until(app, lambda app: store.runs.get(spec.run_id).state == "done")
    app.run()
    assert app.query_params["run"] == spec.run_id and len(app.dataframe[2].value) == 2


def test_bad_files_are_refused_with_all_their_problems(store):
    app = upload(open_page(PAGE), b"methods = ['nothing']\nrepeats = -1\n")
    assert "Unknown method 'nothing'" in app.error[0].value and "repeats must be" in app.error[0].value
    assert "not TOML" in upload(open_page(PAGE), b"= = =").error[0].value
    assert "not text" in upload(open_page(PAGE), b"\xff\xfe\x00").error[0].value
    assert "64 kB" in upload(open_page(PAGE), b"#" * 70_000).error[0].value
    sizes = ", ".join(str(n) for n in range(10, 110))
    huge = upload(open_page(PAGE), f"repeats = 1000\nm_te = [{sizes}, 100000]".encode()).error[0].value
    assert "grid has 303,000 points" in huge and "m_te=100,000 is too large" in huge
    heavy = (
        upload(open_page(PAGE), b"tests = 10000\nm_te = [5000]\nrepeats = 1000\nmethods = ['MMD-FUSE']").error[0].value
    )
    assert "A worker would need" in heavy and "hours of one core" in heavy
