"""What docs/learned_features.md says is what the code computes: its formulas again, row by row, in numpy."""

import importlib
import itertools
import math
import re
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from m2st_core.data.arrays import as_related_tasks
from m2st_core.learners.generic import fit_bank, fit_omnibus
from m2st_core.learners.knowledge import Knowledge
from m2st_core.learners.learned_tests import (
    fit_feature_mixture,
    fit_learned,
    fit_witness,
    learn_feature_mixture,
    meta_bank,
)
from m2st_core.learners.raw_features import FourierFeatures
from m2st_core.learners.spaces import candidates, fit_row_features, normal_points, smooth_space
from m2st_core.learners.units import Units, in_common_units
from m2st_core.permutation.labellings import random_memberships
from m2st_core.presets import TUNED, FeatureSettings
from m2st_core.rng import Streams
from m2st_core.types import TwoSample
from tests import naive

PAGE = (Path(__file__).parent.parent / "docs" / "learned_features.md").read_text(encoding="utf-8")
WIDTHS = {0.25: 0.0, math.inf: 3.0, 0.06: 3.0, 0.02: 3.0}  # with prices; of wider ones, float32 loses some coordinates
FEW = FeatureSettings(tuple(WIDTHS), tuple(WIDTHS.values()), fourier_per_column=4, fewest_fourier=16)  # quick in loops
SEED = 5


def history(tasks, strength=1.2, seed=0):
    """Tasks of unequal sizes. The second sample is wider, and in the shape of a ring."""
    g = np.random.default_rng(seed)
    pairs = []
    for task in range(tasks):
        x, y = g.normal(size=(9 + task, 2)), g.normal(size=(14 - task, 2))
        pairs.append((x, y * (1 + strength / np.linalg.norm(y, axis=1, keepdims=True))))
    return pairs


# ## Raw features


def column_units(rows):
    """Median and robust standard deviation of one column."""
    low, middle, high = np.quantile(rows, [0.25, 0.5, 0.75])
    spread = (high - low) / 1.349
    if high - low <= 1e-12 * 1.349 * max(abs(low), abs(high)):
        spread = math.sqrt(sum((rows - rows.mean()) ** 2) / len(rows)) or 1.0
    return middle, spread


