"""Everything that computes runs on a GPU, with the CPU's results; `fake_gpu` fails where CUDA would."""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import m2st_core as m2st
from m2st_core.analysis.effect import effect_size
from m2st_core.analysis.explanation import evidence_of, explain
from m2st_core.learners import embeddings, image_features, spaces
from m2st_core.learners.classifier import fit_labels, fit_probabilities
from m2st_core.sweeps.cells import run_cell, train_learner
from m2st_core.sweeps.spec import LIMIT, SweepSpec
from m2st_core.testing.methods import trained_by
from m2st_core.testing.plan import TestSettings
from m2st_core.testing.run import FinishedTest, run_tests
from m2st_core.testing.two_sample import examine
from m2st_core.types import TwoSample
from tests.fake_gpu import fake_gpu
from tests.quick import QUICK, draw

FEW = {"tasks": 2, "starts": 2, "agt_starts": 2, "features": 12}
FEW |= dict.fromkeys(("steps", "outer_steps", "inner_steps", "epochs", "tasks_per_step"), 1)
SHORT = ("widths", "prices", "channels")
KINDS = ("rows", "images")
TRAININGS = dict.fromkeys(method.training for method in m2st.METHODS.values() if method.learn)
LEARNED = [trained_by(training).name for training in TRAININGS]


