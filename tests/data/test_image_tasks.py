"""Targets of images and class pairs: who is drawn, who never meets, what is changed."""

from itertools import combinations

import numpy as np
import pytest

import m2st_core as m2st
from m2st_core.data.images.sources import load_images
from m2st_core.data.images.tasks import CORRUPTIONS, ImageTask, corrupt_some
from m2st_core.rng import Streams
from m2st_core.sweeps.spec import SweepSpec
from tests.data import miniature

IMAGE_TASKS = [name for name, task in m2st.TASKS.items() if issubclass(task, ImageTask)]


def known(rows):
    return {row.tobytes() for row in np.asarray(rows)}


def plain(name, null=False):
    """A target whose images have their own light, so that they are known again."""
    lit = any(parameter.name == "lighting" for parameter in m2st.TASKS[name].parameters)
    return m2st.make_task(name, null=null, **({"lighting": 0.0} if lit else {}))


@pytest.mark.parametrize("name", IMAGE_TASKS)
def test_rows_of_related_tasks_training_rows_and_tested_rows_are_disjoint(name):
    task = plain(name)
    related = [known(part) for pair in task.draw_related_tasks(n_tasks=10, rows=6, seed=0).values() for part in pair]
    target = [known(part) for seed in range(5) for part in task.sample(12, seed=seed)]
    training = [known(part) for seed in range(5) for part in task.to_learn_from().sample(12, seed=seed)]
    groups = [set().union(*group) for group in (related, target, training)]
    assert all(len(group) > 50 for group in groups)
    for one, other in combinations(groups, 2):
        assert not one & other


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("name", IMAGE_TASKS)
def test_an_image_is_dealt_at_most_once(name, null):
    x, y = plain(name, null=null).sample(20, 25, seed=3)
    assert len(known(x) | known(y)) == 45


@pytest.mark.parametrize("name", IMAGE_TASKS)
def test_null_targets_have_images_of_p_on_both_sides(name):
    task = plain(name, null=True)
    images = load_images(task.first)
    pool = known(images.rows(images.for_target(training=False)))
    x, y = task.sample(15, seed=2)
    assert known(x) | known(y) <= pool


def test_null_shifts_show_the_same_mix_uncorrupted():
    task = m2st.make_task("digits-shift", null=True, mix=1.0, noise=1.0, severity=1.0)
    shares = np.mean([np.isin(task.show(20, 60, Streams(seed)).y_classes, ["7", "9"]).mean() for seed in range(40)])
    assert abs(shares - 0.5) < 4.5 * 0.5 / np.sqrt(60 * 40)


def test_two_data_sets_give_one_side_each():
    x, y = m2st.make_task("cifar10-cifar10.1").sample(30, seed=0)
    for rows, name in ((x, "cifar10"), (y, "cifar10.1")):
        assert known(rows) <= known(load_images(name).rows(np.arange(len(load_images(name).labels))))


def test_rows_are_images_channel_by_channel():
    task = m2st.make_task("cifar10-shift")
    sample = task.sample(4, seed=1)
    assert sample.shape == (3, 32, 32) and 0 <= sample.x.min() and sample.x.max() <= 1
    images = load_images("cifar10").images
    first = (sample.images()[0][0].numpy().transpose(1, 2, 0) * 255).round().astype(np.uint8)
    assert any((first == image).all() for image in images)


def test_the_mix_of_classes_is_what_was_asked_for():
    """Q shows 6 and 8 with probability (1+mix)/2, P with ½; 4.5 standard errors."""
    task = m2st.make_task("digits-shift", mix=0.5)
    shown = [task.show(60, 60, Streams(seed)) for seed in range(40)]
    for classes, expected in (("x_classes", 0.5), ("y_classes", 0.75)):
        found = np.mean([np.isin(getattr(one, classes), ["6", "8"]).mean() for one in shown])
        assert abs(found - expected) < 4.5 * 0.5 / np.sqrt(60 * 40)


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_a_share_of_q_is_corrupted_and_p_is_not(kind):
    task = m2st.make_task("digits-shift", mix=0.0, severity=0.8, lighting=0.0, **{kind: 0.5})
    images = load_images("digits")
    pool = known(images.rows(images.for_target(training=False)))
    changed = 0
    for seed in range(20):
        x, y = task.sample(40, seed=seed)
        assert known(x) <= pool
        changed += sum(row.numpy().tobytes() not in pool for row in y)
    assert abs(changed / 800 - 0.5) < 4.5 * 0.5 / np.sqrt(800)


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_corruptions_stay_in_range_grow_with_severity_and_vanish_without(kind):
    images = np.random.default_rng(0).random((6, 3, 16, 16))
    corrupt = CORRUPTIONS[kind]
    changes = [np.abs(corrupt(images, s, np.random.default_rng(1)) - images).mean() for s in (0.0, 0.3, 0.6, 1.0)]
    assert changes[0] == pytest.approx(0, abs=1e-12) and changes == sorted(changes) and changes[1] > 0.01
    found = corrupt(images, 1.0, np.random.default_rng(1))
    assert found.shape == images.shape and found.min() >= 0 and found.max() <= 1


