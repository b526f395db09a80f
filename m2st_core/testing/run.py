"""Fit and decide: one pair of samples, or a batch of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m2st_core.device import in_batches, one_thread_per_operation, resolve_device, short_memory_in_words
from m2st_core.kernels.networks import MOST_UNITS
from m2st_core.learners.ascent import draw_rows
from m2st_core.permutation.blocks import Blocks, memberships_within, permutation_p_value, random_memberships
from m2st_core.permutation.fitted import AsymptoticTest, PermutationTest
from m2st_core.permutation.statistics import BLOCK_ROWS
from m2st_core.presets import PRESETS, Preset
from m2st_core.progress import part_of
from m2st_core.rng import Streams
from m2st_core.testing.labellings import Labellings, all_labellings, check_blocks, check_reach, plan_labellings
from m2st_core.testing.method import Method, TestSettings
from m2st_core.testing.split import FittedRuns, fit_runs, split_sizes
from m2st_core.types import Progress, TestResult, TwoSample

BATCH_ELEMENTS = 2**21  # numbers a batch of tests may hold in one tensor: small enough for the cache


def learn_once(
    method: Method,
    train: TwoSample,
    seed: int,
    preset: Preset = PRESETS["recommended"],
    progress: Progress | None = None,
) -> Method:
    """Fit a method on one training sample, x (n, d) and y (m, d), so that it tests every row of later samples.

    This is how the paper measures power: one training sample, many test samples. A method without a split is returned
    as it is.
    """
    if not method.needs_split:
        return method
    rows = _as_floats(TwoSample(train.x[None], train.y[None], train.shape))
    with one_thread_per_operation(), short_memory_in_words():
        return method.with_fit(method.fit_on(rows, preset.on(train.shape), [Streams(seed)], progress))


def run_tests(
    sample: TwoSample,
    method: Method,
    *,
    seeds: Sequence[int],
    preset: Preset = PRESETS["recommended"],
    blocks: Blocks | None = None,
    **settings: Any,
) -> list[TestResult]:
    """Run the same test on R independent pairs, x (R, n, d) and y (R, m, d), each with its own seed.

    Further settings are those of ``TestSettings``.
    """
    chunks = run_chunks(sample, method, seeds, TestSettings(**settings), preset, blocks)
    return [result for results, _ in chunks for result in results]


def run_chunks(
    sample: TwoSample,
    method: Method,
    seeds: Sequence[int],
    settings: TestSettings,
    preset: Preset,
    blocks: Blocks | None = None,
    criterion: bool = False,
) -> Iterator[tuple[list[TestResult], FittedRuns]]:
    """Run tests in chunks as large as memory allows. All pairs share ``blocks``.

    ``criterion`` asks for Ĵ on the test rows, which costs as much as the test itself.
    """
    preset = preset.on(sample.shape)
    if blocks is not None:
        check_blocks(method)
    alpha, fraction, progress = settings.alpha, settings.train_fraction, settings.progress
    n_train, n_test = split_sizes(sample.sizes, method, fraction)
    planned = plan_labellings(sample.sizes, method, seeds, blocks, settings.n_permutations, fraction, preset.p_value)
    for labellings in {one for one in planned if not one.enumerated}:  # with few rows the rate of rejections is 0
        check_reach(method, alpha, labellings.smallest_p, labellings, n_test)
    device, columns = resolve_device(settings.device), 0 if sample.shape else sample.x.shape[-1]

    def run(labellings: Labellings, chunk: slice) -> tuple[list[TestResult], FittedRuns]:
        began = time.perf_counter()
        streams = [Streams(seed) for seed in seeds[chunk]]
        part = _as_floats(TwoSample(sample.x[chunk], sample.y[chunk], sample.shape).to(device))
        stage = part_of(progress, chunk.start / len(seeds), chunk.stop / len(seeds))
        runs = fit_runs(part, method, n_train, preset, streams, blocks, stage)
        decisions = _decide(runs, labellings, preset, streams, stage)
        criteria = runs.fitted.criterion(runs.test) if criterion else [None] * len(streams)
        seconds = (time.perf_counter() - began) / len(streams)
        about = (runs.fitted.weights, runs.fitted.diagnostics)
        weights, diagnostics = (part if len(part) == len(streams) else part * len(streams) for part in about)
        results = [
            TestResult(
                method=method.name,
                p_value=float(decisions.p_value[index]),
                p_value_se=float(decisions.error[index]),
                statistic=float(decisions.statistic[index]),
                rejected=bool(decisions.p_value[index] <= alpha),
                alpha=float(alpha),
                null=decisions.null[index],
                criterion=criteria[index],
                n_train=n_train,
                n_test=n_test if method.by_permutation else (min(n_test), min(n_test)),
                n_permutations=labellings.used - 1,
                train_fraction=float(fraction) if method.needs_split else 0.0,
                preset=preset.name,
                rule=preset.p_value if method.by_permutation else "asymptotic",
                seed=int(stream.seed),
                device=str(device),
                seconds=seconds,
                notes=decisions.notes,
                weights=weights[index],
                diagnostics=diagnostics[index],
                enumerated=labellings.enumerated,
                smallest_p=labellings.smallest_p,
                origin=method.origin,
            )
            for index, stream in enumerate(streams)
        ]
        return results, runs

    start = 0
    with one_thread_per_operation(), short_memory_in_words():
        for labellings, alike in itertools.groupby(planned):  # neighbouring runs with equally many labellings
            end = start + len(list(alike))
            at_once = max(1, BATCH_ELEMENTS // _elements(labellings.used, method, n_train, n_test, columns))
            yield from in_batches(partial(run, labellings), start, end, at_once)
            start = end


def _elements(used: int, method: Method, n_train: tuple[int, int], n_test: tuple[int, int], columns: int) -> int:
    """About how many numbers one test of this many labellings holds in its largest tensor."""
    rows, weights = sum(n_test), columns * MOST_UNITS if 3 * columns > MOST_UNITS else 0
    return max(rows * used, method.kernels_at_once * (used + rows) * min(rows, BLOCK_ROWS), sum(n_train) ** 2, weights)


def _as_floats(sample: TwoSample) -> TwoSample:
    """Images in float32, which is what pixels need; other rows as they are."""
    return sample.to(torch.float32) if sample.shape else sample


@dataclass(frozen=True)
class Decisions:
    """Statistic, p-value and its Monte-Carlo error (R,), null distribution (R, B) of a chunk of R tests."""

    statistic: np.ndarray
    p_value: np.ndarray
    error: np.ndarray
    null: np.ndarray
    notes: tuple[str, ...]


def _decide(
    runs: FittedRuns,
    labellings: Labellings,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None,
) -> Decisions:
    """The p-values of fitted tests on their test rows."""
    if isinstance(runs.fitted, AsymptoticTest):
        return _decide_by_reference(runs.fitted, runs.test, labellings.used - 1, streams)
    if not isinstance(runs.fitted, PermutationTest):
        raise TypeError(f"A fit must return a PermutationTest or an AsymptoticTest. Got {type(runs.fitted).__name__}.")
    notes = runs.fitted.notes
    if preset.p_value != "(1+b)/(1+B)":
        notes += (f"The p-value {preset.p_value} rejects slightly too often.",)
    if runs.blocked and labellings.enumerated:
        notes += (
            f"The blocks allow {labellings.used} labellings of the test rows. All were counted, and p cannot be below "
            f"{labellings.smallest_p:.2g}.",
        )
    members = _memberships(runs, labellings, streams).to(runs.test.x.device)
    stage = part_of(progress, 1, 1) if runs.train is not None else progress
    permuted = runs.fitted.statistics(runs.test.pooled, members, runs.test.sizes[0], stage)
    p_value = permutation_p_value(permuted.values, permuted.rounding, preset.p_value)
    error = (p_value * (1 - p_value) / labellings.used).sqrt()
    if permuted.p_value_error is not None:
        error = torch.maximum(error, permuted.p_value_error)  # a jackknife of few labellings may be zero
    error = torch.zeros_like(error) if labellings.enumerated else error
    values = permuted.values.cpu().numpy()
    return Decisions(values[:, 0], p_value.cpu().numpy(), error.cpu().numpy(), values[:, 1:], notes)


def _memberships(runs: FittedRuns, labellings: Labellings, streams: Sequence[Streams]) -> Tensor:
    """The labellings of each run, the observed one first: (R, used, N), bool."""
    n, m = runs.test.sizes
    codes = runs.places.pooled[..., 0]
    if labellings.enumerated and not runs.blocked:
        return torch.from_numpy(all_labellings(codes[0].cpu().numpy(), n)).expand(len(streams), -1, -1)
    if labellings.enumerated:
        return torch.from_numpy(np.stack([all_labellings(own, n) for own in codes.cpu().numpy()]))
    generators = [stream.numpy("permutations") for stream in streams]
    if runs.blocked:
        return memberships_within(codes, n, labellings.used - 1, generators)
    return random_memberships(n, m, labellings.used - 1, generators)


def _decide_by_reference(
    fitted: AsymptoticTest, test: TwoSample, n_quantiles: int, streams: Sequence[Streams]
) -> Decisions:
    """Pair the test rows, leaving out random rows of the larger sample, and refer to the known distribution."""
    n, m = test.sizes
    generators = [stream.torch("pairing of test rows") for stream in streams]
    x, y = (draw_rows(rows, min(n, m), generators) for rows in test)
    statistic, p_value, null = fitted.p_values(TwoSample(x, y), n_quantiles, streams)
    left_out = f"This test pairs rows: {abs(n - m)} random test rows of the larger sample were left out."
    return Decisions(statistic, p_value, np.zeros_like(p_value), null, () if n == m else (left_out,))
