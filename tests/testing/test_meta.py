"""Learning from meta-tasks: what is learned, what is kept, what is refused."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import m2st_core as m2st
from m2st_core.data.arrays import as_related_tasks
from m2st_core.kernels.base import LinearKernel
from m2st_core.learners import learned_tests, target_kernels
from m2st_core.learners.knowledge import learned_spaces
from m2st_core.learners.learned_tests import fit_witness, prior_weights, shrunk_heads
from m2st_core.permutation.fitted import KernelTest
from m2st_core.presets import TUNED
from m2st_core.testing.run import run_tests
from m2st_core.types import Cancelled, TwoSample
from tests.quick import QUICK, few_steps, use_few_steps

WITH_RELATED = [name for name, method in QUICK.items() if method.adapt]
CPU = torch.device("cpu")


def tasks(count=12, seed=1):
    """Mean shifts of either sign along the first column, with sizes that differ between tasks and samples."""
    return {
        f"shift {index}": m2st.make_task("mean_shift", shift=(-1) ** index * 0.8, dimension=6).sample(
            20 + 3 * (index % 6), 35 - 2 * (index % 6), seed=seed + index
        )
        for index in range(count)
    }


@pytest.fixture(scope="module", autouse=True)
def short_climbs():
    """Deep kernels take a few steps only: how good they get is tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        use_few_steps(patch, outer_steps=10)
        yield


@pytest.fixture(scope="module")
def learner():
    return m2st.meta_train("Meta-WiTS", tasks(), seed=3)


@pytest.fixture(scope="module")
def learners(learner):
    """A learner for every method; those that learn in the same way share it. Meta-KL and AGT-KL do adapt."""
    trained = {m2st.METHODS["Meta-WiTS"].learn: learner}
    for name in WITH_RELATED:
        learn = m2st.METHODS[name].learn
        if learn not in trained:
            trained[learn] = m2st.meta_train(name, tasks(), seed=3)
            if "adaptation_steps" in trained[learn].choices:
                trained[learn].choices["adaptation_steps"] = 3
    return {name: replace(trained[m2st.METHODS[name].learn], method=name) for name in WITH_RELATED}


def target(n=40, m=30, shift=0.8, seed=50):
    return m2st.make_task("mean_shift", shift=shift, dimension=6).sample(n, m, seed=seed)


