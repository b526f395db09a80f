"""Tests of images, learned from pairs of classes: their power, and the kernel of Feature-MKL explained."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch

from m2st_core.criterion import witness_of_rows
from m2st_core.data import make_task
from m2st_core.data.images.features import PIXELS, feature_side
from m2st_core.data.images.files import SIDE
from m2st_core.data.images.sources import load_images
from m2st_core.data.images.tasks import DescribedTask, ImageTask, ShownImages, always_new
from m2st_core.device import one_core, one_thread_per_operation, resolve_device
from m2st_core.learners.generic import GENERIC, is_generic
from m2st_core.learners.mixtures import CRITERION_BY_KERNEL
from m2st_core.paper.published import with_published
from m2st_core.permutation.fitted import KernelTest
from m2st_core.progress import part_of
from m2st_core.rng import Streams
from m2st_core.studies.shipped import Shipped, load_shipped
from m2st_core.sweeps.cells import Cell, CellResult, LearnerParts, LearnerSpec, learned_method, run_cell, train_learner
from m2st_core.sweeps.cost import SweepCost, different_images, machine_factor, predict_cost
from m2st_core.sweeps.grid import as_rows
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.summary import summarise
from m2st_core.tasks import Setting
from m2st_core.testing.methods import label_of
from m2st_core.types import GENERIC_TEST, Progress

EXPLAINED = "Feature-MKL"
FEW_PIXELS = 1000
TRAINING_COST = 4  # cells that take as long as one training on related tasks
CLASSES_SHOWN, LEAST_SHOWN = 20, 0.005  # classes, weight of a kernel
GREYS = 255  # of a shipped picture
IMAGE_SECONDS = 0.01  # on one core: the features of an image at 128 pixels
LEARNING_SECONDS = 3.0  # learning from class pairs, by features
ROW_SECONDS = 1e-4  # a tested image, by features


@dataclass(frozen=True)
class KernelExplanation:
    """The learned kernel on one pair of held-out samples.

    ``images`` (N, c, h, w) are those of x, then those of y. ``witness`` (N,) is positive where an image is typical of
    P. ``weights`` is β by pair of classes, and ``other_weights`` by kernel that belongs to no pair. ``criterion`` is Ĵ
    of each pair's kernel on the training images. ``classes`` has a row per class.
    """

    images: np.ndarray
    witness: np.ndarray
    n: int
    weights: dict[tuple[str, str], float]
    other_weights: dict[str, float]
    criterion: dict[tuple[str, str], float]
    classes: pd.DataFrame

    def kernels(self) -> dict[str, float]:
        """The kernels with weight, largest first: of class pairs, of all pairs together, and generic ones."""
        every = {f"{a} or {b}": weight for (a, b), weight in self.weights.items()} | self.other_weights
        largest_first = sorted(every.items(), key=lambda item: -item[1])
        return {name: weight for name, weight in largest_first if weight >= LEAST_SHOWN}

    def most_typical(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The images with the highest witness values, typical of P, and with the lowest, typical of Q."""
        order = np.argsort(-self.witness, kind="stable")
        return self.images[order[:count]], self.images[order[::-1][:count]]


@dataclass(frozen=True)
class ImagesResult:
    """Power of each method by size, and the kernel of Feature-MKL explained."""

    power: pd.DataFrame
    explanation: KernelExplanation

    def packed(self) -> Shipped:
        """The result as it is shipped: images in 256 grey values."""
        shown = self.explanation
        named = {name: list(getattr(shown, name).items()) for name in ("weights", "criterion")}
        arrays = {"images": np.rint(GREYS * shown.images).astype(np.uint8), "witness": shown.witness.astype(np.float32)}
        values = named | {"other_weights": shown.other_weights, "n": shown.n}
        return Shipped(arrays, {"power": self.power, "classes": shown.classes}, values)

    @classmethod
    def unpacked(cls, shipped: Shipped) -> ImagesResult:
        """A shipped result."""
        pairs = {name: {(a, b): value for (a, b), value in shipped.values[name]} for name in ("weights", "criterion")}
        explanation = KernelExplanation(
            images=shipped.arrays["images"] / GREYS,
            witness=shipped.arrays["witness"],
            n=shipped.values["n"],
            other_weights=shipped.values["other_weights"],
            classes=shipped.tables["classes"],
            **pairs,
        )
        return cls(shipped.tables["power"], explanation)


