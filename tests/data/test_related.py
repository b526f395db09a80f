"""Related tasks as one batch: rows in their places, shared images once, one task in memory at a time."""

import weakref
from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.data.arrays import as_related_tasks
from m2st_core.data.related import stack_related_tasks
from m2st_core.types import TwoSample

SHAPE = (1, 4, 4)


def shared_images(classes=5, count=6, seed=0):
    """All pairs of some classes; sizes differ, and a class has the same images in all its pairs."""
    images = np.random.default_rng(seed).integers(0, 256, (classes, count, 1, 4, 4)).astype(np.uint8)
    return {f"{a} or {b}": (images[a], images[b][: count - a]) for a, b in combinations(range(classes), 2)}


def plain_rows(count=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        TwoSample(*(torch.randn(5 + task + side, 2, generator=generator).double() for side in (0, 2)))
        for task in range(count)
    ]


def sides(meta, task, repeat=0):
    """A task's rows of x and of y."""
    weights = (weight[repeat, task] for weight in (meta.x_weight, meta.y_weight))
    return [meta.rows[repeat, meta.where[repeat, task][weight > 0]] for weight in weights]


def test_every_row_is_in_its_place_and_shared_images_are_held_once():
    tasks = shared_images()
    meta = as_related_tasks(tasks)
    different = {image.tobytes() for pair in tasks.values() for part in pair for image in part}
    assert meta.names == tuple(tasks) and meta.shape == SHAPE and meta.rows.dtype == torch.float32
    assert meta.rows.shape == (1, len(different) + 1, 16)  # and the row of zeros that pads
    for task, pair in enumerate(tasks.values()):
        for found, part in zip(sides(meta, task), pair, strict=True):
            assert found.numpy() == pytest.approx(part.reshape(len(part), -1) / 255.0)
    assert not meta.take(meta.where)[~meta.inside].any()


def test_rows_that_are_no_images_are_all_kept_in_their_order():
    row = torch.zeros(1, 2).double()
    pairs = [TwoSample(torch.cat([pair.x, row]), torch.cat([pair.y, row])) for pair in plain_rows()]
    meta = as_related_tasks(pairs)
    assert torch.equal(meta.take_inside(), torch.cat([pair.pooled for pair in pairs]))
    assert meta.rows.shape[1] == sum(sum(pair.sizes) for pair in pairs) + 1
    assert meta.sizes.tolist() == [[sum(pair.sizes) for pair in pairs]]


def test_weights_take_means_and_repeats_stand_side_by_side():
    first, second = plain_rows(), plain_rows(seed=1)
    both = stack_related_tasks([first, second], ("a", "b", "c"))
    for repeat, pairs in enumerate((first, second)):
        for task, pair in enumerate(pairs):
            for found, weight, rows in zip(
                sides(both, task, repeat), (both.x_weight, both.y_weight), (pair.x, pair.y), strict=True
            ):
                assert torch.equal(found, rows)
                mean = weight[repeat, task] @ both.take(both.where)[repeat, task]
                torch.testing.assert_close(mean, rows.mean(dim=0))
    twice = both.repeated(2)
    assert torch.equal(twice.take(twice.where), both.take(both.where).repeat_interleave(2, dim=0))


def test_a_shared_image_is_held_out_in_all_its_tasks_or_in_none():
    meta = as_related_tasks(shared_images(count=10))
    kept, aside = meta.hold_out(0.4, [torch.Generator().manual_seed(0)], together=True)
    seen, unseen = (set(part.where[part.inside].tolist()) for part in (kept, aside))
    assert seen and unseen and not seen & unseen
    alone, other = meta.hold_out(0.4, [torch.Generator().manual_seed(0)])
    assert set(alone.where[alone.inside].tolist()) & set(other.where[other.inside].tolist())


class Pair(list):
    """Two samples that can be weakly referenced."""


class MadeWhenAsked(Mapping):
    """Pairs that are made one by one, with a note of how many live at the same time."""

    def __init__(self, tasks):
        self.tasks, self.made, self.most = tasks, [], 0

    def __getitem__(self, name):
        pair = Pair(part.copy() for part in self.tasks[name])
        self.made.append(weakref.ref(pair))
        self.most = max(self.most, sum(reference() is not None for reference in self.made))
        return pair

    def __iter__(self):
        return iter(self.tasks)

    def __len__(self):
        return len(self.tasks)


def test_pairs_made_when_asked_for_are_not_held_together():
    tasks = MadeWhenAsked(shared_images(classes=8, count=10))
    meta, expected = as_related_tasks(tasks), as_related_tasks(tasks.tasks)
    assert torch.equal(meta.rows, expected.rows) and torch.equal(meta.where, expected.where)
    assert len(tasks) == 28 and tasks.most <= 3


def test_class_pairs_need_no_more_rows_than_there_are_images():
    pairs = m2st.make_task("cifar100-shift").draw_related_tasks(n_tasks=600, rows=5, seed=1)
    meta = as_related_tasks(pairs)
    assert meta.where.shape == (1, 600, 10) and meta.rows.shape[1] <= 100 * 15
    for index, name in list(enumerate(pairs))[::100]:
        for found, part, again in zip(sides(meta, index), pairs[name], pairs[name], strict=True):
            assert torch.equal(found, part.float()) and torch.equal(part, again)
        assert pairs[name].shape == (3, 32, 32)
    assert len(m2st.make_task("cifar100-shift").draw_related_tasks(n_tasks=5000, rows=5, seed=1)) == 4950
