"""What a two-sample test is: its description and its procedure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from m2st_core.learners.knowledge import Knowledge, Learn
from m2st_core.permutation.fitted import FittedTest
from m2st_core.presets import PAPER, RELEASED, TUNED, Preset
from m2st_core.rng import Streams
from m2st_core.types import Origin, Progress, Shape, TwoSample, labelled

Fit = Callable[..., FittedTest]
"""(rows, preset, streams, progress) → fitted test. The rows are a TwoSample of training rows if the method splits, and
otherwise the pooled test rows without their labels."""

ORIGINS: dict[Origin, str] = {
    "paper": "with deep kernels, of Liu et al. (2021)",
    "general": "without related tasks",
    "ours": "of this project; related tasks, where used, teach the features",
}


GREENS = ("#0A7F5A", "#1D9BA6", "#7E9A1E", "#3FA34D")  # the paper's tests, which learn from related tasks
GREYS = ("#8C939C", "#6B727C", "#9A7B4F", "#B0654A")  # tests without related tasks
VIOLETS = ("#8452D0", "#B45FCF", "#6F6BD8", "#C05FA5")  # ours
STROKES = {"solid": "12px", "longdash": "24px", "dot": "5px", "dashdot": "12px,3px,4px"}  # of lines in other settings


@dataclass(frozen=True)
class Look:
    """How figures show a method: the paper's green, general ones grey, ours violet; its marker and line are its own.

    The line style shows the origin: the paper's are solid, ours dashed, others dotted. Other settings of a
    test have open markers, and lines of strokes: with dots between them as in the paper's code, without where tuned.
    """

    colour: str
    marker: str
    dash: str


@dataclass(frozen=True)
class MethodCost:
    """The cost of a method, for predicting the time of a sweep.

    ``test`` is relative to MMD-M. ``by_row`` says that a test compares one number per row, with no Gram matrix.
    ``fit`` is in seconds for 200 pooled training rows, ``image_test`` in seconds per tested image. ``image_fit`` names
    the network that a fit on images trains. ``labelling_bytes`` is the memory of one labelling's statistics.
    """

    test: float = 1.0
    by_row: bool = False
    fit: float = 0.05
    image_test: float | None = None
    image_fit: Literal["deep", "classifier", "other"] = "other"
    labelling_bytes: int = 100


@dataclass(frozen=True)
class Method:
    """One two-sample test: a procedure with its settings.

    The paper's tests are several lines: ``algorithm`` is their common name, and ``preset`` their settings. Other tests
    have no ``algorithm``; what they use of a preset are the settings of learned features and of images.

    A method without related tasks has ``fit``. A method with related tasks has ``learn``, which runs once, and
    ``adapt``, a fit whose first argument is the result of ``learn``.
    """

    name: str
    description: str
    formula: str  # the statistic, or the kernel of its MMD²
    reference: str
    origin: Origin
    look: Look
    fit: Fit | None = None
    learn: Learn | None = None
    training: str = ""  # the name of ``learn`` in stored results; methods with the same one share a learner
    adapt: Callable[..., FittedTest] | None = None
    needs_split: bool = True  # fits on training rows that are not tested
    by_permutation: bool = True  # otherwise the p-value comes from an asymptotic distribution
    symmetric: bool = True  # exchanging x and y changes nothing; otherwise x is P
    two_sided: bool = True  # complementary labellings have the same statistic
    preset: Preset = TUNED
    algorithm: str = ""
    changes: str = ""  # a sentence on how the settings differ from the paper's text
    revision: int = 0  # counts changes after which the same sweep gives other numbers
    min_test_rows: int = 2  # of each sample
    kernels_at_once: int = 1  # about how many Gram matrices are in memory at the same time
    cost: MethodCost = MethodCost()

    @property
    def label(self) -> str:
        """The name in lists, legends and sentences, with a mark if the method is ours."""
        return labelled(self.name, self.origin)

    @property
    def uses_related_tasks(self) -> bool:
        """Whether the method learns from related tasks."""
        return self.learn is not None

    def fit_on(
        self,
        rows: TwoSample | Tensor,
        shape: Shape | None,
        streams: Sequence[Streams],
        progress: Progress | None = None,
    ) -> FittedTest:
        """Fit on rows, or on images of this shape. A method with related tasks must have learned from them."""
        if self.fit is None:
            raise ValueError(f"{self.name} has not learned from related tasks yet. Call meta_train first.")
        return self.fit(rows, self.preset.on(shape), streams, progress)

    def with_knowledge(self, knowledge: Knowledge) -> Method:
        """The method with what it learned from related tasks built into its fit."""
        if self.adapt is None:
            raise ValueError(f"{self.name} does not learn from related tasks.")
        adapt = self.adapt
        return replace(self, fit=lambda *arguments: adapt(knowledge, *arguments))


def method_lines(method: Method, tuned: str, code: str = "") -> tuple[Method, ...]:
    """A test of the paper in the settings of the paper's text, of its code where they differ, and in our own.

    ``code`` and ``tuned`` say what is different from the text.
    """

    def line(name: str, preset: Preset, dots: str, changes: str) -> Method:
        return replace(
            method,
            name=f"{method.name} · {name}",
            description=f"{method.description} {changes}",
            changes=changes,
            look=replace(look, marker=f"{look.marker}-open", dash=f"{STROKES[look.dash]},3px{dots}"),
            training=method.training and f"{method.training} · {name}",
            preset=preset,
            algorithm=method.name,
        )

    look = method.look
    released = (line("code", RELEASED, ",2px,3px", f"As in the code: {code}."),) if code else ()
    text = replace(method, preset=PAPER, algorithm=method.name)
    return text, *released, line("tuned", TUNED, "", f"Tuned: {tuned}.")
