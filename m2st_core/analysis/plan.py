"""A primary test and its secondary tests on the same rows: ``analyse``, and ``carry_out`` for an upload and a plan.

The page, the command line and the API take the same path from a plan to an outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from m2st_core.analysis.correction import FAMILIES, CorrectedTest, Family, adjusted_p_values
from m2st_core.analysis.effect import EffectSize, effect_size
from m2st_core.analysis.explanation import Evidence, Explanation, evidence_of, explain
from m2st_core.data.arrays import as_two_sample
from m2st_core.data.related import RelatedTasks
from m2st_core.data.separate import Separated
from m2st_core.data.tables.prepare import Prepared
from m2st_core.progress import part_of
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.testing.methods import METHODS
from m2st_core.testing.plan import TestPlan, TestSettings, check_splits, plan_test
from m2st_core.testing.run import run
from m2st_core.types import BASELINE, DEFAULT_TEST, Progress, TestResult, TwoSample

TRAINED, TESTED = 0.7, 0.9  # of the progress


@dataclass(frozen=True)
class Plan:
    """Declared before any result is known: a primary test, secondary tests, and their settings.

    Each test that splits its rows uses ``splits`` random splits. ``family``: the primary test alone decides
    ("primary") or all tests are corrected together ("all").
    """

    primary: str = DEFAULT_TEST
    secondary: tuple[str, ...] = ()
    alpha: float = 0.05
    n_permutations: int = 999
    train_fraction: float = 0.5
    seed: int = 0
    splits: int = 1
    family: Family = "primary"

    def __post_init__(self) -> None:
        object.__setattr__(self, "primary", METHODS.name_of(self.primary))
        object.__setattr__(self, "secondary", tuple(map(METHODS.name_of, self.secondary)))

    @property
    def methods(self) -> tuple[str, ...]:
        """All tests, the primary first."""
        return (self.primary, *self.secondary)

    def settings(self, device: str) -> TestSettings:
        """The settings of each test that splits its rows; the others take one split."""
        shared = {name: getattr(self, name) for name in ("alpha", "n_permutations", "train_fraction", "splits", "seed")}
        return TestSettings(device=device, **shared)

    @property
    def methods_with_tasks(self) -> tuple[str, ...]:
        """The tests that use related tasks."""
        return tuple(name for name in self.methods if METHODS[name].uses_related_tasks)


@dataclass(frozen=True)
class Analysis:
    """Results of a primary test and its secondary tests, with the primary test's evidence and effect size.

    ``decision`` is the primary test's: uncorrected if ``family`` is "primary", corrected together with the secondary
    tests if it is "all".
    """

    primary: TestResult
    secondary: tuple[CorrectedTest, ...]
    effect: EffectSize
    evidence: Evidence
    decision: CorrectedTest
    family: Family = "primary"

    @property
    def corrected(self) -> tuple[CorrectedTest, ...]:
        """The tests that were corrected together; empty without secondary tests."""
        return (self.decision, *self.secondary) if self.family == "all" and self.secondary else self.secondary

    @property
    def rejected(self) -> bool:
        """Whether the primary test rejects after the declared correction."""
        return self.decision.rejected

    @property
    def sentence(self) -> str:
        """The decision in plain words."""
        return self.decision.sentence if self.decision in self.corrected else self.primary.sentence

    @property
    def family_sentence(self) -> str:
        """The error rate that is controlled, in plain words; empty without secondary tests."""
        alpha = self.primary.alpha
        return FAMILIES[self.family].format(alpha=alpha, twice=2 * alpha) if self.secondary else ""


@dataclass(frozen=True)
class Outcome:
    """An upload, its plan, the results, where the samples differ, and the learners trained on the way.

    ``baseline`` is the result of the test without related tasks, if the primary test used them. It is shown beside the
    answer and decides nothing. Images are not explained by columns.
    """

    data: Prepared = field(repr=False)
    plan: Plan
    analysis: Analysis
    explanation: Explanation | None = field(repr=False)
    learners: Mapping[str, MetaLearner] = field(repr=False)
    baseline: TestResult | None = field(default=None, repr=False)


def analyse(
    x: Any,
    y: Any,
    primary: str = DEFAULT_TEST,
    secondary: Sequence[str] = (),
    *,
    family: Family = "primary",
    splits: int = 1,
    learners: Mapping[str, MetaLearner] | None = None,
    apart: Separated | None = None,
    blocks: tuple[Any, Any] | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Analysis:
    """Run one primary test and any number of secondary tests on the same rows, and correct them within their family.

    Methods that split their rows use ``splits`` random splits; all others use none. ``learners`` holds a trained
    learner for each method that uses related tasks, by the method's name. If they were trained on
    ``separate((x, y), tasks)``, pass its result as ``apart``. The settings are those of ``two_sample_test``.

    >>> import m2st_core as m2st
    >>> x, y = m2st.make_task("mean_shift", shift=2.0).sample(50, seed=1)
    >>> analysis = m2st.analyse(x, y, "MMD-FUSE", ["MMD-M"])
    >>> analysis.primary.p_value, analysis.secondary[0].adjusted_p_value
    (0.001, 0.001)
    """
    if "preset" in settings:
        raise ValueError(
            f"analyse takes no preset, since each of its tests has its own: name a test with its settings, such as "
            f"'Meta-MKL · tuned'. Got preset={settings['preset']!r}."
        )
    names = [METHODS.name_of(name) for name in (primary, *secondary)]
    _check_tests(names, family, splits)
    learners = learners or {}
    for name in names:
        if METHODS[name].uses_related_tasks and name not in learners:
            raise ValueError(f"{name} learns from related tasks, but no learner is given for it. Train one first.")
    tests = _plan_tests(as_two_sample(x, y, blocks=blocks), names, TestSettings(splits=splits, **settings), learners)
    return _run_planned(tests, family, learners, apart, "rows", progress)


def _plan_tests(
    sample: TwoSample, names: Sequence[str], settings: TestSettings, learners: Mapping[str, MetaLearner]
) -> tuple[TestPlan, ...]:
    """Plan each test with its learner, if it has one, and with one split if it does not split its rows."""
    tests = []
    for name in names:
        method, learner = METHODS[name], learners.get(name)
        own = settings if method.needs_split else replace(settings, splits=1)
        tests.append(plan_test(sample, method, own) if learner is None else learner.plan(sample, own))
    return tuple(tests)


def _run_planned(
    tests: Sequence[TestPlan],
    family: Family,
    learners: Mapping[str, MetaLearner],
    apart: Separated | None,
    unit: str,
    progress: Progress | None,
) -> Analysis:
    """Run planned tests of the same rows, the primary first, and correct them as ``analyse`` does."""
    finished = []
    for index, test in enumerate(tests):
        learner = learners.get(test.method.name)
        stage = part_of(progress, index / len(tests), (index + 1) / len(tests))
        finished.append(run(test if learner is None else learner.teach(test, apart), stage))
    first, *others = finished
    decision, *adjusted = adjusted_p_values([test.result.p_value for test in finished], family)
    evidence = evidence_of(first)
    return Analysis(
        primary=first.result,
        secondary=tuple(CorrectedTest(test.result, p) for test, p in zip(others, adjusted, strict=True)),
        effect=effect_size(first.result, evidence, unit),
        evidence=evidence,
        decision=CorrectedTest(first.result, decision, "primary"),
        family=family,
    )


def _check_tests(names: Sequence[str], family: Family, splits: int) -> None:
    """Refuse an unknown family, a test named twice, and several splits where none of these tests splits its rows."""
    if family not in get_args(Family):
        raise ValueError(f"family must be one of {', '.join(map(repr, get_args(Family)))}. Got {family!r}.")
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{name} is named twice. Name each test once.")
    splitting = [name for name in names if METHODS[name].needs_split]
    check_splits(METHODS[(splitting or names)[0]], splits)


def _as_tested(data: Prepared, plan: Plan) -> Prepared:
    """The data without the target's rows among the related tasks, if a test learns from them."""
    return data.separated() if plan.methods_with_tasks else data


