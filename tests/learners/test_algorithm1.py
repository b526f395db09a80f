"""Algorithm 1: batched inner and outer steps against plain loops over tasks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.data.arrays import as_related_tasks
from m2st_core.data.related import PairedRows, stack_related_tasks
from m2st_core.kernels.base import copy_with
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.networks import MLP
from m2st_core.learners.algorithm1 import (
    AutogradClimber,
    Paired,
    adapt_state,
    adapt_to_target,
    criterion,
    fit_meta_kernel,
    for_runs,
    hold_out_tasks,
)
from m2st_core.learners.algorithm1_fast import FastClimber
from m2st_core.presets import AdaptationSettings, MetaAscentSettings
from m2st_core.rng import Streams
from m2st_core.types import TwoSample

SETTINGS = MetaAscentSettings(
    outer_steps=6, outer_rate=0.05, tasks_per_step=2, inner_steps=3, inner_rate=0.5, regularisation=1e-3, check_every=2
)


def kernel(repeats=1, seed=0):
    network = MLP((2, 3, 4), [torch.Generator().manual_seed(seed + r) for r in range(repeats)])
    ones = torch.ones(repeats, dtype=torch.float64)
    return DeepKernel(network, 2 * ones, 3 * ones, 0.2 * ones)


def tasks(count=4, rows=12, seed=0):
    return [m2st.make_task("hdgm", delta=0.9).sample(rows + i, rows + 2 * i, seed=seed + i) for i in range(count)]


def rows(runs=3, n=10, seed=1):
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, runs, n, 2, generator=g, dtype=torch.float64)
    return PairedRows(x, y + 0.5, torch.ones(runs, n, dtype=torch.float64))


def state_of(paired, runs):
    return {name: t.repeat_interleave(runs, dim=0) for name, t in paired.state_dict(keep_vars=True).items()}


def learn(kernel, meta, settings, streams):
    return fit_meta_kernel(kernel, meta, settings, hold_out_tasks(meta, settings, streams), streams, streams)


def plain_steps(start, x, y, steps, restart):
    """Inner steps for one task with ordinary autograd; only φ moves."""
    mine = copy_with(start, lambda tensor: tensor.clone())
    first = [weight.detach().clone() for weight in mine.network.parameters()]
    for _ in range(steps):
        value = power_criterion(h_matrix(mine, x[None], y[None]), 1e-3).sum()
        gradient = torch.autograd.grad(value, list(mine.network.parameters()))
        with torch.no_grad():
            for weight, base, slope in zip(mine.network.parameters(), first, gradient, strict=True):
                weight.copy_((base if restart else weight) + 0.5 * slope)
    return mine


@pytest.mark.parametrize("restart", [False, True])
def test_inner_steps_equal_one_task_at_a_time(restart):
    theta, data = kernel(), rows()
    paired = Paired(theta)
    before = {name: value.clone() for name, value in theta.state_dict().items()}
    settings = replace(SETTINGS, restart=restart)
    found = adapt_state(paired, state_of(paired, 3), data, settings, 3)
    for run in range(3):
        alone = plain_steps(theta, data.x[run], data.y[run], 3, restart)
        for name, value in alone.state_dict().items():
            assert torch.allclose(found[f"kernel.{name}"][run], value[0], atol=1e-12), name
    for name, value in theta.state_dict().items():
        assert torch.equal(value, before[name]), "adaptation changes θ"


def test_second_order_differentiates_through_the_steps_and_first_order_does_not():
    """Against finite differences of θ → Ĵ(query; θ + 3 inner steps)."""
    theta, support, query = kernel(), rows(1, 8), rows(1, 9, seed=2)
    paired = Paired(theta)

    def outer(matrix, settings):
        state = state_of(paired, 1) | {"kernel.network.weights.1": matrix}
        return criterion(paired, adapt_state(paired, state, support, settings, 3), query, 1e-3).sum()

    second = replace(SETTINGS, second_order=True)
    matrix = theta.network.weights[1].detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda m: outer(m, second), (matrix,), atol=1e-5)
    (exact,) = torch.autograd.grad(outer(matrix, second), matrix)
    (first_order,) = torch.autograd.grad(outer(matrix, SETTINGS), matrix)
    assert not torch.allclose(exact, first_order, rtol=1e-3)


def test_first_order_steps_inside_torch_func_are_constants():
    """The outer gradient, taken with torch.func as in training, is that of Ĵ at the adapted parameters."""
    theta, support, query = kernel(), rows(1, 8), rows(1, 9, seed=2)
    paired, name = Paired(theta), "kernel.network.weights.1"
    state = {key: value.detach() for key, value in state_of(paired, 1).items()}

    def outer(matrix):
        adapted = adapt_state(paired, state | {name: matrix}, support, SETTINGS, 3)
        return criterion(paired, adapted, query, 1e-3).sum()

    adapted = adapt_state(paired, state, support, SETTINGS, 3)
    end = adapted[name].clone().requires_grad_()
    (expected,) = torch.autograd.grad(criterion(paired, adapted | {name: end}, query, 1e-3).sum(), end)
    assert torch.allclose(torch.func.grad(outer)(state[name]), expected, atol=1e-12)


def test_paper_adapts_everything_and_the_others_only_the_network():
    paired, data = Paired(kernel()), rows(1)
    for adapts, moves in (("all", True), ("network", False)):
        found = adapt_state(paired, state_of(paired, 1), data, replace(SETTINGS, adapts=adapts), 1)
        same = torch.equal(found["kernel.log_input_width"], state_of(paired, 1)["kernel.log_input_width"])
        assert same is not moves


def test_drawn_rows_belong_to_their_task_and_sample_and_are_never_in_both_parts():
    pairs = tasks(4)
    meta = as_related_tasks(pairs)
    which = torch.tensor([[2, 0]])
    support, query = meta.draw_pairs(which, 0.5, [torch.Generator().manual_seed(0)])
    for run, task in enumerate((2, 0)):
        sizes = min(pairs[task].sizes)
        taken = [int(part.inside[run].sum()) for part in (support, query)]
        assert taken == [sizes // 2, sizes - sizes // 2]
        for side in ("x", "y"):
            own = {tuple(row) for row in getattr(pairs[task], side).tolist()}
            a, b = (
                {tuple(row) for row in getattr(part, side)[run][part.inside[run] > 0].tolist()}
                for part in (support, query)
            )
            assert a <= own and b <= own and not a & b and len(a | b) == sizes
    pooled, _ = meta.draw_pairs(torch.tensor([[1, 3]]), 1.0, [torch.Generator().manual_seed(0)], pooled=2)
    assert pooled.inside.sum() == min(pairs[1].sizes) + min(pairs[3].sizes) and pooled.x.shape[0] == 1
    few, _ = meta.draw_pairs(which, 1.0, [torch.Generator().manual_seed(0)], largest=5)
    assert few.x.shape == (2, 5, 2)


def test_repeats_in_a_batch_learn_as_if_alone():
    first, second = tasks(), tasks(seed=10)
    names = tuple("abcd")
    for settings in (SETTINGS, replace(SETTINGS, inner_steps=0, ratio_of_means=True)):
        together = kernel(2)
        course = learn(together, stack_related_tasks([first, second], names), settings, [Streams(0), Streams(1)])
        for r, pairs in enumerate((first, second)):
            alone = kernel(1, seed=r)
            own = learn(alone, stack_related_tasks([pairs], names), settings, [Streams(r)])
            assert course.train[:, r] == pytest.approx(own.train[:, 0], abs=1e-9)
            for name, value in alone.state_dict().items():
                assert torch.allclose(together.state_dict()[name][r], value[0], atol=1e-9), name


def test_settings_that_a_kernel_cannot_follow_are_refused():
    with pytest.raises(ValueError, match="first order"):
        FastClimber(kernel(), replace(SETTINGS, restart=True, second_order=True))
    with pytest.raises(ValueError, match="images learn task by task, but ratio_of_means needs all tasks at once"):
        AutogradClimber(kernel(), replace(SETTINGS, ratio_of_means=True))


def test_rows_that_overflow_leave_the_kernel_finite():
    learned = kernel().float()
    far = as_related_tasks([(1e19 * x, y) for x, y in tasks()])
    learn(learned, far.with_rows(far.rows.float()), replace(SETTINGS, second_order=True), [Streams(0)])
    assert all(parameter.isfinite().all() for parameter in learned.parameters())


def test_held_out_tasks_decide_which_kernel_is_kept():
    """With an absurd rate the kernel gets worse, and the start is kept."""
    start = kernel()
    learned = copy_with(start, lambda tensor: tensor.clone())
    wild = replace(SETTINGS, outer_rate=30.0, held_out_tasks=0.5, inner_steps=0)
    shifted = as_related_tasks([(x, y + 1) for x, y in tasks(6, 40)])
    course = learn(learned, shifted, wild, [Streams(0)])
    assert course.held_out[:, 0].argmax() == 0 and course.held_out[-1, 0] < course.held_out[0, 0]
    for name, value in start.state_dict().items():
        assert torch.equal(learned.state_dict()[name], value)


@pytest.mark.parametrize("optimiser", ["gradient", "Adam"])
def test_adaptation_to_a_target_says_how_far_it_went(optimiser):
    theta, data = kernel(), rows(2, 20)
    target = TwoSample(data.x, data.y)
    how = AdaptationSettings(optimiser, steps=(4,), learning_rate=0.05, row_share=1.0)  # not the inner steps' 0.5
    streams = [Streams(0), Streams(1)]
    adapted, moved = adapt_to_target(theta, target, SETTINGS, how, 4, streams)
    before, after = (power_criterion(h_matrix(k, *target), 1e-3) for k in (for_runs(theta, 2), adapted))
    assert (after > before).all() and (moved > 0).all()
    start = torch.cat([p.detach().flatten() for p in theta.parameters()])
    end = torch.cat([p.detach()[1].flatten() for p in adapted.parameters()])
    assert moved[1].item() == pytest.approx(((end - start).norm() / start.norm()).item(), rel=1e-9)
    _, further = adapt_to_target(theta, target, SETTINGS, replace(how, learning_rate=0.1), 4, streams)
    assert (further > 1.5 * moved).all()
    _, still = adapt_to_target(theta, target, SETTINGS, how, 0, streams)
    assert still.tolist() == [0, 0]


FEW = {"mmd_d": {"steps": 3}, "meta_kl": {"outer_steps": 2}}
PUBLISHED = [m for m in m2st.METHODS.values() if m.origin == "paper" and m.preset.name != "tuned"]


@pytest.mark.parametrize("line", PUBLISHED, ids=lambda line: line.name)
def test_the_settings_of_the_paper_and_of_its_code_train_save_and_test(line, monkeypatch, tmp_path):
    short = {name: replace(getattr(line.preset, name), **few) for name, few in FEW.items()}
    monkeypatch.setitem(m2st.METHODS, line.name, replace(line, preset=replace(line.preset, **short)))
    x, y = m2st.make_task("hdgm").sample(60, seed=9)
    learner = m2st.meta_train(line.name, tasks(5), seed=1)
    learner.save(tmp_path)
    result = m2st.load_learner(tmp_path).test(x, y, n_permutations=99, seed=2)
    assert result == learner.test(x, y, n_permutations=99, seed=2)
    assert result.exact == line.by_permutation
    if "MKL" in line.name and line.by_permutation:
        assert sum(result.weights.values()) == pytest.approx(1) and set(result.weights) <= set(learner.task_names)
    if line.algorithm in ("Meta-MKL", "AGT-MKL"):
        assert set(result.diagnostics["criterion_by_kernel"]) == set(result.weights)
        assert "weights_used" not in result.diagnostics  # β is as learned
    if line.name == "Meta-KL · code":
        assert 0 < result.diagnostics["moved"] < 0.01  # the published adaptation hardly moves
    assert np.isfinite(learner.course.train).all()
