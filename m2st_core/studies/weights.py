"""Where β comes from: a mixture learned from related tasks, then given several training samples of one target.

Sizes are per mode. The preset is ``recommended``. Feature-MKL mixes kernels on learned features, of at most ten
meta-tasks and of all together, with generic Gaussian ones. Meta-MKL mixes the deep kernels of at most ten meta-tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from m2st_core.criterion import witness
from m2st_core.data.related import PairedRows
from m2st_core.data.synthetic import HDGM, hdgm_related_tasks
from m2st_core.device import one_thread_per_operation, resolve_device
from m2st_core.learners.ascent import part_of
from m2st_core.learners.bank import KernelBank, is_generic
from m2st_core.learners.feature_mkl import AGGREGATE, feature_bank
from m2st_core.learners.meta_mkl import base_kernels
from m2st_core.learners.mixtures import kernel_terms
from m2st_core.permutation.fitted import KernelTest
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.studies.lessons import AXIS, PLACES, on_plane
from m2st_core.sweeps.trial import draw_targets
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.testing.methods import METHODS
from m2st_core.types import Progress, TwoSample

PRESET = PRESETS["recommended"]
SHARE = "related_share"
MIXTURES = {  # each column of weights, and whose they are
    "Feature-MKL": {"learned": "Feature-MKL"},
    "Meta-MKL": {"learned": "Meta-MKL", "best one": "Meta-Best1", "uniform": "Meta-MKL-A"},
}


@dataclass(frozen=True)
class LearnedFeatures:
    """What only learned features have: ψ's leading coordinate (g, g), and how far a target differs along each.

    ``shares`` says how far training samples trust the features, a row per m_tr and sample; ``share`` is the first's.
    """

    leading: np.ndarray
    prior: np.ndarray
    shares: pd.DataFrame
    share: float


@dataclass(frozen=True)
class WeightsFound:
    """What a study found. The table has one row per kernel, tasks by their parameter, then all tasks, then generic.

    ``repeats`` has a row per training sample and kernel. ``witnesses`` (kernels, g, g) are in the order of the table.
    """

    table: pd.DataFrame
    repeats: pd.DataFrame
    sample: tuple[np.ndarray, np.ndarray]
    witnesses: np.ndarray
    mixture: np.ndarray
    features: LearnedFeatures | None


@dataclass(frozen=True)
class WeightsStudy:
    """The settings; hashable, so they are also the key of the job."""

    closeness: float = 0.3
    n_tasks: int = 40
    rows_per_task: int = 50
    delta: float = 0.7
    m_tr: int = 50
    repeats: int = 10
    sizes: tuple[int, ...] = (10, 25, 50, 100)
    seed: int = 0
    method: str = "Feature-MKL"

    @property
    def learns_features(self) -> bool:
        """Whether the kernels are those of learned features; otherwise they are deep."""
        return METHODS[self.method].origin == "ours"

    def run(self, progress: Progress | None = None) -> WeightsFound:
        """Learn once from the meta-tasks; then β for each training sample."""
        return self.adapt(self.learn(part_of(progress, 0, 0.7)), part_of(progress, 0.7, 1))

    def learn(self, progress: Progress | None = None) -> MetaLearner:
        """What the meta-tasks teach."""
        seed = Streams(self.seed).child("meta-tasks of the weights").seed
        tasks = hdgm_related_tasks(self.closeness, self.n_tasks, 2 * self.rows_per_task, seed=seed)
        return meta_train(self.method, tasks, seed=self.seed, device="cpu", progress=progress)

    @one_thread_per_operation()
    def adapt(self, learner: MetaLearner, progress: Progress | None = None) -> WeightsFound:
        """β for each training sample, at m_tr and at the other sizes."""
        learned = {}
        sizes = sorted({self.m_tr, *(self.sizes if self.learns_features else ())})
        for index, size in enumerate(sizes):
            learned[size] = self._adapt(learner, size, self.method)
            if progress is not None:
                progress(index + 1, len(sizes) + 1, 0.0)
        return self._explain(learner, learned)

    def _sample(self, size: int) -> tuple[TwoSample, list[Streams]]:
        """As many training samples of the target as there are repeats: (R, 2·size, 2)."""
        streams = Streams(self.seed).child(f"weights, m_tr={size}")
        sample = draw_targets(HDGM(delta=self.delta), 2 * size, self.repeats, streams)
        return sample, [streams.child(f"learning {index}") for index in range(self.repeats)]

    def _adapt(self, learner: MetaLearner, size: int, method: str) -> KernelTest:
        sample, streams = self._sample(size)
        adapted = replace(learner, method=method).bound(resolve_device("cpu")).fit_on(sample, PRESET, streams, None)
        assert isinstance(adapted, KernelTest)
        return adapted

    def _explain(self, learner: MetaLearner, learned: dict[int, KernelTest]) -> WeightsFound:
        samples, children = self._sample(self.m_tr)
        first = TwoSample(samples.x[:1], samples.y[:1])
        known, adapted = learner.knowledge, learned[self.m_tr]
        if self.learns_features:
            bank = feature_bank(known, first.pooled, children[:1])
        else:
            bank = base_kernels(known)
        table = _table(bank, first, adapted)
        if not self.learns_features:
            best = self._adapt(learner, self.m_tr, "Meta-Best1").weights[0]
            table = table.assign(**{"best one": table["kernel"].map(best), "uniform": 1 / len(table)})
        order = [bank.names.index(name) for name in table["kernel"]]
        with torch.no_grad():
            single = [bank.mixture(row[None]) for row in torch.eye(len(order), dtype=torch.float64)[order]]
            mixed = bank.mixture(torch.tensor([list(adapted.weights[0].values())], dtype=torch.float64))
            seen = [on_plane(witness(kernel, first.x, first.y, PLACES[None])[0]) for kernel in [*single, mixed]]
        return WeightsFound(
            table=table,
            repeats=pd.DataFrame(
                [
                    {"repeat": repeat, "kernel": name, "weight": weights[name]}
                    for name in table["kernel"]
                    for repeat, weights in enumerate(adapted.weights)
                ]
            ),
            sample=(first.x[0].numpy(), first.y[0].numpy()),
            witnesses=np.stack(seen[:-1]),
            mixture=seen[-1],
            features=self._features(learner, learned) if self.learns_features else None,
        )

    def _features(self, learner: MetaLearner, learned: dict[int, KernelTest]) -> LearnedFeatures:
        """What was learned, with the sign of ψ that agrees with the truth."""
        assert learner.knowledge.features is not None
        with torch.no_grad():
            leading = on_plane(learner.knowledge.features(PLACES[None])[0, :, -1])
        agrees = np.sum(leading * np.tanh(HDGM(delta=self.delta).log_likelihood_ratio(_plane()))) >= 0
        shares = [
            {"m_tr": size, "repeat": repeat, "share": about[SHARE]}
            for size, adapted in learned.items()
            for repeat, about in enumerate(adapted.diagnostics)
        ]
        return LearnedFeatures(
            leading=leading if agrees else -leading,
            prior=learner.prior,
            shares=pd.DataFrame(shares),
            share=float(learned[self.m_tr].diagnostics[0][SHARE]),
        )


def _plane() -> np.ndarray:
    return PLACES.numpy().reshape(len(AXIS), len(AXIS), 2)


def _table(bank: KernelBank, first: TwoSample, adapted: KernelTest) -> pd.DataFrame:
    """One row per kernel: its task's parameter, its weight, its influence on the statistic and its Ĵ."""
    names = bank.names
    beta = np.array([adapted.weights[0][name] for name in names])
    terms = kernel_terms(bank, PairedRows(first.x, first.y, torch.ones_like(first.x[..., 0])))
    influence = beta * terms.null_deviation[0].numpy()
    generic = np.array([is_generic(name) for name in names])
    kind = np.where(generic, "generic", np.where(np.array(names) == AGGREGATE, "aggregate", "task"))
    table = pd.DataFrame(
        {
            "kernel": names,
            "kind": kind,
            "parameter": [
                float(n.split("=")[1].split()[0]) if k == "task" else np.nan for n, k in zip(names, kind, strict=True)
            ],
            "learned": beta,
            "influence": influence / influence.sum(),
            "criterion": [adapted.diagnostics[0]["criterion_by_kernel"][name] for name in names],
        }
    )
    place = table["kind"].map({"task": 0, "aggregate": 1, "generic": 2})
    return table.assign(place=place).sort_values(["place", "parameter"]).drop(columns="place").reset_index(drop=True)
