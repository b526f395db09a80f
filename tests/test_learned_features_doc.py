"""What docs/learned_features.md says is what the code computes: its formulas again, row by row, in numpy."""

import importlib
import itertools
import math
import re
from functools import partial
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import torch

from m2st_core.data.arrays import as_related_tasks
from m2st_core.kernels.features import Units
from m2st_core.learners.feature_mkl import fit_feature_mixture, learn_feature_mixture
from m2st_core.learners.features import fit_features
from m2st_core.learners.knowledge import Knowledge
from m2st_core.learners.meta_features import FourierFeatures
from m2st_core.learners.meta_witness import fit_witness, meta_bank, witness_kernel
from m2st_core.learners.prior import align
from m2st_core.permutation.statistics import random_memberships
from m2st_core.preset import FeatureLearning
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.types import TwoSample
from tests import naive

PAGE = (Path(__file__).parent.parent / "docs" / "learned_features.md").read_text(encoding="utf-8")
RECOMMENDED = PRESETS["recommended"]
FEW = FeatureLearning(fourier_per_column=4, fewest_fourier=16)  # random features, so that loops are quick
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


def units(pairs):
    rows = np.concatenate([row for pair in pairs for row in pair])
    mean = sum(rows) / len(rows)
    return mean, np.sqrt(sum((row - mean) ** 2 for row in rows) / len(rows))


def median_width(rows):
    """The squared median distance."""
    return np.median([math.dist(a, b) for a, b in itertools.combinations(map(tuple, rows), 2)]) ** 2


def frequencies(pairs, width):
    """The page's ω_j, (d, D/2), from the numbers g_j that the code draws."""
    mean, sd = units(pairs)
    median = median_width([(row - mean) / sd for pair in pairs for sample in pair for row in sample])
    g = torch.randn(2, 8, generator=Streams(SEED).torch("frequencies"), dtype=torch.float64).numpy()
    return g * math.sqrt(2 / (width * median))


def phi(row, mean, sd, omega):
    z = (row - mean) / sd
    angles = [sum(z * column) for column in omega.T]
    return np.array([*z, *(math.sin(a) for a in angles), *(math.cos(a) for a in angles)])


# ## Whitening, ## Differences and their noise


def whitening(samples):
    """W, C and φ̄ of tasks ((Φ_x, Φ_y), …) in raw features."""
    q, freedom, total = samples[0][0].shape[1], 0, 0.0
    for sample in itertools.chain(*samples):
        mean = sum(sample) / len(sample)
        total = total + sum(np.outer(row - mean, row - mean) for row in sample)
        freedom += len(sample) - 1
    s = total / freedom
    ridge = float(np.float32(q / freedom)) * np.trace(s) / q
    w = np.linalg.inv(np.linalg.cholesky(s + ridge * np.eye(q))).T
    return w, w.T @ s @ w, sum((x.mean(0) + y.mean(0)) / 2 for x, y in samples) / len(samples)


def differences(samples, w):
    return [(w.T @ (x.mean(0) - y.mean(0)), 1 / len(x) + 1 / len(y)) for x, y in samples]


# ## Directions


def directions(found, c, shared):
    """Three columns u with uᵀCu = 1."""
    chosen = []
    if shared:
        mean = sum(d / tau for d, tau in found)
        chosen.append(mean / np.linalg.norm(mean))
        found = [(d - (chosen[0] @ d) * chosen[0], tau) for d, tau in found]
    values, vectors = np.linalg.eigh(sum(np.outer(d, d) / tau for d, tau in found))
    for value, vector in zip(values[::-1], vectors.T[::-1], strict=True):
        if len(chosen) < 3:
            chosen.append(vector * (value > 1e-10 * values[-1]))
    scale = [u @ c @ u for u in chosen]
    return np.array([u / math.sqrt(v) if v > 1e-6 else 0 * u for u, v in zip(chosen, scale, strict=True)]).T


# ## Prior


