"""γ̂ of any family, its finding beside power, and the theorem: what is shown is what was measured."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

import m2st_core as m2st
from benchmarks import theorem as measuring
from m2st_core.kernels.mixtures import mixture_of
from m2st_core.rng import Streams
from m2st_core.studies.explore import CLOSENESSES, ExploreSetting, shipped_gamma, shipped_rows
from m2st_core.studies.relatedness import RelatednessStudy, gamma_finding, power_by_closeness, with_gamma
from m2st_core.studies.shipped import load_shipped
from m2st_core.studies.theorem import BOUND, DONE, BoundSettings, theorem_view
from m2st_core.types import TwoSample
from tests.fake_gpu import fake_gpu

SETTING = ExploreSetting()
FEW = {"rows": 20, "tasks": 2, "restarts": 2, "steps": 2, "closenesses": (0.1, 0.5)}
FAMILIES = {
    "hdgm": {"delta": 0.5},
    "blobs": {"correlation": 0.6},
    "mean_shift": {"shift": 0.8},
    "variance_shift": {"scale": 2.0},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_gamma_of_a_family_is_the_librarys(family):
    shares = []
    study = RelatednessStudy(family, tuple(FAMILIES[family].items()), 6, 3, **FEW)
    curve = study.run(lambda step, total, value: shares.append(step / total))
    assert list(curve["closeness"]) == [0.1, 0.5] and shares == sorted(shares) and shares[-1] == 1
    streams, task = Streams(3).child("relatedness study"), m2st.make_task(family, **FAMILIES[family])
    tasks = task.draw_related_tasks(closeness=0.5, n_tasks=6, rows=40, seed=streams.child("tasks").seed)
    target = task.sample(40, seed=streams.child("target").seed)
    again = m2st.relatedness(target, tasks, restarts=2, max_tasks=2, steps=2, seed=3, device="cpu")
    row = curve.iloc[1]
    assert row["on_test_rows"] == pytest.approx(again.gamma()) and row["floor"] == pytest.approx(again.floor)
    assert row["lowest"] == pytest.approx(row["on_test_rows"]) and row["highest"] >= row["lowest"]


def test_gamma_is_measured_on_the_gpu_if_there_is_one():
    study = RelatednessStudy("blobs", (("correlation", 0.6),), 3, **FEW | {"closenesses": (0.1,), "rows": 10})
    plain = study.run()
    with fake_gpu() as gpu:
        found = study.run()
    pd.testing.assert_frame_equal(found, plain)
    assert gpu.copies


def test_more_rows_and_restarts_take_longer():
    study = RelatednessStudy("hdgm", (), 100)
    longer = (RelatednessStudy("hdgm", (), 100, rows=4_000), RelatednessStudy("hdgm", (), 100, restarts=4))
    assert all(other.expected_seconds > 1.5 * study.expected_seconds for other in longer)


def test_power_at_each_closeness_is_the_shipped_mean():
    power = power_by_closeness(SETTING)
    for method, closeness in (("Meta-MKL", 0.1), ("Meta-KL", 0.3)):
        here = SETTING.with_(closeness=closeness)
        rows = shipped_rows(here.sweep([method]))
        rows = rows[rows["m_te"] == power["m_te"].iloc[0]]
        row = power[(power["method"] == method) & (power["closeness"] == closeness)].iloc[0]
        rates = rows["rejections"] / rows["tests"]
        assert row["rate"] == pytest.approx(rates.mean())
        assert row["error"] == pytest.approx(rates.std(ddof=1) / math.sqrt(len(rates)))
    without = power[power["closeness"].isna()]
    assert sorted(without["method"]) == ["MMD-D", "MMD-O"] and power["m_te"].iloc[0] == SETTING.m_te


def test_the_finding_has_the_numbers_of_the_tables():
    gamma, power = shipped_gamma(SETTING), power_by_closeness(SETTING)
    joined = with_gamma(power, gamma)
    said = gamma_finding(SETTING, gamma, power)
    near, far = joined["closeness"].min(), joined["closeness"].max()
    distance = gamma.set_index("closeness")["on_test_rows"]
    assert f"From C = {near:g} to {far:g}" in said
    assert f"**γ̂ = {distance[near]:.2f}** to **{distance[far]:.2f}**" in said
    for method in ("Meta-MKL", "Meta-KL"):
        rate = joined[joined["method"] == method].set_index("closeness")["rate"]
        assert f"({100 * rate.iloc[0]:.0f} to {100 * rate.iloc[-1]:.0f} of 100 samples)" in said
    best = power[power["closeness"].isna()]["rate"].max()
    assert f"finds {100 * best:.0f}." in said and "**MMD-O**" in said


def gammas(values, floor=0.01):
    return pd.DataFrame({"closeness": CLOSENESSES[: len(values)], "on_test_rows": values, "floor": floor})


def powers(rates, error, other=0.5):
    rows = [("Meta-KL", closeness, 200, rate, error) for closeness, rate in zip(CLOSENESSES, rates, strict=False)]
    return pd.DataFrame(
        [*rows, ("MMD-O", np.nan, 200, other, error)], columns=["method", "closeness", "m_te", "rate", "error"]
    )


@pytest.mark.parametrize(
    ("rates", "error", "words"),
    [
        ((0.8, 0.4), 0.02, ("falls (80 to 40", "up to C = 0.1: **MMD-O**")),
        ((0.8, 0.78), 0.02, ("hardly changes (80 to 78", "up to C = 0.2")),
        ((0.3, 0.5), 0.02, ("rises (30 to 50", "At no C do they clearly beat")),
        ((0.8, 0.4), 0.3, ("hardly changes", "At no C")),
    ],
)
def test_the_finding_says_plainly_what_history_does(rates, error, words):
    said = gamma_finding(SETTING, gammas([0.05, 0.1]), powers(rates, error))
    assert all(part in said for part in words)


def test_the_finding_admits_noise_and_missing_numbers():
    assert "cannot tell" in gamma_finding(SETTING, gammas([0.02, 0.03], 0.05), powers((0.8, 0.4), 0.02))
    alone = gamma_finding(SETTING, gammas([0.05, 0.1]), powers((), 0.02))
    assert alone.endswith("away from the target.") and "power" not in alone
    assert "not been measured" in gamma_finding(SETTING, gammas([]), powers((0.8,), 0.02))


def test_the_theorem_shows_the_measured_loss_and_the_parts_of_its_bound():
    view, gamma = theorem_view(SETTING), shipped_gamma(SETTING).set_index("closeness")["on_test_rows"]
    assert (view.closeness, view.n, view.m) == (0.3, 100, 100)
    known = load_shipped("theorem").values
    for table, axis in ((view.by_n, "n"), (view.by_m, "m")):
        for rows, lines in table.groupby("rows"):
            value = lines.set_index("line")["value"]
            sizes = {"n": view.n, "m": view.m} | {axis: int(rows)}
            bound = BoundSettings(
                gamma[0.3], sizes["n"], sizes["m"], known["kernels"], known["parameters"], known["sigma"]
            )
            parts = bound.bounds()["Meta-MKL"]
            assert value[["2γ̂", "2ξₙ", "2ξₘ"]].tolist() == pytest.approx(list(parts.values()))
            assert value[BOUND] == pytest.approx(sum(parts.values())) and value[DONE["weighed"]] < value[BOUND]
    lost = view.by_m[view.by_m["rows"] == view.m].set_index("line")["value"][DONE["weighed"]]
    assert f"loses **{lost:.3f}** of J* = {view.best:.3f}" in view.sentence
    assert theorem_view(ExploreSetting(task="blobs", parameters=(("correlation", 0.7),))) is None


def naive_terms(kernel, x, y):
    """MMD² and σ̂² by loops over pairs."""
    n = len(x)

    def k(a, b):
        return kernel(a[None, None], b[None, None]).item()

    h = np.zeros((n, n))
    for i, j in product(range(n), range(n)):
        h[i, j] = k(x[i], x[j]) + k(y[i], y[j]) - k(x[i], y[j]) - k(y[i], x[j])
    mmd2 = sum(h[i, j] for i, j in product(range(n), range(n)) if i != j) / (n * (n - 1))
    return mmd2, 4 * (sum(row.sum() ** 2 for row in h) / n**3 - h.sum() ** 2 / n**4)


def test_measured_j_of_kernels_and_mixtures_is_a_double_loops():
    rows = TwoSample(*(part.float() for part in measuring.TARGET.sample(6, seed=1)))
    pairs = measuring.stacked([measuring.TARGET.sample(10, seed=seed) for seed in range(2)])
    kernels = measuring.train(pairs, Streams(0), replace(measuring.ASCENT, steps=2))
    terms = measuring.terms_on(kernels, rows, block=6)
    singles = [torch.eye(2)[[index]] for index in range(2)]
    for weights in (*singles, torch.tensor([[0.3, 0.7]])):
        mmd2, variance = naive_terms(mixture_of([kernels], weights), rows.x, rows.y)
        assert measuring.criterion_of(terms, weights) == pytest.approx(mmd2 / math.sqrt(variance + 1e-8), rel=1e-2)
    chosen = measuring.chosen_and_weighed(terms)
    values = [measuring.criterion_of(terms, weights) for weights in singles]
    assert measuring.criterion_of(terms, chosen["best"]) == pytest.approx(max(values))
    assert measuring.criterion_of(terms, chosen["weighed"]) >= max(values) - 1e-6
