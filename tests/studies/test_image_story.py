"""The example that Images opens with was made by this version of the code."""

import json

import numpy as np
import pytest

from m2st_core.studies import image_story
from m2st_core.sweeps.trial import run_cell

STORY = image_story.shipped_story()


def test_the_story_is_of_this_version():
    """If not: python -m m2st_core bench image_story."""
    assert json.loads(STORY.made_by) == json.loads(image_story.code_version())
    power = STORY.result.power
    assert set(power["method"]) == {*image_story.TAUGHT, *image_story.ALONE}
    assert set(power["m_te"]) == set(image_story.STUDY.m_te)
    assert image_story.FILE.stat().st_size < 100_000


def test_its_images_are_those_that_the_study_shows():
    explanation, size = STORY.result.explanation, max(image_story.STUDY.m_te)
    shown = image_story.STUDY.shown()
    assert explanation.n == size
    assert explanation.images == pytest.approx(
        np.concatenate([shown.x, shown.y]).reshape(explanation.images.shape), abs=0.002
    )


def test_a_rejection_rate_is_computed_again():
    """MMD-M of one repeat at 20 images. The others have the same seeds, and the mean over repeats is stored."""
    cells = [cell for cell in image_story.STUDY.spec.cells() if cell.method == "MMD-M" and cell.m_te == 20]
    rates = [run_cell(cell, None, "cpu").rejections / image_story.STUDY.tests for cell in cells]
    power = STORY.result.power.set_index(["method", "m_te"])["rate"]
    assert float(power["MMD-M", 20]) == pytest.approx(np.mean(rates), abs=0.02)


def test_its_finding_is_computed_from_its_numbers():
    power = STORY.result.power
    best = power[(power["m_te"] == 100) & power["method"].isin(image_story.TAUGHT)]["rate"].max()
    assert f"**{100 * best:.0f} %**" in image_story.story_finding(power)


def test_what_is_saved_is_read_again(tmp_path):
    STORY.save(tmp_path / "story.npz")
    again = image_story.shipped_story(tmp_path / "story.npz")
    assert again.result.explanation.weights == STORY.result.explanation.weights
    assert again.result.explanation.kernels() == STORY.result.explanation.kernels()
    assert again.result.power.equals(STORY.result.power)
