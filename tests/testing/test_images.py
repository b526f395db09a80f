"""Tests on images: their formats, exactness, and learners that are kept."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.permutation.labellings import random_memberships
from m2st_core.presets import PRESETS, ImageTrainingSettings
from m2st_core.rng import Streams
from m2st_core.testing.run import learn_once, run_tests
from m2st_core.types import TwoSample
from tests.quick import digits_by_class, few_steps

CPU = torch.device("cpu")
SHAPE = (1, 8, 8)
DEEP = ["MMD-D · tuned", "C2ST-S · tuned", "C2ST-L · tuned"]


def digits(digit, count, start=0):
    """Images (n, 8, 8) as bytes."""
    return np.round(digits_by_class()[digit][start : start + count] * 255).astype(np.uint8).reshape(-1, 8, 8)


def related_tasks(count=20):
    return {f"{a} or {b}": (digits(a, count), digits(b, count)) for a in range(4) for b in range(a + 1, 4)}


@pytest.fixture(scope="module")
def learners():
    """Learners that learn in the same way share it."""
    trained = {
        name: m2st.meta_train(name, related_tasks(), seed=3)
        for name in ("Feature-MKL", "Meta-WiTS", "MMD-D w/ AC · tuned")
    }
    return trained | {"Meta-FUSE": replace(trained["Meta-WiTS"], method="Meta-FUSE")}


@pytest.fixture(scope="module")
def learner(learners):
    return learners["Feature-MKL"]


@pytest.fixture(scope="module")
def target():
    return digits(6, 40), digits(8, 40)


def quick(preset):
    """The preset, with its learning cut short, on images too."""
    preset = few_steps(preset, outer_steps=1)
    features = replace(preset.images.features, training=ImageTrainingSettings(epochs=1))
    return replace(preset, images=replace(preset.images, features=features))


@pytest.mark.parametrize("name", [name for name, method in m2st.METHODS.items() if method.preset.name != "released"])
def test_every_method_takes_images(name, target, monkeypatch, tmp_path):
    """With learning cut short; what was learned from meta-tasks can be kept."""
    method = m2st.METHODS[name]
    monkeypatch.setitem(m2st.METHODS, name, replace(method, preset=quick(method.preset)))
    target = (digits(6, 60), digits(8, 60)) if method.algorithm == "Meta-MKL-SI" else target
    if method.uses_related_tasks:
        trained = m2st.meta_train(name, related_tasks())
        trained.save(tmp_path)
        result = trained.test(*target, n_permutations=19)
        assert m2st.load_learner(tmp_path).test(*target, n_permutations=19) == result
    else:
        result = m2st.two_sample_test(*target, name, n_permutations=19)
    assert np.isfinite(result.statistic) and np.ptp(result.null) > 0  # it is not blind to these images


@pytest.mark.parametrize("method", ["MMD-M", "C2ST-L · tuned"])
def test_all_formats_of_images_give_the_same_result(method, target):
    x, y = target
    expected = m2st.two_sample_test(x, y, method, n_permutations=99)
    for change in (
        lambda images: images[..., None],
        lambda images: images[:, None] / 255.0,
        lambda images: torch.from_numpy(images),
        lambda images: torch.from_numpy(images[..., None] / 255.0),
    ):
        assert m2st.two_sample_test(change(x), change(y), method, n_permutations=99) == expected


def test_flattened_rows_are_images_for_a_learner_of_images(learner, target):
    x, y = target
    flat = [images.reshape(len(images), -1) / 255.0 for images in target]
    assert learner.test(*flat, n_permutations=99) == learner.test(x, y, n_permutations=99)


def test_a_gaussian_test_of_images_is_that_of_their_rows(target):
    """Up to float32, in which images are handled."""
    flat = [images.reshape(len(images), -1) / 255.0 for images in target]
    images, rows = m2st.two_sample_test(*target, "MMD-M"), m2st.two_sample_test(*flat, "MMD-M")
    assert images.statistic == pytest.approx(rows.statistic, rel=1e-4)
    assert images.p_value == pytest.approx(rows.p_value, abs=0.002)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (np.zeros((4, 5, 5, 5)), np.zeros((4, 5, 5, 5)), "without an axis of 1, 3 or 4 channels"),
        (np.zeros((4, 3, 5, 5)), np.zeros((4, 3, 6, 6)), r"x has images of \(3, 5, 5\)"),
        (np.zeros((4, 3, 5, 5)), np.zeros((4, 75)), "y holds no images"),
    ],
)
def test_images_that_do_not_fit_are_refused(x, y, words):
    with pytest.raises(ValueError, match=words):
        m2st.two_sample_test(x, y)


def test_meta_tasks_and_targets_of_other_shapes_are_refused(learner):
    with pytest.raises(ValueError, match="Give all the same shape"):
        m2st.meta_train("Feature-MKL", [(digits(0, 20), digits(1, 20)), (np.ones((20, 64)), np.eye(64)[:20])])
    wide = [images.reshape(-1, 4, 16) for images in (digits(0, 20), digits(1, 20))]
    with pytest.raises(ValueError, match=r"images of \(1, 8, 8\), x and y have \(1, 4, 16\)"):
        learner.test(*wide)


@pytest.mark.parametrize("name", [*DEEP, "Feature-MKL"])
def test_relabelling_images_consistently_changes_nothing(name, learner, target):
    """Statistics of all labellings stay the same when the pooled images change places, labels with them."""
    method = learner.bound(CPU) if name == "Feature-MKL" else m2st.METHODS[name]
    x, y = (torch.from_numpy(images.reshape(-1, 64) / 255.0) for images in target)
    fixed = learn_once(method, TwoSample(x[:20], y[:20], SHAPE), seed=0)
    fitted = fixed.fit()
    pooled = torch.cat([x[20:], y[20:]])[None].float()
    members = random_memberships(20, 20, 50, [np.random.default_rng(0)])
    order = torch.randperm(40, generator=torch.Generator().manual_seed(2))
    before, rounding, _ = fitted.statistics(pooled, members, 20)
    after, *_ = fitted.statistics(pooled[:, order], members[..., order], 20)
    torch.testing.assert_close(after, before, rtol=1e-3, atol=float(rounding.max()) + 1e-6)


def test_it_does_not_matter_which_sample_is_called_x(learner, target):
    x, y = target
    for test in (partial(m2st.two_sample_test, method="C2ST-L · tuned"), learner.test):
        assert test(x, y, n_permutations=99).p_value == test(y, x, n_permutations=99).p_value


@pytest.mark.parametrize("name", ["Feature-MKL", "Meta-WiTS", "Meta-FUSE", "MMD-D w/ AC · tuned"])
def test_a_saved_learner_of_images_gives_the_same_p_value_to_the_bit(name, learners, target, tmp_path):
    trained = learners[name]
    trained.save(tmp_path)
    again = m2st.load_learner(tmp_path)
    assert again.shape == SHAPE
    assert again.test(*target, n_permutations=99) == trained.test(*target, n_permutations=99)


def test_target_images_that_are_meta_images_are_refused(learner, target):
    learner.test(*target, n_permutations=99)
    with pytest.raises(ValueError, match="3 rows of x and y, or nearly equal ones, are among"):
        learner.test(np.concatenate([target[0], digits(0, 3)]), target[1], n_permutations=99)


@pytest.mark.parametrize("name", ["Feature-MKL", "Meta-FUSE", "MMD-D · tuned", "C2ST-L · tuned"])
def test_the_level_holds_on_images(name, learners):
    """400 null targets of 20 + 20 images of digits that no meta-task shows; 99.9 % of exact tests reject 5 to 36."""
    method = learners[name].bound(CPU) if name in learners else m2st.METHODS[name]
    pool = torch.from_numpy(np.concatenate(digits_by_class()[5:]))
    generator = Streams(4).numpy("null digits")
    train = pool[generator.choice(len(pool), 40, replace=False)]
    fixed = learn_once(method, TwoSample(train[:20], train[20:], SHAPE), seed=0)
    chosen = pool[np.stack([generator.choice(len(pool), 40, replace=False) for _ in range(400)])]
    sample = TwoSample(chosen[:, :20], chosen[:, 20:], SHAPE)
    rejections = sum(result.rejected for result in run_tests(sample, fixed, seeds=range(400), n_permutations=99))
    assert 5 <= rejections <= 36


def test_every_preset_has_a_network_for_images():
    for preset in PRESETS.values():
        adapted = preset.on(SHAPE)
        assert adapted.network.convolutions.shape == SHAPE
        assert preset.on(None) is preset
        assert replace(adapted, network=preset.network) != preset