@dataclass(frozen=True)
class ImageStudy:
    """The settings. They are hashable, so they also identify the job."""

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
    repeats: int = 1  # trainings
    features: str = PIXELS  # what describes an image

    @cached_property
    def spec(self) -> SweepSpec:
        """The same settings as a sweep that includes Feature-MKL."""
        return SweepSpec(
            task=self.task,
            settings=dict(self.settings),
            methods=tuple(dict.fromkeys((EXPLAINED, *self.methods))),
            n_tasks=(self.n_tasks,),
            rows_per_task=self.rows_per_task,
            m_tr=(self.m_tr,),
            m_te=self.m_te,
            repeats=self.repeats,
            tests=self.tests,
            n_permutations=99,
            seed=self.seed,
        )

    @property
    def target(self) -> ImageTask:
        """The task that the images are drawn from."""
        settings: dict[str, Any] = dict(self.settings)
        task = make_task(self.task, **settings)
        assert isinstance(task, ImageTask)
        return task

    def shown(self) -> ShownImages:
        """A pair of samples for display, of the largest size. No test learned from them."""
        size = max(self.m_te)
        return self.target.show(size, size, Streams(self.seed).child("images to look at"))

    @property
    def described(self) -> bool:
        """Whether images are described by features of a pretrained network rather than by their pixels."""
        return self.features != PIXELS

    @property
    def quick(self) -> bool:
        """Whether the images are so small that one core is as fast as several, and the study takes seconds."""
        return math.prod(self.target.shape) < FEW_PIXELS and not self.described

    def cells(self) -> list[Cell]:
        """Everything to be measured, repeat by repeat."""
        return [replace(cell, features=self.features if self.described else "") for cell in self.spec.cells()]

    def run(self, progress: Progress | None = None) -> ImagesResult:
        """Train each learner once, measure every method at every size, then explain the kernel of Feature-MKL."""
        with one_core() if self.quick else nullcontext():
            return self._run(progress)

    def _run(self, progress: Progress | None) -> ImagesResult:
        device = str(resolve_device())
        cells = self.cells()
        learners = {cell.learner.key: cell.learner for cell in cells if cell.learner is not None}
        total = TRAINING_COST * len(learners) * (2 if self.described else 1) + len(cells) + 1
        done = 0

        def next_share(cost: int) -> Progress | None:
            nonlocal done
            done += cost
            return part_of(progress, (done - cost) / total, done / total)

        trained: dict[str, LearnerParts] = {}
        for key, learner in learners.items():
            if self.described:
                _describe(learner, next_share(TRAINING_COST))
            trained[key] = train_learner(learner, device, next_share(TRAINING_COST))
        results: list[tuple[Cell, CellResult]] = []
        for cell in cells:
            learned = trained[cell.learner.key] if cell.learner is not None else None
            results.append((cell, run_cell(cell, learned, device, next_share(1))))
        explained, learner = next((cell, cell.learner) for cell in cells if cell.method == EXPLAINED and cell.learner)
        explanation = self._explain(explained, trained[learner.key], device)
        power = with_published(summarise(as_rows(pair for pair in results if pair[0].method in self.methods)))
        if self.described:  # the published powers are those of tests on pixels
            power = power.assign(published=np.nan, published_error=np.nan, difference=np.nan, doubt="")
        return ImagesResult(power, explanation)

    @torch.no_grad()
    def _explain(self, cell: Cell, learned: LearnerParts, device: str) -> KernelExplanation:
        """The learned kernel on images that it was not trained on."""
        fit = learned_method(cell, learned, device).fit
        adapted = fit() if fit is not None else None
        assert isinstance(adapted, KernelTest)
        size, shown = max(self.m_te), self.shown()
        rows = np.concatenate([shown.x, shown.y])
        source = cell.source()
        features = source.describe(rows) if isinstance(source, DescribedTask) else rows
        with one_thread_per_operation():
            pooled = torch.from_numpy(features)[None].to(device)
            values = witness_of_rows(adapted.kernel(pooled, pooled)[0], size).cpu().numpy()
        pairs = {f"{a} or {b}": (a, b) for a, b in self.target.pairs()}
        beta, criterion = adapted.weights[0], adapted.diagnostics[0][CRITERION_BY_KERNEL]
        other_weights: dict[str, float] = {}
        for name in (name for name in beta if name not in pairs):
            kind = GENERIC if is_generic(name) else name
            other_weights[kind] = other_weights.get(kind, 0.0) + beta[name]
        return KernelExplanation(
            images=rows.reshape(len(rows), *self.target.shape),
            witness=values,
            n=size,
            weights={pairs[name]: weight for name, weight in beta.items() if name in pairs},
            other_weights=other_weights,
            criterion={pair: criterion[name] for name, pair in pairs.items() if name in criterion},
            classes=_by_class(values, np.concatenate([shown.x_classes, shown.y_classes]), size),
        )


