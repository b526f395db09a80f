"""Weights and relatedness, as the pages compute them."""

import numpy as np
import pytest

from m2st_core.dashboard.relatedness_study import RelatednessStudy
from m2st_core.dashboard.weights_study import WeightsStudy
from m2st_core.types import Cancelled


@pytest.fixture(scope="module")
def found():
    return WeightsStudy(0.3, 12, 50, 0.7, 25, 3, (10, 25), 1).run()


def test_the_table_has_tasks_by_parameter_then_the_aggregate_then_generic_kernels(found):
    table = found.table
    tasks = table[table["kind"] == "task"]
    assert len(tasks) == 10 and tasks["parameter"].is_monotonic_increasing
    assert list(table["kind"].drop_duplicates()) == ["task", "aggregate", "generic"]
    assert tasks["parameter"].between(0.3, 0.4).all()


def test_every_set_of_weights_sums_to_one(found):
    assert found.table[["learned", "influence", "best one", "uniform"]].sum().tolist() == pytest.approx([1] * 4)
    assert sorted(found.table["best one"])[-2:] == [0, 1]
    assert found.repeats.groupby("repeat")["weight"].sum().tolist() == pytest.approx([1] * 3)
    first = found.repeats[found.repeats["repeat"] == 0].set_index("kernel")["weight"]
    assert first[found.table["kernel"]].tolist() == pytest.approx(found.table["learned"].tolist())


def test_the_mixtures_witness_is_the_weighted_sum_of_the_kernels_witnesses(found):
    mixed = np.tensordot(found.table["learned"].to_numpy(), found.witnesses, axes=1)
    assert found.mixture == pytest.approx(mixed, abs=1e-5)


def test_shares_are_known_for_every_size_and_sample(found):
    assert found.shares.groupby("m_tr")["share"].count().to_dict() == {10: 3, 25: 3}
    assert found.shares["share"].between(0, 1).all()
    assert found.share == found.shares.query("m_tr == 25 and repeat == 0")["share"].item()
    assert found.share == pytest.approx(found.table.query("kind != 'generic'")["influence"].sum(), abs=0.05)


def stop(step, total, value):
    raise Cancelled


def test_both_studies_can_be_stopped():
    with pytest.raises(Cancelled):
        WeightsStudy(0.3, 12, 50, 0.7, 25, 3, (10,), 1).run(stop)
    with pytest.raises(Cancelled):
        RelatednessStudy((0.1,), 20, 2, 2, 3, 10, 10, 5, 0).run(stop)


def test_a_relatedness_study_reports_gamma_spread_and_power():
    shares = []
    study = RelatednessStudy((0.1, 0.5), 20, 2, 2, 3, 10, 10, 5, 0)
    found = study.run(lambda step, total, value: shares.append(step / total))
    assert list(found.curve["closeness"]) == [0.1, 0.5] and len(found.values) == 2 * 2 * 2
    for closeness, group in found.values.groupby("closeness"):
        gamma = group.groupby("task")["gamma"].max().min()
        assert found.curve.set_index("closeness")["on_test_rows"][closeness] == pytest.approx(gamma)
    assert (found.curve["floor"] > 0).all() and set(found.values["floor"]) == set(found.curve["floor"])
    assert found.curve["rate"].between(found.curve["low"], found.curve["high"]).all()
    assert shares == sorted(shares) and shares[-1] == 1
