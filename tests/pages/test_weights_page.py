"""β weights: Meta-MKL's bars, the kernel that is clicked, settings that are not shipped, one's own related tasks."""

import threading

import numpy as np
import pytest

from m2st_core.dashboard.widgets import page
from m2st_core.dashboard.your_data.state import UserData
from m2st_core.data.tables.examples import EXAMPLES
from m2st_core.studies.explore import MIXTURE, ExploreSetting, shipped_mixture
from m2st_core.studies.weights import FEATURES, FOR_UPLOADS, SPLITS, Weights, WeightsStudy
from tests.pages.harness import FORMER, button, charts, numbers, open_page, run, settle, until, words
from tests.quick import use_few_steps

CHARTS = 4  # bars with pictures, ranks by m_tr, the chosen kernel and the mixture
SMALL = {"n_tasks": "10", "rows_per_task": "20"}
SHIPPED = shipped_mixture(ExploreSetting())


def traces(figure):
    return {trace["name"]: trace for trace in figure["data"]}


def test_the_page_opens_on_the_papers_mixture_without_computing(monkeypatch):
    monkeypatch.setattr(WeightsStudy, "run", pytest.fail)
    app = open_page("weights")
    figure = charts(app)[0]
    bars = traces(figure)
    assert len(charts(app)) == CHARTS and len(numbers(bars["mean"]["y"])) == 10
    assert numbers(bars["mean"]["y"]) == pytest.approx(SHIPPED.mean.tolist())
    assert len(numbers(bars["repeats"]["y"])) == len(SHIPPED.table) and "used" not in bars
    assert [line["y0"] for line in figure["layout"]["shapes"]] == [0.1]  # Meta-MKL-A
    assert bars["pictures"]["type"] == "heatmap"
    labels = [f"{value:.2f}" for value in SHIPPED.table.groupby("kernel")["strength"].mean()]
    assert figure["layout"]["xaxis"]["ticktext"] == labels


def test_the_finding_is_computed_from_the_table():
    app = open_page("weights")
    largest = SHIPPED.table.groupby("repeat")["beta"].max().mean()
    assert "Meta-MKL** trusts few earlier kernels" in words(app)
    assert f"**{100 * largest:.0f} %** of the weight is on one of ten" in words(app)
    ranks = charts(app)[1]["data"]
    place = ranks[0]["x"].index("50")
    assert numbers(ranks[0]["y"])[place] == pytest.approx(largest)
    assert ranks[0]["x"] == ["10", "50", "100", "150"]
    table = app.dataframe[0].value
    assert table["beta"].tolist() == pytest.approx(SHIPPED.mean.tolist())


def test_a_click_shows_what_this_kernel_sees(monkeypatch):
    def clicked(figure, key, alt):
        page.chart(figure, key, alt)
        return 7

    before = charts(open_page("weights"))[2:]
    monkeypatch.setattr(page, "clickable_chart", clicked)
    app = open_page("weights")
    kernel, mixture = charts(app)[2:]
    first = SHIPPED.table[SHIPPED.table["repeat"] == SHIPPED.table["repeat"].min()].set_index("kernel")
    assert f"What **Δ={first['strength'][7]:.3f}** sees (β = {first['beta'][7]:.2f})" in words(app)
    seen = np.array(numbers(kernel["data"][0]["z"]), dtype=float)
    there = np.isfinite(seen)
    assert seen[there] == pytest.approx(SHIPPED.maps[7].ravel()[there]) and 0.2 < there.mean() < 0.9
    assert before[0]["data"][0]["z"] != kernel["data"][0]["z"] and before[1] == mixture


@pytest.mark.parametrize("link", [{"n_tasks": "5"}, {"hdgm_delta": "0.6"}, {"seed": "3"}, {"algorithms": "tuned"}])
def test_a_setting_that_is_not_shipped_says_so_and_offers_to_compute_it(link, monkeypatch):
    monkeypatch.setattr(WeightsStudy, "run", pytest.fail)
    app = open_page("weights", **link)
    assert "is not shipped at this setting. Shipped: C = 0.1, 0.2" in words(app) and "This takes about" in words(app)
    assert "Nothing is computed at this setting yet." in words(app)
    assert button(app, "Compute it") and not charts(app)


def test_learned_and_used_weights_are_drawn_where_they_differ(monkeypatch):
    use_few_steps(monkeypatch)
    app = open_page("weights", **SMALL, algorithms="tuned")
    button(app, "Compute it").click()
    settle(run(app), CHARTS)
    bars = traces(charts(app)[0])
    learned, used = (np.array(numbers(bars[name]["y"])) for name in ("mean", "used"))
    assert used == pytest.approx(0.2 * learned + 0.8 / len(learned))
    assert "**Meta-MKL · tuned**" in words(app) and "as used" in words(app)
    assert "training samples (circles)" in words(app)


def test_feature_mkl_is_ours_and_shows_shares():
    app = open_page("weights", **SMALL)
    choice = next(group for group in app.get("button_group") if group.key == "weights_kind")
    assert choice.value == MIXTURE and choice.options[:2] == [MIXTURE, f"{FEATURES} (ours)"]
    app = settle(open_page("weights", **SMALL, weights_kind=f"{FEATURES} (ours)"), CHARTS)
    bars = traces(charts(app)[0])
    assert sum(numbers(bars["mean"]["y"])) == pytest.approx(1) and "shapes" not in charts(app)[0]["layout"]
    assert "of the statistic's spread" in words(app) and "narrow kernels have small values" in words(app)


def test_the_former_result_stays_and_is_marked_until_another_is_computed(monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(WeightsStudy, "run", lambda self, progress=None: ended.wait(60))
    app = open_page("weights")
    app.select_slider(key="n_tasks").set_value(30)
    run(app)
    button(app, "Compute it").click()
    run(app)
    assert len(charts(app)) == CHARTS and FORMER in words(app) and "Before, with N=100: " in words(app)
    ended.set()


def test_without_an_upload_a_link_says_how_to_bring_one():
    app = open_page("weights", weights_kind="my files")
    assert "You have no related tasks here yet" in words(app) and not charts(app)
    assert "Bring them in Test my data" in [link.proto.label for link in app.get("page_link")]


def test_ones_own_related_tasks_are_weighed_and_stay_in_the_session(monkeypatch):
    use_few_steps(monkeypatch)
    app = open_page("weights")
    data = UserData()
    data.take_example(next(iter(EXAMPLES)))
    app.session_state["own_data"] = data
    app.query_params["weights_kind"] = "my files"
    app.session_state["weights_kind"] = "my files"
    run(app)
    assert "This takes about" in words(app)
    button(app, "Compute it").click()
    run(app)
    until(app, lambda app: charts(app) or app.error)
    weights = data.memory["uploaded_weights"][1]
    assert isinstance(weights, Weights) and weights.method == FOR_UPLOADS
    bars = traces(charts(app)[0])
    assert numbers(bars["mean"]["y"]) == pytest.approx(weights.at(0).groupby("kernel")["beta"].mean().tolist())
    assert "training samples" in words(app) and weights.table["repeat"].nunique() == SPLITS
    names = data.prepared(data.upload).task_names
    assert all(label.partition(": mean")[0] in names for label in bars["kernel"]["customdata"])
