"""Every table and figure of the paper, as sweeps at two scales and in two layers: the paper's algorithms, and ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from m2st_core.registry import Registry
from m2st_core.sweeps.spec import LIMIT, SweepSpec
from m2st_core.testing.methods import METHODS

Scale = Literal["quick", "full"]
Layer = Literal["paper", "ours"]
LAYERS: dict[Layer, str] = {"paper": "the paper's algorithms", "ours": "ours"}
Kind = Literal["power", "closeness", "tasks", "ablation", "type-I", "relatedness", "images"]
FIGURE_2 = ("Meta-MKL", "Meta-KL", "AGT-KL", "MMD-D", "MMD-O", "C2ST-L", "C2ST-S", "ME", "SCF")
TABLE_3 = ("Meta-MKL", "Meta-MKL-A", "Meta-KL", "AGT-MKL", "AGT-MKL-A", "AGT-KL", "Meta-MKL-SI")
TABLE_3_ALL = ("Meta-MKL-A", "AGT-MKL-A", "Meta-MKL-SI")
TABLE_4 = ("Meta-MKL", "Meta-KL", "AGT-KL", "MMD-D w/ AC", "MMD-D", "MMD-O")
OURS = ("Feature-MKL", "Meta-WiTS", "Meta-Witness", "Meta-FUSE")
CLASS_PAIRS = {"cifar10": 45, "cifar100": 4950}
QUICK_PAIRS = 100
SIZES = (50, 80, 100, 120, 150, 200, 250)
QUICK_SIZES = (50, 100, 200)


@dataclass(frozen=True)
class PaperExperiment:
    """One table or figure; ``quick`` and ``full`` are None where it is measured in another way than by a sweep.

    Both sweeps run the paper's algorithms in preset ``paper``. Our own family is a second layer on the same samples.
    """

    name: str
    title: str
    kind: Kind
    quick: SweepSpec | None
    full: SweepSpec | None
    note: str = ""

    def spec(self, scale: Scale, layer: Layer = "paper") -> SweepSpec:
        """The sweep of this scale and layer; an experiment that has none says why."""
        found = self.quick if scale == "quick" else self.full
        if found is None:
            raise ValueError(f"{self.title}: {self.note}")
        return found if layer == "paper" else _ours(found)

    def heading(self, scale: Scale, layer: Layer, preset: str) -> str:
        """What is run, in words: experiment, scale, layer and preset."""
        return f"{self.title}, {scale} scale: {LAYERS[layer]}, preset {preset}"


def _ours(spec: SweepSpec) -> SweepSpec:
    """Our family on the same samples; without the tests that split where none of the paper's does."""
    split = any(name in METHODS and METHODS[name].needs_split for name in spec.methods)
    methods = tuple(name for name in OURS if split or not METHODS[name].needs_split)
    return spec.with_(preset="recommended", methods=methods)


def _pair(**settings: Any) -> tuple[SweepSpec, SweepSpec]:
    """The same sweep at both scales."""
    chosen: dict[str, Any] = {"preset": "paper", "m_te": SIZES, "repeats": 20, "tests": 100} | settings
    full = SweepSpec(**chosen)
    sizes = tuple(m for m in full.m_te if m in QUICK_SIZES) or full.m_te
    tasks = tuple(min(n, QUICK_PAIRS) for n in full.n_tasks) if full.task.startswith("cifar") else full.n_tasks
    quick = full.with_(repeats=2, tests=20, n_permutations=99, m_te=sizes, m_tr=full.m_tr[:1], n_tasks=tasks)
    return quick, full


def _sweep(name: str, title: str, kind: Kind, note: str = "", **settings: Any) -> PaperExperiment:
    return PaperExperiment(name, title, kind, *_pair(**settings), note=note)


def _images(
    number: int, title: str, task: str, methods: tuple[str, ...] = FIGURE_2, m_tr: tuple[int, ...] = (100, 200)
) -> PaperExperiment:
    """CIFAR: all 45 class pairs of CIFAR-10, or all 4,950 of CIFAR-100 (quick: 100 of them), 100 images each."""
    return _sweep(
        f"table{number}",
        f"Table {number}: {title}",
        "images",
        task=task,
        methods=methods,
        n_tasks=(CLASS_PAIRS["cifar100" if task.endswith("via-cifar100") else "cifar10"],),
        rows_per_task=100,
        m_tr=m_tr,
        m_te=(200, 500, 900),
    )


OF_THE_PAPER = tuple(name for name, method in METHODS.items() if not method.only_recommended)
PAPER: Registry[PaperExperiment] = Registry(
    "experiment",
    {
        experiment.name: experiment
        for experiment in (
            *(
                _sweep(
                    f"fig2{letter}",
                    f"Figure 2{letter}: power, m_tr={m_tr} per mode",
                    "power",
                    methods=(*FIGURE_2, LIMIT),
                    m_tr=(m_tr,),
                )
                for letter, m_tr in (("a", 50), ("b", 100), ("c", 150))
            ),
            *(
                _sweep(
                    f"fig3{letter}",
                    f"Figure 3{letter}: power, closeness C={c:g}",
                    "closeness",
                    methods=(*FIGURE_2[:3], LIMIT),
                    closeness=(c,),
                )
                for letter, c in (("a", 0.1), ("b", 0.2), ("c", 0.3))
            ),
            _sweep(
                "table3",
                "Table 3: ablation, 10 rows to select, 200 to test",
                "ablation",
                "In the paper Meta-MKL-A, AGT-MKL-A and Meta-MKL-SI test 210 rows: they have an entry of their own.",
                methods=TABLE_3,
                m_tr=(10,),
                m_te=(200,),
            ),
            _sweep(
                "table3-all",
                "Table 3, tests without a split: all 210 rows to test",
                "ablation",
                methods=TABLE_3_ALL,
                m_te=(210,),
            ),
            _sweep(
                "table5",
                "Table 5: Meta-KL for N meta-tasks",
                "tasks",
                methods=("Meta-KL",),
                n_tasks=(20, 50, 80, 100, 120, 150),
            ),
            _sweep(
                "table6",
                "Table 6: Meta-MKL for N meta-tasks",
                "tasks",
                methods=("Meta-MKL",),
                n_tasks=(20, 50, 80, 100, 120, 150),
            ),
            _sweep(
                "type1", "Type-I error of the paper's methods", "type-I", methods=OF_THE_PAPER, null=True, m_te=(100,)
            ),
            PaperExperiment(
                "gamma",
                "γ̂ against the closeness C",
                "relatedness",
                None,
                None,
                "a measurement of its own with one layer; run python -m m2st_core paper gamma.",
            ),
            _images(1, "CIFAR-10 against CIFAR-10.1", "cifar10-cifar10.1"),
            _images(2, "CIFAR-100 against CIFAR-10.1", "cifar100-cifar10.1"),
            _images(4, "the labels of the meta-samples matter", "cifar10-cifar10.1", TABLE_4, (100,)),
            _images(7, "CIFAR-10 against CIFAR-10.1, from CIFAR-100", "cifar10-cifar10.1-via-cifar100"),
            _images(8, "CIFAR-100 against CIFAR-10.1, from CIFAR-100", "cifar100-cifar10.1-via-cifar100"),
        )
    },
)
