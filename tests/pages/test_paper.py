"""Paper: the gallery, and for each figure and table its layers, differences, reasons and runs."""

from dataclasses import replace

import pandas as pd
import pytest

from m2st_core.dashboard.jobs.host import close_server
from m2st_core.paper import gallery, published, results
from m2st_core.paper.experiments import OURS, PAPER
from m2st_core.paper.results import commit_results
from m2st_core.sweeps.cells import CellResult
from m2st_core.testing.methods import METHODS
from tests.pages.harness import charts, open_page, until, words

PAGE = "paper"
ONE_OF_A_KIND = {e.kind: name for name, e in PAPER.items() if e.kind not in ("images", "relatedness")}


def open_entry(name, **query):
    return open_page(PAGE, experiment=name, **query)


def headings(app):
    return [heading.value for heading in app.header]


def traces(app):
    """The names in the legend of the first figure, with how they are drawn."""
    return {t["name"]: t for t in charts(app)[0]["data"] if t.get("showlegend") is not False}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where results come from, empty at first."""
    for module in (results, published, gallery):
        monkeypatch.setattr(module, "FOLDER", tmp_path / "reproduction")
    return tmp_path / "reproduction"


@pytest.fixture
def give(store, folder):
    """Commit results of an experiment: half of the samples rejected, one more in odd repeats."""

    def give_(name, layer="paper", repeats=6):
        store.runs.start(PAPER[name].spec("full", layer))
        for cell in PAPER[name].spec("full", layer).cells():
            if cell.repeat < repeats:
                store.cells.add([(cell, CellResult(50 + cell.repeat % 2, cell.tests, 1.0))])
        return commit_results(PAPER[name], layer, store)

    return give_


def test_the_gallery_has_a_card_for_every_figure_and_table(give):
    give("fig2a")
    app = open_page(PAGE)
    assert {button.key for button in app.button} == {f"paper_open_{name}" for name in PAPER}
    text, rest = words(app), [card.experiment.name for card in gallery.gallery() if card.run == "no"]
    assert 0 < len(rest) < len(PAPER) and "**Not run at full scale yet.**" in text
    assert [button.key for button in app.button][-len(rest) :] == [f"paper_open_{name}" for name in rest]
    # Figure 2a, Figure 3c, which shares its cells, and γ̂; Tables 5 and 6 share some cells
    entries = len(PAPER) - 2  # Table 3 has two cards, and the type-I errors are ours
    assert f"has run 3 of the paper's {entries} figures and tables, and 2 more in part." in text
    assert "need CIFAR-10.1" in text
    assert not app.get("plotly_chart") and app.title[0].value == "Paper"


def test_a_card_opens_an_entry_that_leads_back(store):
    app = open_page(PAGE)
    app.button(key="paper_open_gamma").click().run()
    assert app.title[0].value == PAPER["gamma"].title and app.query_params["experiment"] == "gamma"
    app.button(key="paper_back").click().run()
    assert app.title[0].value == "Paper" and not app.query_params


def test_the_layers_are_told_apart_and_ours_is_off_at_first(give):
    give("fig2a")
    give("fig2a", "ours")
    app = open_entry("fig2a")
    shown = traces(app)
    assert {"Meta-MKL", "SCF", "limit", "published"} <= set(shown) and not any("(ours)" in name for name in shown)
    assert shown["published"]["marker"]["symbol"] == "diamond-open" and shown["Meta-KL"]["line"]["dash"] == "solid"
    assert "Open diamonds: published, 2021." in words(app) and "6 of 20 repeats × 100 test samples, 20" in words(app)
    app.toggle(key="paper_ours").set_value(True).run()
    shown = traces(app)
    assert {f"{method} (ours)" for method in OURS} <= set(shown) and "Meta-MKL" in shown
    assert all(shown[f"{method} (ours)"]["line"]["dash"] == "dash" for method in OURS)
    assert "ours; 6 of 20 repeats" in words(app)


def test_differences_have_standard_errors_and_a_sentence(give, folder):
    give("fig2a")
    (folder / "explanations.csv").write_text(
        "experiment,method,closeness,n_tasks,m_te,sentence\nfig2a,Meta-KL,,,,It adapts better.\n"
    )
    app = open_entry("fig2a")
    table = app.dataframe[0].value
    far = table.query("method == 'Meta-KL' and m_te == 50").iloc[0]
    assert (far["published"], far["this software"]) == ("0.146 ± 0.014", "0.505 ± 0.002")
    assert far["difference in SE"] > 20 and far["repeats"] == 6
    assert "**Meta-KL, m_te = 50, 80, 100, 120, 150, 250**: It adapts better." in words(app)
    assert "**Meta-MKL, m_te = 50, 80, 100, 150, 200, 250**: Not explained yet." in words(app)  # 120: 0.493


def test_tables_over_n_say_what_one_history_would_change(give, folder):
    give("table5")
    assert "if repeats share a history" not in open_entry("table5").dataframe[0].value
    cells = [(n, h, r, 40 + 10 * h + r) for n in (20, 100) for h in range(5) for r in range(2)]
    nested = pd.DataFrame(cells, columns=["n_tasks", "history", "repeat", "rejections"])
    nested.assign(method="Meta-KL", m_te=200, tests=100).to_csv(folder / "nested.csv", index=False)
    app = open_entry("table5")
    few = app.dataframe[0].value.query("N == 20 and m_te == 200").iloc[0]
    assert few["difference in SE"] > 7 and 1 < few["if repeats share a history"] < 2
    assert "with that added, 0 of 6 numbers are beyond two, instead of 2." in words(app)


def test_there_is_no_standard_error_below_five_repeats(give):
    give("fig2a", repeats=4)
    app = open_entry("fig2a")
    table = app.dataframe[0].value
    assert set(table["this software"]) == {"0.505"} and table["difference in SE"].isna().all()
    assert "too few repeats" in words(app) and "Why some numbers differ" not in headings(app)


def test_results_of_an_older_version_are_not_shown(give, monkeypatch):
    give("fig2a")
    monkeypatch.setattr("m2st_core.sweeps.cells.CODE", "next")
    monkeypatch.setattr(results, "CODE", "next")
    app = open_entry("fig2a")
    assert "made by an older version" in words(app) and "6 of 20" not in words(app)


def test_rows_of_our_earlier_methods_are_not_shown(give, monkeypatch):
    give("fig2a")
    give("fig2a", "ours")
    for name in OURS:
        monkeypatch.setitem(METHODS, name, replace(METHODS[name], revision=METHODS[name].revision + 1))
    app = open_entry("fig2a")
    assert not [toggle for toggle in app.toggle if toggle.key == "paper_ours"]
    assert "Not shown: Feature-MKL, Meta-WiTS, Meta-Witness and Meta-FUSE, which" in words(app)
    assert "Meta-MKL" in traces(app) and not app.warning


def test_pictures_and_type_one_errors_say_that_the_paper_has_no_numbers(give):
    give("fig2b")
    app = open_entry("fig2b")
    assert "published" not in traces(app) and "as a picture" in words(app)
    app = open_entry("fig3a")
    assert "Not run at full scale yet. The paper shows this as a picture" in words(app)
    give("type1")
    give("type1", "ours")
    app = open_entry("type1", paper_ours="true")
    assert "prints no type-I errors" in words(app)
    assert {"Meta-KL", "Meta-FUSE (ours)"} <= set(charts(app)[0]["data"][0]["y"])


def test_tables_over_n_show_one_size_at_a_time(give):
    give("table5")
    app = open_entry("table5")
    assert list(traces(app)) == ["Meta-KL", "published"]
    before = charts(app)[0]["data"][-1]["y"]
    app.segmented_control(key="paper_m_te").set_value(50).run()
    assert charts(app)[0]["data"][-1]["y"] != before and len(app.dataframe[0].value) == 42


def test_the_ablation_has_a_mark_for_every_layer(give):
    give("table3")
    give("table3", "ours")
    app = open_entry("table3", paper_ours="true")
    theirs, ours, published = charts(app)[0]["data"]
    assert theirs["y"] == list(PAPER["table3"].full.methods) and ours["y"] == [f"{method} (ours)" for method in OURS]
    assert published["y"] == ["Meta-MKL", "Meta-KL", "AGT-MKL", "AGT-KL"] and "test 210 rows" in words(app)
    assert [trace["marker"]["symbol"] for trace in (theirs, ours, published)] == ["circle", "square", "diamond-open"]


@pytest.mark.parametrize("name", list(PAPER))
def test_every_experiment_is_shown(store, name):
    """With what the repository has."""
    experiment = PAPER[name]
    app = open_entry(name)
    assert app.title[0].value == experiment.title and not app.error and not app.warning
    if experiment.full is None:
        assert len(app.get("plotly_chart")) == 1 and "published γ̂" in app.dataframe[0].value
    elif experiment.kind == "images":
        assert " is not in " in words(app) and "M2ST_DATA" in words(app) and app.dataframe
    else:
        assert "cells" in words(app) and f"{experiment.title}, quick scale: the paper's algorithms" in words(app)


@pytest.mark.parametrize("name", [*ONE_OF_A_KIND.values(), "fig2a"])
def test_a_copy_without_documents_has_what_is_published(store, folder, name):
    app = open_entry(name)
    assert headings(app) == ["Run it here"] and app.button(key="paper_go")
    if app.get("plotly_chart"):
        assert all(trace["marker"]["symbol"] == "diamond-open" for trace in charts(app)[0]["data"])
    else:
        assert "Not run at full scale yet" in words(app)


@pytest.mark.parametrize("name", [name for name, experiment in PAPER.items() if experiment.kind == "images"])
def test_experiments_on_images_can_be_run_where_the_images_are(store, name, miniature_images):
    app = open_entry(name, paper_scale="Full")
    assert "on a GPU" in words(app) and app.button(key="paper_go")


def test_nonsense_in_the_link_is_ignored(store):
    assert open_entry("Figure 99").title[0].value == "Paper"
    app = open_entry("fig2a", paper_scale="<script>", paper_layer="theirs")
    assert app.segmented_control(key="paper_scale").value == "quick"


def test_a_full_run_takes_over_what_comes_with_the_software(give, tmp_path):
    give("table3", repeats=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("M2ST_HOME", str(tmp_path / "fresh"))
        close_server()
        app = open_entry("table3", paper_scale="Full")
    assert "14 cells come with this software." in words(app) and "126 cells" in words(app)


@pytest.mark.parametrize(
    ("chosen", "choice", "method"),
    [
        ("tuned", "Tuned", "ME · tuned"),
        ("ours", "Ours instead", "Meta-Witness (ours)"),
    ],
)
def test_a_run_goes_through_the_queue(store, monkeypatch, chosen, choice, method):
    quick = PAPER["table3"].quick.with_(methods=("ME",), tests=2, n_tasks=(4,), rows_per_task=8, m_te=(30,))
    experiment = replace(PAPER["table3"], quick=quick)
    monkeypatch.setitem(PAPER, "table3", experiment)
    spec = experiment.spec("quick", chosen)
    app = open_entry("table3", paper_layer=choice)
    app.button(key="paper_go").click().run()
    until(app, lambda app: store.runs.get(spec.run_id).state == "done" and not app.get("progress"))
    app.run()
    table = next(f.value for f in app.dataframe if "this software" in f.value and method in f.value["method"].tolist())
    assert not table["this software"].str.contains("±").any() and "need 5 repeats" in words(app)
    assert store.runs.get(spec.run_id).name == experiment.heading("quick", chosen)
