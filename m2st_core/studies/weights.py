"""Weights of base kernels: β of Meta-MKL at one setting of Explore, the shares of Feature-MKL, and β for an upload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from m2st_core.criterion import witness
from m2st_core.data import TASKS, size_unit
from m2st_core.data.related import PairedRows
from m2st_core.data.tables.cells import plain
from m2st_core.data.tables.prepare import Prepared
from m2st_core.device import one_thread_per_operation, resolve_device
from m2st_core.kernels.mixtures import Family, kernel_names, mixture_of
from m2st_core.learners.generic import is_generic
from m2st_core.learners.learned_tests import feature_families
from m2st_core.learners.mixtures import WEIGHTS_USED, base_families, kernel_terms
from m2st_core.permutation.fitted import KernelTest
from m2st_core.presets import PAPER, TUNED
from m2st_core.progress import part_of
from m2st_core.rng import Streams, draw_rows
from m2st_core.studies.explore import GRID, MAP_AXIS, MIXTURE, ExploreSetting, shipped_mixture
from m2st_core.sweeps.cells import draw_targets
from m2st_core.sweeps.cost import machine_factor, predict_cost
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.tasks import IndependentTask
from m2st_core.testing.meta import MetaLearner, as_target, meta_train
from m2st_core.testing.methods import METHODS, find_method, label_of
from m2st_core.types import Progress, TwoSample

FEATURES = "Feature-MKL"
FOR_UPLOADS = find_method(MIXTURE, TUNED.name).name  # it learns in seconds to a minute
PLANES = tuple(name for name, task in TASKS.items() if issubclass(task, IndependentTask))  # rows that a map can show
REPEATS, SPLITS = 10, 10
MAP_ROWS, CELLS = 1_000, 33  # rows of each sample behind a witness, and places along each axis
FEWEST = 8  # rows of each sample of an upload: four to learn from
EDGE = 0.005  # share of a column's values beyond either end of a map's axis
FIT_SECONDS = 0.05  # of one β on the machine of the predictions
PRETRAINED = 4.5  # times the prediction for sweeps: a first network is learned from all tasks, for each start
SPARSE = 0.04  # of the largest density of rows: where there are fewer, a map is empty
LONGEST_NAME = 40  # of a kernel, in a sentence
TRUSTED = 0.5  # weight of one kernel from which a mixture is said to trust few
KEY = ["repeat", "kernel"]


@dataclass(frozen=True)
class Maps:
    """Witness functions of the first repeat's kernels on the plane, (K, g, g), NaN where there are hardly any rows."""

    axes: tuple[np.ndarray, np.ndarray]
    kernels: np.ndarray

    def mixture(self, weights: pd.Series) -> np.ndarray:
        """The witness of the mixture: that of each kernel times its weight."""
        return np.tensordot(weights.to_numpy(), self.kernels, axes=1)


