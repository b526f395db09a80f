"""The contract that every registered method's learner passes."""

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

import m2st_core as m2st
from m2st_core.data.arrays import as_related_tasks
from m2st_core.data.related import stack_related_tasks
from m2st_core.presets import TUNED
from m2st_core.rng import Streams
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample
from tests.quick import QUICK, few_steps

PRESET = few_steps(TUNED)
PRESET = replace(
    PRESET,
    mmd_o=replace(PRESET.mmd_o, steps=3),
    classifier=replace(PRESET.classifier, epochs=3),
    embedding=replace(PRESET.embedding, steps=3),
)
METHODS = {name: replace(method, preset=PRESET) for name, method in QUICK.items()}
LEARNERS = {method.learn: name for name, method in METHODS.items() if method.learn is not None}
RELATED = list(m2st.hdgm_related_tasks(n_tasks=6, rows=16, seed=1).values())
NAMES = tuple("abcdef")
ONE_REPEAT = ("MMD-D w/ AC · tuned", "Feature-MKL")  # these learn from one repeat at a time


def numbers_in(learned):
    """Every number of what was learned, as a flat list of tensors."""
    if isinstance(learned, nn.Module):
        return list(learned.state_dict().values())
    if is_dataclass(learned):
        return [number for field in fields(learned) for number in numbers_in(getattr(learned, field.name))]
    if isinstance(learned, dict | list | tuple):
        values = learned.values() if isinstance(learned, dict) else learned
        return [number for value in values for number in numbers_in(value)]
    return [torch.as_tensor(learned)] if isinstance(learned, torch.Tensor | np.ndarray | float) else []


def same(first, second):
    return len(first) == len(second) > 0 and all(map(torch.equal, first, second))


def learn(name, seed=2, related=RELATED):
    """What a method's ``learn`` makes of one repeat."""
    return METHODS[name].learn(as_related_tasks(related), PRESET, [Streams(seed)], None)


@pytest.fixture(scope="module")
def knowledge():
    learned = {step: learn(name) for step, name in LEARNERS.items()}
    return lambda method: learned[method.learn]


@pytest.fixture(params=METHODS)
def method(request, knowledge):
    """The method, with related tasks learned from where it uses them: ``fit`` learns from target rows."""
    spec = METHODS[request.param]
    if spec.learn is None:
        return spec
    return replace(spec, fit=lambda *arguments: spec.adapt(knowledge(spec), *arguments))


def target(method, n=12, m=12, seed=0, runs=1):
    least = 0 if method.by_permutation else method.min_test_rows * (1 + method.needs_split)
    pairs = [m2st.make_task("hdgm").sample(max(n, least), max(m, least), seed=seed + run) for run in range(runs)]
    return TwoSample(torch.stack([pair.x for pair in pairs]), torch.stack([pair.y for pair in pairs]))


def run(sample, method, seeds=(5,)):
    return run_tests(sample, method, seeds=seeds, n_permutations=19, alpha=0.05, device="cpu")


def recorded(method, calls):
    """The method, noting the rows that its fit is given and what it learns from them."""

    def fit(rows, *rest):
        calls.append((rows, method.fit(rows, *rest)))
        return calls[-1][1]

    return replace(method, fit=fit)


@pytest.mark.parametrize("name", LEARNERS.values())
def test_related_tasks_teach_the_same_with_the_same_seed(name, knowledge):
    torch.manual_seed(99)  # no learner may use the global generator
    first, second = knowledge(METHODS[name]), learn(name)
    assert same(numbers_in(first), numbers_in(second)) and first.choices == second.choices


@pytest.mark.parametrize("name", [name for name in LEARNERS.values() if name not in ONE_REPEAT])
def test_repeats_learn_in_a_batch_as_if_alone(name, knowledge):
    others = list(m2st.hdgm_related_tasks(n_tasks=6, rows=16, seed=9).values())
    both = stack_related_tasks([others, RELATED], NAMES)
    together = METHODS[name].learn(both, PRESET, [Streams(7), Streams(2)], None).state_dict()
    for key, alone in knowledge(METHODS[name]).state_dict().items():
        found = together[key][1]
        if alone.ndim > 1:  # without padding: coordinates are padded in front, raw features at the end
            found = found[..., found.shape[-1] - alone.shape[-1] :]
        if alone.ndim > 2:
            found = found[..., : alone.shape[-2], :]
        torch.testing.assert_close(found.abs(), alone[0].abs(), rtol=1e-3, atol=1e-3)  # signs of ψ are free


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.learn is not None])
def test_a_saved_learner_is_what_was_learned(name, monkeypatch, tmp_path):
    monkeypatch.setitem(m2st.METHODS, name, METHODS[name])
    learner = m2st.meta_train(name, dict(zip(NAMES, RELATED, strict=True)), seed=2, device="cpu")
    learner.save(tmp_path)
    loaded = m2st.load_learner(tmp_path)
    assert same(numbers_in(learner.knowledge), numbers_in(loaded.knowledge)) and learner.choices == loaded.choices
    x, y = (rows[0] for rows in target(METHODS[name], seed=30))
    first, second = (each.test(x, y, n_permutations=19, device="cpu") for each in (learner, loaded))
    assert first == second


def test_same_seed_same_result(method):
    sample, calls = target(method), []
    results = [run(sample, recorded(method, calls)) for _ in range(2)]
    assert results[0] == results[1] and np.array_equal(results[0][0].null, results[1][0].null)
    assert same(*(numbers_in(learned) for _, learned in calls))


@pytest.mark.parametrize("sizes", [(12, 12), (10, 14)])
def test_the_names_of_the_samples_do_not_matter(method, sizes):
    sample = target(method, *sizes)
    there, back = run(sample, method)[0], run(sample.swapped(), method)[0]
    if method.symmetric:
        assert there.p_value == back.p_value and there.statistic == pytest.approx(back.statistic, rel=1e-9)
    else:
        assert there.statistic != back.statistic


def test_runs_in_a_batch_are_single_runs(method):
    sample = target(method, runs=3)
    for index, together in enumerate(run(sample, method, seeds=(5, 6, 7))):
        (alone,) = run(TwoSample(sample.x[index, None], sample.y[index, None]), method, seeds=(5 + index,))
        assert together.p_value == pytest.approx(alone.p_value, rel=1e-9)
        assert together.statistic == pytest.approx(alone.statistic, rel=1e-5, abs=1e-7)


def test_no_test_row_influences_what_is_learned(method):
    """Test rows are moved far enough to exchange the samples' order; methods without a split see no labels."""
    sample, calls = target(method), []
    run(sample, recorded(method, calls))
    rows, learned = calls[0]
    if method.needs_split:
        taught = rows.pooled[0]
        moved = []
        for side, shift in zip(sample, (50.0, -50.0), strict=True):
            tested = ~(side[0][:, None] == taught).all(dim=-1).any(dim=-1)
            assert 0 < tested.sum() < len(tested)
            moved.append(side + shift * tested[None, :, None])
        run(TwoSample(*moved), recorded(method, calls))
        assert same(numbers_in(learned), numbers_in(calls[1][1]))
    else:
        order = torch.randperm(rows.shape[1], generator=torch.Generator().manual_seed(0))
        relabelled = method.fit(rows[:, order], PRESET, [Streams(5)], None)
        for first, second in zip(numbers_in(learned), numbers_in(relabelled), strict=True):
            torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-7)  # sums of float32 in another order
