"""Weights β: a mixture learned from related tasks, adapted to several training samples of one target.

Sizes are per mode. Feature-MKL mixes kernels on learned features, of at most ten related
tasks and of all together, with generic Gaussian ones. Meta-MKL, tuned, mixes the deep kernels of five related tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import torch

from m2st_core.analysis.related import sense_sentence, senses_of
from m2st_core.criterion import witness
from m2st_core.data.related import PairedRows
from m2st_core.data.synthetic import HDGM
from m2st_core.device import one_thread_per_operation, resolve_device
from m2st_core.kernels.mixtures import Family, kernel_names, mixture_of
from m2st_core.learners.generic import is_generic
from m2st_core.learners.learned_tests import AGGREGATE, feature_families
from m2st_core.learners.mixtures import CRITERION_BY_KERNEL, WEIGHTS_USED, base_families, kernel_terms
from m2st_core.permutation.fitted import KernelTest
from m2st_core.progress import part_of
from m2st_core.rng import Streams
from m2st_core.studies.shipped import Shipped, load_shipped
from m2st_core.studies.synthetic import PLACES, on_plane
from m2st_core.sweeps.cells import draw_targets
from m2st_core.sweeps.cost import predict_cost
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.testing.methods import METHODS
from m2st_core.types import Progress, TwoSample

DEEP = 4.0  # times the prediction for sweeps: 15 and 90 s were measured at 50 and 200 rows, for 3.5 and 22 predicted
SHARE = "related_share"
MIXTURES = {  # columns of the table, and the methods whose weights they hold; β as learned, and as used if it is shrunk
    "Feature-MKL": {"learned": "Feature-MKL"},
    "Meta-MKL · tuned": {
        "learned": "Meta-MKL · tuned",
        "used": "Meta-MKL · tuned",
        "best": "Meta-Best1 · tuned",
        "uniform": "Meta-MKL-A · tuned",
    },
}


@dataclass(frozen=True)
class LearnedFeatures:
    """The share of the learned features in β: a row of ``shares`` per m_tr and training sample.

    ``share`` is that of the first training sample. ``senses`` says how many of the related tasks point the same way.
    """

    shares: pd.DataFrame
    share: float
    senses: str


@dataclass(frozen=True)
class WeightsResult:
    """``table`` has a row per kernel: single tasks in order, then all tasks together, then generic kernels.

    ``repeats`` has a row per training sample and kernel. ``witnesses`` (kernels, g, g) are in the order of the table.
    """

    table: pd.DataFrame
    repeats: pd.DataFrame
    sample: tuple[np.ndarray, np.ndarray]
    witnesses: np.ndarray
    mixture: np.ndarray
    features: LearnedFeatures | None

    def packed(self) -> Shipped:
        """The result as it is shipped: maps in half precision, relative to their largest value."""
        if self.features is None:
            raise TypeError("Only a study that learns features is shipped.")
        maps = np.concatenate([self.witnesses, self.mixture[None]])
        scale = np.abs(maps).max(axis=(1, 2), keepdims=True)
        x, y = (rows.astype(np.float32) for rows in self.sample)
        return Shipped(
            {"x": x, "y": y, "maps": (maps / scale).astype(np.float16), "scale": scale},
            {"table": self.table, "repeats": self.repeats, "shares": self.features.shares},
            {"share": self.features.share, "senses": self.features.senses},
        )

    @classmethod
    def unpacked(cls, shipped: Shipped) -> WeightsResult:
        """A shipped result."""
        arrays, tables = shipped.arrays, shipped.tables
        maps = arrays["maps"] * arrays["scale"]
        features = LearnedFeatures(tables["shares"], **shipped.values)
        return cls(tables["table"], tables["repeats"], (arrays["x"], arrays["y"]), maps[:-1], maps[-1], features)

    def finding(self, study: WeightsStudy) -> str:
        """Say how far the related tasks are trusted on average, and which kernel weighs most in the sample shown."""
        first = self.table.loc[self.table["influence"].idxmax()]
        name = {"aggregate": "the kernel of all tasks", "generic": f"the generic {first['kernel']}"}.get(first["kind"])
        name = name or f"the kernel of {first['kernel']}"
        largest, spread = f"**{100 * first['influence']:.0f} %**", "of the statistic's spread"
        if self.features is None:
            most = f"In the training sample shown, the largest share, {largest} {spread}, is {name}."
            return f"This test mixes {len(self.table)} deep kernels. {most}"
        shares = self.features.shares
        mean = float(shares.loc[shares["m_tr"] == study.m_tr, "share"].mean())
        own = f"**{100 * self.features.share:.0f} %**"
        said = (
            f"What the related tasks taught makes up **{100 * mean:.0f} %** {spread}, on average over {study.repeats} "
            f"training samples. In the one shown it is {own}"
        )
        if own == largest and first["kind"] == "aggregate":
            return f"{said}, all through {name}."
        return f"{said}; the largest share there, {largest}, is {name}."


@dataclass(frozen=True)
class WeightsStudy:
    """The settings. They are hashable, so they also identify the job."""

    closeness: float = 0.3
    n_tasks: int = 100
    rows_per_task: int = 50
    delta: float = 0.7
    m_tr: int = 50
    repeats: int = 10
    sizes: tuple[int, ...] = (10, 25, 50, 100)
    seed: int = 0
    method: str = "Feature-MKL"

    @property
    def learns_features(self) -> bool:
        """Whether the kernels act on learned features; otherwise they are deep."""
        return METHODS[self.method].origin == "ours"

    def shipped(self) -> WeightsResult | None:
        """The result that comes with the software, for the default settings."""
        return _shipped_weights() if self == WeightsStudy() else None

    @property
    def expected_seconds(self) -> float:
        """A prediction of the duration: of the learning, and of the fits at all sizes."""
        spec = SweepSpec(
            task="hdgm", settings={"delta": self.delta}, methods=(self.method,),
            closeness=(self.closeness,), n_tasks=(self.n_tasks,), rows_per_task=self.rows_per_task, m_tr=self.sizes,
            m_te=(self.m_tr,), repeats=1, tests=self.repeats,
        )  # fmt: skip
        return predict_cost(spec).seconds * (1.0 if self.learns_features else DEEP)

    def run(self, progress: Progress | None = None) -> WeightsResult:
        """Learn once from the related tasks, then find β for each training sample."""
        return self.adapt(self.learn(part_of(progress, 0, 0.7)), part_of(progress, 0.7, 1))

    def learn(self, progress: Progress | None = None) -> MetaLearner:
        """Learn from the related tasks."""
        seed = Streams(self.seed).child("meta-tasks of the weights").seed
        tasks = HDGM(delta=self.delta).draw_related_tasks(
            closeness=self.closeness, n_tasks=self.n_tasks, rows=2 * self.rows_per_task, seed=seed
        )
        return meta_train(self.method, tasks, seed=self.seed, device="cpu", progress=progress)

    @one_thread_per_operation()
    def adapt(self, learner: MetaLearner, progress: Progress | None = None) -> WeightsResult:
        """Find β for each training sample, at m_tr and at the other sizes, and describe it at m_tr."""
        adapted = {}
        sizes = sorted({self.m_tr, *(self.sizes if self.learns_features else ())})
        for index, size in enumerate(sizes):
            adapted[size] = self._adapt(learner, size, self.method)
            if progress is not None:
                progress(index + 1, len(sizes) + 1, 0.0)
        return self._describe(learner, adapted)

    def _sample(self, size: int) -> tuple[TwoSample, list[Streams]]:
        """As many training samples of the target as there are repeats: (R, 2·size, 2)."""
        streams = Streams(self.seed).child(f"weights, m_tr={size}")
        sample = draw_targets(HDGM(delta=self.delta), 2 * size, self.repeats, streams)
        return sample, [streams.child(f"learning {index}") for index in range(self.repeats)]

    def _adapt(self, learner: MetaLearner, size: int, method: str) -> KernelTest:
        sample, streams = self._sample(size)
        adapted = learner.for_method(method).bound(resolve_device("cpu")).fit_on(sample, None, streams)
        assert isinstance(adapted, KernelTest)
        return adapted

    def _describe(self, learner: MetaLearner, adapted: dict[int, KernelTest]) -> WeightsResult:
        samples, streams = self._sample(self.m_tr)
        first, chosen = TwoSample(samples.x[:1], samples.y[:1]), adapted[self.m_tr]
        if self.learns_features:
            families = feature_families(learner.knowledge, first.pooled, streams[:1])
        else:
            families = base_families(learner.knowledge)
        table = _table(families, first, chosen, learner.task_names)
        if not self.learns_features:
            best = self._adapt(learner, self.m_tr, MIXTURES[self.method]["best"]).weights[0]
            used = table["kernel"].map(_beta_used(chosen))
            table = table.assign(used=used, best=table["kernel"].map(best), uniform=1 / len(table))
        order = [kernel_names(families).index(name) for name in table["kernel"]]
        weights = torch.eye(len(order), dtype=torch.float64)[order]
        beta = torch.tensor([list(_beta_used(chosen).values())], dtype=torch.float64)
        with torch.no_grad():
            kernels = [mixture_of(families, row[None]) for row in (*weights, beta[0])]
            witnesses = [on_plane(witness(kernel, first.x, first.y, PLACES[None])[0]) for kernel in kernels]
        repeats = pd.DataFrame(chosen.weights)[list(table["kernel"])].rename_axis(index="repeat", columns="kernel")
        return WeightsResult(
            table=table,
            repeats=repeats.unstack().rename("weight").reset_index(),
            sample=(first.x[0].numpy(), first.y[0].numpy()),
            witnesses=np.stack(witnesses[:-1]),
            mixture=witnesses[-1],
            features=self._features(learner, adapted) if self.learns_features else None,
        )

    def _features(self, learner: MetaLearner, adapted: dict[int, KernelTest]) -> LearnedFeatures:
        """What the mixtures make of the learned features."""
        shares = [
            {"m_tr": size, "repeat": repeat, "share": diagnostics[SHARE]}
            for size, mixed in adapted.items()
            for repeat, diagnostics in enumerate(mixed.diagnostics)
        ]
        return LearnedFeatures(
            shares=pd.DataFrame(shares),
            share=float(adapted[self.m_tr].diagnostics[0][SHARE]),
            senses=sense_sentence(senses_of(learner)),
        )


@lru_cache(maxsize=1)
def _shipped_weights() -> WeightsResult:
    return WeightsResult.unpacked(load_shipped("weights"))


def _beta_used(adapted: KernelTest) -> dict[str, float]:
    """β of the first run as the test used it."""
    return adapted.diagnostics[0].get(WEIGHTS_USED, adapted.weights[0])


def _table(
    families: Sequence[Family], first: TwoSample, adapted: KernelTest, task_names: Sequence[str]
) -> pd.DataFrame:
    """One row per kernel: its kind, its task's position, its weight, its influence on the statistic and its Ĵ."""
    names = kernel_names(families)
    table = pd.DataFrame({"kernel": names, "kind": ["generic" if is_generic(name) else "task" for name in names]})
    table.loc[table["kernel"] == AGGREGATE, "kind"] = "aggregate"
    terms = kernel_terms(families, PairedRows(first.x, first.y, torch.ones_like(first.x[..., 0])))
    influence = table["kernel"].map(_beta_used(adapted)) * terms.null_deviation[0].numpy()
    table = table.assign(
        task=table["kernel"].map({name: position for position, name in enumerate(task_names, 1)}),
        learned=table["kernel"].map(adapted.weights[0]),
        influence=influence / influence.sum(),
        criterion=table["kernel"].map(adapted.diagnostics[0][CRITERION_BY_KERNEL]),
    )
    place = table["kind"].map({"task": 0, "aggregate": 1, "generic": 2})
    return table.assign(place=place).sort_values(["place", "task"]).drop(columns="place").reset_index(drop=True)
