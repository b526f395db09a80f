"""Keep the rows that teach apart from the rows that are tested, where a target shares rows with its related tasks.

A tested row must not have taught with its label: a learned direction separates exactly the rows it was learned from,
and the test would reject a true null hypothesis. So the target's rows leave the related tasks. Where that costs most
tasks one of their samples, as with one control group for all comparisons, these tasks become one: their other samples
together against all rows of the target, unlabelled. Among these the control group is still to be seen, diluted by the
other sample. It is one task and not many, because one control group counted in every task would be taken for many
confirmations of the same difference.

Unlabelled rows teach nothing about labels. So where all shared rows are recognised, the target's labels are
exchangeable under the null hypothesis, given what teaches: p-values stay exact, and all rows are tested. Single rows of
few different values are not recognised, and a note says so. ``benchmarks/shared.py`` measures level and power.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m2st_core.data.arrays import as_two_sample
from m2st_core.data.overlap import KnownRows, Overlap, fingerprints, same_rows
from m2st_core.data.related import RelatedTasks, as_related_tasks
from m2st_core.types import TwoSample

FEWEST_ROWS = 4  # of each sample that a task must keep
COARSE = 0.2  # chance that a row meets an equal one, from which single shared rows are not recognised
Units = tuple[np.ndarray, np.ndarray]
"""Centre and scale of every column (d,), which turn rows back into the units of their files."""


@dataclass(frozen=True)
class Separated:
    """Related tasks that hold no labelled row of the target; ``shared`` counts its rows that they had."""

    tasks: RelatedTasks
    shared: int = 0
    notes: tuple[str, ...] = ()


def separate(target: Any, tasks: Any, *, units: Units | None = None) -> Separated:
    """The related tasks, given as in ``meta_train``, without the rows of the target, a pair (x, y).

    ``units`` undo a scaling, so that rows in other units are recognised.

    >>> control, more = np.arange(20.0) ** 1.5, np.arange(60.0).reshape(3, 20) ** 1.4
    >>> separate((control, more[0]), {"a": (control, more[1]), "b": (more[2], more[1] + 0.1)}).tasks.names
    ('b',)
    """
    target = target if isinstance(target, TwoSample) else as_two_sample(*target)
    meta = as_related_tasks(tasks)
    columns = meta.rows.shape[-1], target.x.shape[-1]
    if columns[0] != columns[1]:
        raise ValueError(f"The meta-tasks have {columns[0]} columns and x and y have {columns[1]}.")
    known, place = known_rows(meta)
    rest = np.arange(len(known.rows))
    overlap = first = find_overlap(target, known, units)
    shared = np.unique(overlap.target)
    while len(overlap):
        rest = np.delete(rest, np.unique(overlap.known))
        overlap = find_overlap(target, known.at(rest), units)
        shared = np.union1d(shared, overlap.target)
    if not len(shared):
        return Separated(meta, notes=_notes(0, 0, 0, first.chance))
    kept = meta.without(np.setdiff1d(place, place[rest]))
    short = _short(meta, kept)
    usable, lost = np.flatnonzero(~short.any(axis=0)), np.flatnonzero(short.any(axis=0))
    merged = len(lost) > len(meta.names) / 2
    kept = _merged(target.pooled, kept, short, usable) if merged else kept.select(usable)
    if not kept.names:
        raise ValueError(
            "The related tasks share so many rows with x and y that nothing is left to learn from. "
            "Use MMD-FUSE, or bring related tasks with rows of their own."
        )
    return Separated(kept, len(shared), _notes(len(shared), len(lost), len(lost) if merged else 0, first.chance))


def known_rows(meta: RelatedTasks) -> tuple[KnownRows, np.ndarray]:
    """The rows that the tasks of one repeat use, for :func:`same_rows`, and their positions in ``meta.rows``.

    A row that several samples hold once, as images are, counts to the first of them.
    """
    sides = torch.stack([meta.x_weight[0] > 0, meta.y_weight[0] > 0], dim=1).flatten(0, 1)  # 2T x L
    sample, at = torch.nonzero(sides, as_tuple=True)
    place, first = np.unique(meta.where[0][sample // 2, at].cpu().numpy(), return_index=True)
    rows = fingerprints(meta.rows[0][torch.from_numpy(place)], meta.shape is not None)
    return KnownRows(rows, sample.cpu().numpy()[first]), place


def find_overlap(target: TwoSample, known: KnownRows, units: Units | None = None) -> Overlap:
    """Rows of the target among the known rows, both compared in the units of their files."""
    x, y = (fingerprints(rows, target.shape is not None) for rows in target)
    if units is None:
        return same_rows((x, y), known)
    centre, scale = units
    return same_rows((x * scale + centre, y * scale + centre), KnownRows(known.rows * scale + centre, known.sample))


def _short(before: RelatedTasks, after: RelatedTasks) -> np.ndarray:
    """Which samples (x, y) of the tasks lost rows and have too few left: (2, T)."""
    had, have = (
        torch.stack([(weight[0] > 0).sum(dim=-1) for weight in (meta.x_weight, meta.y_weight)])
        for meta in (before, after)
    )
    return ((have < had) & (have < FEWEST_ROWS)).cpu().numpy()


def _merged(pooled: Tensor, meta: RelatedTasks, short: np.ndarray, usable: np.ndarray) -> RelatedTasks:
    """The usable tasks, and for each side one task of those short on it: their other samples and the pooled rows.

    The pooled rows (N, d) are sorted, so that their order knows nothing of their labels.
    """
    order = np.lexsort(pooled.cpu().numpy().T)
    rows = pooled[torch.from_numpy(order)].to(meta.rows)
    samples = meta.samples()
    tasks = {meta.names[task]: samples[meta.names[task]] for task in usable}
    for side in (0, 1):
        alone = np.flatnonzero(short[side] & ~short[1 - side])
        if len(alone):
            others = torch.cat([tuple(samples[meta.names[task]])[1 - side] for task in alone])
            pair = (rows, others) if side == 0 else (others, rows)
            tasks[f"{len(alone)} tasks with shared rows in {'xy'[side]}"] = TwoSample(*pair, meta.shape)
    return as_related_tasks(tasks) if tasks else meta.select(usable)


def _notes(shared: int, lost: int, merged: int, chance: float) -> tuple[str, ...]:
    """What was shared and what was done about it; a warning where shared rows cannot be told from chance."""
    notes = []
    if shared:
        notes.append(
            f"{count_of(shared, 'row')} of x and y {'is' if shared == 1 else 'are'} also in the related tasks, equal "
            "or nearly so. The related tasks were used without them, because a row that is tested must not teach."
        )
    if merged:
        notes.append(
            f"{count_of(merged, 'related task')} had only such rows in one sample, as a common control group. The "
            "other samples were compared with all rows of x and y, unlabelled. This teaches less than tasks with "
            "control groups of their own."
        )
    elif lost:
        notes.append(f"{count_of(lost, 'related task')} left out, since too few rows remain in it.")
    return (*notes, *coarse_notes(chance))


def coarse_notes(chance: float) -> tuple[str, ...]:
    """A warning where rows meet equal rows by chance so often that single shared ones are not recognised."""
    if chance < COARSE:
        return ()
    return (
        f"About {chance:.0%} of the rows meet an equal row of another sample by chance, so a few rows that are in x or "
        "y and in the related tasks cannot be recognised. The p-value is exact only if no unit is in both.",
    )


def count_of(number: int, noun: str) -> str:
    """The number with its noun, in the plural where there are several."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
