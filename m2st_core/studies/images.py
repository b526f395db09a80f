"""Tests of images, learned from class pairs: their power, and what Feature-MKL's kernel sees in the images."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch

from m2st_core.criterion import witness_of_rows
from m2st_core.data import make_task
from m2st_core.data.images.tasks import ImageTask
from m2st_core.data.task import Setting
from m2st_core.device import one_core, one_thread_per_operation, resolve_device
from m2st_core.learners.ascent import part_of
from m2st_core.paper.published import with_published
from m2st_core.permutation.fitted import KernelTest
from m2st_core.rng import Streams
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.summary import as_rows, summarise
from m2st_core.sweeps.trial import Cell, CellResult, LearnerParts, learned_method, run_cell, train_learner
from m2st_core.types import Progress

EXPLAINED = "Feature-MKL"
FEW_PIXELS = 1000  # below, one core is as fast as several
TRAINING_WEIGHT = 4  # of a training on meta-tasks, in cells
CLASSES_SHOWN = 20


@dataclass(frozen=True)
class Seen:
    """What the learned kernel sees of one tested pair of samples.

    ``images`` (N, c, h, w), those of x first; ``witness`` (N,) is positive where an image is typical of P. ``weights``
    are β by pair of classes, ``others`` those of kernels that belong to no pair, by their kind; ``criterion`` is each
    pair's Ĵ on the images that taught β; ``classes`` has a row per class.
    """

    images: np.ndarray
    witness: np.ndarray
    n: int
    weights: dict[tuple[str, str], float]
    others: dict[str, float]
    criterion: dict[tuple[str, str], float]
    classes: pd.DataFrame

    def most_typical(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The images that the kernel takes for P's, and for Q's, the clearest first, wherever they come from."""
        order = np.argsort(-self.witness, kind="stable")
        return self.images[order[:count]], self.images[order[::-1][:count]]


@dataclass(frozen=True)
class ImagesFound:
    """Power of each method by size, and what Feature-MKL sees."""

    power: pd.DataFrame
    seen: Seen


@dataclass(frozen=True)
class ImageStudy:
    """The settings; hashable, so they are also the key of the job."""

    task: str
    settings: tuple[tuple[str, Setting], ...]
    methods: tuple[str, ...]
    n_tasks: int
    rows_per_task: int
    m_tr: int
    m_te: tuple[int, ...]
    tests: int
    seed: int
    data: str = ""  # fingerprint of the user's images

    @cached_property
    def spec(self) -> SweepSpec:
        """The same as a sweep of one repeat, Feature-MKL included."""
        return SweepSpec(
            task=self.task,
            settings=dict(self.settings),
            methods=tuple(dict.fromkeys((EXPLAINED, *self.methods))),
            n_tasks=(self.n_tasks,),
            rows_per_task=self.rows_per_task,
            m_tr=(self.m_tr,),
            m_te=self.m_te,
            repeats=1,
            tests=self.tests,
            n_permutations=99,
            seed=self.seed,
        )

    @property
    def target(self) -> ImageTask:
        """Where the images come from."""
        settings: dict[str, Any] = dict(self.settings)
        task = make_task(self.task, **settings)
        assert isinstance(task, ImageTask)
        return task

    def run(self, progress: Progress | None = None) -> ImagesFound:
        """Train each learner once, measure every method at every size, then look at what was learned."""
        with one_core() if math.prod(self.target.shape) < FEW_PIXELS else nullcontext():
            return self._run(progress)

    def _run(self, progress: Progress | None) -> ImagesFound:
        device = str(resolve_device())
        cells = list(self.spec.cells())
        learners = {cell.learner.key: cell.learner for cell in cells if cell.learner is not None}
        total = TRAINING_WEIGHT * len(learners) + len(cells) + 1
        done = 0
        parts: dict[str, LearnerParts] = {}
        for key, learner in learners.items():
            share = part_of(progress, done / total, (done + TRAINING_WEIGHT) / total)
            parts[key] = train_learner(learner, device, share)
            done += TRAINING_WEIGHT
        results: list[tuple[Cell, CellResult]] = []
        for cell in cells:
            own = parts[cell.learner.key] if cell.learner is not None else None
            results.append((cell, run_cell(cell, own, device, part_of(progress, done / total, (done + 1) / total))))
            done += 1
        wanted = [(cell, result) for cell, result in results if cell.method in self.methods]
        first = next(cell for cell in cells if cell.method == EXPLAINED)
        assert first.learner is not None
        return ImagesFound(
            with_published(summarise(as_rows(wanted))), self._look(first, parts[first.learner.key], device)
        )

    @torch.no_grad()
    def _look(self, cell: Cell, parts: LearnerParts, device: str) -> Seen:
        """The witness of the learned kernel, on images that taught it nothing."""
        fitted = learned_method(cell, parts, device).fit_on()
        assert isinstance(fitted, KernelTest)
        size = max(self.m_te)
        shown = self.target.show(size, size, Streams(self.seed).child("images to look at"))
        rows = np.concatenate([shown.x, shown.y])
        with one_thread_per_operation():
            pooled = torch.from_numpy(rows)[None].to(device)
            values = witness_of_rows(fitted.kernel(pooled, pooled)[0], size).cpu().numpy()
        pairs = {f"{a} or {b}": (a, b) for a, b in self.target.pairs()}
        beta, criterion = fitted.weights[0], fitted.diagnostics[0]["criterion_by_kernel"]
        others: dict[str, float] = {}
        for name, weight in beta.items():
            if name not in pairs:
                kind = name.split(", ")[0]  # generic kernels differ in their width only
                others[kind] = others.get(kind, 0.0) + weight
        return Seen(
            images=rows.reshape(len(rows), *self.target.shape),
            witness=values,
            n=size,
            weights={pairs[name]: weight for name, weight in beta.items() if name in pairs},
            others=others,
            criterion={pair: criterion[name] for name, pair in pairs.items() if name in criterion},
            classes=_by_class(values, np.concatenate([shown.x_classes, shown.y_classes]), size),
        )


def _by_class(values: np.ndarray, classes: np.ndarray, n: int) -> pd.DataFrame:
    """Mean witness value and its standard error by class, at most twenty of the largest, from P's to Q's."""
    table = pd.DataFrame({"class": classes, "value": values, "in_p": np.arange(len(values)) < n})
    found = table.groupby("class").agg(
        mean=("value", "mean"), error=("value", "sem"), images=("value", "size"), of_p=("in_p", "sum")
    )
    found["share_p"] = found["of_p"] / n
    found["share_q"] = (found["images"] - found["of_p"]) / (len(values) - n)
    found = found.drop(columns="of_p").fillna({"error": 0.0}).reset_index().sort_values("mean", ascending=False)
    if len(found) > CLASSES_SHOWN:
        found = pd.concat([found.head(CLASSES_SHOWN // 2), found.tail(CLASSES_SHOWN // 2)])
    return found.reset_index(drop=True)
