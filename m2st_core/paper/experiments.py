"""Every table and figure of the paper, as sweeps at two scales: of the paper's algorithms, or of ours.

γ̂ against the closeness C, the paper's relatedness figure, is a measurement of its own: one job per closeness.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import pandas as pd

from m2st_core.data import make_task
from m2st_core.data.synthetic import hdgm_related_tasks
from m2st_core.learners.relatedness import relatedness
from m2st_core.paper.published import published_gamma
from m2st_core.rng import Streams
from m2st_core.sweeps.cells import digest
from m2st_core.sweeps.executors import Executor
from m2st_core.sweeps.spec import LIMIT, SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.testing.methods import METHODS
from m2st_core.types import Progress, PValueRule, Registry

Scale = Literal["quick", "full"]
Layer = Literal["paper", "released", "tuned", "ours"]
LAYERS: dict[Layer, str] = {
    "paper": "the paper's algorithms",
    "released": "the paper's algorithms, as in its code",
    "tuned": "the paper's algorithms, tuned",
    "ours": "ours",
}
PUBLISHED_RULES: dict[Layer, PValueRule] = {"paper": "b/B, ≥", "released": "b/B, >"}  # of the text, and of the code
SHIPPED_LAYERS: tuple[Layer, ...] = ("paper", "ours")
Kind = Literal["power", "closeness", "tasks", "ablation", "type-I", "relatedness", "images"]
FIGURE_2 = ("Meta-MKL", "Meta-KL", "AGT-KL", "MMD-D", "MMD-O", "C2ST-L", "C2ST-S", "ME", "SCF")
METHODS_2, METHODS_3 = (*FIGURE_2, LIMIT), (*FIGURE_2[:3], LIMIT)
TABLE_3 = ("Meta-MKL", "Meta-MKL-A", "Meta-KL", "AGT-MKL", "AGT-MKL-A", "AGT-KL", "Meta-MKL-SI")
TABLE_3_ALL = ("Meta-MKL-A", "AGT-MKL-A", "Meta-MKL-SI")
TABLE_4 = ("Meta-MKL", "Meta-KL", "AGT-KL", "MMD-D w/ AC", "MMD-D", "MMD-O")
ALGORITHMS = [name for name, method in METHODS.items() if method.algorithm == name]
TYPE_1 = ("MMD-M", *sorted(ALGORITHMS, key=lambda name: METHODS[name].uses_related_tasks))
OURS = ("Feature-MKL", "Meta-WiTS", "Meta-Witness", "Meta-FUSE")
TASK_COUNTS = (20, 50, 80, 100, 120, 150)
QUICK_PAIRS = 100
QUICK_SIZES = (50, 100, 200)
SPLIT_NOTE = "In the paper Meta-MKL-A, AGT-MKL-A and Meta-MKL-SI test 210 rows: they have an entry of their own."
GAMMA_NOTE = "a measurement of its own; run python -m m2st_core paper gamma."


@dataclass(frozen=True)
class PaperExperiment:
    """One table or figure; ``quick`` and ``full`` are None if it is not measured by a sweep.

    Both run the paper's algorithms with the settings of its text. Other layers are their settings in its code, tuned
    ones, and our own family, on the same samples.
    """

    name: str
    title: str
    kind: Kind
    quick: SweepSpec | None
    full: SweepSpec | None
    note: str = ""

    def spec(self, scale: Scale, layer: Layer = "paper") -> SweepSpec:
        """The sweep of this scale and layer; a ValueError says why there is none."""
        spec = self.quick if scale == "quick" else self.full
        if spec is None:
            raise ValueError(f"{self.title}: {self.note}")
        if layer == "paper":
            return spec
        if layer != "ours":
            return spec.with_(methods=tuple(_line(name, layer) for name in spec.methods))
        splits = any(name in METHODS and METHODS[name].needs_split for name in spec.methods)
        methods = tuple(name for name in OURS if splits or not METHODS[name].needs_split)
        return spec.with_(methods=methods)

    def heading(self, scale: Scale, layer: Layer) -> str:
        """Experiment, scale and layer, in words."""
        return f"{self.title}, {scale} scale: {LAYERS[layer]}"


def _line(name: str, preset: str) -> str:
    """The line of a test with this preset, or its name where it has none: the code follows the text there."""
    lines = (line.name for line in METHODS.values() if line.algorithm == name and line.preset.name == preset)
    return next(lines, name)


def _sweep(name: str, title: str, kind: Kind, note: str = "", **settings: Any) -> PaperExperiment:
    """An experiment at both scales."""
    full = SweepSpec(repeats=20, tests=100, **settings)
    sizes = tuple(m for m in full.m_te if m in QUICK_SIZES) or full.m_te
    tasks = tuple(min(n, QUICK_PAIRS) for n in full.n_tasks) if full.task.startswith("cifar") else full.n_tasks
    quick = full.with_(repeats=2, tests=20, n_permutations=99, m_te=sizes, m_tr=full.m_tr[:1], n_tasks=tasks)
    return PaperExperiment(name, title, kind, quick, full, note)


def _images(
    number: int, title: str, task: str, methods: tuple[str, ...] = FIGURE_2, **settings: Any
) -> PaperExperiment:
    """A table on CIFAR with 100 images per class pair: 45 pairs of CIFAR-10, or 4,950 of CIFAR-100 (quick: 100)."""
    pairs = 4950 if task.endswith("via-cifar100") else 45
    sizes: dict[str, Any] = {"m_tr": (100, 200), "m_te": (200, 500, 900), "n_tasks": (pairs,), "rows_per_task": 100}
    name, heading = f"table{number}", f"Table {number}: {title}"
    return _sweep(name, heading, "images", task=task, methods=methods, **sizes | settings)


_EXPERIMENTS = (
    *(
        _sweep(f"fig2{part}", f"Figure 2{part}: power, m_tr={m} per mode", "power", methods=METHODS_2, m_tr=(m,))
        for part, m in (("a", 50), ("b", 100), ("c", 150))
    ),
    *(
        _sweep(
            f"fig3{part}", f"Figure 3{part}: power, closeness C={c:g}", "closeness",
            methods=METHODS_3, closeness=(c,),
        )
        for part, c in (("a", 0.1), ("b", 0.2), ("c", 0.3))
    ),
    _sweep(
        "table3", "Table 3: ablation, 10 rows to select, 200 to test", "ablation", SPLIT_NOTE,
        methods=TABLE_3, m_tr=(10,), m_te=(200,),
    ),
    _sweep(
        "table3-all", "Table 3, tests without a split: all 210 rows to test", "ablation",
        methods=TABLE_3_ALL, m_te=(210,),
    ),
    _sweep("table5", "Table 5: Meta-KL for N related tasks", "tasks", methods=("Meta-KL",), n_tasks=TASK_COUNTS),
    _sweep("table6", "Table 6: Meta-MKL for N related tasks", "tasks", methods=("Meta-MKL",), n_tasks=TASK_COUNTS),
    _sweep("type1", "Type-I error of the paper's methods", "type-I", methods=TYPE_1, null=True, m_te=(100,)),
    PaperExperiment("gamma", "γ̂ against the closeness C", "relatedness", None, None, GAMMA_NOTE),
    _images(1, "CIFAR-10 against CIFAR-10.1", "cifar10-cifar10.1"),
    _images(2, "CIFAR-100 against CIFAR-10.1", "cifar100-cifar10.1"),
    _images(4, "the labels of the related tasks matter", "cifar10-cifar10.1", TABLE_4, m_tr=(100,)),
    _images(7, "CIFAR-10 against CIFAR-10.1, from CIFAR-100", "cifar10-cifar10.1-via-cifar100"),
    _images(8, "CIFAR-100 against CIFAR-10.1, from CIFAR-100", "cifar100-cifar10.1-via-cifar100"),
)  # fmt: skip
PAPER: Registry[PaperExperiment] = Registry("experiment", {e.name: e for e in _EXPERIMENTS})

GAMMA_COLUMNS = ["closeness", "task", "restart", "on_training_rows", "on_test_rows", "floor", "seconds"]
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class GammaCell:
    """γ̂_it between HDGM(0.7) and the related tasks of one closeness."""

    closeness: float
    rows: int  # per half and sample; the paper's 4,000 change γ̂ little
    tasks: int  # of all, at random
    restarts: int
    steps: int
    seed: int = 0
    of_tasks: int = 100  # N

    @property
    def key(self) -> str:
        """The hash under which its rows are stored."""
        usual = {"of_tasks": 100}
        return digest({"γ̂ and its noise floor": {k: v for k, v in asdict(self).items() if usual.get(k) != v}})

    def with_tasks(self, count: int) -> GammaCell:
        """The same for another number of related tasks."""
        return replace(self, of_tasks=count)


GAMMA = {
    "quick": [GammaCell(closeness, rows=300, tasks=4, restarts=3, steps=40) for closeness in (0.1, 0.3, 0.5)],
    "full": [
        GammaCell(closeness, rows=2000, tasks=10, restarts=10, steps=100) for closeness in (0.1, 0.2, 0.3, 0.4, 0.5)
    ],
}


def measure_gamma(cell: GammaCell, device: str, progress: Progress | None = None) -> list[dict[str, Any]]:
    """One row per task and restart: γ̂_it on the halves that chose the kernel and on fresh halves, with γ̂'s floor."""
    began = time.perf_counter()
    streams = Streams(cell.seed).child("gamma")
    measured = relatedness(
        make_task("hdgm", delta=0.7).sample(2 * cell.rows, seed=streams.child("target").seed),
        hdgm_related_tasks(cell.closeness, cell.of_tasks, 2 * cell.rows, seed=streams.child("meta-tasks").seed),
        restarts=cell.restarts,
        max_tasks=cell.tasks,
        steps=cell.steps,
        seed=streams.child("kernels").seed,
        device=device,
        progress=progress,
    )
    shared = {"floor": measured.floor, "seconds": time.perf_counter() - began}
    return [
        {"closeness": cell.closeness, "task": task, "restart": restart}
        | {name: float(getattr(measured, name)[index, restart]) for name in ("on_training_rows", "on_test_rows")}
        | shared
        for index, task in enumerate(measured.task_names)
        for restart in range(cell.restarts)
    ]


