"""Weights of mixtures: shipped, computed at another setting, on a GPU, and of an upload."""

import numpy as np
import pandas as pd
import pytest
import torch

from m2st_core.data.tables.assemble import assemble
from m2st_core.data.tables.examples import EXAMPLES
from m2st_core.data.tables.prepare import prepare
from m2st_core.studies.explore import MIXTURE, ExploreSetting, shipped_mixture
from m2st_core.studies.weights import (
    FEATURES,
    FOR_UPLOADS,
    SPLITS,
    Weights,
    WeightsStudy,
    strength_gain,
    upload_seconds,
    upload_weights,
    where_rows_are,
)
from m2st_core.types import Cancelled, TwoSample
from tests.fake_gpu import fake_gpu
from tests.quick import use_few_steps

SETTING = ExploreSetting(n_tasks=12, preset="tuned", seed=1)
FEW = {"sizes": (10, 25), "repeats": 3}


@pytest.fixture(scope="module")
def quick():
    """The first steps of each training only: here weights are looked at, not how good kernels are."""
    with pytest.MonkeyPatch.context() as patch:
        use_few_steps(patch)
        yield


@pytest.fixture(scope="module")
def deep(quick):
    return WeightsStudy(SETTING, FOR_UPLOADS, **FEW).run()


@pytest.fixture(scope="module")
def features(quick):
    return WeightsStudy(SETTING, FEATURES, **FEW).run()


def test_the_default_setting_is_shipped_and_others_are_not():
    setting = ExploreSetting()
    shipped = WeightsStudy.at(setting, MIXTURE).shipped()
    assert shipped.method == MIXTURE and shipped.anew
    assert shipped.at(50)["beta"].tolist() == shipped_mixture(setting).table["beta"].tolist()
    assert WeightsStudy.at(setting.with_(m_te=80, m_tr=100), MIXTURE).shipped() is not None
    others = [{"m_tr": 30}, {"n_tasks": 5}, {"seed": 1}, {"preset": "tuned"}, {"preset": "released"}]
    for change in others:
        assert WeightsStudy.at(setting.with_(**change), MIXTURE).shipped() is None
    assert WeightsStudy.at(setting, FEATURES).shipped() is None


def test_a_study_keeps_what_matters_and_names_its_line():
    study = WeightsStudy.at(ExploreSetting(m_tr=30, m_te=100, preset="tuned"), MIXTURE)
    assert study.method == FOR_UPLOADS and study.sizes == (10, 30, 50, 100, 150)
    assert study == WeightsStudy.at(ExploreSetting(m_tr=30, m_te=50, preset="tuned"), MIXTURE)
    assert study.expected_seconds > 0


def made(betas, strengths, anew):
    """Weights with a row of ``betas`` for each repeat."""
    rows = [
        (50, repeat, kernel, f"Δ={strength:.3f}", strength, beta)
        for repeat, row in enumerate(betas)
        for kernel, (beta, strength) in enumerate(zip(row, strengths, strict=True))
    ]
    table = pd.DataFrame(rows, columns=["m_tr", "repeat", "kernel", "name", "strength", "beta"])
    return Weights(MIXTURE, "per mode", table.assign(used=table["beta"]), anew=anew)


def test_the_finding_says_how_much_is_on_one_kernel_and_what_decides():
    some = made([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.9, 0.1, 0.0]], [0.3, 0.4, 0.5], anew=True)
    assert "trusts few earlier kernels: on average **80 %** of the weight is on one of three" in some.finding(50)
    assert "no visible trend in Δ" in some.finding(50)
    larger = made([[0.0, 0.2, 0.8], [0.1, 0.1, 0.8], [0.0, 0.1, 0.9]], [0.3, 0.4, 0.5], anew=True)
    assert "more often one of larger Δ" in larger.finding(50)
    assert strength_gain(larger.at(50)).tolist() == pytest.approx([0.08, 0.07, 0.09])
    flat = made([[0.3, 0.3, 0.4]] * 3, [0.3, 0.4, 0.5], anew=False)
    assert "spreads its weight" in flat.finding(50) and "33 % if all were equal" in flat.finding(50)
    assert "always on that of Δ=0.500" in flat.finding(50).replace("\\", "")
    often = made([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.9, 0.1, 0.0]], [0.3, 0.4, 0.5], anew=False)
    assert "most often on that of Δ=0.300, in 2 of 3 training samples" in often.finding(50).replace("\\", "")