def changed(settings, change: Callable[[str, Any], Any]):
    """The same settings with ``change(name, value)`` for every value, however deep."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return replace(
        settings,
        **{n: changed(v, change) if is_dataclass(v) else change(n, v) for n, v in values.items()},
    )


def cut_short(name: str, value: Any) -> Any:
    """A step or two of everything."""
    if name in SHORT:
        return value[:2]
    if name not in FEW or value is None:
        return value
    return tuple(dict.fromkeys(min(v, FEW[name]) for v in value)) if isinstance(value, tuple) else min(value, FEW[name])


@pytest.fixture(scope="module", autouse=True)
def little_work():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embeddings, "BUMP_WIDTHS", (0, 1, 2))
        patch.setattr(embeddings, "WINDOW_WIDTHS", (0, 1, 2))
        patch.setattr(spaces, "FOLDS", 2)
        patch.setattr(image_features, "FEWEST_STEPS", 1)
        patch.setattr("m2st_core.learners.relatedness.SAME_TASK_PAIRS", 2)
        for name, method in list(m2st.METHODS.items()):
            patch.setitem(m2st.METHODS, name, replace(method, preset=changed(method.preset, cut_short)))
        yield


def pair(kind: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return draw(kind, rows, 0.0, seed), draw(kind, rows + 1, 1.0, seed + 1)


def related_tasks(kind: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {f"task {index}": pair(kind, 14 + index % 2, 100 + 2 * index) for index in range(5 if kind == "rows" else 3)}


def target(method: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    spec = m2st.METHODS[method]
    return pair(kind, (2 if spec.needs_split else 1) * max(8, spec.min_test_rows), 7)


def on(device: str, work: Callable):
    """The work on a device; on the GPU it is the fake one."""
    if device == "cpu":
        return work()
    with fake_gpu():
        return work()


def trained(method: str, kind: str, device: str):
    """A learner; methods that learn in the same way share it."""
    return replace(_trained(trained_by(m2st.METHODS[method].training).name, kind, device), method=method)


@cache
def _trained(method: str, kind: str, device: str):
    return on(device, lambda: m2st.meta_train(method, related_tasks(kind), device=device))


@cache
def examined(method: str, kind: str, device: str) -> FinishedTest:
    spec = m2st.METHODS[method]
    x, y = target(method, kind)
    settings = {"n_permutations": 19, "device": device}
    if spec.uses_related_tasks:
        learner = trained(method, kind, device)
        return on(device, lambda: learner.examine(x, y, TestSettings(**settings)))
    return on(device, lambda: examine(x, y, method, TestSettings(**settings)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", m2st.METHODS)
def test_every_method_has_the_p_value_of_the_cpu(method, kind):
    expected, found = (examined(method, kind, device).result for device in ("cpu", "cuda"))
    assert found.device == "cuda"
    assert replace(found, device="cpu") == expected


@pytest.mark.parametrize("method", QUICK)
def test_every_answer_is_explained_as_on_the_cpu(method):
    def explained(device):
        found = examined(method, "rows", device)

        def look():
            seen = evidence_of(found)
            return effect_size(found.result, seen), explain(seen)

        return on(device, look)

    (said, shown), (said_there, shown_there) = explained("cpu"), explained("cuda")
    assert said_there == said
    np.testing.assert_allclose(shown_there.importance.loss, shown.importance.loss, rtol=1e-12)
    np.testing.assert_allclose(shown_there.witness, shown.witness, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("method", QUICK)
def test_many_tests_at_once_are_those_of_the_cpu(method):
    """Equal sizes: in some of the runs x and y are exchanged, in others not."""
    rows = 2 * max(8, m2st.METHODS[method].min_test_rows)
    x, y = (torch.from_numpy(draw("rows", 3 * rows, 0.0, seed).reshape(3, rows, 2)) for seed in (1, 2))

    def run(device):
        spec = m2st.METHODS[method]
        if spec.uses_related_tasks:
            spec = trained(method, "rows", device).bound(torch.device(device))
        return run_tests(TwoSample(x, y), spec, seeds=range(3), n_permutations=19, device=device)

    expected, found = (on(device, partial(run, device)) for device in ("cpu", "cuda"))
    assert [replace(result, device="cpu") for result in found] == expected


@pytest.mark.parametrize(("method", "rows", "settings"), [
    ("MMD-D · tuned", 24, {"splits": 3}),
    ("MMD-M", 24, {"blocks": ([*"ab"] * 12, [*"ab"] * 12)}),
    ("MMD-D · tuned", 24, {"blocks": ([*"ab"] * 12, [*"ab"] * 12)}),
    ("MMD-FUSE", 4, {}),  # so few rows that all labellings are counted
    ("MMD-M", 4, {"blocks": ([*"aabb"], [*"aabb"]), "alpha": 0.2}),
])  # fmt: skip
def test_splits_blocks_and_few_rows(method, rows, settings):
    x, y = (draw("rows", rows, shift, seed) for seed, shift in enumerate((0.0, 1.0)))

    def run(device):
        return m2st.two_sample_test(x, y, method, n_permutations=39, device=device, **settings)

    expected, found = (on(device, partial(run, device)) for device in ("cpu", "cuda"))
    assert replace(found, device="cpu") == expected


def test_rows_may_be_on_the_gpu_already():
    x, y = pair("rows", 16, 7)
    expected = m2st.two_sample_test(
        x, y, "Meta-FUSE", related_tasks=related_tasks("rows"), n_permutations=19, device="cpu"
    )
    with fake_gpu():
        moved = [
            [torch.from_numpy(part).to("cuda") for part in rows] for rows in ((x, y), *related_tasks("rows").values())
        ]
        found = m2st.two_sample_test(*moved[0], "Meta-FUSE", related_tasks=moved[1:], n_permutations=19)
    assert found.device == "cuda" and found.p_value == expected.p_value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", LEARNED)
def test_a_learner_of_the_gpu_is_kept_and_used_anywhere(method, kind, tmp_path):
    learner, plain = (trained(method, kind, device) for device in ("cuda", "cpu"))
    on("cuda", lambda: learner.save(tmp_path))
    again = m2st.load_learner(tmp_path)
    assert again.choices == plain.choices
    torch.testing.assert_close(again.knowledge.state_dict(), plain.knowledge.state_dict(), rtol=0, atol=0)
    expected = examined(method, kind, "cpu").result
    assert again.test(*target(method, kind), n_permutations=19, device="cpu") == expected
    if method in QUICK:
        found = on("cuda", lambda: again.test(*target(method, kind), n_permutations=19))
        assert found.device == "cuda" and replace(found, device="cpu") == expected


@pytest.mark.parametrize("kind", KINDS)
def test_gamma_is_that_of_the_cpu(kind):
    def measured(device):
        return m2st.relatedness(pair(kind, 16, 7), related_tasks(kind), restarts=1, max_tasks=2, steps=2, device=device)

    expected, found = (on(device, partial(measured, device)) for device in ("cpu", "cuda"))
    for part in ("on_training_rows", "on_test_rows", "same_task"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))


def test_the_history_is_checked_as_on_the_cpu():
    x, y = pair("rows", 20, 7)

    def checked(device):
        settings = {"pooled": np.concatenate([x, y]), "most_left_out": 1, "repeats": 2, "device": device}
        return m2st.check_related_tasks(related_tasks("rows"), (10, 10), **settings)

    expected, found = (on(device, partial(checked, device)) for device in ("cpu", "cuda"))
    pd.testing.assert_frame_equal(found.table, expected.table)
    assert found.unlike == expected.unlike


SMALL = {"n_tasks": (3,), "rows_per_task": 14, "m_tr": (6,), "repeats": 1, "tests": 2, "n_permutations": 19}
LEARNING = [name for name in LEARNED if name in QUICK]
SPECS = {
    "rows": SweepSpec(methods=(LIMIT, "MMD-D · tuned", *LEARNING[-2:]), m_te=(8,), **SMALL),
    "rows, paper": SweepSpec(methods=("Meta-KL", "AGT-MKL", "MMD-D w/ AC"), m_te=(8,), **SMALL),
    "images": SweepSpec(task="digits", methods=("MMD-D · tuned", LEARNING[-1]), m_te=(8,), **SMALL),
}


@pytest.mark.parametrize("kind", SPECS)
def test_cells_of_sweeps_are_those_of_the_cpu(kind):
    learners = {}

    def measured(device, cell):
        learner = cell.learner
        if learner is not None and (learner.key, device) not in learners:
            learners[learner.key, device] = train_learner(learner, device)
        return run_cell(cell, None if learner is None else learners[learner.key, device], device)

    for cell in SPECS[kind].cells():
        expected, found = (on(device, partial(measured, device, cell)) for device in ("cpu", "cuda"))
        assert replace(found, seconds=expected.seconds) == expected, cell.method


def copies(monkeypatch, method: str, names: Sequence[str], count: int, work: Callable[[], Any]) -> int:
    """How often host and device exchange something in this work, with this many of such steps."""

    def change(name, value):
        return count if name in names and isinstance(value, int) else value

    with monkeypatch.context() as patch, fake_gpu() as gpu:
        line = m2st.METHODS[method]
        patch.setitem(m2st.METHODS, method, replace(line, preset=changed(line.preset, change)))
        return gpu.count(work)


@pytest.mark.parametrize(
    ("method", "kind"),
    [("Meta-KL", "rows"), ("Meta-KL · code", "rows"), ("Meta-KL · tuned", "rows"), ("Meta-KL", "images")],
)
def test_no_inner_step_moves_anything(method, kind, monkeypatch):
    work = partial(m2st.meta_train, method, related_tasks(kind))
    few, more = (copies(monkeypatch, method, ["inner_steps"], count, work) for count in (1, 2))
    assert few == more > 0


@pytest.mark.parametrize("method", [name for name, spec in QUICK.items() if spec.fit and spec.needs_split])
def test_no_step_on_all_training_rows_moves_anything_but_an_epoch_its_order(method, monkeypatch):
    x, y = (draw("rows", 140, shift, seed) for seed, shift in enumerate((0.0, 1.0)))  # two batches
    work = partial(m2st.two_sample_test, x, y, method, n_permutations=19)
    few, more = (copies(monkeypatch, method, ["steps", "epochs"], count, work) for count in (1, 3))
    assert few > 0 and more - few == (2 if m2st.METHODS[method].fit in (fit_labels, fit_probabilities) else 0)
