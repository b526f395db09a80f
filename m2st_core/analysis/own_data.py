"""One upload, one plan, one outcome: the same for the page, the command line and the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from m2st_core.analysis.analysis import Analysis, Family, adjusted_p_values, analyse, check_plan_splits
from m2st_core.analysis.explanation import Explanation, explain
from m2st_core.analysis.recommend import Recommendation, recommend
from m2st_core.analysis.related_check import RelatedCheck, check_related_tasks
from m2st_core.data.arrays import as_two_sample
from m2st_core.data.related import RelatedTasks
from m2st_core.data.separate import Separated, separate
from m2st_core.data.tables.clean import CleanData
from m2st_core.data.tables.rows import relearn
from m2st_core.learners.ascent import part_of
from m2st_core.presets import PRESETS
from m2st_core.testing.examined import smallest_p
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.testing.methods import METHODS
from m2st_core.testing.two_sample import two_sample_test
from m2st_core.types import Progress

TRAINED, TESTED = 0.7, 0.9  # of the progress


@dataclass(frozen=True)
class Plan:
    """What is declared before any result is seen: one primary test, and secondary ones that are corrected by Holm.

    ``splits`` are those of each test that splits. ``family`` says whether the primary test alone decides ("primary"),
    or all tests are corrected together ("all").
    """

    primary: str = "MMD-FUSE"
    secondary: tuple[str, ...] = ()
    alpha: float = 0.05
    n_permutations: int = 999
    train_fraction: float = 0.5
    seed: int = 0
    preset: str = "recommended"
    splits: int = 1
    family: Family = "primary"

    @property
    def methods(self) -> tuple[str, ...]:
        """All tests, the primary first."""
        return (self.primary, *self.secondary)


@dataclass(frozen=True)
class Outcome:
    """Everything there is to report: the data, the plan, the results, where the samples differ, what was learned."""

    data: CleanData = field(repr=False)
    plan: Plan
    analysis: Analysis
    explanation: Explanation | None = field(repr=False)
    learners: Mapping[str, MetaLearner] = field(repr=False)
    apart: Separated | None = field(default=None, repr=False)

    @property
    def row_numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows most typical of x and of y, by their numbers in their files."""
        assert self.explanation is not None
        return self.data.x_rows[self.explanation.typical_x[0]], self.data.y_rows[self.explanation.typical_y[0]]


def advise(data: CleanData, *, n_tasks: int | None = None, history: RelatedCheck | None = None) -> Recommendation:
    """The recommendation for an upload, with its related tasks or those of a learner trained earlier."""
    return recommend(
        len(data.x),
        len(data.y),
        len(data.features),
        n_tasks=len(data.related_tasks) if n_tasks is None else n_tasks,
        blocks=data.x_blocks is not None,
        history=history,
        pooled=_pooled(data),
    )


def keep_apart(data: CleanData) -> tuple[CleanData, Separated]:
    """The related tasks without the target's rows, and the data by a scaling that these tasks alone taught."""
    apart = separate(data.sample, data.related_tasks, units=data.encoding.units)
    if not apart.shared:
        return data, apart
    encoding = relearn(data.encoding, apart.tasks.take_inside().numpy())
    rows = torch.from_numpy(data.encoding.convert(apart.tasks.rows.numpy(), encoding))
    return data.recoded(encoding), replace(apart, tasks=apart.tasks.with_rows(rows))


def check_uploaded_tasks(data: CleanData, **settings: Any) -> RelatedCheck | None:
    """Check an upload's related tasks, without the target's rows, as ``check_related_tasks`` does.

    It is None where fewer than two tasks are left, as with one control group for the target and all tasks.
    """
    if len(data.related_tasks) < 2:
        return None
    data, apart = keep_apart(data)
    if len(apart.tasks.names) < 2:
        return None
    return check_related_tasks(apart.tasks, (len(data.x), len(data.y)), pooled=_pooled(data), **settings)


def _pooled(data: CleanData) -> np.ndarray:
    return np.concatenate([data.x, data.y])


def usable_methods(n_tasks: int, blocks: bool = False, learner: MetaLearner | None = None) -> list[str]:
    """The tests that fit what was brought: those with a history need one, and blocks need permutations."""
    known = METHODS[learner.method].learn if learner is not None else None
    return [
        name
        for name, method in METHODS.items()
        if (method.by_permutation or not blocks)
        and (not method.uses_related_tasks or n_tasks or (known is not None and method.learn is known))
    ]


