"""A study of images by pretrained features: what it tests, what it shows, and what it costs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from m2st_core.data import make_task
from m2st_core.data.images.efficientnet import missing_weights
from m2st_core.data.images.features import PIXELS, PRETRAINED
from m2st_core.data.images.tasks import DescribedTask
from m2st_core.studies.images import ImageStudy, study_cost
from m2st_core.sweeps.cells import digest
from m2st_core.testing.methods import METHODS
from m2st_core.testing.run import run_tests
from m2st_core.types import EXACT

SETTINGS = tuple(make_task("digits-shift", lighting=0.0, mix=1.0).settings.items())
STUDY = ImageStudy("digits-shift", SETTINGS, ("MMD-M",), 4, 25, 20, (20, 30), 20, 0, features=PRETRAINED)
installed = pytest.mark.skipif(bool(missing_weights()), reason="needs requirements-images.txt")


def test_features_are_part_of_a_key_and_pixels_are_not():
    """Results of pixels stay where they were stored before there were features."""
    for cell, plain in zip(STUDY.cells(), replace(STUDY, features=PIXELS).cells(), strict=True):
        assert cell.features == PRETRAINED and cell.key != plain.key
        usual = {"data": "", "revision": 0, "rule": EXACT}
        named = {name: value for name, value in vars(plain).items() if usual.get(name) != value}
        assert named.pop("features") == "" and plain.key == digest(named)
        assert cell.learner is None or cell.learner.features == PRETRAINED


def test_features_are_not_computed_without_being_asked_for():
    assert not STUDY.quick and replace(STUDY, features=PIXELS).quick
    pixels, described = (study_cost(replace(STUDY, features=features)) for features in (PIXELS, PRETRAINED))
    assert described.seconds > pixels.seconds and described.cells == pixels.cells
    assert study_cost(replace(STUDY, tests=40)).seconds > described.seconds


@installed
def test_a_study_by_features_tests_features_and_shows_images(tmp_path, monkeypatch):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    result = STUDY.run()
    cell = next(cell for cell in STUDY.cells() if cell.method == "MMD-M" and cell.m_te == 30)
    task, streams = DescribedTask(STUDY.target).to_be_tested(), cell.target_streams
    pairs = [task.sample(30, seed=streams.child("m_te=30").child(f"target {i}").seed) for i in range(20)]
    assert pairs[0].x.shape == (30, 320)
    sample = type(pairs[0])(torch.stack([p.x for p in pairs]), torch.stack([p.y for p in pairs]))
    seeds = [streams.child(f"m_te=30, test {i}").seed for i in range(20)]
    tests = run_tests(sample, METHODS["MMD-M"], seeds=seeds, n_permutations=99, device="cpu")
    rate = result.power.set_index("m_te")["rate"][30]
    assert rate == pytest.approx(np.mean([test.rejected for test in tests]))
    explained = result.explanation
    assert explained.images.shape == (60, 1, 8, 8) and explained.images.max() <= 1
    assert (explained.witness[:30].mean() > explained.witness[30:].mean()) and set(explained.classes["class"]) <= set(
        "6789"
    )