def check_plan(
    data: Prepared, plan: Plan, learner: MetaLearner | None = None, device: str = "auto"
) -> tuple[TestPlan, ...]:
    """Plan each test, the primary first; a ValueError if one could not reject whatever its rows are.

    ``learner`` is one that was trained earlier.
    """
    _check_tests(plan.methods, plan.family, plan.splits)
    learners = {} if learner is None else _teaches(learner, plan)
    tests = _plan_tests(_as_tested(data, plan).target, plan.methods, plan.settings(device), learners)
    adjusted = adjusted_p_values([test.smallest_p for test in tests], plan.family)
    for name, p in zip(plan.methods, adjusted, strict=True):
        if p > plan.alpha:
            raise ValueError(
                f"{name} cannot reject at alpha={plan.alpha:g} beside the other tests: after Holm's correction its "
                f"smallest possible p-value is {p:.3g}. Use more permutations, fewer tests, or more rows."
            )
    return tests


def carry_out(
    data: Prepared,
    plan: Plan,
    *,
    learner: MetaLearner | None = None,
    tests: Sequence[TestPlan] = (),
    explained: bool = True,
    device: str = "auto",
    progress: Progress | None = None,
) -> Outcome:
    """Learn from the related tasks if a test uses them, then test; ``learner`` is one that was trained earlier.

    ``tests`` are those that ``check_plan`` planned for these data and this learner, if it was called before.

    >>> import m2st_core as m2st
    >>> outcome = carry_out(m2st.prepare(m2st.EXAMPLES["diabetes"].load()), Plan("Meta-FUSE", ("MMD-M",)))
    >>> outcome.analysis.primary.p_value
    0.001
    """
    if not len(data.x):
        raise ValueError("There is nothing to test: the upload has related tasks only. Add P and Q.")
    needed = [METHODS[name].training for name in plan.methods_with_tasks]
    if learner is not None:
        data = data.in_order_of(learner.column_names)
        if METHODS[learner.method].training in needed:
            learner.refuse_shared(data.target, data.units)
    tests = tests or check_plan(data, plan, learner, device)
    data = _as_tested(data, plan)
    learners = _learners(data.related, plan, learner, device, part_of(progress, 0, TRAINED))
    stage = part_of(progress, TRAINED, TESTED)
    analysis = _run_planned(tests, plan.family, learners, data.separation, data.unit, stage)
    explanation = baseline = None
    if explained and data.encoding is not None:
        owners = [column.name for column in data.columns for _ in column.features]
        last = [position for position, name in enumerate(owners) if name in data.identifiers]
        explanation = explain(analysis.evidence, seed=plan.seed, progress=part_of(progress, TESTED, 1.0), last=last)
    if explained and plan.primary in plan.methods_with_tasks:
        unnamed = replace(data.target, columns=())
        baseline = run(plan_test(unnamed, METHODS[BASELINE], replace(plan.settings(device), splits=1))).result
    return Outcome(data, plan, analysis, explanation, learners, baseline)