def prior(folds, c, shared):
    """s_q of the three directions, and the evidence."""
    seen = [(directions(others, c, shared).T @ d, tau) for others, own in folds for d, tau in own]
    sizes, evidence = [], 0.0
    for q in range(3):
        t, tau = np.array([t[q] for t, _ in seen]), np.array([tau for _, tau in seen])
        size = max(0, sum((t**2 - tau) / tau**2) / sum(1 / tau**2))
        gain = max(0, 0.5 * sum(t**2 / tau * size / (size + tau) - np.log(1 + size / tau)))
        offers = [(size, gain - 4)]
        mean = sum(t / tau) / sum(1 / tau)
        if shared and q == 0:
            offers.append(
                (max(0, mean**2 - 1 / sum(1 / tau)), 0.5 * mean**2 * sum(1 / tau) - 2) if mean > 0 else (0, -2)
            )
        sizes.append(max([s / (1 + math.exp(-a)) for s, a in offers] + [1e-3 / np.mean(1 / tau)]))
        evidence += max(0, *(a for _, a in offers))
    return sizes, evidence


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


# ## What tasks left out choose


def best_directions(samples):
    """Of both candidates in raw features: (shared, s, evidence, projection, φ̄), s rising."""
    w, c, centre = whitening(samples)
    found = differences(samples, w)
    if len(samples) < 5:
        one, other = (differences(half, w) for half in halves(samples))
        folds = [(one, other), (other, one)]
    else:
        order = torch.randperm(len(samples), generator=Streams(SEED).torch("tasks left out")).tolist()
        dealt = [order[fold :: min(10, len(samples))] for fold in range(min(10, len(samples)))]
        folds = [([found[i] for i in order if i not in own], [found[i] for i in own]) for own in dealt]
    (with_one, without) = ((*prior(folds, c, shared), directions(found, c, shared)) for shared in (True, False))
    shared = without[1] <= with_one[1] + 3
    sizes, evidence, u = with_one if shared else without
    order = np.argsort(sizes, kind="stable")
    return shared, np.array(sizes)[order], evidence, (w @ u)[:, order], centre


def in_features(pairs, omega):
    mean, sd = units(pairs)
    return [tuple(np.array([phi(row, mean, sd, omega) for row in sample]) for sample in pair) for pair in pairs]


def weighted(psi, s, rows):
    """Σ_q w_q ψ_q(x)ψ_q(y)/Σ_q w_q, w_q = s_q/(s_q + 4/rows): the sign of a direction does not matter."""
    w = [size / (size + 4 / rows) for size in s]
    return np.array([[sum(w * a * b) / sum(w) for b in psi] for a in psi])


@pytest.mark.parametrize("tasks", [3, 8])  # halves of rows, and tasks, are left out
@pytest.mark.parametrize("one_order", [True, False])
def test_whitening_directions_and_prior(tasks, one_order):
    pairs = [pair if one_order or task % 2 else pair[::-1] for task, pair in enumerate(history(tasks))]
    samples = in_features(pairs, frequencies(pairs, 4.0))
    shared, s, evidence, projection, centre = best_directions(samples)
    assert shared == one_order
    meta = as_related_tasks(samples)
    found = align(lambda rows: rows, meta, FEW, [Streams(SEED)])
    assert found["shared"].item() == shared
    assert found["evidence"].item() == pytest.approx(evidence, abs=1e-8)
    assert found["prior"][0].numpy() == pytest.approx(s, abs=1e-8)
    there = (meta.rows @ found["transform"] - found["offset"])[0, :12].numpy()
    here = (meta.rows[0, :12].numpy() - centre) @ projection
    assert weighted(there, s, 40) == pytest.approx(weighted(here, s, 40), abs=1e-8)


@pytest.mark.parametrize("strength", [0.0, 1.2, 3.0])
def test_raw_features_and_the_width_that_tasks_left_out_choose(strength):
    """The code takes sines in float32, hence 1e-4 here."""
    pairs = history(7, strength)
    best = None
    for width, margin in zip((4.0, math.inf, 1.0, 0.25, 0.06, 0.02), (0, 2, 8, 8, 8, 8), strict=True):
        offer = best_directions(in_features(pairs, frequencies(pairs, width)))
        if best is None or offer[2] > best[1][2] + margin:
            best = width, offer
    width, (shared, s, evidence, projection, centre) = best
    features, choices = fit_features(as_related_tasks(pairs), FEW, [Streams(SEED)])
    assert choices["feature_width"] == width
    assert choices["shared_direction_leads"] == shared
    assert choices["direction_evidence"] == pytest.approx(evidence, abs=1e-4)
    assert features.prior[0].numpy() == pytest.approx(s, rel=1e-4)
    rows = np.random.default_rng(9).normal(size=(6, 2))
    psi = np.array([(phi(row, *units(pairs), frequencies(pairs, width)) - centre) @ projection for row in rows])
    found = features(torch.from_numpy(rows)[None])[0].numpy()
    assert weighted(found, s, 40) == pytest.approx(weighted(psi, s, 40), abs=1e-4)


