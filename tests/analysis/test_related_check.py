"""Does the history help, and what is recommended then: decided without a label of the target."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binomtest

import m2st_core as m2st
from m2st_core.analysis.related import (
    RelatedCheck,
    odd_values,
    power_interval,
    sense_sentence,
    senses_of,
    unlikeness_to_related,
)
from m2st_core.data.arrays import as_related_tasks
from m2st_core.rng import Streams
from m2st_core.testing.plan import largest_rows
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


def test_the_sentence_compares_the_two_tests_that_are_recommended(helpful):
    table = helpful.table.set_index("method")
    for method, words in (("Meta-FUSE", "Meta-FUSE detected the difference in "), ("Omnibus", "and Omnibus in ")):
        power, low, high = (round(100 * table.loc[method, name]) for name in ("power", "low", "high"))
        rate = f"{power} % of the tests (95 % interval {low} to {high} %)"
        assert words + rate in helpful.sentences[0]


def test_a_copy_of_a_task_has_no_vote_on_the_common_direction():
    tasks = m2st.make_task("mean_shift", shift=2.0).draw_related_tasks(n_tasks=6, rows=30, closeness=0.1, seed=1)
    tasks["copy"] = next(iter(tasks.values())).swapped()
    check = m2st.check_related_tasks(tasks, (10, 10), most_left_out=1, repeats=1)
    assert "6 of 6 related tasks point the same way" in check.sentences[2]


def test_intervals_count_left_out_tasks(helpful):
    """Five tasks are five independent observations, however often each was tested."""
    for row in helpful.table.itertuples():
        assert (row.low, row.high) == power_interval(row.power, 5) and row.high - row.low > 0.4


def test_other_rates_have_other_intervals():
    intervals = [power_interval(power, 6) for power in (0.58, 0.61, 0.71, 0.72)]
    assert sorted(set(intervals)) == intervals
    for successes in range(7):
        known = binomtest(successes, 6).proportion_ci(method="exact")
        assert power_interval(successes / 6, 6) == pytest.approx((known.low, known.high), abs=1e-9)


@pytest.mark.parametrize("spread", [0.0, 1.0, np.inf], ids=["found always or never", "uniform at 0.5", "alike"])
def test_intervals_cover_the_mean_power_of_such_tasks(spread):
    """4,000 checks of six tasks with twelve tests each, at 19 mean powers: coverage at least 95 % (band 94 %)."""
    generator = np.random.default_rng(0)
    for mean in np.linspace(0.05, 0.95, 19):
        powers = np.full((4000, 6), mean)
        if spread == 0:
            powers = (generator.random((4000, 6)) < mean).astype(float)
        elif spread == 1:
            powers = generator.beta(2 * mean, 2 * (1 - mean), (4000, 6))
        rates = (generator.binomial(12, powers) / 12).mean(axis=1)
        ends = {rate: power_interval(rate, 6) for rate in np.unique(rates)}
        assert np.mean([ends[rate][0] <= mean <= ends[rate][1] for rate in rates]) > 0.94


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
    of = unlikeness_to_related(blobs(), (50, 50), Streams(0))
    same = [of(m2st.make_task("blobs").sample(50, seed=s).pooled.numpy()) for s in range(10)]
    other = [of(m2st.make_task("mean_shift").sample(50, seed=s).pooled.numpy()) for s in range(10)]
    assert np.median(same) < 2 and min(other) > 5


def test_a_task_in_other_units_hides_no_foreign_rows():
    tasks = blobs()
    first = next(iter(tasks))
    scale = torch.tensor([1.0, 1000.0])
    odd = tasks | {first: TwoSample(tasks[first].x * scale, tasks[first].y * scale)}
    foreign = m2st.make_task("blobs").sample(50, seed=1).pooled.numpy() + [0, 40]
    assert min(unlikeness_to_related(own, (50, 50), Streams(0))(foreign) for own in (tasks, odd)) > 4


@pytest.mark.parametrize(
    ("sizes", "given", "sentence"),
    [
        ((1, 20), {}, "sizes must be at least 2 rows each. Got 1 and 20."),
        ((20, 20), {"pooled": np.zeros((40, 1))}, "pooled must have as many columns as the related tasks: 2. Got 1."),
    ],
)
def test_arguments_that_do_not_fit_the_tasks_are_refused(sizes, given, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        m2st.check_related_tasks(blobs(), sizes, **given)


CHECK = RelatedCheck(pd.DataFrame(), (), (30, 30), "helps", 0.0, {}, ("What was found.",))


@pytest.mark.parametrize(
    ("n", "n_tasks", "history", "method"),
    [
        (30, 0, None, "Omnibus"),
        (60, 0, None, "Omnibus"),
        (30, 20, None, "Meta-FUSE"),
        (30, 20, CHECK, "Meta-FUSE"),
        (60, 20, replace(CHECK, unlike=3.0), "Meta-FUSE"),
        (60, 20, replace(CHECK, unlike=4.5), "Omnibus"),
        (60, 20, replace(CHECK, verdict="harms"), "Omnibus"),
        (30_000, 0, None, "Omnibus"),
        (30_000, 20, CHECK, "Meta-FUSE"),
    ],
)
def test_what_is_recommended(n, n_tasks, history, method):
    found = m2st.recommend(n, n, n_tasks=n_tasks, blocks=True, check=history)
    assert found.method == method and all(reason.endswith(".") for reason in found.reasons)
    assert "within your blocks" in found.reasons[-1] and m2st.METHODS[method].by_permutation
    assert ("What was found." in found.reasons) == (history is not None)


@pytest.mark.parametrize("n_tasks", [0, 20])
@pytest.mark.parametrize("rows", [5_000, 5_001])
def test_the_reasons_say_whether_all_rows_are_tested(rows, n_tasks):
    advice = m2st.recommend(rows, rows, n_tasks=n_tasks)
    reasons = " ".join(advice.reasons)
    most = largest_rows(m2st.METHODS[advice.method])
    assert (f"Of your {2 * rows:,} rows it tests {most:,}, drawn at random" in reasons) == (2 * rows > most)
    assert "tests all rows" not in reasons
    for named in ("MMD-M", "Energy"):  # as an alternative that takes more
        assert (f"up to {largest_rows(m2st.METHODS[named]):,} rows" in reasons) == (2 * rows > most)


@pytest.mark.parametrize(
    ("sizes", "n_tasks", "sentence"),
    [
        ((30.5, 20), 0, "n must be a whole number, at least 2. Got 30.5."),
        ((30, 1), 0, "m must be a whole number, at least 2. Got 1."),
        ((30, 20), -1, "n_tasks must be a whole number, at least 0. Got -1."),
        ((30, 20), 2.5, "n_tasks must be a whole number, at least 0. Got 2.5."),
    ],
)
def test_numbers_that_count_no_rows_are_refused(sizes, n_tasks, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        m2st.recommend(*sizes, n_tasks=n_tasks)


def test_small_and_unequal_samples_are_mentioned():
    reasons = " ".join(m2st.recommend(8, 100).reasons)
    assert "8 rows in the smaller sample" in reasons and "two samples of 15 rows" in reasons


def test_a_common_control_group_is_not_taken_for_a_common_difference():
    """Null tasks that share a control group: with it in both parts, the others found the difference every time."""
    generator = np.random.default_rng(0)
    control = generator.standard_normal((40, 2))
    tasks = {f"task {i}": (control, generator.standard_normal((40, 2))) for i in range(6)}
    check = m2st.check_related_tasks(tasks, (40, 40), most_left_out=4, repeats=6)
    assert check.verdict == "unclear"
    assert check.table["power"].max() < 0.3


def turned(tasks, which):
    return {name: pair.swapped() if name in which else pair for name, pair in tasks.items()}


def test_tasks_that_look_reversed_are_named():
    """Mean shifts of two standard deviations, 30 rows: the sense of every task is clear."""
    tasks = m2st.make_task("mean_shift", shift=2.0).draw_related_tasks(n_tasks=8, rows=30, closeness=0.1, seed=1)
    names = list(tasks)
    check = m2st.check_related_tasks(turned(tasks, names[2:4]), (10, 10), most_left_out=1, repeats=1)
    assert [name for name, sense in check.senses.items() if sense < 0] == names[2:4]
    assert f"6 of 8 related tasks point the same way; 2 look reversed ({names[2]}, {names[3]})" in check.sentences[2]
    assert sense_sentence({"a": 0.9, "b": 0.1, "c": -0.8}) == (
        "1 of 3 related tasks point the same way; 1 looks reversed (c), which is allowed for; "
        "for 1 the sense is unclear. Where tasks are weak, some of this may be wrong; the tests allow for it."
    )


def test_equal_populations_have_no_common_direction():
    """Twelve null tasks: no direction is confirmed on at least four of five seeds."""
    found = []
    for seed in range(5):
        generator = np.random.default_rng(seed)
        tasks = [(generator.standard_normal((30, 2)), generator.standard_normal((30, 2))) for _ in range(12)]
        found.append(senses_of(m2st.meta_train("Meta-Witness", tasks, seed=seed)))
    assert sum(not senses for senses in found) >= 4
    assert sense_sentence({}).startswith("No direction")


def test_odd_tasks_and_columns_are_named():
    generator = np.random.default_rng(3)
    tasks = {f"site {i}": [generator.standard_normal((40, 2)) for _ in range(2)] for i in range(6)}

    def odd(tasks):
        return odd_values(replace(as_related_tasks(tasks), columns=("age", "dose")))

    assert odd(tasks) == ()
    for sample in tasks["site 3"]:
        sample[:, 1] *= 1000
    tasks["site 1"][0][0, 0] = 500.0
    tasks["site 5"] = tasks["site 4"][::-1]
    scale, far, copy = odd(tasks)
    assert scale.startswith("“dose” of site 3 spreads 1,") and "Check its unit" in scale
    assert "“age” has values more than 10 spreads from the median in site 1 (up to 1.2% of the rows)" in far
    assert copy == "site 4 and site 5 are the same comparison. It counts once."
    small = {name: [x / 1000, y / 1000] if name == "site 2" else [x, y] for name, (x, y) in tasks.items()}
    assert any("“age” of site 2 spreads a factor" in text for text in odd(small))