def carry_out(
    data: CleanData,
    plan: Plan,
    *,
    learner: MetaLearner | None = None,
    explained: bool = True,
    device: str = "auto",
    progress: Progress | None = None,
) -> Outcome:
    """Learn from the related tasks, if a test needs them, and test. ``learner`` is one that was trained earlier.

    >>> import m2st_core as m2st
    >>> found = carry_out(m2st.prepare(m2st.EXAMPLES["diabetes"].load()), Plan("Meta-FUSE", ("MMD-M",)))
    >>> found.analysis.primary.p_value
    0.001
    """
    if not len(data.x):
        raise ValueError("There is nothing to test: the upload has related tasks only. Bring P and Q.")
    check_plan(data, plan)
    needed = [METHODS.find(name).learn for name in plan.methods if METHODS.find(name).uses_related_tasks]
    if learner is not None and METHODS[learner.method].learn in needed:
        learner.refuse_shared(data.sample, data.encoding.units)
    apart = None
    if data.related_tasks and needed:
        data, apart = keep_apart(data)
    tasks = apart.tasks if apart is not None else None
    learners = _learners(tasks, plan, learner, device, part_of(progress, 0, TRAINED))
    analysis = analyse(
        data.x,
        data.y,
        plan.primary,
        plan.secondary,
        family=plan.family,
        splits=plan.splits,
        learners=learners,
        apart=apart,
        progress=part_of(progress, TRAINED, TESTED),
        preset=plan.preset,
        device=device,
        **_settings(data, plan),
    )
    explanation = None
    if explained:
        explanation = explain(analysis.seen, seed=plan.seed, progress=part_of(progress, TESTED, 1.0))
    return Outcome(data, plan, analysis, explanation, learners, apart)


def check_plan(data: CleanData, plan: Plan) -> None:
    """Refuse a plan with a test that could not reject, whatever its rows say, before anything is learned."""
    check_plan_splits(plan.methods, plan.splits)
    sample, floors = as_two_sample(data.x, data.y), []
    for name in plan.methods:
        method = METHODS.find(name)
        floor = smallest_p(
            sample,
            method,
            splits=plan.splits if method.needs_split else 1,
            preset=PRESETS.find(plan.preset),
            **_settings(data, plan),
        )
        floors.append(floor)
    for name, floor in zip(plan.methods, adjusted_p_values(floors, plan.family), strict=True):
        if floor > plan.alpha:
            raise ValueError(
                f"{name} cannot reject at alpha={plan.alpha:g} beside the other tests: after Holm's correction its "
                f"smallest possible p-value is {floor:.3g}. Use more permutations, fewer tests, or more rows."
            )


def other_splits(outcome: Outcome, further: int, *, progress: Progress | None = None) -> tuple[float, ...]:
    """The primary test's p-values under further random splits of the same rows: what the split alone does to p."""
    data, plan = outcome.data, outcome.plan
    settings = _settings(data, plan) | {"splits": further + 1, "progress": progress}
    if plan.primary in outcome.learners:
        result = outcome.learners[plan.primary].examine(data.x, data.y, apart=outcome.apart, **settings).result
    else:
        result = two_sample_test(data.x, data.y, plan.primary, preset=plan.preset, **settings)
    return result.split_p_values[1:]


def _settings(data: CleanData, plan: Plan) -> dict[str, Any]:
    """What every test of a plan has in common."""
    return {
        "alpha": plan.alpha,
        "n_permutations": plan.n_permutations,
        "train_fraction": plan.train_fraction,
        "seed": plan.seed,
        "blocks": blocks_of(data),
    }


def blocks_of(data: CleanData) -> tuple[np.ndarray, np.ndarray] | None:
    """The blocks of x's and of y's rows, as tests take them."""
    return None if data.x_blocks is None or data.y_blocks is None else (data.x_blocks, data.y_blocks)


def _learners(
    tasks: RelatedTasks | None, plan: Plan, given: MetaLearner | None, device: str, progress: Progress | None
) -> dict[str, MetaLearner]:
    """A learner for each method that needs one; methods that learn alike share the training."""
    needed = [name for name in plan.methods if METHODS.find(name).uses_related_tasks]
    by_learning = {METHODS[given.method].learn: given} if given is not None else {}
    new = list(dict.fromkeys(METHODS[name].learn for name in needed if METHODS[name].learn not in by_learning))
    if new and tasks is None:
        name = next(name for name in needed if METHODS[name].learn in new)
        brought = f"The learner is one for {given.method}." if given is not None else "None are given."
        raise ValueError(f"{name} learns from related tasks (meta-tasks). {brought} Bring them, or use MMD-FUSE.")
    for index, learn in enumerate(new):
        name = next(name for name in needed if METHODS[name].learn is learn)
        stage = part_of(progress, index / len(new), (index + 1) / len(new))
        by_learning[learn] = meta_train(name, tasks, preset=plan.preset, seed=plan.seed, device=device, progress=stage)
    return {name: replace(by_learning[METHODS[name].learn], method=name) for name in needed}
