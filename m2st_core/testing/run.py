"""Split, learn, test: one pair of samples, or a batch of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.device import in_batches, one_thread_per_operation, resolve_device, short_memory_in_words
from m2st_core.kernels.base import Kernel
from m2st_core.learners.ascent import draw_rows, part_of
from m2st_core.permutation.blocks import Blocks, memberships_within
from m2st_core.permutation.statistics import BLOCK_ROWS, permutation_p_value, random_memberships
from m2st_core.presets import PRESETS, Preset
from m2st_core.rng import Streams
from m2st_core.testing.labellings import (
    Labellings,
    all_labellings,
    check_blocks,
    check_reach,
    check_settings,
    plan_labellings,
)
from m2st_core.testing.methods import Method
from m2st_core.testing.split import Prepared, prepare, split_sizes
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
    with one_thread_per_operation(), short_memory_in_words():
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
    """Chunks of tests, as many at once as fit; where the GPU's memory is too small, fewer. All pairs share ``blocks``.

    Ĵ on the test rows, which no decision needs and which costs as much as the test, is found only if ``criterion``
    asks for it.
    """
    check_settings(alpha, n_permutations, train_fraction)
    preset = preset.on(sample.shape)
    if blocks is not None:
        check_blocks(method)
    n_train, n_test = split_sizes(sample.sizes, method, train_fraction)
    planned = plan_labellings(sample.sizes, method, seeds, blocks, n_permutations, train_fraction, preset.p_value)
    for labellings in {one for one in planned if not one.enumerated}:  # of few rows the rate of rejections is just 0
        check_reach(method, alpha, labellings.smallest_p, labellings, n_test)
    place = resolve_device(device)

    def run(labellings: Labellings, chunk: slice) -> tuple[list[TestResult], Prepared]:
        began = time.perf_counter()
        streams = [Streams(seed) for seed in seeds[chunk]]
        part = _for_learning(TwoSample(sample.x[chunk], sample.y[chunk], sample.shape).to(place))
        stage = part_of(progress, chunk.start / len(seeds), chunk.stop / len(seeds))
        prepared = prepare(part, method, n_train, preset, streams, blocks, stage)
        outcome = _decide(prepared, method, labellings, preset, streams, criterion, stage)
        seconds = (time.perf_counter() - began) / len(streams)
        results = [
            TestResult(
                method=method.name,
                p_value=float(p),
                p_value_se=float(error),
                statistic=float(statistic),
                rejected=bool(p <= alpha),
                alpha=float(alpha),
                null=null,
                criterion=value,
                n_train=n_train,
                n_test=n_test if method.by_permutation else (min(n_test), min(n_test)),
                n_permutations=labellings.used - 1,
                train_fraction=float(train_fraction) if method.needs_split else 0.0,
                preset=preset.name,
                rule=preset.p_value if method.by_permutation else "asymptotic",
                seed=int(stream.seed),
                device=str(place),
                seconds=seconds,
                notes=outcome.notes,
                weights=weights,
                diagnostics=diagnostics,
                enumerated=labellings.enumerated,
                smallest_p=labellings.smallest_p,
                origin=method.origin,
            )
            for stream, statistic, p, error, null, value, weights, diagnostics in zip(
                streams,
                outcome.statistic,
                outcome.p_value,
                outcome.error,
                outcome.null,
                outcome.criterion,
                prepared.weights,
                prepared.diagnostics,
                strict=True,
            )
        ]
        return results, prepared

    start = 0
    with one_thread_per_operation(), short_memory_in_words():
        for labellings, alike in itertools.groupby(planned):  # neighbouring runs with equally many labellings
            end = start + len(list(alike))
            at_once = max(1, BATCH_ELEMENTS // _elements(labellings, method, n_train, n_test))
            yield from in_batches(partial(run, labellings), start, end, at_once)
            start = end


def _elements(labellings: Labellings, method: Method, n_train: tuple[int, int], n_test: tuple[int, int]) -> int:
    """About how many numbers one test holds in its largest tensor."""
    rows = sum(n_test)
    gram_elements = method.kernels_at_once * (labellings.used + rows) * min(rows, BLOCK_ROWS)
    return max(rows * labellings.used, gram_elements, sum(n_train) ** 2)


def _for_learning(sample: TwoSample) -> TwoSample:
    """Images in float32, which is what pixels need; other rows as they are."""
    return sample.to(torch.float32) if sample.shape else sample


@dataclass(frozen=True)
class Outcome:
    """What a chunk of R tests found: (R,), (R,), (R,), (R, B), R numbers."""

    statistic: np.ndarray
    p_value: np.ndarray
    error: np.ndarray
    null: np.ndarray
    criterion: Sequence[float | None]
    notes: tuple[str, ...] = ()


def _decide(
    prepared: Prepared,
    method: Method,
    labellings: Labellings,
    preset: Preset,
    streams: Sequence[Streams],
    criterion: bool,
    progress: Progress | None,
) -> Outcome:
    """The p-values of what was learned on the rows to test."""
    test, learned = prepared.test, prepared.learned
    if method.statistics is None:
        return _asymptotic(method, learned, test, labellings.used - 1, preset, streams)
    n = test.sizes[0]
    notes: tuple[str, ...] = ()
    if preset.p_value != "(1+b)/(1+B)":
        notes = (f"The p-value {preset.p_value} rejects slightly too often.",)
    if prepared.blocked and labellings.enumerated:
        notes += (
            f"The blocks allow {labellings.used} labellings of the test rows. All were counted, and p cannot be below "
            f"{labellings.smallest_p:.2g}.",
        )
    members = _memberships(prepared, labellings, streams)
    still_cancel = _at_the_end(progress) if method.needs_split else progress
    statistics, rounding, *known = method.statistics(learned, test.pooled, members.to(test.x.device), n, still_cancel)
    p_value = permutation_p_value(statistics, rounding, preset.p_value)
    error = known[0] if known else (p_value * (1 - p_value) / labellings.used).sqrt()
    error = torch.zeros_like(error) if labellings.enumerated else error
    values = statistics.cpu().numpy()
    found = _criterion(learned, test) if criterion else [None] * len(streams)
    return Outcome(values[:, 0], p_value.cpu().numpy(), error.cpu().numpy(), values[:, 1:], found, notes)


def _memberships(prepared: Prepared, labellings: Labellings, streams: Sequence[Streams]) -> Tensor:
    """All labellings of each run, or as many random ones as are wanted, the observed one first: (R, used, N), bool."""
    n, m = prepared.test.sizes
    codes = prepared.about.pooled[..., 0]
    if labellings.enumerated and not prepared.blocked:
        return torch.from_numpy(all_labellings(codes[0].cpu().numpy(), n)).expand(len(streams), -1, -1)
    if labellings.enumerated:
        return torch.from_numpy(np.stack([all_labellings(own, n) for own in codes.cpu().numpy()]))
    generators = [stream.numpy("permutations") for stream in streams]
    if prepared.blocked:
        return memberships_within(codes, n, labellings.used - 1, generators)
    return random_memberships(n, m, labellings.used - 1, generators)


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
    return Outcome(statistic, p_value, np.zeros_like(p_value), null, [None] * len(streams), notes)


def _criterion(learned: Any, test: TwoSample) -> list[float | None]:
    """Ĵ on at most 500 test rows of each sample, for kernels."""
    count = min(*test.sizes, CRITERION_ROWS)
    if not isinstance(learned, Kernel):
        return [None] * test.x.shape[0]
    with torch.no_grad():
        h = h_matrix(learned, test.x[:, :count], test.y[:, :count])
        return [float(value) for value in power_criterion(h, regularisation=1e-8)]