@dataclass(frozen=True)
class Weights:
    """Weights of a mixture's base kernels: a row of ``table`` for each m_tr, repeat and kernel, ordered by them.

    Its columns: m_tr, repeat, kernel (its position), name, strength (of its task, NaN without), beta as it was learned,
    used in the test and, of kernels on learned features, share: of the statistic's spread. ``anew`` says that each
    repeat has related tasks and kernels of its own; otherwise repeats differ in the target's training rows only.
    """

    method: str
    unit: str
    table: pd.DataFrame
    maps: Maps | None = None
    anew: bool = False

    @property
    def sizes(self) -> list[int]:
        """All m_tr."""
        return sorted(self.table["m_tr"].unique().tolist())

    @property
    def symbol(self) -> str:
        """What the strength of a synthetic task is called, such as Δ."""
        return str(self.table["name"].iloc[0]).partition("=")[0]

    @property
    def measured(self) -> str:
        """The column that is drawn: shares where kernels have different sizes, else β."""
        return "share" if "share" in self.table else "beta"

    def at(self, m_tr: int) -> pd.DataFrame:
        """The rows of the m_tr that is nearest to this one."""
        nearest = min(self.sizes, key=lambda size: abs(size - m_tr))
        return self.table[self.table["m_tr"] == nearest].sort_values(KEY).reset_index(drop=True)

    def first(self, m_tr: int) -> pd.DataFrame:
        """The kernels of the first repeat, whose witnesses are drawn."""
        rows = self.at(m_tr)
        return rows[rows["repeat"] == rows["repeat"].min()].set_index("kernel")

    def ranked(self) -> pd.DataFrame:
        """The mean weight of the largest kernel of a repeat, of the second and so on: a row for each m_tr."""
        in_order = self.table.sort_values(self.measured, ascending=False, kind="stable")
        place = in_order.groupby(["m_tr", "repeat"]).cumcount()
        return in_order.assign(place=place).pivot_table(index="m_tr", columns="place", values=self.measured)

    def finding(self, m_tr: int) -> str:
        """Say how the weight is shared between the kernels, and what decides on it."""
        rows = self.at(m_tr)
        size = int(rows["m_tr"].iloc[0])
        if self.measured == "share":
            return _share_finding(rows)
        largest, label = float(self.ranked().loc[size, 0]), label_of(self.method)
        count = rows["kernel"].nunique()
        average = "on average " if rows["repeat"].nunique() > 1 else ""
        one = f"{average}**{100 * largest:.0f} %** of the weight is on one of {COUNTS.get(count, count)}"
        trust = f"**{label}** trusts few earlier kernels: {one}"
        if largest < TRUSTED:
            trust = f"**{label}** spreads its weight: {one}, and would be {100 / count:.0f} % if all were equal"
        return ", ".join(part for part in (trust, self._which(rows)) if part) + "."

    def _which(self, rows: pd.DataFrame) -> str:
        """Say whether it is the same kernel in each repeat or, where these have their own, whether strength decides."""
        best = rows.loc[rows.groupby("repeat")["beta"].idxmax()]
        if len(best) < 2:
            return ""
        if not self.anew:
            counts = best["name"].value_counts()
            name, times = plain(str(counts.index[0]), LONGEST_NAME), int(counts.iloc[0])
            where = f"{times} of {len(best)} training samples"
            return f"most often on that of {name}, in {where}" if times < len(best) else f"always on that of {name}"
        gain = strength_gain(rows)
        if abs(gain.mean()) < 2 * gain.sem():
            return f"another one in each repeat, with no visible trend in {self.symbol}"
        return (
            f"another one in each repeat, more often one of {'larger' if gain.mean() > 0 else 'smaller'} {self.symbol}"
        )

    def basis(self, m_tr: int) -> str:
        """Say what the marks and the pictures are, and what differs between repeats."""
        rows = self.at(m_tr)
        count = rows["repeat"].nunique()
        of = "repeats, each with related tasks of its own" if self.anew else "training samples"
        over = f"{count} {of}" if count > 1 else "one repeat so far"
        bars = f"Bars: mean over {over} (circles)."
        if self.measured == "beta" and not np.allclose(rows["used"], rows["beta"]):
            bars = f"Bars: β as learned, mean over {over} (circles). Lines across: as used, most of it uniform."
        if self.measured == "beta":
            bars = f"{bars} Dotted: Meta-MKL-A, {1 / rows['kernel'].nunique():.2g} each."
        first = " of the first repeat" if self.anew and count > 1 else ""
        return f"{bars} Pictures: what the kernels{first} see. Click a bar." if self.maps is not None else bars

    def course(self) -> str:
        """Say what more training rows change."""
        few, many = self.sizes[0], self.sizes[-1]
        ranked = self.ranked()[0]
        low, high = (f"{100 * ranked[size]:.0f} %" for size in (few, many))
        what = "share" if self.measured == "share" else "β"
        return f"The largest {what} is {low} at m_tr = {few} {self.unit} and {high} at m_tr = {many}, on average."

    def summary(self, m_tr: int) -> pd.DataFrame:
        """A row per kernel: its mean weights over repeats, and their standard error."""
        rows = self.at(m_tr)
        columns = [name for name in ("beta", "used", "share") if name in rows]
        columns = [name for name in columns if name != "used" or not np.allclose(rows["used"], rows["beta"])]
        names = rows.groupby("kernel").agg(name=("name", "first"), strength=("strength", "mean"))
        by_kernel = rows.groupby("kernel")[columns]
        table = names.join(by_kernel.mean()).join(by_kernel.sem().add_suffix(" ± se"))
        return table.drop(columns="name" if self.anew else "strength").reset_index(drop=True)