# ## Meta-Witness, with features whose numbers float32 holds exactly


def exact_features():
    """ψ(x) = Aᵀx + b of two columns, with s = 0.01, 0.3, 2."""
    zero, one = torch.zeros(1, 1, 2, dtype=torch.float64), torch.ones(1, 1, 2, dtype=torch.float64)
    features = FourierFeatures(Units(zero, one), torch.zeros(1, 2, 1, dtype=torch.float64), 3)
    features.transform[0, :2] = torch.tensor([[0.5, -1.0, 0.25], [1.0, 0.5, 2.0]])
    features.offset[0, 0] = torch.tensor([0.5, -0.25, 1.0])
    features.prior[0] = torch.tensor([0.01, 0.3, 2.0])
    return features


def psi(row):
    a, b = row
    return np.array([0.5 * a + b - 0.5, -a + 0.5 * b + 0.25, 0.25 * a + 2 * b - 1])


S = np.array([0.01, 0.3, 2.0], dtype=np.float32).astype(float)


def quarters(*shape, seed, shift=0.0):
    return np.round(4 * np.random.default_rng(seed).normal(shift, size=shape)) / 4


def aggregate(a, b, rows):
    w = S / (S + 4 / rows)
    return sum(w * psi(a) * psi(b)) / sum(w)


def batch(x, y):
    return TwoSample(torch.from_numpy(x)[None], torch.from_numpy(y)[None])


def test_kernel_of_meta_witness():
    x, y = quarters(5, 2, seed=1), quarters(4, 2, seed=2)
    rows = [*x, *y]
    pooled = batch(x, y).pooled
    kernel = witness_kernel(Knowledge(features=exact_features()), pooled, RECOMMENDED, [Streams(SEED)]).kernel
    g = torch.randn(2, 50, generator=Streams(SEED).torch("frequencies"), dtype=torch.float64).numpy()
    theta = math.sqrt(2 / median_width(rows)) * g
    found = kernel(pooled, pooled)[0].detach().numpy()
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            gaussian = sum(math.cos(sum(column * (a - b))) for column in theta.T) / 50
            expected = 0.95 * aggregate(a, b, len(rows)) + 0.05 * gaussian
            assert found[i, j] == pytest.approx(expected, abs=1e-8)


# ## Meta-WiTS


def target_view(x, y):
    """d, v and τ of the training rows, three each."""
    of_x, of_y = (np.array([psi(row) for row in rows]) for rows in (x, y))
    mean_x, mean_y = of_x.mean(0), of_y.mean(0)
    inside = sum((row - mean_x) ** 2 for row in of_x) + sum((row - mean_y) ** 2 for row in of_y)
    variance = inside / (len(x) + len(y) - 2)
    return mean_x - mean_y, variance, variance * (1 / len(x) + 1 / len(y))


def test_witness_and_statistic_of_meta_wits():
    train = quarters(6, 2, seed=3), quarters(8, 2, seed=4, shift=0.5)
    witness = fit_witness(Knowledge(features=exact_features()), batch(*train), RECOMMENDED, [])
    d, v, tau = target_view(*train)
    share = S / (S + tau)
    w = share * d / v
    surety = sum(w * share * d) / math.sqrt(sum(w**2 * share * tau))
    rows = quarters(9, 2, seed=5)
    assert witness.surety.item() == pytest.approx(surety, abs=1e-8)
    assert witness.score(torch.from_numpy(rows)[None])[0].numpy() == pytest.approx(
        [w @ psi(row) for row in rows], abs=1e-8
    )
    members = random_memberships(4, 5, 20, [np.random.default_rng(0)])
    found, *_ = witness.statistics(torch.from_numpy(rows)[None], members, 4)
    pi = NormalDist().cdf(surety)
    for value, labels in zip(found[0].tolist(), members[0].numpy(), strict=True):
        x, y = ([w @ psi(row) for row in part] for part in (rows[labels], rows[~labels]))
        a = (sum(x) / 4 - sum(y) / 5) / (1 / 4 + 1 / 5)
        assert value == pytest.approx(math.log(pi * math.exp(a) + (1 - pi) * math.exp(-a)), abs=1e-8)