def test_ranks_are_those_of_each_repeat():
    some = made([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], [0.3, 0.4, 0.5], anew=True)
    assert some.ranked().loc[50].tolist() == pytest.approx([0.75, 0.15, 0.1])


def test_every_set_of_weights_sums_to_one(deep, features):
    for weights, columns in ((deep, ["beta", "used"]), (features, ["beta", "share"])):
        sums = weights.table.groupby(["m_tr", "repeat"])[columns].sum()
        assert len(sums) == 6 and np.allclose(sums, 1, atol=1e-6)


def test_kernels_stand_in_the_order_of_their_tasks_then_the_aggregate_then_generic_ones(deep, features):
    assert deep.first(10)["strength"].is_monotonic_increasing and deep.measured == "beta"
    names = features.first(10)["name"].tolist()
    assert names[10] == "all tasks" and all(name.startswith("Gaussian") for name in names[11:])
    assert names[:10] == sorted(names[:10]) and features.measured == "share"
    assert "of the statistic's spread" in features.finding(25)


def test_a_shrunk_mixture_has_what_was_learned_and_what_is_used(deep):
    rows = deep.at(25)
    count = rows["kernel"].nunique()
    assert rows["used"].to_numpy() == pytest.approx((0.2 * rows["beta"] + 0.8 / count).to_numpy())
    assert "as used" in deep.basis(25) and {"beta", "used"} <= set(deep.summary(25))
    kernels = deep.at(25)["kernel"].nunique()
    assert f"Dotted: Meta-MKL-A, {1 / kernels:.2g} each." in deep.basis(25) and kernels != 10


def test_the_mixtures_witness_is_the_weighted_sum_and_is_empty_without_rows(deep):
    used = deep.first(25)["used"]
    mixed = deep.maps.mixture(used)
    expected = sum(weight * values for weight, values in zip(used, deep.maps.kernels, strict=True))
    np.testing.assert_allclose(mixed, expected)
    assert np.isnan(mixed[0, 0]) and np.isfinite(mixed[16, 16])


def test_maps_are_empty_far_from_all_rows():
    """Rows lie along the second column."""
    rows = torch.randn(2, 200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = rows * torch.tensor([0.1, 2.0])
    axis = np.linspace(-5.0, 5.0, 21)
    kept = np.isfinite(where_rows_are(TwoSample(rows[0], rows[1]), (axis, axis), np.ones((1, 21, 21))))[0]
    assert kept[12, 10] and not kept[0, 0] and not kept[10, 16] and kept[16, 10]


def test_a_study_can_be_stopped(quick):
    def stop(step, total, value):
        raise Cancelled

    with pytest.raises(Cancelled):
        WeightsStudy(SETTING, FOR_UPLOADS, **FEW).run(stop)


@pytest.mark.parametrize("method", [FOR_UPLOADS, FEATURES])
def test_a_gpu_gives_the_same_weights(method, deep, features):
    with fake_gpu():
        found = WeightsStudy(SETTING, method, **FEW).run()
    expected = features if method == FEATURES else deep
    assert found.table["beta"].to_numpy() == pytest.approx(expected.table["beta"].to_numpy(), abs=0.02)
    assert found.maps.kernels == pytest.approx(expected.maps.kernels, abs=1e-3, nan_ok=True)


def test_an_uploads_tasks_are_weighed_over_halves_of_its_target(quick):
    data = prepare(assemble(next(iter(EXAMPLES.values())).load()))
    weights = upload_weights(data)
    assert weights.table["repeat"].nunique() == SPLITS and weights.maps is None and not weights.anew
    assert set(weights.table["name"]) <= set(data.task_names) and weights.table["strength"].isna().all()
    assert weights.sizes == [len(data.target.x) // 2] and upload_seconds(data) > 0
    assert weights.table.groupby("repeat")["beta"].sum().to_numpy() == pytest.approx(1)
