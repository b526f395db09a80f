"""Double-loop references in float64: slow, obvious, and written from the formulas only."""

from __future__ import annotations

import itertools
import math

import numpy as np


def gaussian(width):
    return lambda a, b: math.exp(-sum((s - t) ** 2 for s, t in zip(a, b, strict=True)) / width)


def laplace(width):
    return lambda a, b: math.exp(-sum(abs(s - t) for s, t in zip(a, b, strict=True)) / width)


def deep(phi, feature_width, input_width, mixing):
    """k of METHODS: [(1−ε)·exp(−‖φ(x)−φ(y)‖²/σ_φ²) + ε]·exp(−‖x−y‖²/σ_q²)."""

    def k(a, b):
        features = sum((s - t) ** 2 for s, t in zip(phi(a), phi(b), strict=True))
        inputs = sum((s - t) ** 2 for s, t in zip(a, b, strict=True))
        return ((1 - mixing) * math.exp(-features / feature_width) + mixing) * math.exp(-inputs / input_width)

    return k


def mlp(weights, biases):
    """Linear layers with softplus between, one row at a time."""

    def phi(row):
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            out = []
            for j in range(weight.shape[1]):
                value = bias[j] + sum(row[i] * weight[i, j] for i in range(weight.shape[0]))
                out.append(math.log1p(math.exp(value)) if layer < len(weights) - 1 else value)
            row = out
        return row

    return phi


def mmd2_unbiased(k, x, y):
    n, m = len(x), len(y)
    xx = sum(k(x[i], x[j]) for i in range(n) for j in range(n) if i != j)
    yy = sum(k(y[i], y[j]) for i in range(m) for j in range(m) if i != j)
    xy = sum(k(a, b) for a in x for b in y)
    return xx / (n * (n - 1)) + yy / (m * (m - 1)) - 2 * xy / (n * m)


def h(k, x, y, i, j):
    return k(x[i], x[j]) + k(y[i], y[j]) - k(x[i], y[j]) - k(y[i], x[j])


def mmd2_paired(k, x, y):
    n = len(x)
    return sum(h(k, x, y, i, j) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))


def variance(k, x, y):
    m = len(x)
    rows = [sum(h(k, x, y, i, j) for j in range(m)) for i in range(m)]
    return 4 / m**3 * sum(row**2 for row in rows) - 4 / m**4 * sum(rows) ** 2


def power_criterion(k, x, y, regularisation):
    return mmd2_paired(k, x, y) / math.sqrt(variance(k, x, y) + regularisation)


def fuse(kernels, weights, x, y):
    """(1/λ)·log Σ_k π_k·exp(λ·MMD²_u,k/√N_k), λ = c(c−1), c the smaller sample size."""
    count = min(len(x), len(y))
    scale = count * (count - 1)
    pooled = [*x, *y]
    total = 0.0
    for k, weight in zip(kernels, weights, strict=True):
        square = sum(k(a, b) ** 2 for i, a in enumerate(pooled) for j, b in enumerate(pooled) if i != j)
        total += weight * math.exp(scale * mmd2_unbiased(k, x, y) / math.sqrt(square / (count * (count - 1))))
    return math.log(total) / scale


def energy(norm=2):
    return lambda a, b: -(sum(abs(s - t) ** norm for s, t in zip(a, b, strict=True)) ** (1 / norm))


def aggregate(values, weights):
    """max_k w_k/p_k under each labelling, from MMD² by kernel and labelling; ties by the sum."""
    found = []
    for p in range(len(values[0])):
        evidence = [
            w * len(row) / sum(other >= row[p] for other in row) for w, row in zip(weights, values, strict=True)
        ]
        found.append(max(evidence) + 1e-6 * sum(evidence))
    return found


def labellings(n, m):
    """All n-subsets of n+m rows as 0/1 rows, the observed one first."""
    return np.array([[i in chosen for i in range(n + m)] for chosen in itertools.combinations(range(n + m), n)])


def median_squared_distance(x):
    return np.median([sum((a - b) ** 2) for a, b in itertools.combinations(x, 2)])


def hotelling(differences, regularisation):
    n, size = differences.shape
    mean = [sum(row[j] for row in differences) / n for j in range(size)]
    covariance = [
        [
            sum((row[i] - mean[i]) * (row[j] - mean[j]) for row in differences) / (n - 1) + regularisation * (i == j)
            for j in range(size)
        ]
        for i in range(size)
    ]
    return n * np.array(mean) @ np.linalg.inv(np.array(covariance)) @ np.array(mean)
