"""Traits of related tasks: their γ̂ to each other and to the target, their common direction, and odd values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from m2st_core.data.arrays import as_two_sample
from m2st_core.learners.relatedness import Relatedness, relatedness
from m2st_core.learners.units import FAR, ODD, column_units
from m2st_core.progress import part_of
from m2st_core.testing.meta import MetaLearner
from m2st_core.testing.method import TestSettings
from m2st_core.testing.methods import METHODS
from m2st_core.testing.plan import plan_test
from m2st_core.types import Progress, TwoSample

CLEAR = 0.5  # E[sign] beyond which a task's sense is clear
MANY_FAR = 0.005  # share of a column's values that are far from its median
NAMED = 3  # tasks named in a sentence
MOST_LEFT_OUT = 3
MOST_COLUMNS = 200  # training a deep kernel on more would take too long
FEWEST_ROWS = 8  # of each sample: two halves of four rows


def senses_of(learner: MetaLearner) -> dict[str, float]:
    """E[sign] of each task's difference along the tasks' common direction; most are positive.

    Empty if left-out tasks did not confirm a common direction.
    """
    senses, choices = learner.knowledge.senses, learner.choices
    if senses is None or not choices["one_order"] + choices["any_order"]:
        return {}
    signs = senses[0] if float(senses[0].sum()) >= 0 else -senses[0]
    return dict(zip(learner.task_names, signs.tolist(), strict=True))


def sense_sentence(senses: Mapping[str, float]) -> str:
    """How many tasks point the same way along their common direction."""
    if not senses:
        return "No direction of difference that the related tasks have in common could be confirmed."
    reversed_tasks = [name for name, sense in senses.items() if sense < -CLEAR]
    same = sum(sense > CLEAR for sense in senses.values())
    unclear = len(senses) - same - len(reversed_tasks)
    sentence = f"{same} of {len(senses)} related tasks point the same way"
    if reversed_tasks:
        verb = "looks" if len(reversed_tasks) == 1 else "look"
        sentence += f"; {len(reversed_tasks)} {verb} reversed ({_named(reversed_tasks)}), which is allowed for"
    if unclear:
        sentence += f"; for {unclear} the sense is unclear"
    caution = " Where tasks are weak, some of this may be wrong; the tests allow for it." if reversed_tasks else ""
    return f"{sentence}.{caution}"


def odd_values(samples: Mapping[str, TwoSample], columns: Sequence[str]) -> tuple[str, ...]:
    """Sentences about tasks whose values differ from those of the others in scale, are far away, or are copies."""
    pooled = [sample.pooled for sample in samples.values()]
    names = list(samples)
    units = [column_units(rows) for rows in pooled]
    centres, spreads = (torch.stack(parts) for parts in zip(*units, strict=True))
    usual = spreads.median(dim=0).values
    sentences = []
    for task, ratios in enumerate((spreads / usual).tolist()):
        for column, ratio in enumerate(ratios):
            if ratio > ODD or ratio < 1 / ODD:
                times = f"{ratio:,.0f} times" if ratio > 1 else f"a factor {1 / ratio:,.0f} less than"
                compared = "as much as in the other tasks" if ratio > 1 else "in the other tasks"
                sentences.append(
                    f"“{columns[column]}” of {names[task]} spreads {times} {compared}. "
                    "Check its unit. It is measured in its own units here."
                )
    triples = zip(pooled, centres, spreads, strict=True)
    far = torch.stack([((rows - c).abs() > FAR * s).double().mean(dim=0) for rows, c, s in triples])
    for column in (far > MANY_FAR).any(dim=0).nonzero()[:, 0].tolist():
        tasks = [names[task] for task in (far[:, column] > MANY_FAR).nonzero()[:, 0].tolist()]
        sentences.append(
            f"“{columns[column]}” has values more than {FAR:g} spreads from the median in {_named(tasks)} "
            f"(up to {float(far[:, column].max()):.1%} of the rows). Nothing is learned from them."
        )
    same = (
        f"{original} and {name} are the same comparison. It counts once." for name, original in copies(samples).items()
    )
    return (*sentences, *same)


def copies(samples: Mapping[str, TwoSample]) -> dict[str, str]:
    """The tasks that have the same rows as an earlier one, in any order: name → name of the earlier one."""
    first: dict[bytes, str] = {}
    found = {}
    for name, sample in samples.items():
        parts = sorted(rows.sort(dim=0).values.contiguous().cpu().numpy().tobytes() for rows in sample)
        original = first.setdefault(b"".join(parts), name)
        if original != name:
            found[name] = original
    return found


def _named(names: Sequence[str]) -> str:
    """Join the first names, and count the others."""
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


@dataclass(frozen=True)
class LeftOutGamma:
    """γ̂ of each left-out task to the most related of a few others, by the task's name."""

    by_task: Mapping[str, Relatedness]

    @property
    def sentence(self) -> str:
        """The result in plain words."""
        if not self.by_task:
            return f"γ̂ is not computed for more than {MOST_COLUMNS} columns."
        gammas = [measured.gamma() for measured in self.by_task.values()]
        above = sum(measured.stands_out for measured in self.by_task.values())
        floor = np.median([measured.floor for measured in self.by_task.values()])
        unlike = {0: "None is", 1: "One is"}.get(above, f"{above} are")
        return (
            f"{len(gammas)} left-out tasks were each compared with the most similar of a few others. {unlike} clearly "
            f"unlike it (γ̂ from {min(gammas):.2f} to {max(gammas):.2f}; two samples of one task reach {floor:.2f} by "
            "chance)."
        )


