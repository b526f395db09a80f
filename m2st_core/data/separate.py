"""Separate related tasks from a target that shares rows with them.

A tested row must not be a labelled training row: a learned direction separates exactly the rows it was learned from,
and the test would reject a true null hypothesis. So the target's rows are removed from the related tasks. If that costs
most tasks one of their samples, as with one control group for all comparisons, these tasks become one: their other
samples together against all rows of the target, unlabelled. The control group still shows in this task, diluted by the
other sample. It is one task, because one control group counted in every task would look like many confirmations of the
same difference.

Unlabelled rows carry no information about labels. So if all shared rows are recognised, the target's labels are
exchangeable under the null hypothesis, given the training rows: p-values stay exact, and all rows are tested. Where
rows are often equal by chance, some shared rows could escape: then the p-value is exact under a condition, which is
part of the result. ``benchmarks/shared.py`` measures level and power.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from m2st_core.data.arrays import as_related_tasks, as_two_sample, in_order_of
from m2st_core.data.overlap import ColumnUnits, Overlap, find_overlap, known_rows
from m2st_core.data.related import RelatedTasks
from m2st_core.numbers import count_of
from m2st_core.types import DEFAULT_TEST, TwoSample

FEWEST_ROWS = 4  # rows that each sample of a task must keep
TOLERATED = 0.05  # share of the smaller sample that may be shared unseen
UNMATCHED = "No id of x and y is among the ids of the related tasks, so no row is taken to be in both."
UNSHARED = "no row of the target is in the related tasks"
UNCHANGED = "no further row of the target is in the related tasks with other values"
UNLIKE_IDS = "rows with different ids are different units"


@dataclass(frozen=True)
class Separated:
    """Related tasks without labelled rows of the target. ``shared`` counts the target's rows that they had.

    ``exact_if`` is the condition under which no further row is shared; empty if none could have been missed.
    """

    tasks: RelatedTasks
    shared: int = 0
    notes: tuple[str, ...] = ()
    exact_if: str = ""


def separate(target: Any, tasks: Any, *, ids: str | None = None) -> Separated:
    """Remove the rows of the target, a pair (x, y), from the related tasks, given as for ``meta_train``.

    ``ids`` names a column of all frames that identifies their rows: then rows are the same if their ids are equal,
    without a search.

    >>> control, more = np.arange(20.0) ** 1.5, np.arange(60.0).reshape(3, 20) ** 1.4
    >>> separate((control, more[0]), {"a": (control, more[1]), "b": (more[2], more[1] + 0.1)}).tasks.names
    ('b',)
    """
    if not isinstance(target, TwoSample):
        x, y = target
        target = as_two_sample(x, y, ids)
    related = as_related_tasks(tasks, ids)
    separated = without_target(related, in_order_of(target, related.columns, related.rows.shape[-1]))
    if not separated.tasks.names:
        raise ValueError(nothing_left(target))
    return separated


def without_target(related: RelatedTasks, target: TwoSample, units: ColumnUnits | None = None) -> Separated:
    """Separate tasks from a checked target with the same columns; none is left if all share too many rows with it.

    ``units`` undo a scaling, so that rows in other units are recognised.
    """
    known, positions = known_rows(related)
    rest = np.arange(len(known.rows))
    overlap = find_overlap(target, known, units)
    shared, changed = np.unique(overlap.target), overlap.changed
    while len(overlap):
        rest = np.delete(rest, np.unique(overlap.known))
        overlap = find_overlap(target, known.only(rest), units)
        shared, changed = np.union1d(shared, overlap.target), changed or overlap.changed
    condition, warning = condition_of(replace(overlap, changed=changed), target)
    if not len(shared):
        unmatched = (UNMATCHED,) if target.ids is not None else ()
        return Separated(related, notes=warning + unmatched, exact_if=condition)
    reduced = related.without(np.setdiff1d(positions, positions[rest]))
    short = _short(related, reduced)
    usable, lost = np.flatnonzero(~short.any(axis=0)), np.flatnonzero(short.any(axis=0))
    merged = len(lost) > len(related.names) / 2
    tasks = _merged(target, reduced, short, usable) if merged else reduced.select(usable)
    notes = _notes(len(shared), len(lost), len(lost) if merged else 0, target.ids is not None)
    return Separated(tasks, len(shared), notes + warning, condition)


def _short(before: RelatedTasks, after: RelatedTasks) -> np.ndarray:
    """Mark the samples (x, y) of tasks that lost rows and have too few left: (2, T)."""
    counts_before, counts = (
        torch.stack([(weight[0] > 0).sum(dim=-1) for weight in (related.x_weight, related.y_weight)])
        for related in (before, after)
    )
    return ((counts < counts_before) & (counts < FEWEST_ROWS)).cpu().numpy()


def _merged(target: TwoSample, related: RelatedTasks, short: np.ndarray, usable: np.ndarray) -> RelatedTasks:
    """The usable tasks, and for each side one task of those short on it: their other samples and the pooled rows.

    The pooled rows (N, d) are sorted, so that their order does not reveal their labels.
    """
    order = torch.from_numpy(np.lexsort(target.pooled.cpu().numpy().T))
    rows, ids = target.pooled[order].to(related.rows), None
    tasks = {related.names[index]: related.task(int(index)) for index in usable}
    for side in (0, 1):
        indices = np.flatnonzero(short[side] & ~short[1 - side])
        if len(indices):
            pairs = [related.task(int(index)) for index in indices]
            opposite = torch.cat([tuple(pair)[1 - side] for pair in pairs])
            if target.ids is not None:
                ids = torch.cat(target.ids)[order], torch.cat([pair.ids[1 - side] for pair in pairs if pair.ids])
            sample = TwoSample(rows, opposite, related.shape, related.columns, ids=ids)
            tasks[f"{len(indices)} tasks with shared rows in {'xy'[side]}"] = sample.swapped() if side else sample
    return replace(as_related_tasks(tasks), notes=related.notes) if tasks else related.select(usable)


def _notes(shared: int, lost: int, merged: int, by_ids: bool) -> tuple[str, ...]:
    """Notes on the shared rows and their removal."""
    how = "by their ids" if by_ids else "equal or nearly so"
    notes = [
        f"{count_of(shared, 'row')} of the target {'is' if shared == 1 else 'are'} also in the related tasks, {how}. "
        "The related tasks were used without them, because a tested row must not be a training row."
    ]
    if merged:
        notes.append(
            f"{count_of(merged, 'related task')} had only such rows in one sample, like a common control group. The "
            "other samples were compared with all rows of x and y, unlabelled. This is less informative than tasks "
            "with their own control groups."
        )
    elif lost:
        notes.append(f"{count_of(lost, 'related task')} left out, because too few rows remain.")
    return tuple(notes)


def condition_of(overlap: Overlap, target: TwoSample) -> tuple[str, tuple[str, ...]]:
    """The conditions for an exact p-value, and notes on them; empty if the search recognises enough.

    It does unless more than 5 % of the smaller sample could be shared and escape with probability above .05, rows were
    recognised with other values, or values recognise rows that ids call different.
    """
    smaller, conditions, notes = min(target.sizes), [], []
    if overlap.unseen > TOLERATED * smaller:
        conditions.append(UNSHARED)
        notes.append(
            f"Up to {min(overlap.unseen, smaller):,} of {smaller:,} rows could be in the related tasks unnoticed, "
            f"because rows like these can be equal by chance. The p-value is exact if {UNSHARED}. A column that "
            "identifies persons or items settles it: name it as the id column."
        )
    if overlap.changed:
        conditions.append(UNCHANGED)
        notes.append(
            "Some shared rows have other values in the related tasks. Rows that changed more would not be recognised, "
            f"so the p-value is exact if {UNCHANGED}."
        )
    if overlap.unlike_ids:
        conditions.append(UNLIKE_IDS)
        notes.append(
            f"{count_of(overlap.unlike_ids, 'row')} of x and y have the values of rows in the related tasks and other "
            f"ids. The p-value is exact if {UNLIKE_IDS}. If the ids number rows anew in each file, do not name them."
        )
    return " and ".join(conditions), tuple(notes)


def nothing_left(target: TwoSample) -> str:
    """The sentence on a target after whose separation no related task is left."""
    anew = " If the ids begin anew in each file, they identify no rows: do not name them." * (target.ids is not None)
    return (
        f"The related tasks share so many rows with x and y that nothing is left to learn from.{anew} Use "
        f"{DEFAULT_TEST}, or bring related tasks with rows of their own."
    )