COUNTS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}


def _share_finding(rows: pd.DataFrame) -> str:
    mean = rows.groupby("name")["share"].mean()
    learned = float(mean[[not is_generic(name) for name in mean.index]].sum())
    return (
        f"What the related tasks taught makes up **{100 * learned:.0f} %** of the statistic's spread; the largest "
        f"share of one kernel, **{100 * mean.max():.0f} %**, is that of {mean.idxmax()}."
    )


def strength_gain(rows: pd.DataFrame) -> pd.Series:
    """By repeat, the mean strength of the kernels' tasks with the weights β, less that with equal weights."""
    weighted = (rows["beta"] * rows["strength"]).groupby(rows["repeat"]).sum()
    return weighted - rows.groupby("repeat")["strength"].mean()


def _shipped_weights(setting: ExploreSetting) -> Weights | None:
    """β of Meta-MKL, as the paper's text has it, at all shipped m_tr; None where the setting's is not shipped."""
    if shipped_mixture(setting) is None:
        return None
    found = [mixed for size in GRID.m_tr if (mixed := shipped_mixture(setting.with_(m_tr=size))) is not None]
    table = pd.concat([mixed.table for mixed in found], ignore_index=True)
    names = [f"Δ={strength:.3f}" for strength in table["strength"]]
    axes = (MAP_AXIS, MAP_AXIS)
    maps = Maps(axes, where_rows_are(_map_rows(setting), axes, found[0].maps))
    return Weights(MIXTURE, size_unit(setting.task), table.assign(name=names, used=table["beta"]), maps, anew=True)


def _map_rows(setting: ExploreSetting) -> TwoSample:
    """The target's rows behind the witnesses."""
    return setting.target().sample(MAP_ROWS, seed=Streams(setting.seed).child("maps of the weights").seed)


def where_rows_are(sample: TwoSample, axes: tuple[np.ndarray, np.ndarray], values: np.ndarray) -> np.ndarray:
    """Values on the plane (…, g, g), NaN where the density of both samples' rows is small."""
    rows = sample.pooled.numpy()
    near = [
        np.exp(-(((axis[:, None] - rows[:, column]) / (2 * (axis[1] - axis[0]))) ** 2) / 2)
        for column, axis in enumerate(axes)
    ]
    density = near[1] @ near[0].T
    return np.where(density < SPARSE * density.max(), np.nan, values)