def test_what_is_learned_is_what_differed(learner):
    """Along the leading feature the meta-tasks differ; it follows the column that was shifted, not the other."""
    assert learner.prior[0] > 1.5 * learner.prior[1] and learner.prior[0] > 0.1
    features = learned_spaces(learner.knowledge)[0]
    grid = torch.randn(1, 500, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    leading = features(grid)[0, :, -1].detach().numpy()
    correlations = [abs(np.corrcoef(leading, grid[0, :, column])[0, 1]) for column in range(6)]
    assert correlations[0] > 0.8 and max(correlations[1:]) < 0.4
    assert learner.task_names == tuple(tasks())


def test_the_kernel_and_the_witness_equal_their_formulas(learner):
    x, y = target(9, 7)
    features = learned_spaces(learner.knowledge)[0]
    psi_x, psi_y = (features(rows[None])[0].detach() for rows in (x, y))
    s = features.prior[0]
    weights = s / (s + 4 / 16)
    assert torch.allclose(prior_weights(features, 16)[0], weights)
    gram = LinearKernel(torch.diag_embed(weights.sqrt()))(psi_x, psi_y)
    assert torch.allclose(gram, (psi_x * weights) @ psi_y.T / weights.sum(), atol=1e-12)
    first = tasks()["shift 0"]
    means = [features(rows[None])[0].detach().mean(0) for rows in first]
    head = shrunk_heads(features, as_related_tasks(tasks()))[0, 0]
    assert torch.allclose(head, s / (s + 1 / len(first.x) + 1 / len(first.y)) * (means[0] - means[1]), atol=1e-10)
    witness = fit_witness(learner.knowledge, TwoSample(x[None], y[None]), TUNED, [])
    evidence, scores = [], []
    for space in learned_spaces(learner.knowledge):
        psi_x, psi_y = (space(rows[None])[0].detach() for rows in (x, y))
        d, variance = psi_x.mean(0) - psi_y.mean(0), (8 * psi_x.var(0) + 6 * psi_y.var(0)) / 14
        variance = variance.clamp(min=torch.finfo(torch.float32).eps)
        r = 4 * space.prior[0] / space.prior[0].norm()
        ratio = d.square() / (variance * (1 / 9 + 1 / 7)) * r / (1 + r) - (1 + r).log()
        evidence.append(space.log_weight[0] + 0.5 * ratio.sum())
        scores.append(psi_x @ (r / (1 + r) * d / variance))
    likeliest = int(torch.stack(evidence).argmax())
    assert torch.allclose(witness.score(x[None])[0], scores[likeliest], atol=1e-10)


@pytest.mark.parametrize("method", WITH_RELATED)
def test_meta_tests_keep_their_level(learners, method):
    """600 null targets of unequal sizes (200 where each trains a network): rejections in the binomial 99 % band.

    Asymptotic tests need more rows, and may reject less often.
    """
    g = np.random.default_rng(22)
    exact, count = m2st.METHODS[method].by_permutation, 200 if method == "MMD-D w/ AC · tuned" else 600
    x, y = (torch.from_numpy(g.standard_t(3, size=(count, n, 6))) for n in ((16, 24) if exact else (160, 200)))
    bound = replace(learners[method].bound(CPU), preset=few_steps(TUNED))
    results = run_tests(TwoSample(x, y), bound, seeds=range(count), n_permutations=99)
    low, high = stats.binom.interval(0.99, count, 0.05)
    assert (low if exact else 0) <= sum(result.rejected for result in results) <= high


@pytest.mark.parametrize("method", [name for name in WITH_RELATED if m2st.METHODS[name].by_permutation])
@pytest.mark.parametrize("cell", [1e10, 1e20, -3.4e38, 1e90])
def test_one_huge_cell_is_no_evidence(learners, method, cell):
    """20 null targets with one cell that stands for a missing value; were it to overflow, p must not be small."""
    g = np.random.default_rng(5)
    x, y = (torch.from_numpy(g.standard_normal((20, n, 6))) for n in (20, 20))
    x[:, 3, 2] = cell
    results = run_tests(TwoSample(x, y), learners[method].bound(CPU), seeds=range(20), n_permutations=99)
    assert sum(result.rejected for result in results) <= 5  # P(more than 5 of 20 at 5 %) is 0.0003


@pytest.mark.parametrize(
    "method", ["Meta-Witness", "Meta-WiTS", "Meta-FUSE", "Feature-MKL", "Meta-KL · tuned", "Meta-MKL · tuned"]
)
def test_a_history_of_few_different_rows_keeps_the_level(method, monkeypatch):
    """One binary column, and no difference: 6 histories × 20 targets; at most 15 of 120 (P(more) is 0.0005 at 5 %)."""
    use_few_steps(monkeypatch)
    g = np.random.default_rng(3)

    def coins(p, *shape):
        return torch.from_numpy((g.random((*shape, 1)) < p).astype(float))

    rejected = 0
    for seed in range(6):
        history = [(coins(0.35, 60), coins(0.6, 60)) for _ in range(12)]
        learner = m2st.meta_train(method, history, seed=seed)
        target = TwoSample(coins(0.5, 20, 30), coins(0.5, 20, 30))
        results = run_tests(target, learner.bound(CPU), seeds=range(20), n_permutations=99)
        assert all(np.isfinite(result.statistic) for result in results)
        rejected += sum(result.rejected for result in results)
    assert rejected <= 15


def test_the_same_rows_in_another_order_have_p_value_1(learners):
    g = np.random.default_rng(4)
    x = torch.from_numpy(g.integers(0, 2, size=(20, 24, 6)).astype(float))
    order = torch.from_numpy(g.permutation(24))
    results = run_tests(TwoSample(x, x[:, order]), learners["Meta-FUSE"].bound(CPU), seeds=range(20), n_permutations=99)
    assert all(result.p_value == 1 for result in results)


@pytest.mark.parametrize("method", [name for name, one in m2st.METHODS.items() if one.learn and one.origin == "ours"])
def test_related_tasks_find_what_they_know(learners, method):
    """A shift of 0.8 in 100 targets of 20 test rows a sample: more power than MMD-M, which knows nothing."""
    pairs = [target(40, 40, seed=seed) for seed in range(100)]
    batch = TwoSample(torch.stack([p.x for p in pairs]), torch.stack([p.y for p in pairs]))
    half = TwoSample(batch.x[:, :20], batch.y[:, :20])
    bound = learners[method].bound(CPU)
    found = run_tests(batch if bound.needs_split else half, bound, seeds=range(100), n_permutations=99)
    known = run_tests(half, m2st.METHODS["MMD-M"], seeds=range(100), n_permutations=99)
    gain = sum(r.rejected for r in found) - sum(r.rejected for r in known)
    assert gain > (0 if method == "Meta-FUSE" else 5)  # 5: two standard errors of a paired comparison; FUSE hedges


@pytest.mark.parametrize("method", WITH_RELATED)
def test_swapping_and_repeating_change_nothing(learners, method):
    mine = learners[method]
    for sizes in ((30, 30), (24, 32)) if m2st.METHODS[method].by_permutation else ((60, 60), (64, 72)):
        x, y = target(*sizes)
        there, back = mine.test(x, y, n_permutations=99), mine.test(y, x, n_permutations=99)
        if m2st.METHODS[method].symmetric:
            assert there.p_value == back.p_value and there.statistic == pytest.approx(back.statistic, rel=1e-6)
    assert mine.test(x, y, n_permutations=99) == there


@pytest.mark.parametrize("sizes", [(12, 12), (10, 16), (16, 10)])
def test_related_rows_without_labels_join_the_sample_called_x(learners, monkeypatch, sizes):
    """MMD-D w/ AC learns from x and the meta-tasks' rows as P, whichever sample is smaller or sorts first."""
    seen = []

    def fit_deep(train, *rest):
        seen.append(train)
        return KernelTest(LinearKernel(torch.eye(6, dtype=torch.float64)))

    monkeypatch.setattr(target_kernels, "fit_deep", fit_deep)
    known = len(learners["MMD-D w/ AC · tuned"].knowledge.rows[0])
    for seed in range(50, 58):
        x, y = target(*sizes, seed=seed)
        learners["MMD-D w/ AC · tuned"].test(x, y, n_permutations=19)
        assert seen[-1].sizes == (sizes[0] // 2 + known, sizes[1] // 2)
        assert all((row == x).all(dim=1).any() for row in seen[-1].x[0, : sizes[0] // 2])


@pytest.mark.parametrize("method", WITH_RELATED)
def test_separated_and_identical_targets(learners, method):
    x, _ = target(60, 60)
    mine = learners[method]
    apart = mine.test(x, x + 100)
    assert apart.p_value == 0.001 if mine.bound(CPU).by_permutation else apart.rejected
    if not mine.bound(CPU).needs_split and mine.bound(CPU).by_permutation:  # a split makes two different samples of one
        assert mine.test(x, x.clone()).p_value == 1


def test_feature_mkl_falls_back_to_what_needs_no_adaptation(learners, monkeypatch):
    """Where held-out rows did not gain by learned weights, single tasks' kernels have none; generic ones may."""
    monkeypatch.setattr(learned_tests, "TASK_THRESHOLD", -5.0)  # otherwise they join only if they stand out
    mine = learners["Feature-MKL"]
    assert mine.choices["beta_is_learned"] in (0.0, 1.0)
    x, y = target(60, 60, shift=1.5)
    before = mine.choices["beta_is_learned"]
    found = {}
    for learned in (0.0, 1.0):
        mine.choices["beta_is_learned"] = learned
        weights = mine.test(x, y, n_permutations=99).weights
        found[learned] = sum(weights[name] for name in mine.task_names if name in weights)
        assert weights["all tasks"] > 0 and sum(weights.values()) == pytest.approx(1)
    mine.choices["beta_is_learned"] = before
    assert found[0.0] == 0 and found[1.0] > 0


def test_some_of_many_tasks_choose_how_weights_are_learned(learners, monkeypatch):
    """All of them, where they are no more than the judges."""
    whole = learners["Feature-MKL"].choices
    scores = [name for name in whole if re.fullmatch(r"held_out_criterion_[\d.]+", name)]
    for judges, same in ((len(tasks()), True), (3, False)):
        monkeypatch.setattr(learned_tests, "JUDGES", judges)
        found = m2st.meta_train("Feature-MKL", tasks(), seed=learners["Feature-MKL"].seed).choices
        assert len(scores) == 3 and ([found[name] for name in scores] == [whole[name] for name in scores]) is same


def test_one_call_trains_and_tests():
    x, y = target()
    few = list(tasks(2).values())
    once = m2st.two_sample_test(x, y, method="Meta-Witness", related_tasks=few, seed=4)
    learner = m2st.meta_train("Meta-Witness", few, seed=4)
    assert once == learner.test(x, y, seed=4)
    assert learner.task_names == ("task 1", "task 2")


def test_a_saved_learner_gives_the_same_bits_in_a_new_process(learner, tmp_path):
    x, y = target()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    learner.save(tmp_path / "learner")
    script = (
        "import sys, json, numpy as np, m2st_core as m2st\n"
        "r = m2st.load_learner('learner').test(np.load('x.npy'), np.load('y.npy'), seed=8)\n"
        "print(json.dumps([r.p_value, r.statistic.hex(), [v.hex() for v in r.null.tolist()]]))"
    )
    environment = {"PYTHONPATH": ":".join(sys.path), "PATH": ""}
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    here = learner.test(x, y, seed=8)
    assert json.loads(run.stdout) == [here.p_value, here.statistic.hex(), [v.hex() for v in here.null.tolist()]]


def test_damaged_learners_are_refused(learner, tmp_path):
    with pytest.raises(ValueError, match="learner.json is missing"):
        m2st.load_learner(tmp_path)

    def damaged(name, change):
        folder = tmp_path / name
        learner.save(folder)
        change(folder)
        with pytest.raises(ValueError) as caught:
            m2st.load_learner(folder)
        return str(caught.value)

    tensors = "learner.safetensors"

    def flip(folder):
        saved = bytearray((folder / tensors).read_bytes())
        saved[-1] ^= 1
        (folder / tensors).write_bytes(saved)

    assert "is damaged" in damaged("flipped", flip)
    assert "is damaged" in damaged("cut", lambda f: (f / tensors).write_bytes((f / tensors).read_bytes()[:100]))
    assert "damaged learner" in damaged("no json", lambda f: (f / "learner.json").write_text("{"))
    assert "missing" in damaged("half", lambda f: (f / tensors).unlink())

    def edit(**changes):
        def change(folder):
            about = json.loads((folder / "learner.json").read_text())
            (folder / "learner.json").write_text(json.dumps(about | changes))

        return change

    for other in (8, 99):
        expected = f"learner format {other}, and this version reads format 10. Train again."
        assert expected in damaged(f"format {other}", edit(format=other))
    assert "Unknown method" in damaged("foreign", edit(method="Meta-X"))
    assert "cannot use" in damaged("other", edit(method="MMD-D · tuned"))


X, Y = np.random.default_rng(0).standard_normal((2, 12, 2))


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ([], "related_tasks is empty"),
        (None, "none are given"),
        (7, "must be a list of"),
        ([X], "Related task 'task 1' is not a pair"),
        ([(X, Y), (X, Y[:1])], "Related task 'task 2': y has 1 row"),
        ({"a": (X, Y), "b": (X[:, :1], Y[:, :1])}, "Related task 'b' has 1 columns and 'a' has 2"),
        ({"a": (X, Y), "b": (np.ones((5, 2)), np.ones((5, 2)))}, "Related task 'b': All rows of x and y are identical"),
        ([(X, Y * np.nan)], "Related task 'task 1': y has nan"),
        ([(X[:, :1], Y[:, :1])], "The related tasks have 1 columns and x and y have 2"),
    ],
)
def test_bad_meta_tasks_are_named(meta, message):
    with pytest.raises(ValueError, match=message):
        m2st.two_sample_test(X, Y, method="Meta-Witness", related_tasks=meta)


def test_methods_and_presets_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="MMD-D · tuned does not learn from related tasks"):
        m2st.two_sample_test(X, Y, method="MMD-D · tuned", related_tasks=[(X, Y)])
    with pytest.raises(ValueError, match="Use two_sample_test"):
        m2st.meta_train("MMD-D · tuned", [(X, Y)])
    with pytest.raises(ValueError, match="Meta-WiTS has no presets"):
        m2st.meta_train("Meta-WiTS", [(X, Y)], preset="paper")


def test_one_task_is_enough_to_learn_from():
    half = len(X) // 2
    assert m2st.meta_train("Meta-Witness", [(X[:half], Y[:half] + 2)]).test(X[half:], Y[half:] + 3).rejected


@pytest.mark.parametrize("change", [lambda rows: rows, lambda rows: rows + 1e-6, lambda rows: 1000 * rows])
def test_a_learner_refuses_a_target_that_has_its_rows(learner, change, tmp_path):
    x, y = target()
    learner.test(x, y)
    x[:5] = tasks()["shift 2"].x[:5]
    learner.save(tmp_path)
    for known in (learner, m2st.load_learner(tmp_path)):
        with pytest.raises(ValueError, match="5 rows of x and y, or nearly equal ones, are among"):
            known.test(change(x), change(y))


def test_a_learner_says_where_it_cannot_recognise_its_rows():
    generator = np.random.default_rng(0)
    pairs = [tuple(generator.integers(1, 4, (20, 2)).astype(float) for _ in range(2)) for _ in range(4)]
    result = m2st.meta_train("Meta-Witness", pairs[1:]).test(*pairs[0], n_permutations=99)
    assert result.exact_if == "no row of the target is in the related tasks" and not result.exact
    assert f"The p-value is exact if {result.exact_if}." in result.notes[-1]


def test_rows_that_are_tested_leave_the_related_tasks():
    x, y = target()
    x[:3] = tasks()["shift 2"].x[:3]
    result = m2st.two_sample_test(x, y, "Meta-WiTS", related_tasks=tasks(), n_permutations=99)
    assert result.notes[-1].startswith("3 rows of the target are also in the related tasks")
    before, after = (
        sum(sum(pair.sizes) for pair in kept.values())
        for kept in (tasks(), m2st.separate((x, y), tasks()).tasks.samples())
    )
    assert after == before - 3


def test_training_can_be_cancelled():
    def stop(step, total, value):
        if step > 0.85 * total:
            raise Cancelled

    for method in ("Feature-MKL", "Meta-MKL · tuned"):
        with pytest.raises(Cancelled):
            m2st.meta_train(method, tasks(3), progress=stop)
    with pytest.raises(Cancelled):
        m2st.meta_train("Meta-KL", tasks(3), progress=lambda *_: (_ for _ in ()).throw(Cancelled()))


def test_a_learner_serves_methods_with_the_same_training_only(learners):
    assert learners["Meta-KL · tuned"].for_method("Meta-MKL · tuned").method == "Meta-MKL · tuned"
    with pytest.raises(ValueError, match="AGT-KL · tuned learns in another way: train anew"):
        learners["Meta-KL · tuned"].for_method("AGT-KL · tuned")
