"""One test at the setting of Explore."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from m2st_core.data import TASKS
from m2st_core.progress import part_of
from m2st_core.studies.explore import MIXTURE, ROWS_PER_TASK, ExploreSetting
from m2st_core.studies.power import SYMBOLS, words_of
from m2st_core.studies.shipped import Shipped, load_shipped
from m2st_core.sweeps.cost import fit_seconds, machine_factor, predict_cost
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.testing.methods import METHODS
from m2st_core.testing.two_sample import two_sample_test
from m2st_core.types import BASELINE, GENERIC_TEST, Progress, TestResult, TwoSample

LEARNERS_KEPT = 16
REFERENCE_ROWS, FIT_GROWTH = 200, 2.5  # pooled training rows of a predicted fit, and the exponent for more of them
LEARNING = 0.9  # share of the time that learning takes
_learners: dict[Hashable, MetaLearner] = {}


@dataclass(frozen=True)
class OneTest:
    """The result of a test, and of one without related tasks on the same rows if the first used them."""

    result: TestResult
    without: TestResult | None = None

    def packed(self) -> Shipped:
        """The results as they are shipped."""
        results = [result for result in (self.result, self.without) if result is not None]
        nulls = np.stack([result.null for result in results]).astype(np.float32)
        return Shipped({"nulls": nulls}, values={"results": [result.to_dict() for result in results]})

    @classmethod
    def unpacked(cls, shipped: Shipped) -> OneTest:
        """Shipped results."""
        nulls = shipped.arrays["nulls"].astype(np.float64)
        return cls(*(map(TestResult.from_dict, shipped.values["results"], nulls)))


@dataclass(frozen=True)
class SingleTest:
    """The settings of one test on one pair of samples. They are hashable, so they also identify the job."""

    setting: ExploreSetting = ExploreSetting()
    null: bool = False
    n: int = 500
    m: int = 500
    method: str = MIXTURE
    alpha: float = 0.05
    n_permutations: int = 999
    train_fraction: float = 0.2

    @classmethod
    def at(cls, setting: ExploreSetting, n: int = 0, m: int = 0, **values: Any) -> SingleTest:
        """The test at a setting: its m_tr and m_te are all rows of a sample, or give the shares of n and m rows."""
        rows = setting.rows_per_size * (setting.m_tr + setting.m_te)
        share = min(0.99, max(0.01, setting.m_tr / (setting.m_tr + setting.m_te)))
        return cls(setting, n=n or rows, m=m or rows, train_fraction=share, **values)

    @property
    def learns(self) -> bool:
        """Whether the method learns from related tasks."""
        return METHODS[self.method].uses_related_tasks

    @property
    def baseline(self) -> str:
        """The test without related tasks beside it: the usual one of the paper's field beside its tests."""
        return GENERIC_TEST if METHODS[self.method].origin == "paper" else BASELINE

    @property
    def expected_seconds(self) -> float:
        """A rough prediction of the duration; 0 for settings that will be refused."""
        setting, method = self.setting, METHODS[self.method]
        unit = TASKS[setting.task].rows_per_size
        rows, share = max(self.n, self.m), self.train_fraction if method.needs_split else 0.0
        try:
            cost = predict_cost(
                SweepSpec(
                    task=setting.task,
                    settings=setting.settings,
                    methods=(self.method,),
                    closeness=(setting.closeness,),
                    n_tasks=(setting.n_tasks,),
                    rows_per_task=ROWS_PER_TASK,
                    m_tr=(max(2, round(share * rows / unit)),),
                    m_te=(max(2, round((1 - share) * rows / unit)),),
                    repeats=1,
                    tests=1,
                    alpha=self.alpha,
                    n_permutations=self.n_permutations,
                )
            )
        except ValueError:
            return 0.0
        growth = max(1.0, 2 * share * rows / REFERENCE_ROWS) ** FIT_GROWTH
        return cost.seconds + machine_factor() * fit_seconds(method, 0, None) * (growth - 1)

    def shipped(self) -> OneTest | None:
        """The result that comes with the software, for the default settings."""
        return _shipped_test() if self == SingleTest() else None

    def sample(self) -> TwoSample:
        """Draw the two samples."""
        return self.setting.target(self.null).sample(self.n, self.m, seed=self.setting.seed)

    def learner(self, progress: Progress | None = None) -> MetaLearner:
        """The method trained on the related tasks. Methods with the same training share a learner, which is kept."""
        training = METHODS[self.method].training
        key = (self.setting, training)
        learner = _learners.get(key)
        if learner is None:
            tasks, seed = self.setting.related_tasks(), self.setting.seed
            learner = meta_train(self.method, tasks, seed=seed, progress=progress)
            while len(_learners) >= LEARNERS_KEPT:
                _learners.pop(next(iter(_learners)), None)
            _learners[key] = learner
        return learner.for_method(self.method)

    def run(self, progress: Progress | None = None) -> OneTest:
        """Test them."""
        sample = self.sample()
        x, y = sample.images() if sample.shape else sample
        shared: dict[str, Any] = {name: getattr(self, name) for name in ("alpha", "n_permutations", "train_fraction")}
        shared["seed"] = self.setting.seed
        if not self.learns:
            return OneTest(two_sample_test(x, y, self.method, **shared, progress=progress))
        learner = self.learner(part_of(progress, 0, LEARNING))
        result = learner.test(x, y, **shared, progress=part_of(progress, LEARNING, 1))
        return OneTest(result, two_sample_test(x, y, self.baseline, **shared))

    def as_python(self) -> str:
        """A script that gives the same result."""
        setting, seed = self.setting, self.setting.seed
        settings = "".join(f", {name}={value!r}" for name, value in setting.parameters)
        null, images = ", null=True" if self.null else "", ".images()" if TASKS[setting.task].shape else ""
        test = f"m2st.two_sample_test(\n    x, y, method={self.method!r},"
        learn = ""
        if self.learns:
            learn = f"""related = task.draw_related_tasks(
    closeness={setting.closeness!r}, n_tasks={setting.n_tasks}, rows={setting.rows}, seed={seed}
)
learner = m2st.meta_train({self.method!r}, related, seed={seed})
"""
            test = "learner.test(\n    x, y,"
        return f"""import m2st_core as m2st

task = m2st.make_task({setting.task!r}{settings}{null})
x, y = task.sample({self.n}, {self.m}, seed={seed}){images}
{learn}result = {test}
    alpha={self.alpha!r}, n_permutations={self.n_permutations}, train_fraction={self.train_fraction!r},
    seed={seed},
)
print(result.p_value, result.sentence)
"""


