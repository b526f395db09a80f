"""Image tasks by features: the same images in the same samples, described once and by themselves."""

import numpy as np
import pytest
import torch

from m2st_core.data import make_task
from m2st_core.data.images import features, tasks
from m2st_core.data.images.features import feature_side, network_extractor
from m2st_core.data.images.tasks import DescribedTask, always_new
from m2st_core.environment import home_folder
from tests.data.test_image_features import Means

CALM = {"lighting": 0.0}


@pytest.fixture(autouse=True)
def network(tmp_path, monkeypatch):
    """Mean red, green and blue instead of a pretrained network, in a store of its own."""
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    network = Means()

    def means(name, side):
        return network_extractor(network, side=side, name="means", centre=(0, 0, 0), scale=(1, 1, 1))

    monkeypatch.setattr(tasks, "extractor", means)
    features.process_cache.cache_clear()
    return network


def brightness(rows):
    """The mean of every image as bytes, three times: what the stand-in returns."""
    return np.rint(255 * rows).mean(axis=-1, keepdims=True).repeat(3, axis=-1)


@pytest.mark.parametrize("settings", [CALM, {"lighting": 0.8}])
def test_samples_and_related_tasks_are_those_of_the_images(settings):
    images = make_task("digits-shift", **settings)
    task = DescribedTask(images)
    for version, same in ((task, images), (task.to_learn_from(), images.to_learn_from())):
        found, pixels = version.sample(6, 5, seed=3), same.sample(6, 5, seed=3)
        assert found.shape is None and found.x.dtype == torch.float64
        for rows, raw in zip(found, pixels, strict=True):
            assert rows.numpy() == pytest.approx(brightness(raw.numpy()), rel=1e-4)
    assert not np.allclose(task.sample(6, seed=3).x, task.to_learn_from().sample(6, seed=3).x)
    pairs, raw = (one.draw_related_tasks(n_tasks=4, rows=5, seed=1) for one in (task, images))
    assert list(pairs) == list(raw) and len(pairs) == 4
    name = next(iter(pairs))
    assert pairs[name].y.numpy() == pytest.approx(brightness(raw[name].y.numpy()), rel=1e-4)


def test_an_image_is_described_once_and_kept_unless_it_is_changed_at_random(network, tmp_path):
    task = DescribedTask(make_task("digits-shift", **CALM))
    task.sample(20, seed=0)
    seen = network.seen
    task.sample(20, seed=0)
    assert network.seen == seen == 40 and len(list((tmp_path / "features").iterdir())) == 1
    features.process_cache.cache_clear()  # another process
    task.sample(20, seed=0)
    assert network.seen == seen
    relit = DescribedTask(make_task("digits-shift", lighting=0.5))
    relit.sample(20, seed=0)
    relit.sample(20, seed=0)
    assert network.seen == seen + 40 and len(list((tmp_path / "features").iterdir())) == 1


def test_memory_is_bounded(network, monkeypatch):
    monkeypatch.setattr(features, "MOST_REMEMBERED", 30)
    task = DescribedTask(make_task("digits-shift", lighting=0.5))
    for seed in range(3):
        task.sample(12, seed=seed)
    assert 0 < len(features.process_cache(task.by.key, False, home_folder()).recent) <= 30


def test_tiny_images_are_enlarged_less_and_random_changes_are_known():
    assert feature_side((1, 8, 8)) == 64 and feature_side((3, 32, 32)) == 128
    assert always_new({"lighting": 0.2}) and always_new({"noise": 0.1}) and not always_new({"mix": 0.5, "blur": 0.0})
