"""Features from meta-tasks: sums equal plain loops, and tasks left out decide what is real."""

import math

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.data.arrays import as_related_tasks
from m2st_core.kernels.features import Units
from m2st_core.learners.features import fit_features
from m2st_core.learners.meta_features import FourierFeatures, evidence_related, view_target
from m2st_core.learners.prior import (
    LEAST,
    PRICE,
    SHARED_PRICE,
    Differences,
    differences,
    judge,
    leading_directions,
    task_folds,
)
from m2st_core.preset import FeatureLearning
from m2st_core.rng import Streams
from m2st_core.types import TwoSample

float64 = torch.float64


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=float64)


def unequal(count=5):
    return [TwoSample(rows(6 + i, 2, seed=i), rows(9 - i, 2, seed=50 + i)) for i in range(count)]


def random_features(columns=2, half=4, repeats=1):
    units = Units(torch.full((repeats, 1, columns), 0.3).double(), torch.full((repeats, 1, columns), 2.0).double())
    return FourierFeatures(units, rows(repeats, columns, half, seed=3), 2)


def raw_by_hand(features, x):
    z = (x.numpy() - 0.3) / 2
    angles = z @ features.frequencies[0].numpy()
    return np.concatenate([z, np.sin(angles), np.cos(angles)], axis=1)


def test_sums_over_padded_tasks_equal_plain_loops():
    pairs, features = unequal(), random_features()
    meta = as_related_tasks(pairs)
    kept, aside = meta.hold_out(0.5, [torch.Generator().manual_seed(5)])
    (whole, first, second), centre = differences(features.raw, [meta, kept, aside])
    inside, freedom, centres = np.zeros((10, 10)), 0, []
    for task, (x, y) in enumerate(pairs):
        f, g = raw_by_hand(features, x), raw_by_hand(features, y)
        assert whole.means[0, task].numpy() == pytest.approx(f.mean(0) - g.mean(0), abs=1e-6)
        assert whole.noise[0, task].item() == pytest.approx(1 / len(x) + 1 / len(y))
        both = np.concatenate([f, g])
        for part, found in ((kept, first), (aside, second)):
            of_x, of_y = ((w[0, task, : len(both)] > 0).numpy() for w in (part.x_weight, part.y_weight))
            assert found.means[0, task].numpy() == pytest.approx(both[of_x].mean(0) - both[of_y].mean(0), abs=1e-6)
        for sample in (f, g):
            inside += (len(sample) - 1) * np.cov(sample.T)
            freedom += len(sample) - 1
        centres.append((f.mean(0) + g.mean(0)) / 2)
    assert whole.covariance[0].numpy() == pytest.approx(inside / freedom, abs=1e-6)
    assert centre[0, 0].numpy() == pytest.approx(np.mean(centres, axis=0), abs=1e-6)


def test_whitened_features_have_the_identity_as_covariance_but_for_the_ridge():
    covariance = torch.tensor([[[4.0, 1.0], [1.0, 2.0]]], dtype=float64)
    found = Differences(rows(1, 3, 2), torch.ones(1, 3, dtype=float64), covariance)
    white, transform = found.whitened(0.1)
    ridged = covariance[0] + 0.1 * 3.0 * torch.eye(2, dtype=float64)
    assert torch.allclose(transform[0].T @ ridged @ transform[0], torch.eye(2, dtype=float64))
    assert torch.allclose(white.means, found.means @ transform)
    assert torch.allclose(white.covariance[0], transform[0].T @ covariance[0] @ transform[0])


@pytest.mark.parametrize("tasks", [4, 30])  # fewer tasks than features, and more
@pytest.mark.parametrize("shared", [True, False])
def test_leading_directions_equal_numpy(tasks, shared):
    """The weighted mean first, if shared; then eigenvectors of Σ d dᵀ/τ, orthogonal to it; unit variance all."""
    noise = 0.5 + torch.rand(1, tasks, generator=torch.Generator().manual_seed(1), dtype=float64)
    root = rows(6, 6, seed=2)
    found = Differences(rows(1, tasks, 6) + 0.5, noise, (root @ root.T)[None])
    axes = leading_directions(found, 3, shared)[0].numpy()
    d, tau, covariance = found.means[0].numpy(), noise[0].numpy(), found.covariance[0].numpy()
    expected = []
    if shared:
        mean = (d / tau[:, None]).sum(0)
        mean /= np.linalg.norm(mean)
        expected.append(mean)
        d = d - np.outer(d @ mean, mean)
    vectors = np.linalg.eigh((d / tau[:, None]).T @ d)[1][:, ::-1]
    expected += [vectors[:, k] for k in range(3 - len(expected))]
    for axis, direction in zip(axes.T, expected, strict=True):
        direction = direction / np.sqrt(direction @ covariance @ direction)
        assert axis * np.sign(axis @ direction) == pytest.approx(direction, abs=1e-8)


def test_directions_that_few_tasks_do_not_have_are_zero():
    found = Differences(rows(1, 1, 4), torch.ones(1, 1, dtype=float64), torch.eye(4, dtype=float64)[None])
    axes = leading_directions(found, 3, True)[0]
    assert axes[:, 0].norm().item() == pytest.approx(1) and not axes[:, 1:].any()


def spiked(strength, same_sense, tasks=60, noise=0.5, seed=0):
    """Differences in 8 white features: along the first by ±strength, plus noise."""
    sign = 1 if same_sense else torch.sign(rows(tasks, seed=seed + 1))
    means = math.sqrt(noise) * rows(1, tasks, 8, seed=seed)
    means[0, :, 0] += strength * sign
    return Differences(means, torch.full((1, tasks), noise, dtype=float64), torch.eye(8, dtype=float64)[None])


