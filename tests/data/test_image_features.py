"""Features of images: fixed, blind to other images, kept by content, and explained where they are missing."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from m2st_core.data.images import efficientnet, features
from m2st_core.data.images.efficientnet import EfficientNet, missing_weights, read_weights
from m2st_core.data.images.features import extractor, image_features, network_extractor, read_features, weights_digest

installed = pytest.mark.skipif(bool(missing_weights()), reason="needs requirements-images.txt")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    return tmp_path / "features"


class Means(nn.Module):
    """Mean red, green and blue, times a weight; counts the images it sees."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.seen = 0

    def forward(self, images):
        self.seen += len(images)
        return images.mean(dim=(2, 3)) * self.weight


def some_images(count, side=8, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def means(network=None, key="means"):
    """An extractor whose features are kept, as those of a network that is known by its name are."""
    by = network_extractor(network or Means(), side=8, name="means", centre=(0, 0, 0), scale=(1, 1, 1))
    return replace(by, key=key)


def test_features_are_those_of_each_image_by_itself():
    images = some_images(7)
    found = image_features(images, means())
    assert found == pytest.approx(images.mean(axis=(1, 2)), rel=1e-5)
    assert image_features(images[::-1], means(), keep=False) == pytest.approx(found[::-1])


def test_every_image_is_computed_once_and_looked_up_afterwards(home):
    network = Means()
    by, images = means(network), some_images(6)
    first = image_features(np.concatenate([images[:4], images[:2]]), by)
    assert network.seen == 4 and (first[:2] == first[4:]).all()
    both = image_features(images, by)
    assert network.seen == 6 and (both[:4] == first[:4]).all()
    image_features(images, by, keep=False)
    assert network.seen == 12


def test_other_weights_have_another_digest():
    other = Means()
    nn.init.constant_(other.weight, 2.0)
    assert weights_digest(Means()) == weights_digest(Means()) != weights_digest(other)


class Power(nn.Module):
    """Networks without weights, which look the same and are not."""

    def __init__(self, power):
        super().__init__()
        self.power = power

    def forward(self, images):
        return images.abs().pow(self.power).mean(dim=(2, 3))


def test_what_a_user_s_network_or_function_computes_is_never_kept(home):
    images = some_images(3)
    first, second = (image_features(images, network_extractor(Power(power), side=8)) for power in (1, 2))
    assert (first != second).all()
    image_features(images, network_extractor(lambda images: images.mean(dim=(2, 3)), side=8))
    assert not home.exists()


def test_the_store_is_bounded_and_drops_the_oldest(home, monkeypatch):
    monkeypatch.setattr(features, "MOST_FILES", 2)
    network = Means()
    for seed in range(4):
        image_features(some_images(2, seed=seed), means(network))
    assert len(list(home.iterdir())) == 2 and network.seen == 8
    image_features(some_images(2, seed=3), means(network))
    assert network.seen == 8


def test_a_damaged_store_costs_time_only(home):
    images, network = some_images(3), Means()
    before = image_features(images, means(network))
    next(home.iterdir()).write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}")
    assert (image_features(images, means(network)) == before).all() and network.seen == 6


def test_progress_is_reported_and_can_stop():
    steps = []
    image_features(some_images(120), means(), progress=lambda step, total, _: steps.append((step, total)))
    assert steps == [(1, 3), (2, 3), (3, 3)]

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        image_features(some_images(5, seed=1), means(), progress=stop)


@pytest.mark.parametrize(
    ("shape", "dtype", "sentence"),
    [((2, 8, 8, 3), float, "float64"), ((2, 8, 8, 5), np.uint8, "shape"), ((0, 8, 8), np.uint8, "shape")],
)
def test_other_arrays_are_refused(shape, dtype, sentence):
    with pytest.raises(ValueError, match=sentence):
        image_features(np.zeros(shape, dtype), means())


def test_a_network_must_return_one_row_of_numbers_per_image():
    with pytest.raises(ValueError, match="must return a tensor"):
        image_features(some_images(2), network_extractor(lambda images: images, side=8))
    with pytest.raises(ValueError, match="not finite"):
        image_features(some_images(2), network_extractor(lambda images: images.mean(dim=(2, 3)) / 0, side=8))


