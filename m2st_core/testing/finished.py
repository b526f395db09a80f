"""One test together with what explains it: the rows it tested and what it fitted on the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from m2st_core.data.arrays import constant_column_notes
from m2st_core.data.identifiers import identifier_notes
from m2st_core.data.repeats import repeated_rows_note
from m2st_core.permutation.blocks import Blocks, as_blocks
from m2st_core.permutation.fitted import FittedTest
from m2st_core.presets import PRESETS, Preset
from m2st_core.progress import part_of
from m2st_core.rng import Streams
from m2st_core.testing.labellings import check_blocks, check_reach, check_splits, plan_labellings
from m2st_core.testing.memory import check_memory
from m2st_core.testing.method import Method, TestSettings
from m2st_core.testing.run import run_chunks
from m2st_core.testing.split import draw_order, split_sizes
from m2st_core.types import TestResult, TwoSample

NOISY = 200  # draws that show how the errors of single p-values move the combined one


def combine_splits(p_values: Sequence[float] | np.ndarray) -> tuple[float, int]:
    """Twice the smallest running median of S p-values, at most 1, and the position of the one that decides.

    p = 2·min_{ℓ≤S} median(p_1, …, p_ℓ), the median being the ⌈ℓ/2⌉-th smallest; a single p-value is left as it is.

    Valid for p-values of independent random splits of the same rows. Given the rows these are i.i.d., so they are
    exchangeable. Then e_s = 2·1[p_s ≤ α/2] has mean at most α, and its running means, read from the last to the first,
    are a martingale: by Doob's inequality one of them reaches 1 with probability at most α. It does where at least half
    of the first ℓ p-values are at most α/2, which is p ≤ α. (Gasparin, Wang, Ramdas 2025, Combining exchangeable
    p-values. Under arbitrary dependence only ℓ = S is allowed, "twice the median", which has far less power.)

    >>> combine_splits([0.04, 0.3, 0.01])
    (0.08, 0)
    >>> combine_splits([0.3, 0.02, 0.01])
    (0.04, 1)
    """
    p = np.asarray(p_values, dtype=float)
    if len(p) == 1:
        return float(p[0]), 0
    deciding = [int(np.argsort(p[:count], kind="stable")[(count + 1) // 2 - 1]) for count in range(1, len(p) + 1)]
    best = min(deciding, key=lambda index: float(p[index]))
    return min(1.0, 2 * float(p[best])), best


def combined_error(p_values: Sequence[float], errors: Sequence[float], seed: int) -> float:
    """The standard error of the combined p-value, if each p-value has its own, independent and normal."""
    p, error = np.asarray(p_values), np.asarray(errors)
    if not error.any():
        return 0.0
    noise = Streams(seed).numpy("errors of p-values").standard_normal((NOISY, len(p)))
    return float(np.std([combine_splits((p + error * draw).clip(0, 1))[0] for draw in noise], ddof=1))


def split_seeds(seed: int, splits: int) -> list[int]:
    """The seed of each split; the first has the test's own, so one split is the first of many."""
    return [seed, *(Streams(seed).child(f"split {number}").seed for number in range(2, splits + 1))]


LARGEST_ROWS, LARGEST_ROWS_OF_BANKS = 40_000, 10_000  # both samples together, for one kernel and for many


@dataclass(frozen=True)
class FinishedTest:
    """A result with the fitted test behind it and the rows it tested.

    ``test`` and ``train`` are x (1, n, d) and y (1, m, d), as the user named them; ``test.columns`` has the names of
    their columns, which a learner may have put in another order. The fitted test's first sample is y
    if ``swapped``. ``rows`` are the positions of the test rows in the samples as given, ``codes`` their blocks.
    """

    result: TestResult
    fitted: FittedTest = field(repr=False)
    train: TwoSample | None
    test: TwoSample
    rows: tuple[np.ndarray, np.ndarray] = field(repr=False)
    codes: tuple[np.ndarray, np.ndarray] | None = field(repr=False)
    swapped: bool


