import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.rng import Streams
from m2st_core.tasks import IndependentTask
from tests.quick import digits_by_class

N = 20_000
SIGMA = 4.5  # every moment below is checked to 4.5 standard errors: p < 1e-5 each


def near(values, expected):
    values = np.asarray(values, dtype=float)
    assert abs(values.mean() - expected) < SIGMA * values.std() / np.sqrt(len(values)) + 1e-12


@pytest.mark.parametrize("name", m2st.TASKS)
def test_a_task_draws_what_it_is_asked_for(name):
    task = m2st.make_task(name)
    x, y = task.sample(30, 40, seed=3)
    assert x.dtype == y.dtype == torch.float64
    assert x.shape == (30, y.shape[1]) and y.shape[0] == 40
    again = task.sample(30, 40, seed=3)
    assert torch.equal(x, again.x) and torch.equal(y, again.y)
    assert not torch.equal(x, task.sample(30, 40, seed=4).x)
    assert len(task.description) < 100 and task.title


@pytest.mark.parametrize("name", [name for name, task in m2st.TASKS.items() if issubclass(task, IndependentTask)])
def test_null_tasks_draw_both_samples_from_p(name):
    """Y is what P's own sampler draws from Q's stream; it is not what Q's draws, and it is not x."""
    null, alternative = m2st.make_task(name, null=True), m2st.make_task(name)
    x, y = (part.numpy() for part in null.sample(40, 30, seed=7))
    assert (y == null.draw_p(30, Streams(7).numpy("task Q"))).all()
    assert not (y == alternative.sample(40, 30, seed=7).y.numpy()).all()
    assert (x == alternative.sample(40, 30, seed=7).x.numpy()).all() and not (x[:30] == y).any()


def test_null_digits_are_disjoint_images_of_one_digit():
    x, y = (part.numpy() for part in m2st.make_task("digits", first=4, null=True).sample(80, 90, seed=7))
    known = [image.tobytes() for image in digits_by_class()[4]]
    dealt = [row.tobytes() for row in np.concatenate([x, y])]
    assert set(dealt) <= set(known) and len(set(dealt)) >= min(170, len(set(known)))


def test_hdgm_moments():
    x, y = m2st.make_task("hdgm", delta=0.6, dimension=4).sample(N, seed=1)
    for sample in (x, y):
        assert sample.shape == (N, 4)
        for column in sample.T:
            near(column, 0.25)
            near((column - 0.25) ** 2, 1 + 0.25**2)  # the modes are ½ apart
        near((sample[:, 0] - 0.25) * (sample[:, 1] - 0.25), 0.25**2)  # −Δ and +Δ cancel over the modes
    # A third column tells the modes apart: E[(u₁−¼)(u₂−¼)(u₃−¼)] = E[SΔ·S/4] with S=±1 the mode.
    near((y[:, :3] - 0.25).prod(dim=1), 0.6 * 0.25)
    near((x[:, :3] - 0.25).prod(dim=1), 0.0)


def test_hdgm_stratified_has_equal_modes_in_random_order():
    task = m2st.make_task("hdgm", delta=0.9, stratified=True)
    first_half = [task.sample(50, seed=seed).x[:25].mean().item() for seed in range(200)]
    near(first_half, 0.25)
    totals = np.var([task.sample(50, seed=seed).x.mean().item() for seed in range(400)])
    assert totals < 0.0102 * (1 + 3.5 * np.sqrt(2 / 400))  # 1/100 of noise; i.i.d. modes would add 1/800
    with pytest.raises(ValueError, match="must be even"):
        task.sample(51)


