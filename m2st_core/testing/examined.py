"""One test with everything that explains it: which rows were tested, and what was learned from the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from m2st_core.data.arrays import constant_column_notes
from m2st_core.learners.ascent import part_of
from m2st_core.permutation.blocks import Blocks, as_blocks
from m2st_core.presets import PRESETS, Preset
from m2st_core.rng import Streams
from m2st_core.testing.labellings import check_blocks, check_reach, check_settings, check_splits, plan_labellings
from m2st_core.testing.methods import Method
from m2st_core.testing.run import run_chunks, run_tests
from m2st_core.testing.split import draw_order, split_sizes
from m2st_core.types import Progress, TestResult, TwoSample

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
class Examined:
    """A test with what it learned and the rows it tested, so that its answer can be explained.

    ``test`` and ``train`` are x (1, n, d) and y (1, m, d), as the user named them; ``learned`` is a kernel, a bank of
    kernels, a witness or a classifier, whose first sample is y if ``swapped``. ``rows`` are the positions of the test
    rows in the samples as given; ``codes`` their blocks.
    """

    result: TestResult
    learned: Any
    train: TwoSample | None
    test: TwoSample
    rows: tuple[np.ndarray, np.ndarray]
    codes: tuple[np.ndarray, np.ndarray] | None
    swapped: bool


def run_examined(
    sample: TwoSample,
    method: Method,
    *,
    seed: int = 0,
    blocks: tuple[Any, Any] | None = None,
    splits: int = 1,
    alpha: float = 0.05,
    progress: Progress | None = None,
    **settings: Any,
) -> Examined:
    """One test on one checked pair, x (n, d) and y (m, d), and what is needed to explain its answer.

    ``blocks`` are labels, one per row of x and of y: rows are then permuted and split within their block. Of samples
    too large for a test of quadratic cost an equal share of each is tested. Of several ``splits`` the one that decides
    the combined p-value is explained.
    """
    plan = {key: value for key, value in settings.items() if key in ("n_permutations", "train_fraction", "preset")}
    smallest = smallest_p(sample, method, seed=seed, blocks=blocks, splits=splits, alpha=alpha, **plan)
    chosen, rows, found, notes = _choose(sample, method, seed, blocks)
    seeds, decides = split_seeds(seed, splits), 0
    settings |= {"blocks": found, "alpha": alpha}
    results: list[TestResult] = []
    if splits > 1:
        x, y = (part.expand(splits, -1, -1) for part in chosen)
        stage = part_of(progress, 0, splits / (splits + 1))
        results = run_tests(TwoSample(x, y, chosen.shape), method, seeds=seeds, progress=stage, **settings)
        p_values = tuple(result.p_value for result in results)
        p_value, decides = combine_splits(p_values)
    last = part_of(progress, 1 - 1 / (splits + 1), 1) if splits > 1 else progress
    (shown, prepared), *_ = run_chunks(
        chosen, method, seeds=[seeds[decides]], criterion=True, progress=last, **settings
    )
    result = replace(shown[0], notes=shown[0].notes + notes)
    if splits > 1:
        shown_split = (
            f"Statistic, effect and explanation are those of the split that decides, {decides + 1} of {splits}."
        )
        result = replace(
            result,
            notes=(*result.notes, shown_split),
            p_value=p_value,
            p_value_se=combined_error(p_values, [single.p_value_se for single in results], seed),
            rejected=p_value <= alpha,
            seed=seed,
            smallest_p=smallest,
            enumerated=all(single.enumerated for single in results),
            split_p_values=p_values,
            seconds=result.seconds + sum(single.seconds for single in results),
        )
    swapped = bool(prepared.swap[0])
    test, about = (part.swapped() if swapped else part for part in (prepared.test, prepared.about))
    train = prepared.train.swapped() if swapped and prepared.train is not None else prepared.train
    (blocks_x, rows_x), (blocks_y, rows_y) = (part[0].cpu().numpy().T for part in about)
    return Examined(
        result=result,
        learned=prepared.learned,
        train=train,
        test=test,
        rows=(rows[0][rows_x], rows[1][rows_y]),
        codes=None if found is None else (blocks_x, blocks_y),
        swapped=swapped,
    )


def smallest_p(
    sample: TwoSample,
    method: Method,
    *,
    seed: int = 0,
    blocks: tuple[Any, Any] | None = None,
    splits: int = 1,
    alpha: float = 0.05,
    n_permutations: int = 999,
    train_fraction: float = 0.5,
    preset: Preset = PRESETS["recommended"],
) -> float:
    """The smallest p-value that this test can give; a ValueError says what to change if it is above alpha."""
    check_settings(alpha, n_permutations, train_fraction)
    check_splits(method, splits)
    chosen, _, found, _ = _choose(sample, method, seed, blocks)
    if found is not None:
        check_blocks(method)
    _, n_test = split_sizes(chosen.sizes, method, train_fraction)
    planned = plan_labellings(
        chosen.sizes, method, split_seeds(seed, splits), found, n_permutations, train_fraction, preset.p_value
    )
    smallest, decides = combine_splits([labellings.smallest_p for labellings in planned])
    check_reach(method, alpha, smallest, planned[decides], n_test)
    return smallest


def training_part(
    sample: TwoSample,
    method: Method,
    *,
    train_fraction: float = 0.5,
    seed: int = 0,
    blocks: tuple[Any, Any] | None = None,
) -> TwoSample:
    """The rows from which this method would learn, and which it would not test, given the same seed and blocks."""
    chosen, _, found, _ = _choose(sample, method, seed, blocks)
    n_train, _ = split_sizes(chosen.sizes, method, train_fraction)
    train, _ = draw_order(chosen.sizes, n_train, [Streams(seed)], found).parts(chosen)
    return TwoSample(train.x[0], train.y[0], sample.shape)


def _choose(
    sample: TwoSample, method: Method, seed: int, blocks: tuple[Any, Any] | None
) -> tuple[TwoSample, list[np.ndarray], Blocks | None, tuple[str, ...]]:
    """The rows to use, x (1, n, d) and y (1, m, d), their positions and blocks, and what there is to say about it."""
    notes = () if sample.shape else constant_column_notes(sample)
    found = None if blocks is None else as_blocks(blocks, sample.sizes)
    rows = [np.arange(size) for size in sample.sizes] if found is None else [found.rows_x, found.rows_y]
    if found is not None:
        notes = found.notes + notes
    share = largest_rows(method) / sum(map(len, rows))
    if share < 1:
        counts = int(len(rows[0]) * share), int(len(rows[1]) * share)
        order = draw_order((len(rows[0]), len(rows[1])), counts, [Streams(seed).child("large samples")], found)
        kept = [np.sort(part[0, :count].numpy()) for part, count in zip((order.x, order.y), counts, strict=True)]
        rows = [part[index] for part, index in zip(rows, kept, strict=True)]
        if found is not None:
            found = replace(found, x=found.x[kept[0]], y=found.y[kept[1]])
        notes = (
            f"The samples are large: {method.name} uses {counts[0]} and {counts[1]} of their rows, drawn at random "
            "with this seed, the same share of each.",
            *notes,
        )
    x, y = (part[None, torch.from_numpy(index)] for part, index in zip(sample, rows, strict=True))
    chosen = TwoSample(x, y, sample.shape)
    return chosen, rows, found, notes


def largest_rows(method: Method) -> int:
    """How many rows, of both samples together, one test uses at most: its cost is quadratic in them."""
    return LARGEST_ROWS if method.kernels_at_once == 1 else LARGEST_ROWS_OF_BANKS
