"""The recommended test, from what is known before any label of the target is used."""

from __future__ import annotations

from dataclasses import dataclass

from m2st_core.analysis.related import RelatedCheck
from m2st_core.data.tables.prepare import Prepared
from m2st_core.numbers import is_whole
from m2st_core.testing.meta import MetaLearner
from m2st_core.testing.methods import METHODS
from m2st_core.testing.plan import LARGEST_ROWS, largest_rows
from m2st_core.types import DEFAULT_TAUGHT_TEST, DEFAULT_TEST

UNLIKE = 4.0  # standard deviations from the related tasks' rows


@dataclass(frozen=True)
class Recommendation:
    """A method, and the reasons for it in plain words."""

    method: str
    reasons: tuple[str, ...]


def recommend(
    n: int,
    m: int,
    *,
    n_tasks: int = 0,
    blocks: bool = False,
    check: RelatedCheck | None = None,
) -> Recommendation:
    """Recommend a method for samples of n and m rows and this many related tasks.

    ``check`` is the leave-one-task-out check of the related tasks, if there was one. Nothing depends on the target's
    labels. docs/recommendation.md reports the measured power behind this rule.

    >>> recommend(30, 30, n_tasks=20).method
    'Meta-FUSE'
    """
    for name, value, fewest in (("n", n, 2), ("m", m, 2), ("n_tasks", n_tasks, 0)):
        if not is_whole(value) or value < fewest:
            raise ValueError(f"{name} must be a whole number, at least {fewest}. Got {value!r}.")
    reasons = []
    not_used = _why_not_used(check) if n_tasks else ""
    if n_tasks and not not_used:
        method = DEFAULT_TAUGHT_TEST
        reasons += [
            "It combines kernels learned from the related tasks, which have half of the weight, with those of "
            f"{DEFAULT_TEST}. Tasks that are related can add much power. In simulations, unrelated tasks cost 0.02 of "
            f"power on average compared with {DEFAULT_TEST}, and at most 0.14.",
            "If you know that your samples can only differ as the related tasks do, Meta-Witness may be stronger.",
        ]
    else:
        method = DEFAULT_TEST
        reasons += [not_used] if not_used else []
        reasons.append(
            "It combines MMD-FUSE with broad and fine kernels, needs no training rows and has nothing to choose. In "
            "simulations of 23 kinds of differences its power was 0.02 to 0.05 below that of the best test for each on "
            "average, and at most 0.15."
        )
    if n_tasks and check is not None:
        reasons += check.sentences[:2]
    if n + m > (most := largest_rows(METHODS[method])):
        reasons.append(
            f"Of your {n + m:,} rows it tests {most:,}, drawn at random, because it compares many kernels. Tests with "
            f"one kernel, such as MMD-M and Energy, take up to {LARGEST_ROWS:,} rows."
        )
    if min(n, m) < 10:
        reasons.append(f"With {min(n, m)} rows in the smaller sample, only large differences can be detected.")
    if max(n, m) > 3 * min(n, m):
        equal = round(2 * n * m / (n + m))
        reasons.append(f"The samples are unequal: power is about that of two samples of {equal} rows each.")
    if blocks:
        reasons.append("Its p-value comes from permutations, which are made within your blocks.")
    return Recommendation(method, tuple(reasons))


def _why_not_used(check: RelatedCheck | None) -> str:
    """Return why the related tasks should not be used; empty if they should."""
    if check is not None and check.verdict == "harms":
        return "The related tasks are not used: in leave-one-out checks they made detection less likely."
    if check is not None and check.unlike is not None and check.unlike > UNLIKE:
        return (
            "The related tasks are not used: even without labels, your rows look unlike those of all related tasks. "
            f"If you know that they are related, use {DEFAULT_TAUGHT_TEST}."
        )
    return ""


def advise(data: Prepared, *, n_tasks: int | None = None, check: RelatedCheck | None = None) -> Recommendation:
    """Recommend a method for an upload; ``n_tasks`` counts the tasks of a learner that was trained earlier."""
    return recommend(
        len(data.x),
        len(data.y),
        n_tasks=len(data.task_names) if n_tasks is None else n_tasks,
        blocks=data.blocks is not None,
        check=check,
    )


def usable_methods(n_tasks: int, blocks: bool = False, learner: MetaLearner | None = None) -> list[str]:
    """Return the tests that an upload allows: blocks need permutations, and some tests need related tasks."""
    learned = METHODS[learner.method].training if learner is not None else ""
    return [
        name
        for name, method in METHODS.items()
        if (method.by_permutation or not blocks)
        and (not method.uses_related_tasks or n_tasks or method.training == learned)
    ]
