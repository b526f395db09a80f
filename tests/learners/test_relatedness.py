"""γ̂: the table, its halves, and what it says of tasks that are near and far."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.criterion import BLOCK_ROWS, full_criterion, h_matrix, power_criterion
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.networks import MLP
from m2st_core.learners.relatedness import Relatedness, smallest_distance
from m2st_core.types import Cancelled


def hdgm(delta, n=600, seed=0):
    return m2st.make_task("hdgm", delta=delta).sample(n, seed=seed)


def test_gamma_is_the_smallest_task_s_largest_difference():
    same = np.linspace(0, 1, 21)[:, None] * [1.0, 0.5]
    table = Relatedness(("a", "b"), np.array([[0.1, 0.5], [0.3, 0.2]]), np.array([[0.4, 0.2], [0.1, 0.6]]), same)
    assert table.gamma() == 0.4 and table.gamma(on_training_rows=True) == 0.3
    scale = np.sqrt((same.max(axis=1) ** 2).mean())
    assert table.floor == pytest.approx(scale * smallest_distance(2, 0.5, 0.95))
    assert not table.stands_out and f"does not stand out from its noise floor {table.floor:.3f}" in table.sentence
    assert replace(table, same_task=same / 3).stands_out


@pytest.mark.parametrize(("count", "share"), [(1, 0.3), (3, 0.5), (10, 0.5), (10, 0.9)])
def test_the_floor_s_quantile_is_that_of_simulated_errors(count, share):
    """40,000 draws of one target and its tasks: 95 % of the smallest distances lie below, within four errors."""
    g = np.random.default_rng(0)
    own, others = g.standard_normal((40_000, 1)), g.standard_normal((40_000, count))
    smallest = abs(share**0.5 * own - (1 - share) ** 0.5 * others).min(axis=1)
    assert (smallest <= smallest_distance(count, share, 0.95)).mean() == pytest.approx(0.95, abs=0.005)


def test_the_criterion_in_blocks_equals_the_whole_matrix():
    one = torch.ones(1, dtype=torch.float64)
    kernel = DeepKernel(MLP((2, 3, 4), [torch.Generator().manual_seed(0)]), one, 2 * one, 0.3 * one)
    sample = hdgm(0.7, BLOCK_ROWS + 100)
    whole = power_criterion(h_matrix(kernel, sample.x[None], sample.y[None]), 1e-8)[0].item()
    assert full_criterion(kernel, sample.x, sample.y, 1e-8) == pytest.approx(whole, rel=1e-3)


def test_gamma_of_one_task_with_itself_is_at_the_noise_floor():
    """Six tasks equal to the target at 50 rows a half: γ̂ looks large, and exceeds its floor in at most two."""
    found = [
        m2st.relatedness(hdgm(0.7, 100, seed=2 * seed), [hdgm(0.7, 100, seed=2 * seed + 1)], restarts=2, steps=20)
        for seed in range(6)
    ]
    assert np.median([each.gamma() for each in found]) > 0.05
    assert sum(each.stands_out for each in found) <= 2  # with probability 0.98 if each does with probability 0.1
    assert all(each.same_task.shape == (9, 2) for each in found)


def test_near_tasks_are_more_related_than_far_ones_which_stand_out():
    target, near, far = (
        m2st.make_task("mean_shift", shift=shift).sample(200, seed=seed) for seed, shift in enumerate((1.5, 1.5, 0.2))
    )
    both = m2st.relatedness(target, {"near": near, "far": far}, restarts=2, steps=30)
    assert both.on_test_rows.shape == both.on_training_rows.shape == (2, 2)
    closest, furthest = both.on_test_rows.max(axis=1)
    assert closest < 0.7 * furthest and both.gamma() == closest
    alone = m2st.relatedness(target, {"far": far}, restarts=2, steps=30)
    assert alone.stands_out and "stands out from its noise floor" in alone.sentence


def test_tasks_of_any_size_at_most_ten_and_always_the_same_numbers():
    tasks = {f"t{i}": hdgm(0.5, 20 + i, seed=i) for i in range(12)}
    first = m2st.relatedness(hdgm(0.5, 30), tasks, restarts=2, steps=2, seed=4)
    again = m2st.relatedness(hdgm(0.5, 30), tasks, restarts=2, steps=2, seed=4)
    assert first.on_test_rows.shape == (10, 2) and set(first.task_names) < set(tasks)
    assert np.array_equal(first.on_test_rows, again.on_test_rows)


def test_bad_input_and_cancelling():
    with pytest.raises(ValueError, match="The related tasks have 2 columns and x and y have 3"):
        m2st.relatedness(np.random.default_rng(0).random((2, 9, 3)), [hdgm(0.5, 20)])
    with pytest.raises(ValueError, match="restarts must be a whole number ≥ 1"):
        m2st.relatedness(hdgm(0.5, 20), [hdgm(0.5, 20)], restarts=0)

    def stop(step, total, value):
        raise Cancelled

    with pytest.raises(Cancelled):
        m2st.relatedness(hdgm(0.5, 20), [hdgm(0.5, 20)], progress=stop)
