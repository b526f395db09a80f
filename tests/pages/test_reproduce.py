"""Reproduce the paper: what is published, what comes with the software, what is computed here."""

from dataclasses import replace

import pytest

from m2st_core.experiments import committed
from m2st_core.experiments.paper import PAPER

PAGE = "pages/reproduce.py"


def words(app):
    return " ".join(element.value for element in [*app.info, *app.warning, *app.error, *app.markdown, *app.caption])


def headings(app):
    return [heading.value for heading in app.subheader]


def test_the_committed_results_are_there_at_once(store, open_page, charts):
    app = open_page(PAGE)
    assert headings(app) == ["Ours, at full scale", "Ours, computed here", "Published"]
    names = [trace.get("name") for trace in charts(app)[0]["data"]]
    assert {"Meta-MKL", "published", "limit"} <= set(names)
    table = app.dataframe[0].value
    best = table.query("method == 'Meta-MKL' and m_te == 200").iloc[0]
    assert best["published"] == 0.759 and best["difference in SE"] > 5 and best["repeats"] == 20
    assert "press **Run**" in words(app)


def test_a_copy_without_documents_has_no_committed_results(store, open_page, monkeypatch, tmp_path):
    monkeypatch.setattr(committed, "DOCS", tmp_path / "nowhere")
    assert headings(open_page(PAGE)) == ["Ours, computed here", "Published"]


@pytest.mark.parametrize("name", list(PAPER))
def test_every_experiment_is_shown(store, open_page, name):
    experiment = PAPER[name]
    app = open_page(PAGE, paper_experiment=experiment.title)
    assert app.selectbox(key="paper_experiment").value == experiment.title and not app.error
    if experiment.full is None:
        assert "can not be run here" in words(app) and len(app.dataframe) == 1
    elif experiment.kind == "images":
        assert " is not in " in words(app) and "M2ST_DATA" in words(app) and len(app.dataframe) == 1
    else:
        assert "cells" in words(app)


@pytest.mark.parametrize("name", [name for name, experiment in PAPER.items() if experiment.kind == "images"])
def test_experiments_on_images_can_be_run_where_the_images_are(store, open_page, name, miniature_images):
    app = open_page(PAGE, paper_experiment=PAPER[name].title, paper_scale="Full")
    assert "on a GPU" in words(app) and app.button(key="paper_go")


def test_nonsense_in_the_link_is_ignored(store, open_page):
    app = open_page(PAGE, paper_experiment="Figure 99", paper_scale="<script>")
    assert app.selectbox(key="paper_experiment").value == PAPER["fig2a"].title


def test_a_run_goes_through_the_queue(store, open_page, until, monkeypatch):
    quick = PAPER["table3"].quick.with_(methods=("Meta-MKL-SI",), tests=2, n_tasks=(4,), rows_per_task=8, m_te=(30,))
    experiment = replace(PAPER["table3"], quick=quick)
    monkeypatch.setitem(PAPER, "table3", experiment)
    app = open_page(PAGE, paper_experiment=experiment.title)
    app.button(key="paper_go").click().run()
    until(app, lambda app: store.run(quick.hash[:12]).state == "done" and not app.get("progress"))
    app.run()
    assert app.dataframe[0].value["method"].tolist() == ["Meta-MKL-SI"]
    assert store.run(quick.hash[:12]).name == f"{experiment.title}, quick"
