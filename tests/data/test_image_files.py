"""Every format gives the same images; what is damaged, hostile or missing gives one sentence."""

import os
import pickle
import struct

import numpy as np
import pytest
from PIL import Image

from m2st_core.data.images import sources
from m2st_core.data.images.pickles import read_pickle
from m2st_core.data.images.sources import MissingData, load_images
from tests.data import miniature


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("M2ST_DATA", str(tmp_path))
    return tmp_path


def in_order(images, labels):
    """Rows sorted by label and pixels: what a data set holds, whatever its order."""
    rows = sorted((int(label), image.tobytes()) for image, label in zip(images, labels, strict=True))
    return rows


@pytest.mark.parametrize("name", miniature.CLASSES)
@pytest.mark.parametrize("form", miniature.WRITERS)
def test_every_reader_gives_the_same_images(root, form, name):
    parts = miniature.make(name, train=5 if name == "cifar10" else 2, test=1)
    miniature.WRITERS[form](root, name, parts)
    found = load_images(name)
    assert found.images.dtype == np.uint8 and found.images.shape[1:] == (32, 32, 3)
    images, labels = (np.concatenate(both) for both in zip(*parts, strict=True))
    assert in_order(found.images, found.labels) == in_order(images, labels)
    if form in miniature.KEEPS_PARTS:
        for (images, labels), test in zip(parts, (False, True), strict=True):
            chosen = found.is_test == test
            assert in_order(found.images[chosen], found.labels[chosen]) == in_order(images, labels)
    if form != "npy":
        assert list(found.classes) == miniature.names_of(name)
    assert "not the official" in found.origin


@pytest.mark.parametrize(("version", "count"), [("v4", 2021), ("v6", 2000)])
def test_cifar_10_1_in_both_versions(root, version, count):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    folder = root / "CIFAR-10.1" / "datasets"  # as the repository has them
    folder.mkdir(parents=True)
    np.save(folder / f"cifar10.1_{version}_data.npy", images)
    np.save(folder / f"cifar10.1_{version}_labels.npy", np.arange(count, dtype=np.int32) % 10)
    found = load_images("cifar10.1")
    assert (found.images == images).all() and found.classes[3] == "cat"
    assert "as many as in the official files" in found.origin


def test_one_part_is_divided_within_each_class(root):
    np.savez(root / "cifar10.npz", x=np.zeros((60, 32, 32, 3), np.uint8), y=np.arange(60) % 10)
    found = load_images("cifar10")
    for label in range(10):
        rows, test = (found.for_related_tasks(label), np.flatnonzero(found.is_test & (found.labels == label)))
        assert len(rows) == len(test) == 3 and not set(rows) & set(test)


def test_checksums_tell_official_files(root, monkeypatch):
    parts = miniature.make("cifar100", 1, 1)
    miniature.WRITERS["python"](root, "cifar100", parts)
    layout = sources.SOURCES["cifar100"].layouts[0]
    for files in (layout.train, layout.test):
        for file in files:
            data = (root / layout.folder / file).read_bytes()
            monkeypatch.setitem(files, file, sources.md5(data))
    assert "by their checksums" in load_images("cifar100").origin


def test_missing_data_say_what_to_download_and_where_to_put_it(root):
    for name, file in (("cifar10", "cifar-10-python"), ("cifar100", "cifar-100-python"), ("cifar10.1", "v4_data")):
        with pytest.raises(MissingData) as caught:
            load_images(name)
        assert file in str(caught.value) and str(root) in str(caught.value) and "M2ST_DATA" in str(caught.value)


def test_the_folder_is_beside_the_results_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("M2ST_DATA", raising=False)
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    assert sources.data_folder() == tmp_path / "data"


