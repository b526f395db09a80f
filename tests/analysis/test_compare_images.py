"""Two samples of images, from files to the answer in words and pictures."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from m2st_core.analysis.compare_images import compare_images
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
    found = compare_images(x, y, features=BY, names=("dark <b>", "bright"), n_permutations=199)
    assert found.rejected and "“bright” differ from those of “dark <b>”" in found.verdict
    light = [images[order[:8], :8].mean() for images, order in zip(found.samples, found.typical, strict=True)]
    assert light[0] < 80 and light[1] > 130
    report = found.html()
    assert report.count("data:image/png;base64,") == 4 and "<b>”" not in report and "dark &lt;b&gt;" in report


def test_equal_images_are_not_said_to_be_equal():
    found = compare_images(sample(30, 0.5, 3), sample(30, 0.5, 4), features=BY, n_permutations=199)
    assert not found.rejected and "No evidence" in found.verdict and "does not show" in found.not_meant


def test_related_tasks_are_learned_from_without_images_that_are_tested():
    related = {f"task {seed}": (sample(20, 0.2, seed), sample(20, 0.8, seed + 50)) for seed in range(10, 14)}
    x, y = sample(25, 0.2, 1), sample(25, 0.8, 2)
    related["task 10"] = (np.concatenate([x[:5], related["task 10"][0]]), related["task 10"][1])
    found = compare_images(x, y, related_tasks=related, features=BY, n_permutations=99)
    assert found.result.method == DEFAULT_TAUGHT_TEST and "taught by 4 related tasks" in found.basis
    assert any("5" in note and "related" in note for note in found.notes)
    alone = compare_images(x, y, related_tasks=related, features=BY, n_permutations=99, method=BASELINE)
    assert found.baseline.p_value == alone.p_value == compare_images(x, y, features=BY, n_permutations=99).p_value
    assert alone.baseline is None and "related tasks" not in alone.basis


@pytest.mark.parametrize("shown", [0.001, 0.9])
def test_the_declared_test_decides_and_the_other_is_shown(shown):
    """As on tables: whatever the test without related tasks finds, the answer and its p-value stay."""
    related = {f"task {seed}": (sample(20, 0.2, seed), sample(20, 0.8, seed + 50)) for seed in range(10, 14)}
    x, y = sample(25, 0.2, 1), sample(25, 0.8, 2)
    found = compare_images(x, y, related_tasks=related, features=BY, n_permutations=99)
    beside = replace(found.baseline, p_value=shown, rejected=shown <= 0.05)
    other = replace(found, baseline=beside)
    assert other.p_value == found.result.p_value and other.rejected == found.result.rejected
    assert other.verdict == found.verdict and found.result.alpha == 0.05
    assert "it alone decides" in other.basis and f"{beside.label} finds" in other.basis
    assert ("finds evidence" in other.basis) == beside.rejected
    assert other.html().count("permutations; seed") == 2


def test_features_and_images_do_not_mix():
    with pytest.raises(ValueError, match="same form"):
        compare_images(sample(10, 0.5, 0), np.zeros((10, 3)), features=BY)
    rows = np.random.default_rng(0).normal(size=(2, 20, 3))
    found = compare_images(rows[0], rows[1] + 3, features=BY, n_permutations=99)
    assert found.rejected and not found.pictures()
    assert "by features that were computed elsewhere" in found.basis and "blocks" not in found.basis


def test_own_features_need_no_package(monkeypatch):
    monkeypatch.setattr(efficientnet, "PACKAGE", "not_installed")
    rows = np.random.default_rng(0).normal(size=(2, 20, 3))
    assert compare_images(rows[0], rows[1] + 3, n_permutations=99).rejected
    with pytest.raises(ValueError, match="requirements-images.txt"):
        compare_images(sample(10, 0.5, 0), sample(10, 0.5, 1))


def test_images_in_both_samples_are_named():
    x, y = sample(20, 0.5, 1), sample(20, 0.5, 2)
    found = compare_images(x, np.concatenate([x[:3], y]), features=BY, n_permutations=99)
    assert any(note.startswith("3 images are in both samples.") for note in found.notes)
    assert not any("both samples" in note for note in compare_images(x, y, features=BY, n_permutations=99).notes)


def test_samples_are_called_as_their_folders(tmp_path):
    for seed, (name, bright) in enumerate([("march", 0.0), ("april", 1.0)]):
        (tmp_path / name).mkdir()
        for place, image in enumerate(sample(12, bright, seed)):
            Image.fromarray(image).save(tmp_path / name / f"{place}.png")
    found = compare_images(tmp_path / "march", str(tmp_path / "april"), features=BY, n_permutations=99)
    files = sorted(f"{place}.png" for place in range(12))
    assert f"<td>{', '.join(files[place] for place in found.typical[1])}</td>" in found.html()
    assert found.names == ("march", "april") and "“april” differ from those of “march”" in found.verdict


def test_pixels_need_no_network():
    found = compare_images(sample(30, 0.0, 1), sample(30, 1.0, 2), features="pixels", n_permutations=99)
    assert found.rejected and "pixels, 32×32" in found.basis


@pytest.mark.skipif(bool(missing_weights()), reason="needs requirements-images.txt")
def test_pretrained_features_see_what_pixels_show():
    found = compare_images(sample(20, 0.0, 1), sample(20, 1.0, 2), side=32, keep=False, n_permutations=99)
    assert found.rejected and "efficientnet-lite0 at 32 pixels" in found.basis
