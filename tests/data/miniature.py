"""Miniature CIFAR data sets of random pixels, written as people have them."""

import io
import pickle
import struct
import tarfile

import numpy as np
from PIL import Image

CLASSES = {"cifar10": 10, "cifar100": 100}
OFFICIAL = {
    "cifar10": ("cifar-10-batches-py", [f"data_batch_{i}" for i in range(1, 6)], "test_batch", "batches.meta"),
    "cifar100": ("cifar-100-python", ["train"], "test", "meta"),
}


def names_of(name):
    return [f"kind {label:02d}" for label in range(CLASSES[name])]


def make(name, train=5, test=2, seed=0):
    """Images (n, 32, 32, 3) and labels, ``train`` and ``test`` of each class."""
    generator = np.random.default_rng(seed)
    parts = []
    for each in (train, test):
        labels = generator.permutation(np.repeat(np.arange(CLASSES[name]), each))
        parts.append((generator.integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8), labels))
    return parts


def flat(images):
    """As the official files keep them: red, then green, then blue."""
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def text(word):
    return b"U" + bytes([len(word)]) + word


def old_pickle(data, labels, label_key):
    """A batch as Python 2 wrote it, instruction by instruction, as in the official files."""
    whole = b"".join(b"K" + bytes([int(label)]) for label in labels)
    pixels = data.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x05(cnumpy\nndarray\nq\x06K\x00\x85U\x01btRq\x07(K\x01"
        + b"M" + struct.pack("<H", data.shape[0]) + b"M" + struct.pack("<H", data.shape[1]) + b"\x86"
        + b"cnumpy\ndtype\nq\x08(U\x02u1K\x00K\x01tRq\x09(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + b"T" + struct.pack("<I", len(pixels)) + pixels + b"tb"
    )  # fmt: skip
    entries = text(b"batch_label") + text(b"a batch") + text(b"data") + array
    return b"\x80\x02}q\x01(" + entries + text(label_key) + b"]q\x02(" + whole + b"eu."


def official_files(name, parts, modern=False):
    """File names of the Python version and their bytes."""
    _, train_files, test_file, meta = OFFICIAL[name]
    (train, labels), (test, test_labels) = parts
    key = b"labels" if name == "cifar10" else b"fine_labels"
    cuts = np.array_split(np.arange(len(labels)), len(train_files))
    batches = {file: (train[cut], labels[cut]) for file, cut in zip(train_files, cuts, strict=True)}
    batches[test_file] = (test, test_labels)
    write = (lambda d, y: pickle.dumps({b"data": d, key: y.tolist()}, 4)) if modern else None
    files = {f: (write or (lambda d, y: old_pickle(d, y, key)))(flat(x), y) for f, (x, y) in batches.items()}
    label = "label_names" if name == "cifar10" else "fine_label_names"
    return files | {meta: pickle.dumps({label: names_of(name)}, 2)}


def binary_files(name, parts):
    (train, labels), (test, test_labels) = parts

    def records(images, labels):
        columns = [labels[:, None]] if name == "cifar10" else [labels[:, None] % 20, labels[:, None]]
        return np.hstack([*columns, flat(images)]).astype(np.uint8).tobytes()

    words = "\n".join(names_of(name)).encode() + b"\n\n"
    if name == "cifar100":
        return {
            "train.bin": records(train, labels),
            "test.bin": records(test, test_labels),
            "fine_label_names.txt": words,
        }
    cuts = np.array_split(np.arange(len(labels)), 5)
    files = {f"data_batch_{i + 1}.bin": records(train[cut], labels[cut]) for i, cut in enumerate(cuts)}
    return files | {"test_batch.bin": records(test, test_labels), "batches.meta.txt": words}


def write_folder(folder, files):
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def write_archive(path, folder, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def write_pngs(folder, images, labels, names):
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        own = folder / names[label]
        own.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(own / f"{index:05d}.png")


def _python(root, name, parts):
    write_folder(root / OFFICIAL[name][0], official_files(name, parts))


def _modern(root, name, parts):
    write_folder(root / OFFICIAL[name][0], official_files(name, parts, modern=True))


def _torchvision(root, name, parts):
    _python(root / "torchvision", name, parts)


def _archive(root, name, parts):
    stem = {"cifar10": "cifar-10", "cifar100": "cifar-100"}[name]
    write_archive(root / f"{stem}-python.tar.gz", OFFICIAL[name][0], official_files(name, parts))


def _binary(root, name, parts):
    folder = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}[name]
    write_folder(root / folder, binary_files(name, parts))


def _binary_archive(root, name, parts):
    stem = {"cifar10": "cifar-10", "cifar100": "cifar-100"}[name]
    write_archive(root / f"{stem}-binary.tar.gz", "somewhere", binary_files(name, parts))


def _pngs(root, name, parts):
    for part, (images, labels) in zip(("train", "test"), parts, strict=True):
        write_pngs(root / name / part, images, labels, names_of(name))


def _npz(root, name, parts):
    images, labels = (np.concatenate(both) for both in zip(*parts, strict=True))
    np.savez(root / f"{name}.npz", images=images, labels=labels, label_names=np.array(names_of(name)))


def _npy(root, name, parts):
    images, labels = (np.concatenate(both) for both in zip(*parts, strict=True))
    np.save(root / f"{name}_data.npy", images.transpose(0, 3, 1, 2))
    np.save(root / f"{name}_labels.npy", labels.astype(np.uint8))


WRITERS = {
    "python": _python,
    "python 3": _modern,
    "torchvision": _torchvision,
    "archive": _archive,
    "binary": _binary,
    "binary archive": _binary_archive,
    "pngs": _pngs,
    "npz": _npz,
    "npy": _npy,
}
KEEPS_PARTS = set(WRITERS) - {"npz", "npy"}


def write_all(root, per_class=30, seed=0):
    """CIFAR-10, CIFAR-100 and CIFAR-10.1 of random pixels, with more images for tasks to draw."""
    for offset, name in enumerate(CLASSES):
        share = per_class if name == "cifar10" else per_class // 2
        _python(root, name, make(name, share, share, seed + offset))
    (images, labels), _ = make("cifar10", 2 * per_class, 1, seed + 9)
    np.save(root / "cifar10.1_v4_data.npy", images // 2)
    np.save(root / "cifar10.1_v4_labels.npy", labels.astype(np.int32))
