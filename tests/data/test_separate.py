"""What teaches is apart from what is tested."""

from dataclasses import replace

import numpy as np
import pytest

import m2st_core as m2st
from m2st_core.data.arrays import as_two_sample
from m2st_core.data.separate import separate
from m2st_core.testing.method import TestSettings

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
    assert apart.notes[0].startswith("6 rows of x and y are also in the related tasks")


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
    """60 null targets whose control group is also that of six null tasks; 99.9 % of exact tests reject at most 10."""
    methods = ("Meta-Witness", "Meta-WiTS", "Meta-FUSE")
    rejections = dict.fromkeys(methods, 0)
    for seed in range(60):
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
    assert max(rejections.values()) <= 10, rejections