def other_splits(outcome: Outcome, further: int, *, progress: Progress | None = None) -> tuple[float, ...]:
    """Return the primary test's p-values under further random splits of the same rows."""
    plan, learner = outcome.plan, outcome.learners.get(outcome.plan.primary)
    settings = replace(plan.settings("auto"), splits=further + 1)
    (test,) = _plan_tests(outcome.data.target, (plan.primary,), settings, outcome.learners)
    test = test if learner is None else learner.teach(test, outcome.data.separation)
    return run(test, progress).result.split_p_values[1:]


def _teaches(learner: MetaLearner, plan: Plan) -> dict[str, MetaLearner]:
    """The learner for each of the plan's tests that it was trained for."""
    training = METHODS[learner.method].training
    return {name: learner.for_method(name) for name in plan.methods if METHODS[name].training == training}


def _learners(
    tasks: RelatedTasks | None, plan: Plan, given: MetaLearner | None, device: str, progress: Progress | None
) -> dict[str, MetaLearner]:
    """Return a learner for each method that uses related tasks; methods that learn alike share one training."""
    trained = {METHODS[given.method].training: given} if given is not None else {}
    first = {METHODS[name].training: name for name in reversed(plan.methods_with_tasks)}
    to_train = [name for training, name in reversed(first.items()) if training not in trained]
    if to_train and tasks is None:
        cause = f"The learner is for {given.method}." if given is not None else "None are given."
        raise ValueError(f"{to_train[0]} learns from related tasks. {cause} Add some, or use {DEFAULT_TEST}.")
    for index, name in enumerate(to_train):
        stage = part_of(progress, index / len(to_train), (index + 1) / len(to_train))
        trained[METHODS[name].training] = meta_train(name, tasks, seed=plan.seed, device=device, progress=stage)
    return {name: trained[METHODS[name].training].for_method(name) for name in plan.methods_with_tasks}
