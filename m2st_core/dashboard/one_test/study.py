"""One test on one pair of samples: its settings, its computation, and how to repeat it elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from m2st_core.data import TASKS, make_task
from m2st_core.data.task import Setting
from m2st_core.testing.two_sample import two_sample_test
from m2st_core.types import Progress, TestResult, TwoSample


@dataclass(frozen=True)
class SingleTest:
    """Everything the page asks for; hashable, so it is also the key of the job."""

    task: str
    parameters: tuple[tuple[str, Setting], ...]
    null: bool
    n: int
    m: int
    method: str
    alpha: float
    n_permutations: int
    train_fraction: float
    preset: str
    seed: int

    def sample(self) -> TwoSample:
        """The two samples."""
        return make_task(self.task, null=self.null, **dict(self.parameters)).sample(self.n, self.m, seed=self.seed)

    def run(self, progress: Progress) -> TestResult:
        """The test on them."""
        sample = self.sample()
        x, y = sample.images() if sample.shape else sample
        return two_sample_test(
            x,
            y,
            self.method,
            alpha=self.alpha,
            n_permutations=self.n_permutations,
            train_fraction=self.train_fraction,
            preset=self.preset,
            seed=self.seed,
            progress=progress,
        )

    def as_python(self) -> str:
        """A script that gives the same result."""
        settings = "".join(f", {name}={value!r}" for name, value in self.parameters)
        null = ", null=True" if self.null else ""
        images = ".images()" if TASKS[self.task].shape else ""
        return f"""import m2st_core as m2st

task = m2st.make_task({self.task!r}{settings}{null})
x, y = task.sample({self.n}, {self.m}, seed={self.seed}){images}
result = m2st.two_sample_test(
    x, y, method={self.method!r}, alpha={self.alpha!r}, n_permutations={self.n_permutations},
    train_fraction={self.train_fraction!r}, preset={self.preset!r}, seed={self.seed},
)
print(result.p_value, result.sentence)
"""