def test_noise_adds_variance_blur_takes_it_and_brightness_lifts_the_mean():
    images = 0.25 + 0.2 * np.random.default_rng(0).random((4, 1, 32, 32))
    noisy, blurred, bright = (c(images, 0.3, np.random.default_rng(1)) for c in CORRUPTIONS.values())
    assert noisy.std() > images.std() > blurred.std()
    assert blurred.mean() == pytest.approx(images.mean(), abs=2e-3)
    assert bright.mean() == pytest.approx(images.mean() + 0.18, abs=1e-6)


def test_corrupting_some_leaves_the_original_alone():
    images = np.random.default_rng(0).random((5, 1, 8, 8))
    before = images.copy()
    corrupt_some(images, {"noise": 1.0}, 1.0, np.random.default_rng(0))
    assert (images == before).all()


def test_class_pairs_are_all_pairs_or_a_seeded_part_of_them():
    cifar10, cifar100, digits = (m2st.make_task(f"{name}-shift") for name in ("cifar10", "cifar100", "digits"))
    assert [len(task.pairs()) for task in (cifar10, cifar100, digits)] == [45, 4950, 15]
    some = cifar100.draw_related_tasks(n_tasks=7, rows=2, seed=1)
    assert len(some) == 7 and list(some) == list(cifar100.draw_related_tasks(n_tasks=7, rows=2, seed=1))
    assert list(some) != list(cifar100.draw_related_tasks(n_tasks=7, rows=2, seed=2))
    assert len(digits.draw_related_tasks(n_tasks=100, rows=10, seed=0)) == 15


def test_a_related_task_has_images_of_its_two_classes():
    images = load_images("digits")
    for name, pair in plain("digits-shift").draw_related_tasks(n_tasks=15, rows=100, seed=4).items():
        assert pair.shape == (1, 8, 8) and pair.sizes == (100, 100)
        for word, rows in zip(name.split(" or "), pair, strict=True):
            assert known(rows) <= known(images.rows(images.for_related_tasks(int(word))))


def test_too_many_images_are_a_sentence():
    with pytest.raises(ValueError, match=r"Digits, \d: 1\d\d images are available here, and \d+ were requested"):
        m2st.make_task("digits-shift").sample(400)
    with pytest.raises(ValueError, match="CIFAR-10: 200 images are available here, and 500 were requested"):
        m2st.make_task("cifar10-cifar100").sample(500)
    with pytest.raises(ValueError, match=r"CIFAR-10, kind \d\d: 30 images are available"):
        m2st.make_task("cifar10-shift").draw_related_tasks(n_tasks=1, rows=31)


def test_results_on_other_images_are_kept_apart(tmp_path, monkeypatch):
    spec = SweepSpec(task="cifar10-shift", methods=("MMD-M", "Meta-KL"), m_te=(4,), repeats=1)
    before = [(cell.key, cell.learner and cell.learner.key) for cell in spec.cells()]
    assert not spec.missing_data
    monkeypatch.setenv("M2ST_DATA", str(tmp_path))
    assert "CIFAR-10 is not in" in spec.missing_data
    miniature.WRITERS["npz"](tmp_path, "cifar10", miniature.make("cifar10", seed=5))
    after = [(cell.key, cell.learner and cell.learner.key) for cell in spec.cells()]
    assert all(one != other for one, other in zip(before, after, strict=True)) and not spec.missing_data
    assert SweepSpec(task="digits-shift").missing_data == ""


def test_light_varies_in_every_sample_alike():
    """Contrast from 0.2 to 1, and pixels stay in range; in P, in Q, under the null and in the related tasks."""
    task = m2st.make_task("digits-shift", lighting=0.8)
    pairs = [task.sample(50, seed=1), m2st.make_task("digits-shift", null=True).sample(50, seed=1)]
    pairs += task.draw_related_tasks(n_tasks=1, rows=50).values()
    for rows in (part for pair in pairs for part in pair):
        contrast = rows.amax(dim=1) - rows.amin(dim=1)
        assert contrast.min() < 0.35 and contrast.max() > 0.8 and 0 <= rows.min() and rows.max() <= 1