@dataclass(frozen=True)
class WeightsStudy:
    """The weights of one mixture: it learns once, and is fitted on several training samples of each size.

    The setting's m_tr and m_te have no influence; ``at`` gives the study of a setting.
    """

    setting: ExploreSetting = ExploreSetting()
    method: str = MIXTURE
    sizes: tuple[int, ...] = GRID.m_tr
    repeats: int = REPEATS

    @classmethod
    def at(cls, setting: ExploreSetting, method: str) -> WeightsStudy:
        """The study at a setting; Meta-MKL has the algorithms' settings chosen there."""
        line, usual = setting.line(method), ExploreSetting()
        preset = METHODS[line].preset.name if line.startswith(MIXTURE) else PAPER.name
        sizes = tuple(sorted({*GRID.m_tr, setting.m_tr}))
        return cls(setting.with_(m_tr=usual.m_tr, m_te=usual.m_te, preset=preset), line, sizes)

    def shipped(self) -> Weights | None:
        """The result that comes with the software, if these sizes do."""
        return _shipped_weights(self.setting) if self == WeightsStudy(self.setting) else None

    @property
    def expected_seconds(self) -> float:
        """A prediction of the duration."""
        return _learning_seconds(self.method, self.setting, len(self.sizes) * self.repeats)

    def run(self, progress: Progress | None = None) -> Weights:
        """Learn from the related tasks, then find the weights for each training sample."""
        tasks, seed = self.setting.related_tasks(), self.setting.seed
        learner = meta_train(self.method, tasks, seed=seed, progress=part_of(progress, 0, 0.9))
        return self.adapt(learner, part_of(progress, 0.9, 1))

    @one_thread_per_operation()
    def adapt(self, learner: MetaLearner, progress: Progress | None = None) -> Weights:
        """Find the weights for each training sample, and what the kernels see."""
        tables, target = [], self.setting.target()
        for index, size in enumerate(self.sizes):
            streams = Streams(self.setting.seed).child(f"weights, m_tr={size}")
            sample = draw_targets(target, self.setting.rows_per_size * size, self.repeats, streams)
            fits = [streams.child(f"learning {repeat}") for repeat in range(self.repeats)]
            tables.append(_found_weights(learner, sample, fits).assign(m_tr=size))
            if progress is not None:
                progress(index + 1, len(self.sizes) + 1, 0.0)
        table = pd.concat(tables, ignore_index=True)
        names = table["name"].iloc[: table["kernel"].nunique()].tolist()
        return Weights(self.method, size_unit(self.setting.task), table, self._maps(learner, names))

    def _maps(self, learner: MetaLearner, names: Sequence[str]) -> Maps:
        """The witnesses of the kernels of these names. Columns beyond the second are at their means."""
        sample = _map_rows(self.setting)
        rows, device = sample.pooled, resolve_device("auto")
        ends = np.quantile(rows[:, :2].numpy(), (EDGE, 1 - EDGE), axis=0)
        axes = np.linspace(ends[0, 0], ends[1, 0], CELLS), np.linspace(ends[0, 1], ends[1, 1], CELLS)
        places = rows.mean(dim=0).repeat(CELLS**2, 1)
        places[:, :2] = torch.from_numpy(np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2))
        families = _families(learner, rows[None], [Streams(self.setting.seed).child("kernels of the maps")], device)
        single = torch.eye(len(names), dtype=rows.dtype)[[kernel_names(families).index(name) for name in names]].to(
            device
        )
        x, y, at = (part.to(device) for part in (sample.x, sample.y, places[None]))
        with torch.no_grad():
            seen = [witness(mixture_of(families, row[None]), x, y, at)[0].cpu().numpy() for row in single]
        return Maps(axes, where_rows_are(sample, axes, np.stack(seen).reshape(-1, CELLS, CELLS)))


def _families(
    learner: MetaLearner, pooled: Tensor, streams: Sequence[Streams], device: torch.device
) -> Sequence[Family]:
    """The kernels that a mixture weighs."""
    knowledge = learner.knowledge.to(device)
    if METHODS[learner.method].origin == "ours":
        return feature_families(knowledge, pooled.to(device), streams)
    return base_families(knowledge)


def _learning_seconds(method: str, setting: ExploreSetting, fits: int) -> float:
    """The predicted duration of one training and so many fits."""
    spec = SweepSpec(
        task=setting.task, settings=setting.settings, methods=(method,), closeness=(setting.closeness,),
        n_tasks=(setting.n_tasks,), rows_per_task=setting.rows_per_task, m_tr=(setting.m_tr,), m_te=(2,), repeats=1,
        tests=1,
    )  # fmt: skip
    pretrains = METHODS[method].origin == "paper" and METHODS[method].preset.meta_network.pretraining is not None
    seconds = predict_cost(spec).seconds * (PRETRAINED if pretrains else 1.0)
    return seconds + FIT_SECONDS * fits * machine_factor()