def _describe(learner: LearnerSpec, progress: Progress | None) -> None:
    """Compute the features of the related tasks before they are learned from; they stay in memory."""
    tasks = learner.related_tasks()
    for count, name in enumerate(tasks, 1):
        tasks[name]
        if progress is not None:
            progress(count, len(tasks), 0.0)


def _by_class(values: np.ndarray, classes: np.ndarray, n: int) -> pd.DataFrame:
    """Mean witness value and its standard error by class, in falling order; of many classes the twenty extreme ones."""
    rows = pd.DataFrame({"class": classes, "value": values, "in_p": np.arange(len(values)) < n})
    table = rows.groupby("class").agg(
        mean=("value", "mean"), error=("value", "sem"), images=("value", "size"), of_p=("in_p", "sum")
    )
    table["share_p"] = table["of_p"] / n
    table["share_q"] = (table["images"] - table["of_p"]) / (len(values) - n)
    table = table.drop(columns="of_p").fillna({"error": 0.0}).reset_index().sort_values("mean", ascending=False)
    if len(table) > CLASSES_SHOWN:
        table = pd.concat([table.head(CLASSES_SHOWN // 2), table.tail(CLASSES_SHOWN // 2)])
    return table.reset_index(drop=True)


def study_cost(study: ImageStudy) -> SweepCost:
    """The predicted cost. Images whose features are cached cost less."""
    by_pixels = predict_cost(study.spec)
    if not study.described:
        return by_pixels
    target, cells = study.target, list(study.spec.cells())
    related = different_images(study.task, target.settings, study.n_tasks, study.rows_per_task)
    tested = study.repeats * study.tests * 2 * sum(study.m_te)  # the same for all methods
    if not always_new(target.settings):
        pools = [load_images(name).for_target(training=False) for name in {target.first, target.second}]
        tested = min(tested, sum(map(len, pools)))
    each = IMAGE_SECONDS * (feature_side(target.shape) / SIDE) ** 2
    rows = sum(2 * cell.m_te * cell.tests for cell in cells)
    work = each * (study.repeats * related + tested) + LEARNING_SECONDS * by_pixels.learners + ROW_SECONDS * rows
    return SweepCost(len(cells), by_pixels.learners, work * machine_factor(), by_pixels.memory_bytes)


TAUGHT, ALONE = ("Feature-MKL",), ("MMD-D · tuned", GENERIC_TEST)
STORY = ImageStudy(
    task="digits-shift",
    settings=tuple(make_task("digits-shift").settings.items()),
    methods=TAUGHT + ALONE,
    n_tasks=15,
    rows_per_task=100,
    m_tr=40,
    m_te=(20, 40, 60, 80, 100),
    tests=50,
    seed=0,
    repeats=4,
)
"""The example that Images opens with: digits in another mix, with and without related tasks of other digits."""


@lru_cache(maxsize=1)
def shipped_story() -> ImagesResult:
    """The result of the example as shipped."""
    return ImagesResult.unpacked(load_shipped("image_story"))


def story_finding(power: pd.DataFrame) -> str:
    """The gain from related tasks at the largest number of images, best test against best test, in a sentence."""
    largest = power[power["m_te"] == power["m_te"].max()].set_index("method")
    taught, alone = (max(names, key=lambda name: float(largest["rate"][name])) for names in (TAUGHT, ALONE))
    shares = [f"{100 * float(largest['rate'][name]):.0f} %" for name in (taught, alone)]
    size = int(largest["m_te"].iloc[0])
    return (
        f"Two samples of {size} digits, mixed differently: **{label_of(taught)}**, taught by {STORY.n_tasks} pairs "
        f"of other digits, finds this in **{shares[0]}** of all cases. **{label_of(alone)}**, which uses no related "
        f"tasks, finds it in **{shares[1]}**."
    )
