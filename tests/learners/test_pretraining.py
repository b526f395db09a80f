"""First weights of a deep kernel: a classifier of many tasks, then the metric of what differs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.data.arrays import as_related_tasks
from m2st_core.kernels.networks import MLP
from m2st_core.learners.classifier import FLOOR, align_classifier, pretrained_kernel, train_classifier
from m2st_core.presets import PretrainingSettings
from m2st_core.rng import Streams

SHORT = PretrainingSettings(steps=5, tasks_per_step=3)
ALL = torch.arange(4)[None]


def network(seed=0):
    return MLP((2, 5, 4), [torch.Generator().manual_seed(seed)])


def tasks(exchanged=(), changed=()):
    """Four tasks of unequal sizes that differ by a shift; some with P and Q exchanged, some with other rows."""
    found = []
    for i in range(4):
        g = torch.Generator().manual_seed(10 * i + (5 if i in changed else 0))
        x, y = (torch.randn(n, 2, generator=g, dtype=torch.float64) for n in (30, 30 + 5 * i))
        pair = (x, y + torch.tensor([1.0, 0.3]))
        found.append(pair[::-1] if i in exchanged else pair)
    return as_related_tasks(found)


def cross_entropy_of_fresh_heads(phi, meta):
    """Logistic regression on φ, fitted to each task by Newton steps: the mean loss."""
    losses = []
    for pair in meta.samples().values():
        z = torch.cat([phi(pair.x[None])[0], phi(pair.y[None])[0]]).detach().numpy()
        z = np.c_[z, np.ones(len(z))]
        t = np.r_[np.ones(len(pair.x)), np.zeros(len(pair.y))]
        w = np.zeros(z.shape[1])
        for _ in range(20):
            p = 1 / (1 + np.exp(-z @ w))
            w += np.linalg.solve((z * (p * (1 - p))[:, None]).T @ z + 1e-2 * np.eye(len(w)), z.T @ (t - p) - 1e-2 * w)
        p = 1 / (1 + np.exp(-z @ w))
        losses.append(-np.mean(t * np.log(p) + (1 - t) * np.log(1 - p)))
    return np.mean(losses)


def test_the_classifier_makes_tasks_separable_by_a_linear_head():
    narrow = MLP((2, 5, 1), [torch.Generator().manual_seed(0)])
    before = cross_entropy_of_fresh_heads(narrow, tasks())
    train_classifier(narrow, tasks(), ALL, replace(SHORT, steps=100), [Streams(0)])
    assert cross_entropy_of_fresh_heads(narrow, tasks()) < before - 0.02


def test_alignment_is_the_metric_of_the_tasks_differences():
    """Loops over tasks and rows give mean_i(d_i d_iᵀ − τ_i) in whitened features; distances follow."""
    phi, meta = network(), tasks()
    names = list(meta.samples().values())
    features = [[phi(side[None])[0].detach().numpy() for side in pair] for pair in names]
    aligned = network()
    align_classifier(aligned, meta, ALL)
    scatter, degrees = np.zeros((4, 4)), 0
    for pair in features:
        for side in pair:
            for row in side:
                scatter += np.outer(row - side.mean(axis=0), row - side.mean(axis=0))
            degrees += len(side) - 1
    values, vectors = np.linalg.eigh(scatter / degrees)
    white = vectors / np.sqrt(values)
    noise = np.mean([1 / len(x) + 1 / len(y) for x, y in features])
    differences = [(x.mean(axis=0) - y.mean(axis=0)) @ white for x, y in features]
    spread = np.mean([np.outer(d, d) for d in differences], axis=0) - noise * np.eye(4)
    strength, directions = np.linalg.eigh(spread)
    metric = white @ (directions * np.maximum(strength, FLOOR * noise)) @ directions.T @ white.T
    x = names[0].x[:6]
    before, after = (net(x[None])[0].detach().numpy() for net in (phi, aligned))
    for i in range(6):
        for j in range(6):
            gap = before[i] - before[j]
            assert np.square(after[i] - after[j]).sum() == pytest.approx(gap @ metric @ gap, rel=1e-6, abs=1e-12)


def test_the_order_in_which_tasks_name_their_samples_does_not_matter():
    one, other = (pretrained_kernel(network(), tasks(e), ALL, SHORT, [Streams(0)]) for e in ((), (1, 2)))
    x = tasks().rows[:, :20]
    assert torch.allclose(one(x, x), other(x, x), atol=1e-9)


def test_tasks_that_are_held_out_teach_nothing():
    learning = torch.tensor([[0, 1, 2]])
    histories = [tasks(changed=c) for c in ((), (3,))]
    one, other = (network() for _ in range(2))
    for net, meta in zip((one, other), histories, strict=True):
        train_classifier(net, meta, learning, SHORT, [Streams(0)])
        align_classifier(net, meta, learning)
    x = tasks().rows[:, :20]
    assert torch.equal(one(x), other(x))


def test_tasks_without_a_difference_still_give_a_kernel():
    same = m2st.make_task("hdgm").sample(20, seed=0).x
    meta = as_related_tasks([(same, same), (same, same)])
    kernel = pretrained_kernel(network(), meta, torch.arange(2)[None], SHORT, [Streams(0)])
    x = same[None].double()
    assert kernel(x, x).isfinite().all()