# ## Meta-FUSE


def test_statistic_of_meta_fuse():
    rows = quarters(9, 2, seed=6)
    pooled, members = torch.from_numpy(rows)[None], random_memberships(4, 5, 30, [np.random.default_rng(1)])
    bank = meta_bank(Knowledge(features=exact_features()), pooled, RECOMMENDED, [Streams(SEED)])
    found, *_ = bank.statistics(pooled, members, 4)
    widths = [factor * median_width(rows) for factor in (0.25, 1, 4)]
    families = [[partial(aggregate, rows=9)], [naive.gaussian(width) for width in widths]]
    expected = np.zeros(31)
    for family in families:
        total = np.zeros(31)
        for kernel in family:
            mmd2 = [naive.mmd2_unbiased(kernel, rows[labels], rows[~labels]) for labels in members[0].numpy()]
            total += np.exp(np.array(mmd2) / np.std(mmd2, ddof=1))
        expected += [0.5 * 31 / sum(total >= one * (1 - 1e-6)) for one in total]
    assert found[0].numpy() == pytest.approx(expected, abs=1e-8)


# ## Feature-MKL


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
    monkeypatch.setattr("m2st_core.learners.feature_mkl.fit_features", lambda *_: (exact_features(), {}))
    known = learn_feature_mixture(as_related_tasks(pairs), RECOMMENDED, [Streams(SEED)])
    known.choices |= {"beta_regularisation": 1.0, "beta_is_learned": learned}
    kernels = [partial(aggregate, rows=int(np.mean([len(x) + len(y) for x, y in pairs])))]
    for name in known.base_names[1:]:
        x, y = pairs[int(name.removeprefix("task ")) - 1]
        d = sum(map(psi, x)) / len(x) - sum(map(psi, y)) / len(y)
        head = S / (S + 1 / len(x) + 1 / len(y)) * d
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
    related = 0.5 * sum(d**2 / tau * S / (S + tau) - np.log(1 + S / tau))
    shares = np.array([2 * math.exp(related), *(np.exp(eta[4:] / null[4:]) / 3)])
    shares /= shares.sum()
    weights = np.array([*(shares[0] * beta / sum(beta * null[:4])), *(shares[1:] / null[4:])])
    found = fit_feature_mixture(known, batch(x, y), RECOMMENDED, [Streams(SEED)])
    assert list(found.weights[0].values()) == pytest.approx(list(weights / weights.sum()), abs=1e-8)
    assert sum(weight > 0 for weight in beta) == mixed
    value = sum(w * k(x[0], y[0]) for w, k in zip(weights / weights.sum(), kernels, strict=True))
    rows = batch(x[:1], y[:1])
    assert found.kernel(rows.x, rows.y).item() == pytest.approx(value, abs=1e-8)


# ## Constants


def constant(path):
    """The value of module.NAME or module.Class.field."""
    module, name = path.rsplit(".", 1)
    if module.endswith("FeatureLearning"):
        return getattr(FeatureLearning(), name)
    return getattr(importlib.import_module(f"m2st_core.{module}"), name)


def test_constants_are_those_of_the_code():
    table = PAGE.split("## Constants")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if "`" in line]
    assert len(rows) > 15
    for name, said, paths in rows:
        values = [constant(path) for path in re.findall(r"`([\w.]+)`", paths)]
        flat = [number for value in values for number in (value if isinstance(value, tuple) else (value,))]
        assert [float(number.replace("∞", "inf")) for number in said.split(", ")] == flat, name


def test_the_sections_named_here_are_on_the_page():
    named = re.findall(r"## ([A-Z][\w -]+)", Path(__file__).read_text(encoding="utf-8"))
    there = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert len(named) > 9 and {name.strip() for name in named} <= set(there)
