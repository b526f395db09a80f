"""γ̂: the table, its halves, and what it says of tasks that are near and far."""

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.kernels import MLP, DeepKernel
from m2st_core.learners.relatedness import BLOCK_ROWS, Relatedness, full_criterion
from m2st_core.types import Cancelled


def hdgm(delta, n=600, seed=0):
    return m2st.make_task("hdgm", delta=delta).sample(n, seed=seed)


def test_gamma_is_the_smallest_task_s_largest_difference():
    table = Relatedness(("a", "b"), np.array([[0.1, 0.5], [0.3, 0.2]]), np.array([[0.4, 0.2], [0.1, 0.6]]))
    assert table.gamma() == 0.4 and table.gamma(on_training_rows=True) == 0.3


def test_the_criterion_in_blocks_equals_the_whole_matrix():
    one = torch.ones(1, dtype=torch.float64)
    kernel = DeepKernel(MLP((2, 3, 4), [torch.Generator().manual_seed(0)]), one, 2 * one, 0.3 * one)
    sample = hdgm(0.7, BLOCK_ROWS + 100)
    whole = power_criterion(h_matrix(kernel, sample.x[None], sample.y[None]), 1e-8)[0].item()
    assert full_criterion(kernel, sample) == pytest.approx(whole, rel=1e-3)


def test_near_tasks_are_more_related_than_far_ones():
    near = m2st.relatedness(hdgm(0.9), {"near": hdgm(0.9, seed=1)}, restarts=4, steps=40)
    far = m2st.relatedness(hdgm(0.9), {"far": hdgm(0.0, seed=1)}, restarts=4, steps=40)
    assert near.on_test_rows.shape == near.on_training_rows.shape == (1, 4)
    assert near.gamma() < 0.7 * far.gamma()


def test_tasks_of_any_size_at_most_ten_and_always_the_same_numbers():
    tasks = {f"t{i}": hdgm(0.5, 20 + i, seed=i) for i in range(12)}
    first = m2st.relatedness(hdgm(0.5, 30), tasks, restarts=2, steps=2, seed=4)
    again = m2st.relatedness(hdgm(0.5, 30), tasks, restarts=2, steps=2, seed=4)
    assert first.on_test_rows.shape == (10, 2) and set(first.task_names) < set(tasks)
    assert np.array_equal(first.on_test_rows, again.on_test_rows)


def test_bad_input_and_cancelling():
    with pytest.raises(ValueError, match="The meta-tasks have 2 columns and the target has 3"):
        m2st.relatedness(np.random.default_rng(0).random((2, 9, 3)), [hdgm(0.5, 20)])
    with pytest.raises(ValueError, match="restarts must be a whole number ≥ 1"):
        m2st.relatedness(hdgm(0.5, 20), [hdgm(0.5, 20)], restarts=0)

    def stop(step, total, value):
        raise Cancelled

    with pytest.raises(Cancelled):
        m2st.relatedness(hdgm(0.5, 20), [hdgm(0.5, 20)], progress=stop)
