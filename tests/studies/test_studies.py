"""Weights and relatedness, as the pages compute them."""

import numpy as np
import pytest

from m2st_core.studies.relatedness import RelatednessStudy
from m2st_core.studies.weights import MIXTURES, WeightsStudy
from m2st_core.types import Cancelled
from tests.quick import use_few_steps


@pytest.fixture(scope="module")
def found():
    return WeightsStudy(0.3, 12, 50, 0.7, 25, 3, (10, 25), 1).run()


@pytest.fixture(scope="module")
def deep():
    """The paper's mixture with the first steps of its training only."""
    with pytest.MonkeyPatch.context() as patch:
        use_few_steps(patch)
        return WeightsStudy(0.3, 12, 50, 0.7, 25, 3, (10, 25), 1, "Meta-MKL · tuned").run()


def test_the_table_has_tasks_by_parameter_then_the_aggregate_then_generic_kernels(found):
    table = found.table
    tasks = table[table["kind"] == "task"]
    assert len(tasks) == 10 and tasks["task"].is_monotonic_increasing
    assert list(table["kind"].drop_duplicates()) == ["task", "aggregate", "generic"]
    assert tasks["task"].between(1, 12).all() and tasks["kernel"].is_monotonic_increasing


def test_the_papers_mixture_has_the_tasks_kernels_only(deep):
    assert set(deep.table["kind"]) == {"task"} and deep.table["task"].is_monotonic_increasing


def weights_sum_to_one(study, columns):
    assert study.table[columns].sum().tolist() == pytest.approx([1] * len(columns))
    assert study.repeats.groupby("repeat")["weight"].sum().tolist() == pytest.approx([1] * 3)
    first = study.repeats[study.repeats["repeat"] == 0].set_index("kernel")["weight"]
    assert first[study.table["kernel"]].tolist() == pytest.approx(study.table["learned"].tolist())


def test_every_set_of_weights_sums_to_one(found, deep):
    weights_sum_to_one(found, ["learned", "influence"])
    weights_sum_to_one(deep, ["learned", "used", "influence", "best", "uniform"])
    assert sorted(deep.table["best"])[-2:] == [0, 1] and deep.table["uniform"].nunique() == 1
    assert deep.table["criterion"][deep.table["best"].argmax()] == deep.table["criterion"].max()


def test_each_mixture_has_the_methods_that_its_page_names(found, deep):
    assert set(MIXTURES["Feature-MKL"]) == set(MIXTURES["Meta-MKL · tuned"]) & set(found.table)
    assert set(MIXTURES["Meta-MKL · tuned"]) <= set(deep.table)


def test_a_shrunk_mixture_shows_what_was_learned_and_what_is_used(deep):
    learned, used = deep.table["learned"], deep.table["used"]
    assert used.to_numpy() == pytest.approx((0.2 * learned + 0.8 / len(learned)).to_numpy())


def test_the_mixtures_witness_is_the_weighted_sum_of_the_kernels_witnesses(found, deep):
    for study, used in ((found, "learned"), (deep, "used")):
        mixed = np.tensordot(study.table[used].to_numpy(), study.witnesses, axes=1)
        assert study.mixture == pytest.approx(mixed, abs=1e-5)


def test_shares_are_known_for_every_size_and_sample(found):
    features = found.features
    assert features.shares.groupby("m_tr")["share"].count().to_dict() == {10: 3, 25: 3}
    assert features.shares["share"].between(0, 1).all()
    assert "related tasks" in features.senses
    assert features.share == features.shares.query("m_tr == 25 and repeat == 0")["share"].item()
    assert features.share == pytest.approx(found.table.query("kind != 'generic'")["influence"].sum(), abs=0.05)


def test_only_learned_features_are_shown_as_features(found, deep):
    assert found.features is not None and deep.features is None


def stop(step, total, value):
    raise Cancelled


def test_both_studies_can_be_stopped():
    with pytest.raises(Cancelled):
        WeightsStudy(0.3, 12, 50, 0.7, 25, 3, (10,), 1).run(stop)
    with pytest.raises(Cancelled):
        RelatednessStudy(20, 2, 2, 3, 10, 10, 0, tests=5, closenesses=(0.1,)).run(stop)


def test_a_relatedness_study_reports_gamma_spread_and_power():
    shares = []
    study = RelatednessStudy(20, 2, 2, 3, 10, 10, 0, tests=5, closenesses=(0.1, 0.5))
    found = study.run(lambda step, total, value: shares.append(step / total))
    assert list(found.curve["closeness"]) == [0.1, 0.5] and len(found.values) == 2 * 2 * 2
    for closeness, group in found.values.groupby("closeness"):
        gamma = group.groupby("task")["gamma"].max().min()
        assert found.curve.set_index("closeness")["on_test_rows"][closeness] == pytest.approx(gamma)
    assert list(found.senses) == [0.1, 0.5] and "10 related tasks" in found.senses[0.1]
    assert (found.curve["floor"] > 0).all() and set(found.values["floor"]) == set(found.curve["floor"])
    assert found.curve["rate"].between(found.curve["low"], found.curve["high"]).all()
    assert shares == sorted(shares) and shares[-1] == 1
