"""Levels of the tests that learn from related tasks, given what they have learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import m2st_core as m2st
from benchmarks.common import bound_methods
from benchmarks.levels import COUNTS, HDGM_NULL, HEAVY_TAILS, SHAPES, SKEWED, Draw, cells, null_rejections
from m2st_core.types import TwoSample

LEARNERS = 10
TASKS, ROWS = 8, 40
SIZES = ((16, 16), (12, 40))
SELECTIVE_SIZES = ((12, 12), (12, 90), (20, 20), (30, 30), (50, 50), (60, 60), (60, 200), (100, 100), (200, 200))
History = Callable[[int], dict[str, TwoSample]]


def related(seed: int) -> dict[str, TwoSample]:
    """HDGM with C=0.3."""
    return m2st.hdgm_related_tasks(0.3, TASKS, ROWS, seed=seed)


def unrelated(seed: int) -> dict[str, TwoSample]:
    """Variance shifts, which change nothing of what HDGM changes."""
    task = m2st.make_task("variance_shift", scale=2.0)
    return dict(task.draw_related_tasks(closeness=0.1, n_tasks=TASKS, rows=ROWS, seed=seed))


def exchanged(seed: int) -> dict[str, TwoSample]:
    """The related tasks, every second one with P and Q exchanged."""
    return {name: pair.swapped() if index % 2 else pair for index, (name, pair) in enumerate(related(seed).items())}


def tiny(seed: int) -> dict[str, TwoSample]:
    """Two tasks of four to six rows."""
    task = m2st.make_task("hdgm", delta=0.4)
    return {"first": task.sample(4, 5, seed=2 * seed), "second": task.sample(6, 4, seed=2 * seed + 1)}


def without_difference(seed: int) -> dict[str, TwoSample]:
    """Tasks whose samples do not differ."""
    task = m2st.make_task("hdgm", null=True)
    return {f"task {index}": task.sample(ROWS, seed=TASKS * seed + index) for index in range(TASKS)}


HISTORIES: dict[str, tuple[str, History]] = {
    "related": (f"HDGM, C=0.3, {TASKS} tasks of {ROWS} rows per sample", related),
    "unrelated": ("variance shifts, as many", unrelated),
    "exchanged": ("the related ones, P and Q exchanged in half of them", exchanged),
    "tiny": ("two tasks of four to six rows", tiny),
    "null": ("tasks whose samples do not differ", without_difference),
}


def meta_levels(runs: int) -> Iterator[Sequence[str]]:
    """Yield the level of each method with each kind of history, at small and unequal sizes."""
    names = [name for name, method in m2st.METHODS.items() if method.uses_related_tasks]
    each = max(1, runs // LEARNERS)
    for kind, (_, history) in HISTORIES.items():
        ready = [bound_methods(names, history(seed), "recommended", seed) for seed in range(LEARNERS)]
        for name in names:
            least = m2st.METHODS[name].min_test_rows
            for n, m in SIZES if least <= min(map(min, SIZES)) else ((least, least), (least, 3 * least)):
                counts = [
                    null_rejections(methods[name], HDGM_NULL, n, m, each, stream=f"{kind}, learner {seed}")
                    for seed, methods in enumerate(ready)
                ]
                spread = f"{min(counts) / each:.3f} to {max(counts) / each:.3f}"
                yield name, kind, f"{n}, {m}", spread, *cells(sum(counts), each * LEARNERS)


def unchanged(draw: Draw) -> History:
    """Tasks whose samples are drawn in the same way."""
    return lambda seed: {f"task {index}": draw(ROWS, ROWS, TASKS * seed + index) for index in range(TASKS)}


def changed(draw: Draw) -> History:
    """The same with a stretched first and a shifted second column of Q."""

    def change(pair: TwoSample) -> TwoSample:
        y = pair.y.clone()
        y[:, 0] *= 1.6
        y[:, 1] += 0.5
        return TwoSample(pair.x, y)

    return lambda seed: {name: change(pair) for name, pair in unchanged(draw)(seed).items()}


def shape_histories(draw: Draw) -> dict[str, History]:
    """Histories of each kind for a null whose rows are drawn like this."""

    def swapped(seed: int) -> dict[str, TwoSample]:
        pairs = changed(draw)(seed).items()
        return {name: pair.swapped() if index % 2 else pair for index, (name, pair) in enumerate(pairs)}

    def foreign(seed: int) -> dict[str, TwoSample]:
        task = m2st.make_task("variance_shift", scale=2.0, dimension=draw(2, 2, 0).x.shape[1])
        return dict(task.draw_related_tasks(closeness=0.1, n_tasks=TASKS, rows=ROWS, seed=seed))

    def few(seed: int) -> dict[str, TwoSample]:
        return {"first": draw(4, 5, 2 * seed), "second": draw(6, 4, 2 * seed + 1)}

    kinds = {"related": changed(draw), "unrelated": foreign, "exchanged": swapped, "tiny": few}
    return kinds | {"null": unchanged(draw)}


def shape_levels(runs: int) -> Iterator[Sequence[str]]:
    """Yield the level of our own tests on rows that are not HDGM's, with each kind of history."""
    names = [name for name, method in m2st.METHODS.items() if method.uses_related_tasks and method.origin == "ours"]
    each = max(1, runs // LEARNERS)
    for null, (draw, n, m) in SHAPES.items():
        for kind, history in shape_histories(draw).items():
            ready = [bound_methods(names, history(seed), "recommended", seed) for seed in range(LEARNERS)]
            for name in names:
                counts = [
                    null_rejections(methods[name], draw, n, m, each, stream=f"{null}, {kind}, learner {seed}")
                    for seed, methods in enumerate(ready)
                ]
                yield name, null, kind, f"{n}, {m}", *cells(sum(counts), each * LEARNERS)


def selective_levels(runs: int) -> Iterator[Sequence[str]]:
    """Yield Meta-MKL-SI's level by size, also where it refuses to test."""
    name = "Meta-MKL-SI"
    least, each = m2st.METHODS[name].min_test_rows, max(1, runs // LEARNERS)
    sources = {
        "HDGM, related": (HDGM_NULL, related),
        "HDGM, tiny": (HDGM_NULL, tiny),
        "Student t, 1.5 d.f.": (HEAVY_TAILS, changed(HEAVY_TAILS)),
        "log-normal": (SKEWED, changed(SKEWED)),
        "log-normal, null history": (SKEWED, unchanged(SKEWED)),
        "Poisson counts": (COUNTS, changed(COUNTS)),
    }
    for source, (draw, history) in sources.items():
        ready = [bound_methods([name], history(seed), "recommended", seed)[name] for seed in range(LEARNERS)]
        for n, m in SELECTIVE_SIZES:
            found = sum(
                null_rejections(replace(method, min_test_rows=2), draw, n, m, each, stream=f"{source}, learner {seed}")
                for seed, method in enumerate(ready)
            )
            sizes = f"{n}, {m}" if min(n, m) >= least else f"({n}, {m})"
            yield source, sizes, *cells(found, each * LEARNERS)
