"""What teaches is apart from what is tested."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import m2st_core as m2st
from m2st_core.data.arrays import as_ids, as_related_tasks, as_two_sample
from m2st_core.data.separate import separate
from m2st_core.testing.plan import TestSettings

N = 40


def rows_of(apart):
    return {tuple(row) for row in apart.tasks.take_inside().numpy().round(9)}


def normal(generator, rows=N):
    return generator.standard_normal((rows, 3))


def test_without_shared_rows_the_tasks_stay_as_they_are():
    generator = np.random.default_rng(0)
    tasks = {f"t{i}": (normal(generator), normal(generator)) for i in range(3)}
    apart = separate(as_two_sample(normal(generator), normal(generator)), tasks)
    assert apart.shared == 0 and not apart.notes
    assert apart.tasks.names == ("t0", "t1", "t2") and int(apart.tasks.sizes.sum()) == 6 * N


def test_single_shared_rows_leave_the_tasks():
    generator = np.random.default_rng(1)
    tasks = {f"t{i}": (normal(generator), normal(generator)) for i in range(3)}
    x, y = normal(generator), normal(generator)
    x[:4], y[:2] = tasks["t1"][0][:4].round(4), tasks["t2"][1][:2]
    apart = separate(as_two_sample(x, y), tasks)
    assert apart.shared == 6
    assert apart.tasks.sizes[0].tolist() == [2 * N, 2 * N - 4, 2 * N - 2]
    assert apart.notes[0].startswith("6 rows of the target are also in the related tasks")


def test_a_task_whose_sample_is_the_targets_is_left_out_if_others_remain():
    generator = np.random.default_rng(2)
    tasks = {f"t{i}": (normal(generator), normal(generator)) for i in range(4)}
    apart = separate(as_two_sample(tasks["t2"][0], normal(generator)), tasks)
    assert apart.tasks.names == ("t0", "t1", "t3") and "1 related task left out" in apart.notes[1]


@pytest.mark.parametrize("side", [0, 1])
def test_a_control_group_of_all_tasks_is_replaced_by_the_unlabelled_target(side):
    generator = np.random.default_rng(3)
    control, y = normal(generator), normal(generator)
    pairs = [(control, normal(generator)) for _ in range(5)]
    tasks = [pair if side == 0 else pair[::-1] for pair in pairs]
    apart = separate(as_two_sample(control, y), tasks)
    (name,) = apart.tasks.names
    merged = apart.tasks.samples()[name]
    pooled, others = (merged.x, merged.y) if side == 0 else (merged.y, merged.x)
    assert name == f"5 tasks with shared rows in {'xy'[side]}" and apart.shared == N
    assert sorted(map(tuple, pooled.numpy())) == sorted(map(tuple, np.concatenate([control, y])))
    assert sorted(map(tuple, others.numpy())) == sorted(tuple(row) for _, q in pairs for row in q)
    exchanged = separate(as_two_sample(y, control), tasks)  # what teaches does not know which sample is which
    assert np.array_equal(exchanged.tasks.rows, apart.tasks.rows)


def test_control_groups_on_both_sides_become_a_task_each():
    generator = np.random.default_rng(6)
    x, y = normal(generator), normal(generator)
    tasks = [(x, normal(generator)), (normal(generator), y), (x, normal(generator)), (normal(generator), y)]
    apart = separate((x, y), tasks)
    assert apart.tasks.names == ("2 tasks with shared rows in x", "2 tasks with shared rows in y")
    assert apart.tasks.sizes[0].tolist() == [4 * N, 4 * N]


def test_if_nothing_is_left_it_says_so():
    generator = np.random.default_rng(4)
    x, y = normal(generator), normal(generator)
    with pytest.raises(ValueError, match="nothing is left to learn from"):
        separate(as_two_sample(x, y), [(x, y)])


def test_a_shared_control_group_does_not_reject_a_true_null_hypothesis():
    """30 null targets whose control group is also that of six null tasks; 99.9 % of exact tests reject at most 6."""
    methods = ("Meta-Witness", "Meta-WiTS", "Meta-FUSE")
    rejections = dict.fromkeys(methods, 0)
    for seed in range(30):
        generator = np.random.default_rng(seed)
        control = normal(generator, 20)
        tasks = [(control, normal(generator, 20)) for _ in range(6)]
        x, y = control.round(3), normal(generator, 20).round(3)
        apart = separate(as_two_sample(x, y), tasks)
        learner = m2st.meta_train("Meta-Witness", apart.tasks, seed=seed)
        for method in methods:
            found = replace(learner, method=method).examine(
                x, y, TestSettings(n_permutations=19, seed=seed), apart=apart
            )
            rejections[method] += found.result.rejected
    assert max(rejections.values()) <= 6, rejections


def frame(rows, first_id):
    """Answers from 1 to 3 in two columns, which often meet by chance, with persons beside them."""
    table = pd.DataFrame(rows, columns=["a", "b"])
    return table.assign(person=np.arange(first_id, first_id + len(rows)))


def questionnaires(generator, shared):
    """A target of 40 + 40 persons, the first ``shared`` of whom are in the first of three tasks."""
    answers = [generator.integers(1, 4, (N, 2)).astype(float) for _ in range(8)]
    x, y, *others = (frame(rows, 1000 * place) for place, rows in enumerate(answers))
    others[0] = pd.concat([x[:shared], others[0][shared:]])
    return x, y, [tuple(others[place : place + 2]) for place in (0, 2, 4)]


@pytest.mark.parametrize("shared", [0, 3])
def test_ids_settle_what_values_cannot(shared):
    x, y, tasks = questionnaires(np.random.default_rng(0), shared)
    unsettled = separate((x[["a", "b"]], y[["a", "b"]]), [(p[["a", "b"]], q[["a", "b"]]) for p, q in tasks])
    assert unsettled.exact_if == "no row of the target is in the related tasks"
    settled = separate((x, y), tasks, ids="person")
    assert settled.exact_if == "" and settled.shared == shared
    assert settled.tasks.sizes[0].tolist() == [2 * N - shared, 2 * N, 2 * N]
    assert settled.tasks.columns == ("a", "b")


def test_the_condition_travels_with_the_result():
    x, y, tasks = questionnaires(np.random.default_rng(1), 0)
    told = m2st.two_sample_test(x, y, "Meta-Witness", related_tasks=tasks, ids="person", n_permutations=99)
    bare = [pair[["a", "b"]] for pair in (x, y)], [(p[["a", "b"]], q[["a", "b"]]) for p, q in tasks]
    unknown = m2st.two_sample_test(*bare[0], "Meta-Witness", related_tasks=bare[1], n_permutations=99)
    assert told.exact and not told.exact_if and told.to_dict()["exact"]
    assert told.p_value == unknown.p_value  # nothing was shared, so the same rows taught
    assert not unknown.exact and not unknown.to_dict()["exact"]
    assert unknown.exact_if == unknown.to_dict()["exact_if"] == "no row of the target is in the related tasks"
    assert unknown.sentence.endswith(f"The p-value is exact if {unknown.exact_if}.")
    assert any("could be in the related tasks unnoticed" in note for note in unknown.notes)
    learner = m2st.meta_train("Meta-Witness", bare[1])
    assert learner.test(*bare[0], n_permutations=99).exact_if == unknown.exact_if


def test_a_learner_keeps_the_ids_and_refuses_by_them(tmp_path):
    x, y, tasks = questionnaires(np.random.default_rng(2), 3)
    m2st.meta_train("Meta-Witness", tasks, ids="person").save(tmp_path / "learner.zip")
    learner = m2st.load_learner(tmp_path / "learner.zip")
    with pytest.raises(ValueError, match="3 rows of x and y"):
        learner.test(x, y, ids="person")
    assert learner.test(x[3:], y, ids="person", n_permutations=99).exact
    with pytest.raises(ValueError, match="x has no column 'patient', which ids names. It has a, b, person."):
        learner.test(x, y, ids="patient")


NUMBERS = [7, 80], [7.0, 80.0], ["7", " 80 "], pd.array([7, 80], "Int64"), ["007", "080"], ["7.0", "80.0"]
CODES = ["P1", "P20"], ["p1", "p20"], ["P-0001", "P-0020"], ["P 1", "P_20"]
WORDS = ["Jürg", "Renée"], ["Ju\u0308rg", "Rene\u0301e"]
MOMENTS = (
    pd.to_datetime(["2020-01-02", "2020-11-12"]),
    ["2020-01-02", "2020-11-12"],
    ["2020-01-02T00:00:00", "20201112"],
)


@pytest.mark.parametrize("spellings", [NUMBERS, CODES, WORDS, MOMENTS])
def test_an_id_may_be_spelled_in_several_ways(spellings):
    ids = [as_ids(cells, "x").tolist() for cells in spellings]
    assert ids.count(ids[0]) == len(spellings) and ids[0][0] != ids[0][1]


@pytest.mark.parametrize("cell", [np.nan, None, pd.NA, " ", np.inf])
def test_a_row_needs_an_id(cell):
    with pytest.raises(ValueError, match="x: row 2 has no id"):
        as_ids([7, cell], "x")


def test_ids_name_one_column_that_both_sides_have():
    x, y, tasks = questionnaires(np.random.default_rng(2), 0)
    with pytest.raises(ValueError, match="names a column, and x has no columns"):
        m2st.two_sample_test(x.to_numpy(), y.to_numpy(), ids="person")
    with pytest.raises(ValueError, match="Two columns of x are called 'person'"):
        separate((pd.concat([x, x[["person"]]], axis=1), y), tasks, ids="person")
    assert separate((x, y), tasks, ids="person").notes == (
        "No id of x and y is among the ids of the related tasks, so no row is taken to be in both.",
    )
    with pytest.raises(ValueError, match="the related tasks have none"):
        separate((x, y), as_related_tasks([(p[["a", "b"]], q[["a", "b"]]) for p, q in tasks]), ids="person")


def numbered(generator, rows=N, *, begin=0, values=None):
    values = normal(generator, rows) if values is None else values
    return pd.DataFrame(values, columns=list("abc")).assign(record=begin + np.arange(len(values)))


def test_ids_that_number_the_same_rows_anew_are_contradicted_by_their_values():
    generator = np.random.default_rng(0)
    control = normal(generator)
    tasks = [
        (numbered(generator, begin=1_000 * i, values=control), numbered(generator, begin=1_000 * i + 500))
        for i in range(6)
    ]
    target = numbered(generator, begin=9_000, values=control), numbered(generator, begin=9_500)
    result = m2st.two_sample_test(*target, "Meta-Witness", related_tasks=tasks, ids="record", n_permutations=99)
    assert not result.exact and result.exact_if == "rows with different ids are different units"
    assert any(note.startswith("40 rows of x and y have the values of rows in the related") for note in result.notes)
    learner = m2st.meta_train("Meta-Witness", tasks, ids="record")
    assert learner.test(*target, ids="record").exact_if == result.exact_if
    fresh = numbered(generator, begin=7_000), numbered(generator, begin=7_500)
    assert learner.test(*fresh, ids="record").exact


def test_ids_that_begin_anew_or_are_all_alike_are_named():
    generator = np.random.default_rng(0)
    tasks = [(numbered(generator), numbered(generator, begin=N)) for _ in range(3)]
    with pytest.raises(ValueError, match="If the ids begin anew in each file, they identify no rows"):
        separate((numbered(generator), numbered(generator, begin=N)), tasks, ids="record")
    alike = numbered(generator).assign(record=1)
    with pytest.raises(ValueError, match="All rows of x have one id, so it identifies no rows"):
        separate((alike, numbered(generator)), tasks, ids="record")


@pytest.mark.parametrize("change", [lambda x, g: x.round(2), lambda x, g: x + 0.01 * g.standard_normal(x.shape)])
def test_rows_that_are_shared_with_other_values_leave_a_condition(change):
    generator = np.random.default_rng(0)
    control = normal(generator)
    tasks = [(change(control, generator), normal(generator)) for _ in range(6)]
    apart = separate((control, normal(generator)), tasks)
    assert apart.shared >= N - 1
    assert apart.exact_if == "no further row of the target is in the related tasks with other values"
    assert any(note.startswith("Some shared rows have other values in the related tasks") for note in apart.notes)
    same = [(1000 * control, 1000 * normal(generator)) for _ in range(6)]
    assert separate((control, normal(generator)), same).exact_if == ""


def test_a_control_group_shared_by_ids_becomes_one_task():
    generator = np.random.default_rng(3)
    control, *others = (frame(generator.integers(1, 4, (N, 2)) * 1.0, 1000 * place) for place in range(7))
    apart = separate((control, others[0]), [(control, other) for other in others[1:]], ids="person")
    assert apart.tasks.names == ("5 tasks with shared rows in x",) and apart.exact_if == ""
    again = separate((control, others[0]), apart.tasks, ids="person")  # its pooled rows keep their ids
    assert again.shared == 2 * N or not again.tasks.names


KINDS = {  # rows, and whether they tell that no further row is shared
    "one decimal": (lambda g, rows: g.standard_normal((rows, 2)).round(1), False),
    "ten binary columns": (lambda g, rows: g.integers(0, 2, (rows, 10)) * 1.0, False),
    "five answers": (lambda g, rows: g.integers(1, 6, (rows, 5)) * 1.0, False),
    "two columns": (lambda g, rows: g.standard_normal((rows, 2)), True),
    "three decimals": (lambda g, rows: g.standard_normal((rows, 4)).round(3), True),
}


def part_shared(kind, seed):
    """A null target with 10 of 40 rows in six null tasks."""
    generator, draw = np.random.default_rng(seed), KINDS[kind][0]
    control = draw(generator, 70)
    tasks = [(control[:40], draw(generator, 40)) for _ in range(6)]
    return control[30:], draw(generator, 40), tasks


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_part_of_a_control_group_only_rows_that_differ_make_a_p_value_exact(kind):
    for seed in range(4):
        x, y, tasks = part_shared(kind, seed)
        assert (separate((x, y), tasks).exact_if == "") == KINDS[kind][1]


@pytest.mark.parametrize("kind", ["two columns", "three decimals"])
def test_a_part_of_a_control_group_gives_no_false_alarm(kind):
    """30 null targets; 99.9 % of exact tests reject at most 6."""
    rejected = 0
    for seed in range(30):
        x, y, tasks = part_shared(kind, seed)
        settings = {"related_tasks": tasks, "n_permutations": 19, "seed": seed}
        rejected += m2st.two_sample_test(x, y, "Meta-Witness", **settings).rejected
    assert rejected <= 6