def _found_weights(learner: MetaLearner, sample: TwoSample, streams: Sequence[Streams]) -> pd.DataFrame:
    """The weights for each training sample (R, n, d), (R, m, d): a row per repeat and kernel, by their tasks' order."""
    device = resolve_device("auto")
    rows = sample.to(device)
    fitted = learner.bound(device).fit_on(rows, learner.shape, streams)
    if not isinstance(fitted, KernelTest):
        raise TypeError(f"{learner.method} does not mix kernels.")
    beta = pd.DataFrame(fitted.weights)
    values = {"beta": beta, "used": pd.DataFrame([about.get(WEIGHTS_USED) for about in fitted.diagnostics])}
    if values["used"].isna().all(axis=None):
        values["used"] = beta
    if METHODS[learner.method].origin == "ours":
        families = _families(learner, rows.pooled, streams, device)
        terms = kernel_terms(families, PairedRows(rows.x, rows.y, torch.ones_like(rows.x[..., 0])))
        spread = beta * pd.DataFrame(terms.null_deviation.cpu().numpy(), columns=kernel_names(families))[list(beta)]
        values["share"] = spread.div(spread.sum(axis=1), axis=0)
    place = {name: position for position, name in enumerate(learner.task_names)}
    names = sorted(beta, key=lambda name: (place.get(name, len(place)), is_generic(name)))
    long = [
        table[names].rename_axis(index="repeat", columns="name").stack().rename(key) for key, table in values.items()
    ]
    table = pd.concat(long, axis=1).reset_index()
    kernel = table["name"].map({name: position for position, name in enumerate(names)})
    return table.assign(kernel=kernel, strength=[_strength(name) for name in table["name"]])


def _strength(name: str) -> float:
    """The strength in the name of a synthetic related task, such as Δ=0.350; NaN for other kernels."""
    try:
        return float(name.partition("=")[2].split()[0])
    except (IndexError, ValueError):
        return float("nan")


@one_thread_per_operation()
def upload_weights(data: Prepared, seed: int = 0, progress: Progress | None = None) -> Weights:
    """β of an upload's related tasks, for random halves of its target: what is learned from the rest is tested."""
    apart = data.separated()
    if apart.related is None:
        raise ValueError("There are no related tasks to weigh.")
    if min(apart.target.sizes) < FEWEST:
        raise ValueError(f"Each sample needs at least {FEWEST} rows to learn weights from one half of it.")
    learner = meta_train(FOR_UPLOADS, apart.related, seed=seed, progress=part_of(progress, 0, 0.9))
    sample, streams = as_target(apart.target, learner), Streams(seed).child("weights of an upload")
    splits = [streams.child(f"split {index}") for index in range(SPLITS)]
    x, y = (
        draw_rows(rows.expand(SPLITS, *rows.shape), len(rows) // 2, [split.torch(side) for split in splits])
        for side, rows in (("x", sample.x), ("y", sample.y))
    )
    table = _found_weights(learner, TwoSample(x, y), splits)
    return Weights(FOR_UPLOADS, "per sample", table.assign(m_tr=x.shape[1], strength=np.nan))


def upload_seconds(data: Prepared) -> float:
    """The predicted duration of ``upload_weights``, from that for synthetic tasks of as many rows."""
    if data.related is None:
        return 0.0
    rows = float(data.related.sizes.double().mean()) / 4  # two samples, two modes
    setting = ExploreSetting(n_tasks=len(data.related.names), rows_per_task=max(2, round(rows)))
    return _learning_seconds(FOR_UPLOADS, setting, SPLITS)
