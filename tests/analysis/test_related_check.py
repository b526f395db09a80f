"""Does the history help, and what is recommended then: decided without a label of the target."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import m2st_core as m2st
from m2st_core.analysis.related_check import RelatedCheck, unlikeness
from m2st_core.rng import Streams
from m2st_core.types import TwoSample


def blobs(n_tasks=10, rows=100):
    return m2st.make_task("blobs", correlation=0.8).draw_related_tasks(closeness=0.1, n_tasks=n_tasks, rows=rows)


def mixed_up(tasks):
    """The same rows without a difference between the samples."""
    generator = np.random.default_rng(0)
    found = {}
    for name, pair in tasks.items():
        rows = pair.pooled[generator.permutation(sum(pair.sizes))]
        found[name] = TwoSample(rows[: pair.sizes[0]], rows[pair.sizes[0] :])
    return found


@pytest.fixture(scope="module")
def helpful():
    target = m2st.make_task("blobs", correlation=0.8).sample(50, 60, seed=9)
    return m2st.check_related_tasks(blobs(), (50, 60), pooled=target.pooled, most_left_out=5, repeats=8)


def test_tasks_that_share_a_difference_help_each_other(helpful):
    assert helpful.verdict == "helps"
    power = helpful.table.set_index("method")["power"]
    assert power["Meta-Witness"] > power["MMD-M"] + 0.3
    assert len(helpful.left_out) == 5 and helpful.sizes == (50, 60)
    assert (helpful.table["tests"] == 40).all()
    assert ((helpful.table["low"] <= helpful.table["power"]) & (helpful.table["power"] <= helpful.table["high"])).all()
    assert "left out in turn and tested with 50 and 60 rows" in helpful.sentences[0]


def test_intervals_count_tests_that_share_no_row(helpful):
    """Three tasks of 100 rows give one test of 60 rows each: three independent tests, whatever was repeated."""
    certain = helpful.table[helpful.table["power"] == 1.0]
    assert (certain["low"] < 0.5).all()


def test_tasks_without_a_difference_do_not_help():
    found = m2st.check_related_tasks(mixed_up(blobs()), (40, 40), most_left_out=3, repeats=8)
    assert found.verdict == "unclear" and found.unlike is None


def test_the_same_seed_gives_the_same_check():
    first, second = (
        m2st.check_related_tasks(blobs(4, 40), (20, 20), most_left_out=2, repeats=3, seed=5) for _ in range(2)
    )
    pd.testing.assert_frame_equal(first.table, second.table)


def test_sizes_are_bounded_by_the_rows_of_the_tasks():
    found = m2st.check_related_tasks(blobs(3, 30), (500, 10), most_left_out=1, repeats=2)
    assert found.sizes == (24, 10)


def test_it_tells_its_progress_and_stops_when_asked():
    steps = []

    def watch(step, total, value):
        steps.append(step / total)
        if len(steps) > 3:
            raise m2st.Cancelled

    with pytest.raises(m2st.Cancelled):
        m2st.check_related_tasks(blobs(4, 40), (20, 20), progress=watch)
    assert steps == sorted(steps)


def test_one_task_can_not_be_left_out():
    with pytest.raises(ValueError, match="at least 2 related tasks"):
        m2st.check_related_tasks(blobs(1, 40), (20, 20))


def test_rows_of_another_kind_are_noticed_without_labels():
    of = unlikeness(blobs(), (50, 50), Streams(0))
    same = [of(m2st.make_task("blobs").sample(50, seed=s).pooled.numpy()) for s in range(10)]
    other = [of(m2st.make_task("mean_shift").sample(50, seed=s).pooled.numpy()) for s in range(10)]
    assert np.median(same) < 2 and min(other) > 5


CHECK = RelatedCheck(pd.DataFrame(), (), (30, 30), "helps", 0.0, ("What was found.",))


@pytest.mark.parametrize(
    ("n", "n_tasks", "history", "method"),
    [
        (30, 0, None, "MMD-M"),
        (60, 0, None, "MMD-FUSE"),
        (30, 20, None, "Meta-FUSE"),
        (30, 20, CHECK, "Meta-FUSE"),
        (60, 20, replace(CHECK, unlike=3.0), "Meta-FUSE"),
        (60, 20, replace(CHECK, unlike=6.0), "MMD-FUSE"),
        (60, 20, replace(CHECK, verdict="harms"), "MMD-FUSE"),
        (30, 20, replace(CHECK, verdict="harms"), "MMD-M"),
        (30_000, 0, None, "MMD-M"),
        (30_000, 20, CHECK, "MMD-M"),
    ],
)
def test_what_is_recommended(n, n_tasks, history, method):
    found = m2st.recommend(n, n, 5, n_tasks=n_tasks, blocks=True, check=history)
    assert found.method == method and all(reason.endswith(".") for reason in found.reasons)
    assert "within your blocks" in found.reasons[-1] and m2st.METHODS[method].by_permutation
    assert ("What was found." in found.reasons) == (history is not None)


def test_many_columns_need_many_kernels():
    assert m2st.recommend(30, 30, 50).method == "MMD-FUSE"


@pytest.mark.parametrize(
    ("rows", "method"),
    [
        (m2st.make_task("mean_shift").sample(100, seed=1).pooled * torch.tensor([1.0, 1000.0]), "MMD-M"),
        (m2st.make_task("blobs").sample(100, seed=1).pooled, "MMD-FUSE"),  # clusters
        (torch.from_numpy(np.random.default_rng(0).standard_t(2, size=(200, 2))), "MMD-FUSE"),  # long tails
        (torch.from_numpy(np.random.default_rng(0).integers(0, 2, size=(200, 2)).astype(float)), "MMD-FUSE"),
        (torch.ones(200, 2), "MMD-FUSE"),
    ],
)
def test_one_even_cloud_needs_one_kernel(rows, method):
    assert m2st.recommend(100, 100, 2, pooled=rows).method == method


def test_small_and_unequal_samples_are_mentioned():
    reasons = " ".join(m2st.recommend(8, 100, 3).reasons)
    assert "8 rows in the smaller sample" in reasons and "two samples of 15 rows" in reasons


def test_a_common_control_group_is_not_taken_for_a_common_difference():
    """Null tasks that share a control group: with it in both parts, the others found the difference every time."""
    generator = np.random.default_rng(0)
    control = generator.standard_normal((40, 2))
    tasks = {f"task {i}": (control, generator.standard_normal((40, 2))) for i in range(6)}
    check = m2st.check_related_tasks(tasks, (40, 40), most_left_out=4, repeats=6)
    assert check.verdict == "unclear"
    assert check.table["power"].max() < 0.3
