"""Run a planned test: split, fit, permute, decide. One pair of samples, or a batch of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m2st_core.device import TOO_LARGE, one_thread_per_operation, resolve_device, short_memory_in_words
from m2st_core.kernels.networks import MOST_UNITS
from m2st_core.permutation.engine import BLOCK_ROWS
from m2st_core.permutation.fitted import AsymptoticTest, FittedTest, PermutationTest
from m2st_core.permutation.labellings import (
    all_labellings,
    permutation_p_value,
    random_memberships,
)
from m2st_core.progress import part_of
from m2st_core.rng import Streams, draw_rows
from m2st_core.testing.method import Method
from m2st_core.testing.plan import Labellings, TestPlan, TestSettings, combine_splits, draw_order, plan_batch
from m2st_core.types import EXACT, Progress, TestResult, TwoSample

BATCH_ELEMENTS = 2**21  # numbers a batch of tests may hold in one tensor: small enough for the cache
NOISY = 200  # draws that show how the errors of single p-values move the combined one


@dataclass(frozen=True)
class FinishedTest:
    """A result with the fitted test behind it and the rows it tested.

    ``test`` and ``train`` are x (1, n, d) and y (1, m, d), as the user named them; ``test.columns`` has the names of
    their columns, which a learner may have put in another order, and ``test.blocks`` their blocks, (1, n) and (1, m).
    The fitted test's first sample is y if ``swapped``. ``rows`` are the positions of the test rows in the samples as
    given.
    """

    result: TestResult
    fitted: FittedTest = field(repr=False)
    train: TwoSample | None
    test: TwoSample
    rows: tuple[np.ndarray, np.ndarray] = field(repr=False)
    swapped: bool


def run(plan: TestPlan, progress: Progress | None = None) -> FinishedTest:
    """Run a planned test of one pair, and keep what explains its result.

    Of several splits, the one that decides the combined p-value is kept.
    """
    splits, decisive, last = len(plan.seeds), plan, progress
    singles: list[TestResult] = []
    if splits > 1:
        singles = _run_batch(plan, part_of(progress, 0, splits / (splits + 1)))
        last = part_of(progress, 1 - 1 / (splits + 1), 1)
        p_values = tuple(single.p_value for single in singles)
        p_value, decides = combine_splits(p_values)
        decisive = plan.only(decides)
    ((result,), fits), *_ = _chunks(decisive, last, criterion=True)
    result = replace(result, notes=result.notes + plan.notes, exact_if=plan.exact_if)
    if splits > 1:
        which = f"Statistic, effect and explanation are those of the split that decides, {decides + 1} of {splits}."
        result = replace(
            result,
            notes=(*result.notes, which),
            p_value=p_value,
            p_value_se=combined_error(p_values, [single.p_value_se for single in singles], plan.settings.seed),
            rejected=p_value <= plan.settings.alpha,
            seed=plan.settings.seed,
            smallest_p=plan.smallest_p,
            enumerated=all(single.enumerated for single in singles),
            split_p_values=p_values,
            seconds=result.seconds + sum(single.seconds for single in singles),
        )
    rows_x, rows_y = (
        positions[tested[0].numpy()] for positions, tested in zip(plan.rows, fits.tested_rows, strict=True)
    )
    train, test, swapped = fits.train, replace(fits.test, columns=plan.sample.columns), bool(fits.swap[0])
    if swapped:
        train, test = train and train.swapped(), test.swapped()
    return FinishedTest(result, fits.fitted, train, test, (rows_x, rows_y), swapped)


def _run_batch(plan: TestPlan, progress: Progress | None = None) -> list[TestResult]:
    """Run a planned test of R pairs, in chunks as large as memory allows."""
    return [result for results, _ in _chunks(plan, progress) for result in results]


def run_tests(
    sample: TwoSample, method: Method, *, seeds: Sequence[int], progress: Progress | None = None, **settings: Any
) -> list[TestResult]:
    """Run the same test on R independent pairs, x (R, n, d) and y (R, m, d), each with its own seed.

    Further settings are those of ``TestSettings``.
    """
    return _run_batch(plan_batch(sample, method, TestSettings(**settings), seeds), progress)


def learn_once(method: Method, train: TwoSample, seed: int, progress: Progress | None = None) -> Method:
    """Fit a method on one training sample, x (n, d) and y (m, d), so that it tests every row of later samples.

    This is how the paper measures power: one training sample, many test samples. A method without a split is returned
    as it is.
    """
    if not method.needs_split:
        return method
    dtype = torch.float32 if train.shape else train.x.dtype
    rows = TwoSample(train.x[None], train.y[None], train.shape).to(dtype)
    with one_thread_per_operation(), short_memory_in_words():
        fitted = method.fit_on(rows, train.shape, [Streams(seed)], progress)
    return replace(method, needs_split=False, symmetric=False, fit=lambda *_: fitted)


def combined_error(p_values: Sequence[float], errors: Sequence[float], seed: int) -> float:
    """The standard error of the combined p-value, if each p-value has its own, independent and normal."""
    p, error = np.asarray(p_values), np.asarray(errors)
    if not error.any():
        return 0.0
    noise = Streams(seed).numpy("errors of p-values").standard_normal((NOISY, len(p)))
    return float(np.std([combine_splits((p + error * draw).clip(0, 1))[0] for draw in noise], ddof=1))


@dataclass(frozen=True)
class _Fits:
    """R fitted runs, with their samples in canonical order. ``swap`` (R,) marks the runs in which this order is y, x.

    ``tested_rows`` are the positions of the test rows of x (R, n) and of y (R, m), as named.
    """

    fitted: FittedTest
    train: TwoSample | None
    test: TwoSample
    tested_rows: tuple[Tensor, Tensor]
    swap: Tensor


def _chunks(
    plan: TestPlan, progress: Progress | None, criterion: bool = False
) -> Iterator[tuple[list[TestResult], _Fits]]:
    """Results and fits of one chunk of runs after another; ``criterion`` asks for Ĵ, which costs as much as a test.

    If a chunk does not fit into the GPU's memory, it and all later ones are halved.
    """
    method, device = plan.method, resolve_device(plan.settings.device)
    columns = 0 if plan.sample.shape else plan.sample.x.shape[-1]
    weights = columns * MOST_UNITS if 3 * columns > MOST_UNITS else 0
    rows, trained = sum(plan.n_test), sum(plan.n_train)
    start = 0
    with one_thread_per_operation():
        for labellings, alike in itertools.groupby(plan.labellings):  # neighbouring runs with equally many labellings
            end, used = start + len(list(alike)), labellings.used
            products = method.kernels_at_once * (used + rows) * min(rows, BLOCK_ROWS)
            at_once = max(1, BATCH_ELEMENTS // max(rows * used, products, trained**2, weights))
            while start < end:
                chunk = slice(start, min(start + at_once, end))
                try:
                    results, fits = _run_chunk(plan, chunk, device, progress, criterion)
                except torch.OutOfMemoryError:
                    if chunk.stop - start == 1:
                        raise ValueError(TOO_LARGE) from None
                    at_once = (chunk.stop - start) // 2
                    continue
                yield results, fits
                start = chunk.stop


def _run_chunk(
    plan: TestPlan, chunk: slice, device: torch.device, progress: Progress | None, criterion: bool
) -> tuple[list[TestResult], _Fits]:
    """The results of some runs with equally many labellings, and their fits."""
    began = time.perf_counter()
    method, settings, labellings = plan.method, plan.settings, plan.labellings[chunk.start]
    streams = [Streams(seed) for seed in plan.seeds[chunk]]
    stage = part_of(progress, chunk.start / len(plan.seeds), chunk.stop / len(plan.seeds))
    fits = _fit(plan, chunk, streams, device, stage)
    decide = _by_reference if isinstance(fits.fitted, AsymptoticTest) else _by_permutation
    decisions = decide(plan, labellings, fits.fitted, fits.test, streams, stage)
    criteria = fits.fitted.criterion(fits.test) if criterion else [None] * len(streams)
    seconds = (time.perf_counter() - began) / len(streams)
    about = (fits.fitted.weights, fits.fitted.diagnostics)
    weights, diagnostics = (each if len(each) == len(streams) else each * len(streams) for each in about)
    n, m = plan.n_test
    results = [
        TestResult(
            method=method.name,
            p_value=float(decisions.p_value[index]),
            p_value_se=float(decisions.error[index]),
            statistic=float(decisions.statistic[index]),
            rejected=bool(decisions.p_value[index] <= settings.alpha),
            alpha=float(settings.alpha),
            null=decisions.null[index],
            criterion=criteria[index],
            n_train=plan.n_train,
            n_test=(n, m) if method.by_permutation else (min(n, m), min(n, m)),
            n_permutations=labellings.used - 1,
            train_fraction=float(settings.train_fraction) if method.needs_split else 0.0,
            rule=settings.rule if method.by_permutation else "asymptotic",
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
    return results, fits


def _fit(
    plan: TestPlan, chunk: slice, streams: Sequence[Streams], device: torch.device, progress: Progress | None
) -> _Fits:
    """Split and fit on the training rows. A method without a split is fitted on the pooled rows, without labels."""
    sample, sizes, blocks, runs = plan.sample, plan.sample.sizes, plan.sample.blocks, len(streams)
    dtype = torch.float32 if sample.shape else sample.x.dtype  # pixels need no more
    x, y = sample.x[chunk].to(device, dtype), sample.y[chunk].to(device, dtype)
    if not plan.method.needs_split:
        rows_x, rows_y = (torch.arange(size).expand(runs, -1) for size in sizes)
        blocks = blocks and (blocks[0].expand(runs, -1), blocks[1].expand(runs, -1))
        train, test = None, TwoSample(x, y, sample.shape, blocks=blocks)
    else:
        order_x, order_y = draw_order(sizes, plan.n_train, streams, blocks)
        x = x.take_along_dim(order_x[..., None].to(device), dim=-2)
        y = y.take_along_dim(order_y[..., None].to(device), dim=-2)
        n, m = plan.n_train
        rows_x, rows_y = order_x[:, n:], order_y[:, m:]
        blocks = blocks and (blocks[0][rows_x], blocks[1][rows_y])
        train = TwoSample(x[:, :n], y[:, :m], sample.shape)
        test = TwoSample(x[:, n:], y[:, m:], sample.shape, blocks=blocks)
    swap = torch.zeros(runs, dtype=torch.bool)
    if plan.method.symmetric:  # decided by training rows alone, if there are any: no test row influences the fit
        swap = _to_swap(train or test, sizes)
    train, test = train and train.swapped(swap), test.swapped(swap)
    fitted = plan.method.fit_on(train or test.pooled, sample.shape, streams, progress)
    return _Fits(fitted, train, test, (rows_x, rows_y), swap)


def _to_swap(sample: TwoSample, sizes: tuple[int, int]) -> Tensor:
    """(R,) mask of runs to swap into canonical order: smaller sample first, ties broken by the first differing value.

    A test gives the same result when x and y are exchanged, because it puts them into this order first. ``sizes`` are
    those of the whole samples: parts of unequal samples may be equally long, and still all must swap or none.
    """
    n, m = sizes
    if n != m:
        return torch.full(sample.x.shape[:1], n > m)
    x, y = sample.x.flatten(1), sample.y.flatten(1)
    first = (x != y).int().argmax(dim=1, keepdim=True)  # 0 if they are equal
    return (x.gather(1, first) > y.gather(1, first))[:, 0].cpu()


@dataclass(frozen=True)
class _Decisions:
    """Statistic, p-value and its Monte-Carlo error (R,), null distribution (R, B) of a chunk of R tests."""

    statistic: np.ndarray
    p_value: np.ndarray
    error: np.ndarray
    null: np.ndarray
    notes: tuple[str, ...]


def _by_permutation(
    plan: TestPlan,
    labellings: Labellings,
    fitted: FittedTest,
    test: TwoSample,
    streams: Sequence[Streams],
    progress: Progress | None,
) -> _Decisions:
    """The p-values of fitted tests on their test rows, from their statistics under all labellings."""
    if not isinstance(fitted, PermutationTest):
        raise TypeError(f"A fit must return a PermutationTest or an AsymptoticTest. Got {type(fitted).__name__}.")
    notes, (n, m), runs, used = fitted.notes, test.sizes, len(streams), labellings.used
    if plan.settings.rule != EXACT:
        notes += (f"The p-value {plan.settings.rule} rejects slightly too often.",)
    if test.blocks is not None and labellings.enumerated:
        notes += (
            f"The blocks allow {used} labellings of the test rows. All were counted, and p cannot be below "
            f"{labellings.smallest_p:.2g}.",
        )
    generators = [stream.numpy("permutations") for stream in streams]
    blocks = test.blocks and torch.cat(test.blocks, dim=-1)
    if not labellings.enumerated:
        members = random_memberships(n, m, used - 1, generators, blocks)
    elif blocks is None:
        members = torch.from_numpy(all_labellings(np.zeros(n + m, dtype=int), n)).expand(runs, -1, -1)
    else:
        members = torch.from_numpy(np.stack([all_labellings(codes, n) for codes in blocks.numpy()]))
    members = members.to(test.x.device)
    stage = part_of(progress, 1, 1) if plan.method.needs_split else progress
    statistics, rounding, p_value_error = fitted.statistics(test.pooled, members, n, stage)
    p_value = permutation_p_value(statistics, rounding, plan.settings.rule)
    error = (p_value * (1 - p_value) / used).sqrt()
    if p_value_error is not None:
        error = torch.maximum(error, p_value_error)  # a jackknife of few labellings may be zero
    error = torch.zeros_like(error) if labellings.enumerated else error
    values = statistics.cpu().numpy()
    return _Decisions(values[:, 0], p_value.cpu().numpy(), error.cpu().numpy(), values[:, 1:], notes)


def _by_reference(
    plan: TestPlan,
    labellings: Labellings,
    fitted: FittedTest,
    test: TwoSample,
    streams: Sequence[Streams],
    progress: Progress | None,
) -> _Decisions:
    """Pair the test rows, leaving out random rows of the larger sample, and refer to the known distribution."""
    assert isinstance(fitted, AsymptoticTest)
    n, m = test.sizes
    generators = [stream.torch("pairing of test rows") for stream in streams]
    x, y = (draw_rows(rows, min(n, m), generators) for rows in test)
    statistic, p_value, null = fitted.p_values(TwoSample(x, y), labellings.used - 1, streams)
    left_out = f"This test pairs rows: {abs(n - m)} random test rows of the larger sample were left out."
    return _Decisions(statistic, p_value, np.zeros_like(p_value), null, () if n == m else (left_out,))