def run_gamma(
    cells: Sequence[GammaCell],
    store: Store,
    executor: Executor,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """γ̂_it of every closeness as a tidy table. Stored measurements are not computed again.

    ``progress`` is called with thousandths of the whole. If it raises Cancelled, the work stops and finished
    measurements are kept.
    """
    rows = {cell: store.cells.measurement(cell.key) for cell in cells}
    jobs = {executor.submit(cell.key, measure_gamma, cell): cell for cell in cells if rows[cell] is None}
    shares = {cell.key: 0.0 for cell in jobs.values()}
    waiting = set(jobs)
    try:
        while waiting:
            finished, waiting = wait(waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            shares |= {key: step / total for key, step, total in executor.reports()}
            for future in finished:
                cell = jobs[future]
                rows[cell] = future.result()
                store.cells.add_measurement(cell.key, asdict(cell), future.result())
            shares |= {cell.key: 1.0 for future, cell in jobs.items() if future not in waiting}
            if progress is not None:
                progress(round(1000 * sum(shares.values()) / len(shares)), 1000)
    except BaseException:
        executor.cancel()
        raise
    return pd.DataFrame([row for measured in rows.values() for row in measured or []], columns=GAMMA_COLUMNS)


def summarise_gamma(rows: pd.DataFrame) -> pd.DataFrame:
    """γ̂ = min_i max_t γ̂_it for each closeness on both halves, beside the published γ̂ and the noise floor.

    ``lowest`` and ``highest`` are the range of the tasks' maxima on test halves.
    """
    largest = rows.groupby(["closeness", "task"]).max().groupby("closeness")
    table = largest[["on_training_rows", "on_test_rows"]].min()
    first = rows.groupby("closeness")[["floor", "seconds"]].first()
    table = table.assign(lowest=table["on_test_rows"], highest=largest["on_test_rows"].max()).join(first)
    published = published_gamma().set_index("closeness")["gamma_hat"].reindex(table.index)
    table.insert(0, "published", published)
    return table.reset_index()