def finish_test(sample: TwoSample, method: Method, settings: TestSettings, preset: Preset) -> FinishedTest:
    """Run one test on one checked pair, x (n, d) and y (m, d), and keep what explains its result.

    From samples too large for a test of quadratic cost, random rows are tested, of a scarce sample all. Of several
    splits, the one that decides the combined p-value is kept.
    """
    smallest = smallest_p(sample, method, settings, preset)
    chosen, rows, blocks, notes = _choose(sample, method, settings)
    splits, seed, progress = settings.splits, settings.seed, settings.progress
    seeds, decides = split_seeds(seed, splits), 0
    singles: list[TestResult] = []
    last = settings
    if splits > 1:
        x, y = (part.expand(splits, -1, -1) for part in chosen)
        first = replace(settings, progress=part_of(progress, 0, splits / (splits + 1)))
        last = replace(settings, progress=part_of(progress, 1 - 1 / (splits + 1), 1))
        repeated = TwoSample(x, y, chosen.shape)
        singles = [one for many, _ in run_chunks(repeated, method, seeds, first, preset, blocks) for one in many]
        p_values = tuple(single.p_value for single in singles)
        p_value, decides = combine_splits(p_values)
    ((result,), runs), *_ = run_chunks(chosen, method, [seeds[decides]], last, preset, blocks, criterion=True)
    result = replace(result, notes=result.notes + notes)
    if splits > 1:
        which = f"Statistic, effect and explanation are those of the split that decides, {decides + 1} of {splits}."
        result = replace(
            result,
            notes=(*result.notes, which),
            p_value=p_value,
            p_value_se=combined_error(p_values, [single.p_value_se for single in singles], seed),
            rejected=p_value <= settings.alpha,
            seed=seed,
            smallest_p=smallest,
            enumerated=all(single.enumerated for single in singles),
            split_p_values=p_values,
            seconds=result.seconds + sum(single.seconds for single in singles),
        )
    swapped = bool(runs.swap[0])
    test, places = (part.swapped() if swapped else part for part in (runs.test, runs.places))
    train = runs.train.swapped() if swapped and runs.train is not None else runs.train
    (blocks_x, rows_x), (blocks_y, rows_y) = (part[0].cpu().numpy().T for part in places)
    return FinishedTest(
        result=result,
        fitted=runs.fitted,
        train=train,
        test=replace(test, columns=sample.columns),
        rows=(rows[0][rows_x], rows[1][rows_y]),
        codes=None if blocks is None else (blocks_x, blocks_y),
        swapped=swapped,
    )


def smallest_p(
    sample: TwoSample, method: Method, settings: TestSettings, preset: Preset = PRESETS["recommended"]
) -> float:
    """The smallest p-value that this test can give. If it is above alpha, a ValueError says what to change."""
    check_splits(method, settings.splits)
    chosen, _, blocks, _ = _choose(sample, method, settings)
    if blocks is not None:
        check_blocks(method)
    fraction, seeds = settings.train_fraction, split_seeds(settings.seed, settings.splits)
    _, n_test = split_sizes(chosen.sizes, method, fraction)
    planned = plan_labellings(chosen.sizes, method, seeds, blocks, settings.n_permutations, fraction, preset.p_value)
    check_memory(method, preset, chosen.sizes, sample.x.shape[1], max(one.used for one in planned))
    smallest, decides = combine_splits([labellings.smallest_p for labellings in planned])
    check_reach(method, settings.alpha, smallest, planned[decides], n_test)
    return smallest


def training_part(sample: TwoSample, method: Method, settings: TestSettings) -> TwoSample:
    """The training rows that this method would use under these settings, and which it would not test."""
    chosen, _, blocks, _ = _choose(sample, method, settings)
    n_train, _ = split_sizes(chosen.sizes, method, settings.train_fraction)
    train, _ = draw_order(chosen.sizes, n_train, [Streams(settings.seed)], blocks).parts(chosen)
    return TwoSample(train.x[0], train.y[0], sample.shape, sample.columns)


def _choose(
    sample: TwoSample, method: Method, settings: TestSettings
) -> tuple[TwoSample, list[np.ndarray], Blocks | None, tuple[str, ...]]:
    """The rows to use, x (1, n, d) and y (1, m, d), their positions, their blocks, and notes about the choice."""
    notes = sample.notes
    if not sample.shape:
        notes += constant_column_notes(sample) + identifier_notes(sample) + repeated_rows_note(sample.pooled.numpy())
    blocks = None if settings.blocks is None else as_blocks(settings.blocks, sample.sizes)
    rows = [np.arange(size) for size in sample.sizes] if blocks is None else [blocks.rows_x, blocks.rows_y]
    if blocks is not None:
        notes = blocks.notes + notes
    most = largest_rows(method)
    if sum(map(len, rows)) > most:
        fewer = min(len(rows[0]), len(rows[1]), most // 2)
        counts = min(len(rows[0]), most - fewer), min(len(rows[1]), most - fewer)
        streams = [Streams(settings.seed).child("large samples")]
        order = draw_order((len(rows[0]), len(rows[1])), counts, streams, blocks)
        kept = [np.sort(part[0, :count].numpy()) for part, count in zip((order.x, order.y), counts, strict=True)]
        rows = [part[index] for part, index in zip(rows, kept, strict=True)]
        if blocks is not None:
            blocks = replace(blocks, x=blocks.x[kept[0]], y=blocks.y[kept[1]])
        notes = (
            f"The samples are large. {method.name} uses {counts[0]:,} of {len(sample.x):,} and {counts[1]:,} of "
            f"{len(sample.y):,} rows, drawn at random with this seed.",
            *notes,
        )
    x, y = (part[None, torch.from_numpy(index)] for part, index in zip(sample, rows, strict=True))
    return TwoSample(x, y, sample.shape), rows, blocks, notes


def largest_rows(method: Method) -> int:
    """The most rows, of both samples together, that one test uses: its cost is quadratic in them."""
    many = method.kernels_at_once > 1 or method.cost.test > 1
    return LARGEST_ROWS_OF_BANKS if many else LARGEST_ROWS