def left_out_gamma(
    tasks: Mapping[str, Any], left_out: Sequence[str], *, seed: int = 0, progress: Progress | None = None
) -> LeftOutGamma:
    """Compute γ̂ of at most three left-out tasks, without any row of the target."""
    columns = next(iter(tasks.values()))[0].shape[1]
    chosen = left_out[:MOST_LEFT_OUT] if columns <= MOST_COLUMNS else []
    measured = {}
    for index, name in enumerate(chosen):
        others = {other: pair for other, pair in tasks.items() if other != name}
        stage = part_of(progress, index / len(chosen), (index + 1) / len(chosen))
        measured[name] = relatedness(tasks[name], others, restarts=2, max_tasks=3, steps=30, seed=seed, progress=stage)
    return LeftOutGamma(measured)


@dataclass(frozen=True)
class TargetGamma:
    """γ̂ of a target, and the rows of (x, y) that it was computed on.

    γ̂ uses labels. If ``exploratory``, they are labels of tested rows, and no choice may depend on it.
    """

    relatedness: Relatedness
    sizes: tuple[int, int]
    exploratory: bool
    sentence: str


def target_gamma(
    x: Any,
    y: Any,
    related_tasks: Any,
    method: str,
    *,
    train_fraction: float = 0.5,
    blocks: tuple[Any, Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> TargetGamma:
    """Compute γ̂ on the rows that the method trains on with these settings, or on all rows if it does not split.

    Five tasks, three restarts and fifty steps give a first impression within seconds; see ``relatedness`` for more.
    """
    spec, sample = METHODS.find(method), as_two_sample(x, y, blocks=blocks)
    if spec.needs_split:
        sample = plan_test(sample, spec, TestSettings(train_fraction=train_fraction, seed=seed)).training_rows
    n, m = sample.sizes
    if min(n, m) < FEWEST_ROWS:
        raise ValueError(f"γ̂ needs at least {FEWEST_ROWS} rows of each sample. There are {n} and {m}.")
    result = relatedness(sample, related_tasks, restarts=3, max_tasks=5, steps=50, seed=seed, progress=progress)
    use = (
        f"It uses the {n} and {m} rows that {method} trains on and does not test, so it may guide the choice."
        if spec.needs_split
        else f"This is exploratory: {method} tests the same {n} and {m} rows, so no choice may depend on it."
    )
    return TargetGamma(result, (n, m), not spec.needs_split, f"{result.sentence} {use}")
