"""Two samples in, one p-value out."""

from __future__ import annotations

from typing import Any

import torch

from m2st_core.data.arrays import as_two_sample
from m2st_core.data.separate import separate
from m2st_core.testing.meta import as_target, meta_train
from m2st_core.testing.methods import METHODS, find_method
from m2st_core.testing.plan import TestSettings, plan_test
from m2st_core.testing.run import FinishedTest, run
from m2st_core.types import DEFAULT_TAUGHT_TEST, DEFAULT_TEST, Progress, TestResult


def two_sample_test(
    x: Any,
    y: Any,
    method: str = DEFAULT_TEST,
    *,
    related_tasks: Any = None,
    alpha: float = 0.05,
    n_permutations: int = 999,
    train_fraction: float = 0.5,
    splits: int = 1,
    blocks: tuple[Any, Any] | None = None,
    ids: str | None = None,
    preset: str | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress | None = None,
) -> TestResult:
    """Test whether the rows of x and the rows of y come from the same distribution.

    Args:
        x: Rows of the first sample: (n, d), or n numbers. NumPy, torch, lists, or a frame of any library: pandas,
            polars, pyarrow, DuckDB, lazy ones.
        y: Rows of the second sample: (m, d); n ≠ m is fine. Columns of two frames are matched by name, and frames with
            different names are refused; the same holds for related tasks. Arrays and lists go by position. A pandas
            frame with the default labels 0 … d−1 has no names of its own: against other names it goes by position, with
            a note, and against whole numbers in another order by these numbers.
        method: A name in ``METHODS``, without regard to case and punctuation.
        related_tasks: Related pairs of samples, as a list of (x, y) or a mapping of names to pairs, for methods that
            learn from them. To test several targets, train once with ``meta_train``. Rows of x and y that are also
            among the related tasks are not used with their labels; the notes of the result say what was done.
        alpha: The significance level; the test rejects when p ≤ alpha.
        n_permutations: B, the number of random relabellings.
        train_fraction: The share of each sample used to fit the kernel, and not tested, if the method fits one.
        splits: The number of random splits, declared beforehand, for methods that split: ``combine_splits`` combines
            their p-values, so that the result depends less on the luck of one split.
        blocks: Labels (of x's rows, of y's rows): rows are permuted and split within their block only.
        ids: The name of a column of all frames that identifies persons or items. It is no feature. A row of x or y is
            then also in the related tasks if its id is; without ids it is recognised by its values.
        preset: The settings of a test of the paper: "paper" (its text, the default), "released" (its code) or "tuned"
            (ours). ``"Meta-MKL", preset="tuned"`` is the method "Meta-MKL · tuned".
        seed: Fixes the split, the fit and the permutations.
        device: "auto" is the GPU when there is one.
        progress: Called as (step, total, value); raise ``Cancelled`` in it to stop.

    The result does not depend on which sample is called x, except for MMD-D w/ AC, whose related rows join x.

    >>> import m2st_core as m2st
    >>> x, y = m2st.make_task("mean_shift", shift=2.0).sample(50, seed=1)
    >>> m2st.two_sample_test(x, y, method="MMD-M").p_value
    0.001
    """
    settings = TestSettings(
        alpha=alpha,
        n_permutations=n_permutations,
        train_fraction=train_fraction,
        splits=splits,
        seed=seed,
        device=device,
    )
    return examine(
        x,
        y,
        method,
        settings,
        related_tasks=related_tasks,
        blocks=blocks,
        ids=ids,
        preset=preset,
        progress=progress,
    ).result


def examine(
    x: Any,
    y: Any,
    method: str = DEFAULT_TEST,
    settings: TestSettings | None = None,
    *,
    related_tasks: Any = None,
    blocks: tuple[Any, Any] | None = None,
    ids: str | None = None,
    preset: str | None = None,
    progress: Progress | None = None,
) -> FinishedTest:
    """Run ``two_sample_test`` and keep what explains its result."""
    settings, spec = settings or TestSettings(), find_method(method, preset)
    if spec.learn is None:
        if related_tasks is not None:
            raise ValueError(
                f"{spec.name} does not learn from related tasks. Leave them out, or use {DEFAULT_TAUGHT_TEST}."
            )
        return run(plan_test(as_two_sample(x, y, ids, blocks), spec, settings), progress)
    if related_tasks is None:
        without = ", ".join(
            m.name for m in METHODS.values() if not m.uses_related_tasks and m.algorithm in ("", m.name)
        )
        raise ValueError(
            f"{spec.name} learns its kernel from related tasks, and none are given. Pass related_tasks=[(x1, y1), …], "
            f"or use a method that needs none: {without}."
        )
    sample = as_two_sample(x, y, ids, blocks)
    separated = separate(sample, related_tasks, ids=ids)
    plan = plan_test(as_target(sample, separated.tasks), spec, settings)
    learner = meta_train(
        spec.name,
        separated.tasks,
        seed=settings.seed,
        device=settings.device,
        progress=progress,
    )
    return run(learner.teach(plan, separated), progress)