class Call:
    """Pickles as a call of anything."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


class State:
    """Pickles as an object with a state."""


def hostile(marker):
    """Batches that do something when an ordinary unpickler reads them, by name."""
    command = f"touch {marker}"
    array = np.zeros(3, np.uint8)
    scripts = {
        "os.system": pickle.dumps({"data": Call(os.system, command)}),
        "eval": pickle.dumps({"data": Call(eval, f"open({str(marker)!r}, 'w')")}),
        "exec, protocol 0": pickle.dumps({"data": Call(exec, f"open({str(marker)!r}, 'w')")}, 0),
        "getattr": pickle.dumps({"data": Call(getattr, "x", "upper")}),
        "numpy.load": pickle.dumps({"data": Call(np.load, str(marker), None, True)}),
        "numpy.fromfile": pickle.dumps({"data": Call(np.fromfile, str(marker))}),
        "an array of objects": pickle.dumps({"data": np.array([Call(os.system, command)], dtype=object)}, 4),
        "a class": pickle.dumps({"data": State()}),
        "a set": pickle.dumps({"data": {1, 2}}),
        "a float": pickle.dumps({"data": 1.5}),
        "a nested list": pickle.dumps({"data": [[1]]}),
        "an array alone": pickle.dumps(array, 4),
        "INST": f"(S'touch {marker}'\nios\nsystem\n.".encode(),
        "OBJ": b"(cos\nsystem\nS'" + command.encode() + b"'\no.",
        "NEWOBJ": b"\x80\x02cos\nsystem\nS'" + command.encode() + b"'\n\x85\x81.",
        "a persistent id": b"Pwhatever\n.",
        "an extension": b"\x80\x02\x82\x01.",
        "builtins by stack": b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
        "a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0bndarray.dump\x93.",
        "ndarray called": b"\x80\x02cnumpy\nndarray\nK\x05\x85R.",
        "a type's state": b"\x80\x02cnumpy\ndtype\n}b.",
    }
    return scripts


@pytest.mark.parametrize("kind", hostile("marker"))
def test_a_hostile_batch_is_refused_and_nothing_is_executed(root, kind):
    marker = root / "executed"
    data = hostile(marker)[kind]
    files = miniature.official_files("cifar10", miniature.make("cifar10", 5, 1)) | {"data_batch_2": data}
    miniature.write_folder(root / "cifar-10-batches-py", files)
    with pytest.raises(ValueError, match="data_batch_2.*(refused|damaged).*Download it again") as caught:
        load_images("cifar10")
    assert "\n" not in str(caught.value) and not marker.exists()


def test_hostile_class_names_are_refused_too(root):
    files = miniature.official_files("cifar10", miniature.make("cifar10", 5, 1))
    miniature.write_folder(
        root / "cifar-10-batches-py", files | {"batches.meta": pickle.dumps({"label_names": Call(os.system, "true")})}
    )
    with pytest.raises(ValueError, match="batches.meta is refused"):
        load_images("cifar10")


@pytest.mark.parametrize("objects", ["npz", "npy"])
def test_arrays_of_pickled_objects_are_refused(root, objects):
    marker = root / "executed"
    array = np.array([Call(os.system, f"touch {marker}")], dtype=object)
    if objects == "npz":
        np.savez(root / "cifar10.npz", images=array, labels=np.zeros(1, int))
    else:
        np.save(root / "cifar10_data.npy", array)
        np.save(root / "cifar10_labels.npy", np.zeros(1, int))
    with pytest.raises(ValueError, match="not a NumPy file of plain numbers"):
        load_images("cifar10")
    assert not marker.exists()


def test_lists_that_grow_by_reference_are_refused_at_once():
    inner = [1]
    for _ in range(60):
        inner = [inner] * 20
    with pytest.raises(ValueError, match="not a plain dictionary"):
        read_pickle(pickle.dumps({"data": inner}), "bomb")


@pytest.mark.parametrize("cut", [0, 1, 40, 500, -1, -40])
def test_a_truncated_batch_is_one_sentence(root, cut):
    files = miniature.official_files("cifar10", miniature.make("cifar10", 5, 1))
    files["data_batch_1"] = files["data_batch_1"][:cut]
    miniature.write_folder(root / "cifar-10-batches-py", files)
    with pytest.raises(ValueError, match="data_batch_1 is damaged or cut off") as caught:
        load_images("cifar10")
    assert "\n" not in str(caught.value)


def test_an_array_that_promises_more_than_it_has_is_damaged():
    data = miniature.old_pickle(np.zeros((2, 3072), np.uint8), [0, 1], b"labels")
    with pytest.raises(ValueError, match="damaged"):
        read_pickle(data.replace(b"M" + struct.pack("<H", 2), b"M" + struct.pack("<H", 60_000), 1), "batch")


def pixels(*shape, dtype=np.uint8):
    return np.zeros(shape, dtype)


def damaged_folder(root):
    files = miniature.binary_files("cifar100", miniature.make("cifar100", 1, 1))
    miniature.write_folder(root / "cifar-100-binary", files | {"test.bin": files["test.bin"][:-5]})


def damaged_archive(root):
    parts = miniature.make("cifar100", 1, 1)
    miniature.WRITERS["archive"](root, "cifar100", parts)
    path = root / "cifar-100-python.tar.gz"
    path.write_bytes(path.read_bytes()[:5000])


def incomplete_folder(root):
    miniature.WRITERS["python"](root, "cifar100", miniature.make("cifar100", 1, 1))
    (root / "cifar-100-python" / "test").unlink()


def unlabelled_batch(root):
    files = miniature.official_files("cifar100", miniature.make("cifar100", 1, 1))
    files["test"] = pickle.dumps({"data": pixels(4, 3072)}, 4)
    miniature.write_folder(root / "cifar-100-python", files)


def large_picture(root):
    for label in range(100):
        (root / "cifar100" / f"{label:03d}").mkdir(parents=True)
    Image.new("RGB", (40, 32)).save(root / "cifar100" / "007" / "a.png")


def no_picture(root):
    for label in range(100):
        (root / "cifar100" / f"{label:03d}").mkdir(parents=True)
    (root / "cifar100" / "007" / "a.png").write_bytes(b"GIF89a")


def few_folders(root):
    (root / "cifar100" / "apple").mkdir(parents=True)
    Image.new("RGB", (32, 32)).save(root / "cifar100" / "apple" / "a.png")


def npz(**arrays):
    return lambda root: np.savez(root / "cifar100.npz", **arrays)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (npz(images=pixels(5, 32, 32, 3)), "has no labels: none of its arrays is called labels, y"),
        (npz(labels=np.arange(5)), "has no images: none of its arrays is called images, x"),
        (npz(x=pixels(5, 28, 28), y=np.arange(5)), r"have the shape \(5, 28, 28\). Bring \(n, 32, 32, 3\)"),
        (npz(x=pixels(5, 32, 32, 3, dtype=np.float32), y=np.arange(5)), "the images are float32. Bring bytes"),
        (npz(x=pixels(5, 32, 32, 3), y=np.arange(4)), "5 images and 4 labels"),
        (npz(x=pixels(5, 32, 32, 3), y=np.full(5, 100)), "the label 100 is not one of 0 to 99"),
        (npz(x=pixels(5, 32, 32, 3), y=np.ones(5)), "not a list of whole numbers"),
        (npz(x=pixels(5, 32, 32, 3), y=np.arange(5)), "no image has the label 5, 6"),
        (npz(x=pixels(0, 32, 32, 3), y=np.arange(0)), r"have the shape \(0, 32, 32, 3\)"),
        (lambda root: (root / "cifar100.npz").write_bytes(b"PK\x03\x04 nothing"), "not a NumPy file"),
        (lambda root: np.save(root / "cifar100_data.npy", pixels(5, 32, 32, 3)), "cifar100_labels.npy is missing"),
        (damaged_folder, r"test.bin is cut off: 307,395 bytes are not a multiple of the 3074 bytes"),
        (damaged_archive, "cifar-100-python.tar.gz is damaged or cut off. Download it again"),
        (incomplete_folder, "test is missing. Unpack cifar-100-python.tar.gz again"),
        (unlabelled_batch, "test has no labels: the list 'labels' is missing"),
        (large_picture, r"a.png has 40×32 pixels. Bring 32×32"),
        (no_picture, "a.png is not a readable PNG image"),
        (few_folders, "has 1 folders. Bring one with PNGs for each of the 100 classes"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(root, write, message):
    write(root)
    with pytest.raises(ValueError, match=message) as caught:
        load_images("cifar100")
    assert "\n" not in str(caught.value) and str(root) in str(caught.value)


def test_a_file_that_changes_is_read_again(root):
    np.savez(root / "cifar10.npz", x=pixels(20, 32, 32, 3), y=np.arange(20) % 10)
    first = load_images("cifar10")
    assert load_images("cifar10") is first
    np.savez(root / "cifar10.npz", x=pixels(40, 32, 32, 3), y=np.arange(40) % 10)
    os.utime(root / "cifar10.npz", (1, 1))
    again = load_images("cifar10")
    assert len(again.labels) == 40 and again.fingerprint != first.fingerprint