def test_blobs_are_round_in_p_and_tilted_in_q():
    x, y = m2st.make_task("blobs", correlation=0.8).sample(N, seed=2)
    inside = [(sample - sample.round()) / 0.03**0.5 for sample in (x, y)]
    for sample in inside:
        near(sample[:, 0], 0.0)
    assert abs(np.corrcoef(inside[0].T)[0, 1]) < SIGMA / np.sqrt(N)
    assert np.corrcoef(inside[1].T)[0, 1] == pytest.approx(0.8, abs=0.1)  # rows beyond half a cell go next door
    counts = np.unique(x.round().numpy(), axis=0, return_counts=True)[1]
    assert sorted(counts)[-9] > 0.08 * N  # nine blobs, each with about a ninth of the rows


def test_shifts():
    x, y = m2st.make_task("mean_shift", shift=0.7, dimension=3).sample(N, seed=3)
    near(y[:, 0], 0.7)
    near(y[:, 1], 0.0)
    near(x[:, 0], 0.0)
    x, y = m2st.make_task("variance_shift", scale=2.0, dimension=3).sample(N, seed=4)
    near(y[:, 0] ** 2, 4.0)
    near(y[:, 1] ** 2, 1.0)
    near(x[:, 0] ** 2, 1.0)


def test_digits_come_from_their_classes():
    x, y = m2st.make_task("digits", first=2, second=7).sample(50, seed=5)
    classes = digits_by_class()
    assert sum(len(images) for images in classes) == 1797
    for sample, digit in ((x, 2), (y, 7)):
        known = {image.tobytes() for image in classes[digit]}
        assert all(row.tobytes() in known for row in sample.numpy())
    with pytest.raises(ValueError, match="Digits, 2: 177 images are available here, and 300 were requested"):
        m2st.make_task("digits", first=2).sample(300)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: m2st.make_task("hgdm"), "Did you mean 'hdgm'"),
        (lambda: m2st.make_task("hdgm", gamma=1.0), "no parameter 'gamma'"),
        (lambda: m2st.make_task("hdgm", delta=1.5), "delta must be a number from 0.0 to 0.95"),
        (lambda: m2st.make_task("hdgm", delta="0.5"), "delta must be a number"),
        (lambda: m2st.make_task("hdgm", dimension=2.5), "dimension must be a whole number"),
        (lambda: m2st.make_task("hdgm", dimension=1), "from 2 to 1000"),
        (lambda: m2st.make_task("hdgm", stratified=2), "stratified must be True or False"),
        (lambda: m2st.make_task("hdgm").sample(0), "n must be a whole number ≥ 1"),
        (lambda: m2st.make_task("hdgm").sample(5, 2.5), "m must be a whole number ≥ 1"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_log_likelihood_ratio_has_mean_one_on_the_other_side():
    """E_Q[p/q] = 1 and E_P[q/p] = 1: the ratio of two densities, whatever their constants."""
    task = m2st.make_task("hdgm", delta=0.5, dimension=3)
    x, y = (part.numpy() for part in task.sample(N, seed=6))
    near(np.exp(task.log_likelihood_ratio(y)), 1.0)
    near(np.exp(-task.log_likelihood_ratio(x)), 1.0)


def test_digits_that_teach_are_never_tested():
    task = m2st.make_task("digits", first=4, second=9)
    taught, tested = (
        {row.tobytes() for seed in range(4) for side in part.sample(40, seed=seed) for row in side.numpy()}
        for part in (task.to_learn_from(), task.to_be_tested())
    )
    every = {row.tobytes() for side in task.sample(170, seed=1) for row in side.numpy()}
    assert taught and tested and not taught & tested and every - taught - tested


@pytest.mark.parametrize("name", ["digits", "digits-shift"])
def test_no_image_of_a_sweeps_related_tasks_is_tested(name):
    task = m2st.make_task(name)
    related = task.draw_related_tasks(n_tasks=6, rows=20, seed=3)
    taught = {row.tobytes() for pair in related.values() for side in pair for row in side.float().numpy()}
    tested = {
        row.tobytes()
        for seed in range(4)
        for side in task.to_be_tested().sample(40, seed=seed)
        for row in side.float().numpy()
    }
    assert taught and not taught & tested
