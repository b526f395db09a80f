"""Split, learn, test: one pair of samples, or a batch of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.device import one_thread_per_operation, resolve_device
from m2st_core.kernels import Kernel
from m2st_core.learners.ascent import draw_rows
from m2st_core.presets import PRESETS, Preset
from m2st_core.rng import Streams
from m2st_core.testing.blocks import Blocks, check_blocks, labelling_notes, memberships_within
from m2st_core.testing.methods import Method
from m2st_core.testing.permutation import BLOCK_ROWS, permutation_p_value, random_memberships
from m2st_core.testing.prepare import Prepared, prepare
from m2st_core.testing.split import split_sizes
from m2st_core.types import Progress, TestResult, TwoSample

CRITERION_ROWS = 500
BATCH_ELEMENTS = 2**21  # numbers a batch of tests may hold in one tensor: small enough for the cache


def learn_once(
    method: Method,
    train: TwoSample,
    seed: int,
    preset: Preset = PRESETS["recommended"],
    progress: Progress | None = None,
) -> Method:
    """The method as learned on these rows, x (n, d) and y (m, d): it then tests every row it is given.

    This is how the paper measures power: one training sample, many test samples. Methods that learn nothing from the
    target's labels are left as they are.
    """
    if not method.needs_split:
        return method
    assert method.fit is not None
    rows, preset = _for_learning(TwoSample(train.x[None], train.y[None], train.shape)), preset.on(train.shape)
    with one_thread_per_operation():
        learned = method.fit(rows, preset, [Streams(seed)], progress)
    return replace(method, needs_split=False, learned=learned)


def run_tests(sample: TwoSample, method: Method, *, seeds: Sequence[int], **settings: Any) -> list[TestResult]:
    """The same test on R independent sample pairs at once, each with its own seed: x (R, n, d), y (R, m, d).

    Only methods that are not ``symmetric`` mind which sample is called x. Settings are those of ``run_chunks``.
    """
    return [result for results, _ in run_chunks(sample, method, seeds=seeds, **settings) for result in results]


def run_chunks(
    sample: TwoSample,
    method: Method,
    *,
    seeds: Sequence[int],
    alpha: float = 0.05,
    n_permutations: int = 999,
    train_fraction: float = 0.5,
    preset: Preset = PRESETS["recommended"],
    device: str | torch.device = "auto",
    blocks: Blocks | None = None,
    criterion: bool = False,
    progress: Progress | None = None,
) -> Iterator[tuple[list[TestResult], Prepared]]:
    """Chunks of tests, as many at once as fit. All pairs share ``blocks``.

    Ĵ on the test rows, which no decision needs and which costs as much as the test, is found only if ``criterion``
    asks for it.
    """
    _check_settings(alpha, n_permutations, train_fraction, method.exact)
    preset = preset.on(sample.shape)
    if blocks is not None:
        check_blocks(method)
    n_train, n_test = split_sizes(sample.sizes, method, train_fraction)
    rows = sum(n_test)
    gram_elements = method.kernels_at_once * (n_permutations + 1 + rows) * min(rows, BLOCK_ROWS)
    elements = max(rows * (n_permutations + 1), gram_elements, sum(n_train) ** 2)
    at_once = max(1, BATCH_ELEMENTS // elements)
    place = resolve_device(device)
    with one_thread_per_operation():
        for start in range(0, len(seeds), at_once):
            began = time.perf_counter()
            chunk = slice(start, start + at_once)
            streams = [Streams(seed) for seed in seeds[chunk]]
            part = _for_learning(TwoSample(sample.x[chunk], sample.y[chunk], sample.shape).to(place))
            prepared = prepare(part, method, n_train, preset, streams, blocks, progress)
            outcome = _decide(prepared, method, n_permutations, preset, streams, criterion, progress)
            seconds = (time.perf_counter() - began) / len(streams)
            results = [
                TestResult(
                    method=method.name,
                    p_value=float(p),
                    p_value_se=math.sqrt(p * (1 - p) / (n_permutations + 1)) if method.exact else 0.0,
                    statistic=float(statistic),
                    rejected=bool(p <= alpha),
                    alpha=float(alpha),
                    null=null,
                    criterion=value,
                    n_train=n_train,
                    n_test=n_test if method.exact else (min(n_test), min(n_test)),
                    n_permutations=n_permutations,
                    train_fraction=float(train_fraction) if method.needs_split else 0.0,
                    preset=preset.name,
                    rule=preset.p_value if method.exact else "asymptotic",
                    seed=int(stream.seed),
                    device=str(place),
                    seconds=seconds,
                    notes=outcome.notes,
                    weights=weights,
                    diagnostics=diagnostics,
                )
                for stream, statistic, p, null, value, weights, diagnostics in zip(
                    streams,
                    outcome.statistic,
                    outcome.p_value,
                    outcome.null,
                    outcome.criterion,
                    prepared.weights,
                    prepared.diagnostics,
                    strict=True,
                )
            ]
            yield results, prepared


def _for_learning(sample: TwoSample) -> TwoSample:
    """Images in float32, which is what pixels need; other rows as they are."""
    return sample.to(torch.float32) if sample.shape else sample


@dataclass(frozen=True)
class Outcome:
    """What a chunk of R tests found: (R,), (R,), (R, B), R numbers."""

    statistic: np.ndarray
    p_value: np.ndarray
    null: np.ndarray
    criterion: Sequence[float | None]
    notes: tuple[str, ...] = ()


def _decide(
    prepared: Prepared,
    method: Method,
    n_permutations: int,
    preset: Preset,
    streams: Sequence[Streams],
    criterion: bool,
    progress: Progress | None,
) -> Outcome:
    """The p-values of what was learned on the rows to test."""
    test, learned = prepared.test, prepared.learned
    if method.statistics is None:
        return _asymptotic(method, learned, test, n_permutations, preset, streams)
    n, m = test.sizes
    generators = [stream.numpy("permutations") for stream in streams]
    notes: tuple[str, ...] = ()
    if preset.p_value != "(1+b)/(1+B)":
        notes = (f"The p-value {preset.p_value} rejects slightly too often.",)
    if prepared.blocked:
        members, labellings = memberships_within(prepared.about.pooled[..., 0], n, n_permutations, generators)
        notes += labelling_notes(labellings)
    else:
        members = random_memberships(n, m, n_permutations, generators)
    still_cancel = _at_the_end(progress) if method.needs_split else progress
    statistics, rounding = method.statistics(learned, test.pooled, members.to(test.x.device), n, still_cancel)
    p_value = permutation_p_value(statistics, rounding, preset.p_value)
    values = statistics.cpu().numpy()
    found = _criterion(learned, test) if criterion else [None] * len(streams)
    return Outcome(values[:, 0], p_value.cpu().numpy(), values[:, 1:], found, notes)


def _at_the_end(progress: Progress | None) -> Progress | None:
    """A progress that stays at the end, and can still cancel, while what was learned is being tested."""
    return None if progress is None else lambda step, total, value: progress(total, total, value)


def _asymptotic(
    method: Method, learned: Any, test: TwoSample, n_quantiles: int, preset: Preset, streams: Sequence[Streams]
) -> Outcome:
    """Asymptotic tests pair rows: of unequal samples the longer one loses rows at random."""
    assert method.asymptotic is not None
    n, m = test.sizes
    generators = [stream.torch("pairing of test rows") for stream in streams]
    x, y = (draw_rows(rows, min(n, m), generators) for rows in test)
    statistic, p_value, null = method.asymptotic(learned, TwoSample(x, y), n_quantiles, preset, streams)
    notes = (
        () if n == m else (f"This test pairs rows: {abs(n - m)} random test rows of the larger sample were left out.",)
    )
    return Outcome(statistic, p_value, null, [None] * len(streams), notes)


def _criterion(learned: Any, test: TwoSample) -> list[float | None]:
    """Ĵ on at most 500 test rows of each sample, for kernels."""
    count = min(*test.sizes, CRITERION_ROWS)
    if not isinstance(learned, Kernel):
        return [None] * test.x.shape[0]
    with torch.no_grad():
        h = h_matrix(learned, test.x[:, :count], test.y[:, :count])
        return [float(value) for value in power_criterion(h, regularisation=1e-8)]


def _check_settings(alpha: float, n_permutations: int, train_fraction: float, exact: bool) -> None:
    for name, value, low, high in (("alpha", alpha, 0, 1), ("train_fraction", train_fraction, 0.01, 0.99)):
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        inside = number and (low <= value <= high if low else 0 < value < 1)
        if not inside:
            allowed = f"from {low} to {high}" if low else "between 0 and 1, both excluded"
            raise ValueError(f"{name} must be a number {allowed}. Got {value!r}.")
    whole = isinstance(n_permutations, (int, np.integer)) and not isinstance(n_permutations, bool)
    if not whole or n_permutations < 1:
        raise ValueError(f"n_permutations must be a whole number ≥ 1. Got {n_permutations!r}.")
    if exact and 1 / (n_permutations + 1) > alpha:
        raise ValueError(
            f"With n_permutations={n_permutations} no p-value can be as small as alpha={alpha:g}. "
            f"Use at least {math.ceil(1 / alpha) - 1}."
        )