def test_weights_come_from_a_file_without_running_code(tmp_path):
    other, file = Means(), tmp_path / "weights.pth"
    nn.init.constant_(other.weight, 3.0)
    torch.save(other.state_dict(), file)
    by = network_extractor(Means(), side=8, weights=file, centre=(0, 0, 0), scale=(1, 1, 1))
    images = some_images(2)
    assert image_features(images, by) == pytest.approx(3 * images.mean(axis=(1, 2)), rel=1e-5)
    torch.save(other, file)  # a pickled object, which would run code
    with pytest.raises(ValueError, match="not a file of plain weights"):
        read_weights(file)
    with pytest.raises(ValueError, match="does not exist"):
        read_weights(tmp_path / "absent.pth")


@pytest.mark.parametrize("name", ["resnet", "torchvision:", "timm"])
def test_unknown_features_are_named(name):
    with pytest.raises(ValueError, match="Unknown features"):
        extractor(name)


@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_an_absent_library_is_said(library, monkeypatch):
    monkeypatch.setattr(features, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=f"{library} is not installed"):
        extractor(f"{library}:resnet18")


def test_a_model_of_torchvision_needs_its_weights_here_and_loses_its_classifier(tmp_path, monkeypatch):
    """With a stand-in for torchvision: nothing is downloaded, and the last linear layer is taken off."""

    def get_model(name):
        return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(12, 5))

    weights = SimpleNamespace(DEFAULT=SimpleNamespace(url="https://example.org/tiny.pth"))
    models = SimpleNamespace(get_model=get_model, get_model_weights=lambda name: weights)
    monkeypatch.setattr(features, "_library", lambda name: models)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(ValueError, match="not on this machine"):
        extractor("torchvision:tiny", 16)
    (tmp_path / "checkpoints").mkdir()
    torch.save(get_model("tiny").state_dict(), tmp_path / "checkpoints" / "tiny.pth")
    assert image_features(some_images(2), extractor("torchvision:tiny", 16)).shape == (2, 12)


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(efficientnet, "find_spec", lambda name: None)
    assert "requirements-images.txt" in missing_weights()
    with pytest.raises(ValueError, match=r"requirements-images\.txt"):
        extractor()


def test_other_weights_are_not_taken_for_the_network():
    with pytest.raises(ValueError, match="EfficientNet-Lite0"):
        EfficientNet({"_conv_stem.weight": torch.zeros(32, 3, 3, 3)})


@pytest.mark.parametrize("form", ["npy", "npz", "csv", "named.csv"])
def test_features_computed_elsewhere_are_read(tmp_path, form):
    rows, path = np.arange(6.0).reshape(3, 2), tmp_path / f"rows.{form}"
    if form.endswith("csv"):
        np.savetxt(path, rows, delimiter=",", header="a,b" if "named" in form else "", comments="")
    else:
        (np.save if form == "npy" else np.savez)(path, rows)
    if form == "csv":
        path.write_text(path.read_text().lstrip("\n"))
    assert (read_features(path) == rows).all()


def test_other_files_are_no_features(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="not a table of numbers"):
        read_features(path)


@installed
def test_a_padded_convolution_is_that_of_tensorflow():
    """On four places with stride 2, a kernel of 3 has its extra place at the end."""
    row = torch.arange(1.0, 5.0).expand(1, 1, 4, 4)
    kernel = torch.zeros(1, 1, 3, 3)
    kernel[..., 0, 0] = 1.0
    found = efficientnet._same(row, efficientnet.Convolution(kernel, torch.zeros(1)), stride=2)
    assert found[0, 0].tolist() == [[1.0, 3.0], [1.0, 3.0]]


@installed
def test_pretrained_features_tell_digits_apart():
    """A linear probe learned from 250 digits: 0.85 on 150 others, where chance is 0.1."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import RidgeClassifier

    images, labels = load_digits(return_X_y=True)
    pixels = (images[:400].reshape(-1, 8, 8) * 15).astype(np.uint8)
    rows = image_features(pixels, extractor(side=32))
    assert rows.shape == (400, efficientnet.FEATURES)
    assert RidgeClassifier(alpha=10.0).fit(rows[:250], labels[:250]).score(rows[250:], labels[250:400]) > 0.75