def verdict(found, shared, seed=0):
    return judge(list(task_folds(found, [Streams(seed)])), 2, shared)


def test_tasks_left_out_say_how_large_differences_are():
    """±3 and +3 are found at their size, 9, within 25 %; pure noise gets the least prior, and no evidence."""
    for same_sense in (True, False):
        prior, evidence = verdict(spiked(3.0, same_sense), shared=same_sense)
        assert prior[0, 0].item() == pytest.approx(9, rel=0.25) and evidence.item() > 20
    for shared in (True, False):
        priors = [verdict(spiked(0.0, True, seed=seed), shared)[0].max().item() for seed in range(10)]
        assert np.median(priors) < 0.05 and min(priors) >= LEAST * 0.5 * 0.999


def test_a_common_sense_is_seen_where_either_sense_is_not():
    """Differences of 0.7 noise deviations: the mean of 60 tasks shows them, their squares hardly."""
    weak = spiked(0.5, True)
    assert verdict(weak, shared=True)[1] > verdict(weak, shared=False)[1] + 3


def test_evidence_equals_its_formula():
    """One direction, one feature: t is d itself."""
    d = torch.tensor([1.0, 2.0, -0.5, 1.5], dtype=float64)[None, :, None]
    noise = torch.tensor([0.5, 1.0, 0.5, 2.0], dtype=float64)[None]
    whole = Differences(d, noise, torch.ones(1, 1, 1, dtype=float64))
    positive = Differences(d.abs(), noise, whole.covariance)  # a mean direction of +1
    prior, evidence = judge([(positive, whole)], 1, shared=True)
    t, tau = d[0, :, 0].numpy(), noise[0].numpy()
    mean = (t / tau).sum() / (1 / tau).sum()
    same = ((t**2 - (t - mean) ** 2) / (2 * tau)).sum()  # log-likelihood ratio of N(mean, τ) to N(0, τ)
    size = max(0, ((t**2 - tau) / tau**2).sum() / (1 / tau**2).sum())
    either = (-0.5 * np.log1p(size / tau) + 0.5 * t**2 * (1 / tau - 1 / (size + tau))).sum()
    assert evidence.item() == pytest.approx(max(same - SHARED_PRICE, either - PRICE, 0), abs=1e-9)
    chance = [
        value / (1 + math.exp(-gain))
        for value, gain in ((mean**2 - 1 / (1 / tau).sum(), same - SHARED_PRICE), (size, either - PRICE))
    ]
    assert prior.item() == pytest.approx(max(*chance, LEAST / (1 / tau).mean()), abs=1e-9)


def test_every_task_is_left_out_once():
    found = spiked(1.0, True, tasks=23)
    folds = list(task_folds(found, [Streams(4)]))
    judged = torch.cat([fresh.means[0, :, 0] for _, fresh in folds]).sort().values
    assert torch.equal(judged, found.means[0, :, 0].sort().values)
    for seen, fresh in folds:
        assert seen.means.shape[1] + fresh.means.shape[1] == 23
        assert not set(seen.means[0, :, 0].tolist()) & set(fresh.means[0, :, 0].tolist())


@pytest.mark.parametrize(("task", "narrow"), [("blobs", True), ("mean_shift", False)])
def test_narrow_features_are_taken_only_where_they_pay(task, narrow):
    meta = as_related_tasks(m2st.make_task(task).draw_related_tasks(n_tasks=20, rows=150, closeness=0.2, seed=3))
    _, choices = fit_features(meta, FeatureLearning(), [Streams(0)])
    assert (choices["feature_width"] < 1) is narrow


@pytest.mark.parametrize("same_order", [True, False])
def test_swapped_tasks_are_recognised(same_order):
    pairs = list(m2st.make_task("mean_shift", shift=1.0).draw_related_tasks(n_tasks=20, rows=50, seed=3).values())
    pairs = [pair if same_order or index % 2 else pair.swapped() for index, pair in enumerate(pairs)]
    features, choices = fit_features(as_related_tasks(pairs), FeatureLearning(), [Streams(0)])
    assert choices["shared_direction_leads"] == same_order
    assert choices["direction_evidence"] > 20 and features.prior[0, -1] > 0.1


def test_evidence_that_a_target_is_related_equals_its_formula():
    features = random_features()
    features.transform = rows(1, 10, 2, seed=9)
    features.prior = torch.tensor([[0.2, 3.0]], dtype=float64)
    x, y = rows(8, 2, seed=1), rows(5, 2, seed=2) + 1
    f, g = (raw_by_hand(features, part) @ features.transform[0].numpy() for part in (x, y))
    variance = (7 * f.var(0, ddof=1) + 4 * g.var(0, ddof=1)) / 11
    noise, d = variance * (1 / 8 + 1 / 5), f.mean(0) - g.mean(0)
    expected = 0.0
    for q, s in enumerate((0.2, 3.0)):
        log_density = [-0.5 * (d[q] ** 2 / v + math.log(v)) for v in (s + noise[q], noise[q])]
        expected += log_density[0] - log_density[1]
    target = view_target(features, TwoSample(x[None], y[None]))
    assert target.difference[0].numpy() == pytest.approx(d, abs=1e-5)
    assert target.variance[0].numpy() == pytest.approx(variance, rel=1e-5)
    assert evidence_related(features, target).item() == pytest.approx(expected, rel=1e-4)
