"""Two samples of images, from files to the answer in words and pictures."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import m2st_core as m2st
from m2st_core.analysis.answer import answer_of
from m2st_core.analysis.images import compare_images
from m2st_core.analysis.pictures import contact_sheets
from m2st_core.data.images import efficientnet
from m2st_core.data.images.efficientnet import missing_weights
from m2st_core.data.images.features import network_extractor
from m2st_core.types import BASELINE, DEFAULT_TAUGHT_TEST

BY = network_extractor(lambda images: torch.nn.functional.avg_pool2d(images, 4).flatten(1), side=16, name="blocks")


def sample(count, bright, seed):
    """Noise, with a bright upper half in a share of the images."""
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 120, (count, 16, 16, 3), dtype=np.uint8)
    images[generator.random(count) < bright, :8] += 100
    return images


def test_different_images_are_found_and_the_typical_ones_shown():
    x, y = sample(40, 0.2, 1), sample(40, 0.8, 2)
    outcome = compare_images(x, y, features=BY, names=("dark <b>", "bright"), n_permutations=199)
    assert outcome.analysis.rejected and "“bright” differs from “dark <b>”" in answer_of(outcome).verdict
    sheets = {sheet.name: sheet.figure[..., :3] for sheet in contact_sheets(outcome)}
    assert list(sheets) == ["first x", "typical x", "first y", "typical y"]
    assert sheets["typical x"].mean() < sheets["first x"].mean() < sheets["first y"].mean() < sheets["typical y"].mean()
    report = m2st.html_report(outcome)
    assert "How many images a new study needs" in report and "40 images of “bright”" in report
    assert report.count("<img alt=") == 4 and "<b>”" not in report and "dark &lt;b&gt;" in report


def test_equal_images_are_not_said_to_be_equal():
    answer = answer_of(compare_images(sample(30, 0.5, 3), sample(30, 0.5, 4), features=BY, n_permutations=199))
    assert "No evidence" in answer.verdict and "30 and 30 images" in answer.verdict
    assert "does not show" in answer.not_meant and not answer.table


def test_related_tasks_are_learned_from_without_images_that_are_tested():
    related = {f"task {seed}": (sample(20, 0.2, seed), sample(20, 0.8, seed + 50)) for seed in range(10, 14)}
    x, y = sample(25, 0.2, 1), sample(25, 0.8, 2)
    related["task 10"] = (np.concatenate([x[:5], related["task 10"][0]]), related["task 10"][1])
    outcome = compare_images(x, y, related_tasks=related, features=BY, n_permutations=99)
    primary = outcome.analysis.primary
    assert primary.method == DEFAULT_TAUGHT_TEST and "taught by 4 related tasks" in answer_of(outcome).basis
    assert outcome.data.separation.shared == 5 and any("5 rows" in note and "related" in note for note in primary.notes)
    alone = compare_images(x, y, related_tasks=related, features=BY, n_permutations=99, method=BASELINE)
    without = compare_images(x, y, features=BY, n_permutations=99)
    assert outcome.baseline.p_value == alone.analysis.primary.p_value == without.analysis.primary.p_value
    assert alone.baseline is None and "related tasks" not in answer_of(alone).basis


@pytest.mark.parametrize("shown", [0.001, 0.9])
def test_the_declared_test_decides_and_the_other_is_shown(shown):
    """As on tables: whatever the test without related tasks finds, the answer and its p-value stay."""
    related = {f"task {seed}": (sample(20, 0.2, seed), sample(20, 0.8, seed + 50)) for seed in range(10, 14)}
    x, y = sample(25, 0.2, 1), sample(25, 0.8, 2)
    outcome = compare_images(x, y, related_tasks=related, features=BY, n_permutations=99)
    beside = replace(outcome.baseline, p_value=shown, rejected=shown <= 0.05)
    answer, other = answer_of(outcome), answer_of(replace(outcome, baseline=beside))
    assert other.verdict == answer.verdict and "decides nothing" in other.basis
    assert other.both[0] == answer.both[0] and f"by {beside.label}" in other.both[1]
    assert other.both[1].startswith("Without: evidence") == beside.rejected


def test_features_and_images_do_not_mix():
    with pytest.raises(ValueError, match="same form"):
        compare_images(sample(10, 0.5, 0), np.zeros((10, 3)), features=BY)
    rows = np.random.default_rng(0).normal(size=(2, 20, 3))
    outcome = compare_images(rows[0], rows[1] + 3, features=BY, n_permutations=99)
    assert outcome.analysis.rejected and not contact_sheets(outcome)
    assert "by features that were computed elsewhere" in answer_of(outcome).basis


def test_own_features_need_no_package(monkeypatch):
    monkeypatch.setattr(efficientnet, "PACKAGE", "not_installed")
    rows = np.random.default_rng(0).normal(size=(2, 20, 3))
    assert compare_images(rows[0], rows[1] + 3, n_permutations=99).analysis.rejected
    with pytest.raises(ValueError, match="requirements-images.txt"):
        compare_images(sample(10, 0.5, 0), sample(10, 0.5, 1))


def test_images_in_both_samples_are_named():
    x, y = sample(20, 0.5, 1), sample(20, 0.5, 2)
    data = m2st.prepare_images(x, np.concatenate([x[:3], y]), features=BY)
    assert any(note.startswith("3 images are in both samples.") for note in data.decisions)
    assert not any("both samples" in note for note in m2st.prepare_images(x, y, features=BY).decisions)


def test_samples_are_called_as_their_folders(tmp_path):
    for seed, (name, bright) in enumerate([("march", 0.0), ("april", 1.0)]):
        (tmp_path / name).mkdir()
        for number, image in enumerate(sample(12, bright, seed)):
            Image.fromarray(image).save(tmp_path / name / f"{number}.png")
    outcome = compare_images(tmp_path / "march", str(tmp_path / "april"), features=BY, n_permutations=99)
    files = contact_sheets(outcome)[3].caption
    assert sorted(files.split(", ")) == sorted(f"{number}.png" for number in range(12))
    assert f">{files}</p>" in m2st.html_report(outcome)
    assert "“april” differs from “march”" in answer_of(outcome).verdict


def test_pixels_need_no_network():
    outcome = compare_images(sample(30, 0.0, 1), sample(30, 1.0, 2), features="pixels", n_permutations=99)
    assert outcome.analysis.rejected and "pixels, 32×32" in answer_of(outcome).basis


@pytest.mark.skipif(bool(missing_weights()), reason="needs requirements-images.txt")
def test_pretrained_features_see_what_pixels_show():
    outcome = compare_images(sample(20, 0.0, 1), sample(20, 1.0, 2), side=32, keep=False, n_permutations=99)
    assert outcome.analysis.rejected and "efficientnet-lite0 at 32 pixels" in answer_of(outcome).basis