@lru_cache(maxsize=1)
def _shipped_test() -> OneTest:
    return OneTest.unpacked(load_shipped("one_test"))


def former_words(former: Hashable, now: Hashable) -> str:
    """What the former settings of a study had where the present ones differ; empty if nothing differs.

    >>> former_words(SingleTest(), SingleTest(ExploreSetting(closeness=0.5), n=40, method="MMD-M"))
    'Meta-MKL, C=0.3, n=500'
    """
    before, after = _leaves(former), _leaves(now)
    if before.get("task") != after.get("task"):  # its parameters are other ones
        before = {name: value for name, value in before.items() if not name.startswith("settings.")}
    order = [name for name in (*SYMBOLS, *before) if before.get(name) != after.get(name) and name in before]
    return ", ".join(words_of(name, before[name]) for name in dict.fromkeys(order))


def _leaves(study: Any) -> dict[str, str]:
    """The settings of a study as text, by their entries in a spec."""
    leaves = dict[str, str]()
    for name in (field.name for field in fields(study)):
        value = getattr(study, name)
        if is_dataclass(value):
            leaves |= _leaves(value)
        elif name in ("parameters", "settings"):
            leaves |= {f"settings.{key}": str(one) for key, one in value}
        else:
            entry = f"settings.{name}" if f"settings.{name}" in SYMBOLS else name
            leaves[entry] = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return leaves