def lower_median(values):
    return sorted(values)[(len(values) - 1) // 2]


def in_usual_units(pairs):
    """Each task's columns, in the usual units where its own are ten times off."""
    changed = [(x.copy(), y.copy()) for x, y in pairs]
    for column in range(pairs[0][0].shape[1]):
        own = [column_units(np.concatenate(pair)[:, column]) for pair in pairs]
        middle, usual = lower_median([c for c, _ in own]), lower_median([a for _, a in own])
        for (c, a), pair in zip(own, changed, strict=True):
            if a > 10 * usual or a < usual / 10:
                for sample in pair:
                    sample[:, column] = (sample[:, column] - c) / a * usual + middle
    return changed


def units(pairs):
    rows = np.concatenate([row for pair in pairs for row in pair])
    return np.array([column_units(column) for column in rows.T]).T


def median_width(rows):
    """The squared median distance."""
    return np.median([math.dist(a, b) for a, b in itertools.combinations(map(tuple, rows), 2)]) ** 2


def frequencies(pairs, width):
    """The page's ω_j, (d, D/2), from the numbers g_j that the code draws."""
    median, spread = units(pairs)
    m = median_width([(row - median) / spread for pair in pairs for sample in pair for row in sample])
    g = normal_points(2, 8, Streams(SEED).torch("frequencies")).numpy()
    return g[:, :0] if math.isinf(width) else g * math.sqrt(2 / (width * m))


def phi(row, median, spread, omega):
    z = [min(max(value, -3.0), 3.0) for value in (row - median) / spread]
    angles = [sum(z * column) for column in omega.T]
    return np.array([*z, *(math.sin(a) for a in angles), *(math.cos(a) for a in angles)])


def importances(waves):
    """b, of two columns and the sines and cosines."""
    return np.array([0.3] * 2 + [math.sqrt(1 / max(waves, 1))] * 2 * waves)


def in_features(pairs, omega):
    return [tuple(np.array([phi(row, *units(pairs), omega) for row in sample]) for sample in pair) for pair in pairs]


def test_a_task_in_other_units():
    pairs = history(4)
    for sample in pairs[2]:
        sample[:, 1] = 300 * sample[:, 1] + 7
    found = in_common_units(as_related_tasks(pairs)).samples()
    for (x, y), sample in zip(in_usual_units(pairs), found.values(), strict=True):
        assert sample.x.numpy() == pytest.approx(x, abs=1e-10) and sample.y.numpy() == pytest.approx(y, abs=1e-10)
    assert np.abs(in_usual_units(pairs)[2][0]).max() < 10


# ## Smooth coordinates


def smooth(samples, importance):
    """W and φ̄ of tasks ((Φ_x, Φ_y), …) in raw features."""
    total, freedom = 0.0, 0
    for sample in itertools.chain(*samples):
        mean = sum(sample) / len(sample)
        total = total + sum(np.outer(row - mean, row - mean) for row in sample)
        freedom += len(sample) - 1
    values, vectors = np.linalg.eigh(np.outer(importance, importance) * total / freedom)
    w = np.zeros_like(vectors)
    for k in range(len(values)):
        if values[-1 - k] > 1e-7 * values[-1]:
            w[:, k] = importance * vectors[:, -1 - k] / math.sqrt(values[-1 - k])
    return w, sum((x.mean(0) + y.mean(0)) / 2 for x, y in samples) / len(samples)


# ## Differences and their noise


def differences(samples, w, size, freedom):
    """(z_i, τ_i) of each task."""
    share = 1 - size / max(freedom, size + 1)
    return [((w.T @ (x.mean(0) - y.mean(0)))[:size], (1 / len(x) + 1 / len(y)) / share) for x, y in samples]


# ## Orientation as a latent variable


def expected_signs(tasks):
    """σ_i, from the leading eigenvector."""
    count, size = len(tasks), len(tasks[0][0])
    first = np.linalg.eigh(sum(np.outer(z, z) / tau for z, tau in tasks))[1][:, -1]
    signs = [0.5 * np.sign(z @ first) for z, _ in tasks]
    level = sum(tau for _, tau in tasks) / count
    for _ in range(15):
        after = []
        for i, (z, tau) in enumerate(tasks):
            others = [(signs[j], *tasks[j]) for j in range(count) if j != i]
            precision = size / (4 * level) + sum(1 / t for _, _, t in others)
            centre = sum(s / t * other for s, other, t in others) / precision
            order = sum(s for s, _, _ in others) / (count + 1)
            after.append(0.5 * signs[i] + 0.5 * math.tanh(centre @ z / (tau + 1 / precision) + math.atanh(order)))
        signs = after
    return signs


# ## Directions


def directions(tasks, order):
    """Three orthonormal columns; 0 where the tasks do not span them."""
    signs = expected_signs(tasks) if order == "any" else [1] * len(tasks)
    mean = sum(sign * z / tau for sign, (z, tau) in zip(signs, tasks, strict=True))
    mean = mean / np.linalg.norm(mean)
    rest = [(z - (mean @ z) * mean, tau) for z, tau in tasks]
    values, vectors = np.linalg.eigh(sum(np.outer(z, z) / tau for z, tau in rest))
    return np.array([mean, *(vectors[:, -1 - q] * (values[-1 - q] > 1e-10 * values[-1]) for q in range(2))]).T


# ## Prior and floor


def prior(folds, size, order):
    """s of the directions and the floor, and the evidence before prices."""
    seen = []
    for others, own in folds:
        axes = np.zeros((size, 0)) if order == "none" else directions(others, order)
        seen += [(z, axes.T @ z, tau) for z, tau in own]
    tau = np.array([tau for *_, tau in seen])
    count = len(seen[0][1])
    left = np.array([z @ z - t @ t for z, t, _ in seen])
    others = max(1, size - count)
    grid = np.array([energy * tau.mean() / others for energy in (0.1, 0.3, 1, 3, 10)])
    fit = [0.5 * sum(left / tau * s / (s + tau) - others * np.log(1 + s / tau)) for s in grid]
    chance = np.exp(fit) / sum(np.exp(fit))
    floor = math.exp(sum(chance * np.log(grid)))
    sizes, evidence = [], math.log(np.mean(np.exp(fit)))
    for q in range(count):
        t = np.array([t[q] for _, t, _ in seen])
        s = max(0, sum((t**2 - tau) / tau**2) / sum(1 / tau**2))
        gain = max(0, 0.5 * sum(t**2 / tau * s / (s + tau) - np.log(1 + s / tau)))
        mean = sum(t / tau) / sum(1 / tau)
        if q == 0 and order == "one":
            same = 0.5 * mean**2 * sum(1 / tau) if mean > 0 else 0.0
            if gain <= same:
                s, gain = (max(0, mean**2 - 1 / sum(1 / tau)) if mean > 0 else 0.0), same
        evidence += gain if q == 0 else max(0, gain - 4)
        sizes.append(max(floor, s if q == 0 else s / (1 + math.exp(4 - gain))))
    return sizes, floor, evidence


def halves(samples):
    """Both halves of the rows of each sample, as the code deals them out."""
    meta = as_related_tasks(samples)
    found = []
    for part in meta.hold_out(0.5, [Streams(SEED).torch("held-out rows")]):
        taken = []
        for task, (x, y) in enumerate(samples):
            inside = ((part.x_weight + part.y_weight)[0, task] > 0).numpy()
            taken.append((x[inside[: len(x)]], y[inside[len(x) : len(x) + len(y)]]))
        found.append(taken)
    return found


# ## What left-out tasks choose


def offers(samples, importance, first, price):
    """(score, s of all coordinates, W·U, φ̄) of every size and order in raw features."""
    w, centre = smooth(samples, importance)
    first = min(first, len(importance))
    freedom = sum(len(x) + len(y) - 2 for x, y in samples)
    found, size, count = [], first, len(samples)
    while size <= min(224, len(importance)):
        tasks = differences(samples, w, size, freedom)
        if count < 5:
            one, other = (differences(half, w, size, freedom) for half in halves(samples))
            folds = [(one, other), (other, one)]
        else:
            order = torch.randperm(count, generator=Streams(SEED).torch("tasks left out")).tolist()
            dealt = [order[fold :: min(10, count)] for fold in range(min(10, count))]
            folds = [([tasks[i] for i in order if i not in own], [tasks[i] for i in own]) for own in dealt]
        for order, order_price in {"none": 0, "one": 2, "any": 3}.items():
            sizes, floor, evidence = prior(folds, size, order)
            axes = np.zeros((size, 0)) if order == "none" else directions(tasks, order)
            u = np.linalg.qr(np.concatenate([axes, np.eye(size)], axis=1))[0]
            s = np.array([*sizes, *[floor] * (size - len(sizes))])
            score = evidence - price - order_price - 2 * math.log2(size / first)
            found.append((score, s, w[:, :size] @ u, centre))
        size *= 2
    return found


def weighted(psi, s):
    """Σ_q s_qψ_q(x)ψ_q(y), for which neither signs nor the completion of the directions matter."""
    return np.array([[sum(s * a * b) for b in psi] for a in psi])


@pytest.mark.parametrize("tasks", [3, 7])  # halves of rows, and tasks, are left out
@pytest.mark.parametrize("one_order", [True, False])
def test_coordinates_directions_and_prior(tasks, one_order):
    """All sizes and orders, from raw features in float64."""
    pairs = [pair if one_order or task % 2 else pair[::-1] for task, pair in enumerate(history(tasks))]
    samples = in_features(pairs, frequencies(pairs, 0.25))
    importance = importances(8)
    meta = as_related_tasks(samples)
    space = smooth_space(torch.nn.Identity(), meta, [Streams(SEED)], torch.from_numpy(importance))
    found = candidates(space, 4, FEW, 1.5)
    expected = offers(samples, importance, 4, 1.5)
    assert [one.size for one in found] == [4] * 3 + [8] * 3 + [16] * 3 and len(expected) == 9
    for one, (score, s, projection, centre) in zip(found, expected, strict=True):
        assert one.score.item() == pytest.approx(score, abs=1e-6)
        built = one.build(one.size, len(importance))
        assert built["prior"][0].numpy() == pytest.approx(sorted(s), rel=1e-6)
        there = (meta.rows @ built["transform"] - built["offset"])[0, :10].numpy()
        here = (meta.rows[0, :10].numpy() - centre) @ projection
        assert weighted(there, built["prior"][0].numpy()) == pytest.approx(weighted(here, s), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("strength", [0.0, 1.2, 3.0])
def test_raw_features_and_the_spaces_that_left_out_tasks_choose(strength):
    """The code has φ in float32, hence the tolerance."""
    pairs = history(7, strength)
    found = []
    for width, price in WIDTHS.items():
        omega = frequencies(pairs, width)
        every = offers(in_features(pairs, omega), importances(omega.shape[1]), 14, price)
        found += [(width, *offer) for offer in every]
    best = sorted(found, key=lambda offer: -offer[1])[:6]
    best = [offer for offer in best if offer[1] - best[0][1] > math.log(0.01)]
    weights = np.exp([offer[1] - best[0][1] for offer in best])
    spaces, choices, _ = fit_row_features(as_related_tasks(pairs), FEW, [Streams(SEED)])
    assert choices["direction_evidence"] == pytest.approx(best[0][1], rel=1e-5, abs=1e-3)
    rows = 2 * np.random.default_rng(9).normal(size=(6, 2))
    for space, weight, (width, _, s, projection, centre) in zip(spaces, weights / sum(weights), best, strict=True):
        assert space.log_weight.exp().item() == pytest.approx(weight, rel=0.02)
        assert space.prior[0].numpy() == pytest.approx(sorted(s), rel=1e-3)
        psi = np.array([(phi(row, *units(pairs), frequencies(pairs, width)) - centre) @ projection for row in rows])
        gram = weighted(psi, s)
        there = weighted(space(torch.from_numpy(rows)[None])[0].numpy(), space.prior[0].numpy())
        assert there == pytest.approx(gram, abs=1e-2 * np.abs(gram).max())


# ## Meta-Witness, with features whose numbers float32 holds exactly

S = [np.array(s, dtype=np.float32).astype(float) for s in ([0.01, 0.3, 2.0], [0.5, 0.75])]
SPACE_WEIGHTS = np.array([0.75, 0.25])


def exact_features():
    """Two spaces ψ(x) = Aᵀx + b of two columns."""
    zero, one = torch.zeros(1, 1, 2, dtype=torch.float64), torch.ones(1, 1, 2, dtype=torch.float64)
    matrices = [[[0.5, -1.0, 0.25], [1.0, 0.5, 2.0]], [[1.0, 0.5], [-0.5, 1.5]]]
    offsets = [[0.5, -0.25, 1.0], [0.25, 0.0]]
    spaces = []
    for matrix, offset, prior_, weight in zip(matrices, offsets, S, SPACE_WEIGHTS, strict=True):
        features = FourierFeatures(Units(zero, one), torch.zeros(1, 2, 1, dtype=torch.float64), len(prior_))
        features.transform[0, :2] = torch.tensor(matrix)
        features.offset[0, 0] = torch.tensor(offset)
        features.prior[0] = torch.from_numpy(prior_)
        features.log_weight[0] = math.log(weight)
        spaces.append(features)
    return Knowledge(spaces=spaces, choices={})


def psi(row, space=0):
    a, b = (min(max(value, -3), 3) for value in row)
    if space:
        return np.array([a - 0.5 * b - 0.25, 0.5 * a + 1.5 * b])
    return np.array([0.5 * a + b - 0.5, -a + 0.5 * b + 0.25, 0.25 * a + 2 * b - 1])


def quarters(*shape, seed, shift=0.0):
    return np.round(4 * np.random.default_rng(seed).normal(shift, size=shape)) / 4


def batch(x, y):
    return TwoSample(torch.from_numpy(x)[None], torch.from_numpy(y)[None])


def edge(space):
    """r_q."""
    return 4 * S[space] / math.sqrt(sum(S[space] ** 2))


def space_kernel(space, rows):
    features = np.array([psi(row, space) for row in rows])
    deviation = np.sqrt(sum((features - features.mean(0)) ** 2) / (len(rows) - 1))
    r = edge(space)
    return lambda a, b: sum(r / (1 + r) * psi(a, space) * psi(b, space) / deviation**2)


def fused(kernels, weights, rows, members):
    """F of all labellings."""
    total = np.zeros(len(members))
    for kernel, weight in zip(kernels, weights, strict=True):
        mmd2 = [naive.mmd2_unbiased(kernel, rows[labels], rows[~labels]) for labels in members]
        total += weight * np.exp(np.array(mmd2) / np.std(mmd2, ddof=1))
    return np.log(total)


def reached(values, rounding=1e-9):
    """p_f of all labellings; equal up to rounding is equal."""
    return np.array([sum(values >= one - rounding) for one in values]) / len(values)


def test_statistic_of_meta_witness():
    rows = quarters(9, 2, seed=6)
    pooled, members = torch.from_numpy(rows)[None], random_memberships(4, 5, 30, [np.random.default_rng(1)])
    found, *_ = fit_learned(exact_features(), pooled, TUNED, [Streams(SEED)]).statistics(pooled, members, 4)
    values = fused([space_kernel(space, rows) for space in (0, 1)], SPACE_WEIGHTS, rows, members[0].numpy())
    assert found[0].numpy() == pytest.approx(1 / reached(values), abs=1e-8)


def test_sum_of_r_is_that_of_the_dimensions_that_count():
    for space in (0, 1):
        dimensions = sum(S[space]) ** 2 / sum(S[space] ** 2)
        assert sum(edge(space)) == pytest.approx(4 * math.sqrt(dimensions))


# ## Meta-WiTS


def target_view(x, y, space=0):
    """d', v and τ' of the training rows."""
    of_x, of_y = (np.array([psi(row, space) for row in rows]) for rows in (x, y))
    mean_x, mean_y = of_x.mean(0), of_y.mean(0)
    inside = sum((row - mean_x) ** 2 for row in of_x) + sum((row - mean_y) ** 2 for row in of_y)
    variance = inside / (len(x) + len(y) - 2)
    return mean_x - mean_y, variance, variance * (1 / len(x) + 1 / len(y))


def density(value, mean, variance):
    return math.exp(-((value - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_witness_and_statistic_of_meta_wits(shift):
    train = quarters(6, 2, seed=3), quarters(8, 2, seed=4, shift=shift)
    witness = fit_witness(exact_features(), batch(*train), TUNED, [])
    rows = quarters(9, 2, seed=5)
    members = random_memberships(4, 5, 20, [np.random.default_rng(0)])
    found, rounding, _ = witness.statistics(torch.from_numpy(rows)[None], members, 4)
    expected, space_weights, scores = np.zeros(21), [], []
    for space in (0, 1):
        d, v, tau = target_view(*train, space)
        r = edge(space)
        a = r / (1 + r)
        weight = SPACE_WEIGHTS[space] * math.exp(0.5 * sum(d**2 / tau * a - np.log(1 + r)))
        space_weights.append(weight)
        scores.append([sum(a * d / v * psi(row, space)) for row in rows])
        noise = v * (1 / 4 + 1 / 5)
        for j, labels in enumerate(members[0].numpy()):
            x, y = (np.mean([psi(row, space) for row in part], axis=0) for part in (rows[labels], rows[~labels]))
            factors = [
                density(value, a[q] * d[q], a[q] * tau[q] + noise[q]) / density(value, 0, noise[q])
                for q, value in enumerate(x - y)
            ]
            expected[j] += weight * math.prod(factors)
    assert np.abs(found[0].numpy() - np.log(expected)).max() < rounding.item() < 1e-4
    best = scores[int(np.argmax(space_weights))]
    assert witness.score(torch.from_numpy(rows)[None])[0].numpy() == pytest.approx(best, abs=1e-8)


# ## Meta-FUSE


def test_statistic_of_meta_fuse():
    """Kernels of Omnibus have tests of their own. Here their values are looked up."""
    rows = quarters(24, 2, seed=6)
    pooled, members = torch.from_numpy(rows)[None], random_memberships(10, 14, 30, [np.random.default_rng(1)])
    found, *_ = meta_bank(exact_features(), pooled, TUNED, [Streams(SEED)]).statistics(pooled, members, 10)
    learned = fused([space_kernel(space, rows) for space in (0, 1)], SPACE_WEIGHTS, rows, members[0].numpy())
    expected = 1 / 2 / reached(learned)
    for family in fit_omnibus(pooled, TUNED, [Streams(SEED)]).families:
        gram = family.kernel(pooled[:, None], pooled[:, None])[0, 0].detach().numpy()
        values = {(tuple(a), tuple(b)): gram[i, j] for i, a in enumerate(rows) for j, b in enumerate(rows)}
        own = fused([lambda a, b, values=values: values[tuple(a), tuple(b)]], [1], rows, members[0].numpy())
        expected = expected + 1 / 2 * family.share / reached(own, 1e-5)  # of a standard deviation, as in the engine
    fuse, rounding, _ = fit_bank(pooled, TUNED, [Streams(SEED)]).statistics(pooled, members, 10)
    expected = expected + 1 / 2 * 0.35 * (1 - 0.6 * 24 / 624) / reached(fuse[0].numpy(), float(rounding[0]))
    assert found[0].numpy() == pytest.approx(expected, rel=0.01)  # a tie within rounding changes a rank by 1/31


# ## Feature-MKL


def aggregate(a, b, rows):
    """k_0."""
    w = S[0] / (S[0] + 4 / rows)
    return sum(w * psi(a) * psi(b)) / sum(w)


def best_weights(eta, sigma):
    """b ≥ 0, Σb = 1, that maximises ηᵀb/√(bᵀΣb): the best of the stationary points of all faces."""
    best, ratio = None, -math.inf
    for size in range(1, len(eta) + 1):
        for face in map(list, itertools.combinations(range(len(eta)), size)):
            b = np.zeros(len(eta))
            b[face] = np.linalg.solve(sigma[np.ix_(face, face)], eta[face])
            if b.min() >= 0 and b.any() and eta @ b / math.sqrt(b @ sigma @ b) > ratio:
                best, ratio = b / b.sum(), eta @ b / math.sqrt(b @ sigma @ b)
    return best


@pytest.mark.parametrize(("learned", "shift", "mixed"), [(1.0, 1.5, 2), (1.0, -1.5, 3), (0.0, 1.5, 1)])
def test_heads_weights_and_odds_of_feature_mkl(learned, shift, mixed, monkeypatch):
    pairs = [(quarters(6 + i, 2, seed=10 + i), quarters(7, 2, seed=20 + i, shift=0.4 * i)) for i in range(3)]
    monkeypatch.setattr("m2st_core.learners.learned_tests.learn_spaces", lambda *_: exact_features())
    known = learn_feature_mixture(as_related_tasks(pairs), TUNED, [Streams(SEED)])
    known.choices |= {"beta_regularisation": 1.0, "beta_is_learned": learned}
    kernels = [partial(aggregate, rows=int(np.mean([len(x) + len(y) for x, y in pairs])))]
    for name in known.base_names[1:]:
        x, y = pairs[int(name.removeprefix("task ")) - 1]
        d = sum(map(psi, x)) / len(x) - sum(map(psi, y)) / len(y)
        head = S[0] / (S[0] + 1 / len(x) + 1 / len(y)) * d
        kernels.append(lambda a, b, head=head: (head @ psi(a)) * (head @ psi(b)) / (head @ head))
    x, y = quarters(8, 2, seed=30), quarters(8, 2, seed=31, shift=shift)
    kernels += [naive.gaussian(factor * median_width([*x, *y])) for factor in (0.25, 1, 4)]
    eta, null, means = [], [], []
    for kernel in kernels:
        h = np.array([[naive.h(kernel, x, y, i, j) for j in range(8)] for i in range(8)])
        off = h - np.diag(np.diag(h))
        eta.append(off.sum() / 56)
        null.append(math.sqrt(2 * (off**2).sum() / 56**2))
        means.append(h.mean(1) - h.mean())
    eta, null, means = map(np.array, (eta, null, means))
    sigma = 4 / 8 * means @ means.T
    beta = np.array([1.0, 0, 0, 0])
    if learned:
        effect = eta[:4] / null[:4] - np.array([0, 2, 2, 2])
        scaled = (sigma / np.outer(null, null))[:4, :4]
        beta = best_weights(effect, scaled + np.diag(scaled).mean() * np.eye(4))
        single = np.where(effect > 0, beta, 0)[1:]
        single = single * min(1, 0.8 / max(single.sum(), 1e-300))
        beta = np.array([1 - single.sum(), *single]) / null[:4]
    d, _, tau = target_view(x, y)
    related = 0.5 * sum(d**2 / tau * S[0] / (S[0] + tau) - np.log(1 + S[0] / tau))
    shares = np.array([2 * math.exp(related), *(np.exp(eta[4:] / null[4:]) / 3)])
    shares /= shares.sum()
    weights = np.array([*(shares[0] * beta / sum(beta * null[:4])), *(shares[1:] / null[4:])])
    found = fit_feature_mixture(known, batch(x, y), TUNED, [Streams(SEED)])
    assert list(found.weights[0].values()) == pytest.approx(list(weights / weights.sum()), abs=1e-8)
    assert sum(weight > 0 for weight in beta) == mixed
    value = sum(w * k(x[0], y[0]) for w, k in zip(weights / weights.sum(), kernels, strict=True))
    rows = batch(x[:1], y[:1])
    assert found.kernel(rows.x, rows.y).item() == pytest.approx(value, abs=1e-8)


# ## Constants


def constant(path):
    """The value of module.NAME or module.Class.field."""
    module, name = path.rsplit(".", 1)
    if module.endswith("FeatureSettings"):
        return getattr(FeatureSettings(), name)
    return getattr(importlib.import_module(f"m2st_core.{module}"), name)


def test_constants_are_those_of_the_code():
    table = PAGE.split("## Constants")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if "`" in line]
    assert len(rows) > 25
    for name, said, paths in rows:
        values = [constant(path) for path in re.findall(r"`([\w.]+)`", paths)]
        values = [tuple(value.values()) if isinstance(value, dict) else value for value in values]
        flat = [number for value in values for number in (value if isinstance(value, tuple) else (value,))]
        numbers = [Fraction(number) if number != "∞" else math.inf for number in said.split(", ")]
        assert [float(number) for number in numbers] == flat, name


def test_the_sections_named_here_are_on_the_page():
    named = re.findall(r"## ([A-Z][\w -]+)", Path(__file__).read_text(encoding="utf-8"))
    there = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert len(named) > 9 and {name.strip() for name in named} <= set(there)
