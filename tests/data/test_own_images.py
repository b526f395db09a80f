"""A user's own images: every form gives the same pixels, and what is hostile gives one sentence."""

import io
import resource
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from m2st_core.data.images import files as image_files
from m2st_core.data.images.files import ImageFileError, decode_image, read_image_tasks, read_images

NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8))


def packed(image, form="PNG", **options):
    target = io.BytesIO()
    image.save(target, form, **options)
    return target.getvalue()


def zipped(files):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target.getvalue()


def empty_png(width, height):
    """A PNG that claims a size and has almost no pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


HOSTILE = {
    "bomb.png": (empty_png(20_000, 20_000), "far too many pixels"),
    "large.png": (empty_png(8_000, 8_000), "8,000×8,000 pixels"),
    "cut.jpg": (packed(NOISE, "JPEG")[:900], "damaged or cut off"),
    "cut.png": (packed(NOISE)[:900], "damaged or cut off"),
    "text.png": (b"hello", "not a readable PNG or JPEG"),
    "empty.png": (b"", "not a readable PNG or JPEG"),
    "drawing.svg": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing"),
    "drawing.png": (b'<?xml version="1.0"?><svg/>', "an SVG or XML"),
    "moving.gif": (packed(NOISE, "GIF", save_all=True, append_images=[NOISE]), "a GIF"),
    "moving.png": (packed(NOISE, "GIF"), "a GIF"),
    "dot.png": (packed(Image.new("RGB", (1, 1))), "1×1 pixels"),
    "line.png": (packed(Image.new("RGB", (400, 5))), "central square"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_image_gives_one_sentence_and_no_memory(name):
    data, sentence = HOSTILE[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ImageFileError, match=sentence) as caught:
        read_images([("good.png", packed(NOISE)), (name, data)])
    assert str(caught.value).startswith(name) and "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kB


@pytest.mark.parametrize(
    ("image", "form", "note"),
    [
        (NOISE.convert("CMYK"), "JPEG", "converted from CMYK"),
        (NOISE.convert("L"), "PNG", "is grey"),
        (NOISE.convert("1"), "PNG", "is grey"),
        (NOISE.convert("RGBA"), "PNG", "transparent parts"),
        (NOISE.convert("LA"), "PNG", "transparent parts"),
        (Image.fromarray(np.full((30, 30), 40_000, np.uint16)), "PNG", "16 bits"),
        (NOISE.convert("P"), "PNG", ""),
    ],
)
def test_every_mode_becomes_red_green_and_blue(image, form, note):
    sample = read_images([("image.png" if form == "PNG" else "image.jpg", packed(image, form))], 16)
    assert sample.images.shape == (1, 16, 16, 3) and sample.images.dtype == np.uint8
    assert note in " ".join(sample.notes) and sample.images.std() >= 0


def test_sixteen_bits_keep_their_upper_half_and_transparency_is_white():
    deep = Image.fromarray(np.full((30, 30), 40_000, np.uint16))
    assert (decode_image("a.png", packed(deep), 8)[0] == 40_000 >> 8).all()
    glass = Image.new("RGBA", (30, 30), (255, 0, 0, 0))
    assert (decode_image("a.png", packed(glass), 8)[0] == 255).all()


def test_images_are_turned_as_their_exif_data_say():
    half = np.zeros((32, 32, 3), np.uint8)
    half[:16] = 255  # the top is white
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn to the right
    image, changes = decode_image("a.jpg", packed(Image.fromarray(half), "JPEG", exif=exif, quality=95), 8)
    assert image[:, 5:].min() > 200 and image[:, :3].max() < 50 and changes == ["were turned upright"]


def test_the_central_square_is_kept():
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200
    assert (decode_image("a.png", packed(Image.fromarray(wide)), 8)[0] > 180).all()  # the border is slightly blurred


def test_the_content_decides_the_format_and_it_is_said():
    sample = read_images([("photo.png", packed(NOISE, "JPEG"))], 16)
    assert "extension of another format" in sample.notes[0]


def test_folder_zip_and_upload_give_the_same_images(tmp_path):
    files = {f"{index}.png": packed(NOISE.rotate(index)) for index in range(3)} | {
        "notes.txt": b"x",
        ".hidden.png": b"x",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path.parent / "images.zip").write_bytes(zipped({f"top/{name}": data for name, data in files.items()}))
    folder, archive = read_images(tmp_path, 16), read_images(tmp_path.parent / "images.zip", 16)
    uploaded = read_images(list(files.items()), 16)
    assert (folder.images == archive.images).all() and (folder.images == uploaded.images).all()
    assert len(folder) == 3 and "notes.txt" in folder.notes[-1]


def test_related_tasks_have_two_folders_each():
    files = {f"all/{task}/{side}/{i}.png": packed(NOISE) for task in "ab" for side in ("x", "y") for i in range(2)}
    tasks = read_image_tasks([("related.zip", zipped(files))], 16)
    assert list(tasks) == ["a", "b"] and [len(part) for part in tasks["a"]] == [2, 2]
    with pytest.raises(ImageFileError, match="has 1 folders of images"):
        read_image_tasks([("related.zip", zipped({"a/x/1.png": packed(NOISE)}))], 16)


def test_comparisons_of_the_same_name_in_other_folders_stay_apart():
    files = {f"{year}/run1/{side}/1.png": packed(NOISE) for year in (2023, 2024) for side in "ab"}
    assert list(read_image_tasks([("related.zip", zipped(files))], 16)) == ["2023/run1", "2024/run1"]


def test_an_image_counts_whatever_it_is_called_and_a_large_film_does_not(monkeypatch):
    monkeypatch.setattr(image_files, "MOST_BYTES", 100_000)
    files = [("a.png", packed(NOISE)), ("camera", packed(NOISE, "JPEG")), ("film.mp4", bytes(200_000))]
    for source in (files, [("images.zip", zipped(dict(files)))]):
        sample = read_images(source, 16)
        assert sample.names == ("a.png", "camera") and "film.mp4" in sample.notes[-1]


def test_too_many_or_too_large_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(image_files, "MOST_IMAGES", 2)
    with pytest.raises(ImageFileError, match="more than 2 images"):
        read_images([(f"{index}.png", packed(NOISE)) for index in range(3)], 16)
    monkeypatch.setattr(image_files, "MOST_UNPACKED", 1000)
    with pytest.raises(ImageFileError, match="unpacks to more than"):
        read_images([("a.zip", zipped({"a.png": bytes(2000)}))])


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ([("a.zip", b"PK\x03\x04 broken")], "not a readable ZIP"),
        ([("a.txt", b"x")], "no PNG or JPEG"),
        ("absent", "neither a folder nor a ZIP"),
    ],
)
def test_other_sources_are_refused(source, sentence):
    with pytest.raises(ImageFileError, match=sentence):
        read_images(source)


def test_one_image_and_several_are_said_rightly():
    grey, clear = packed(NOISE.convert("L")), packed(NOISE)
    assert "1 of 2 images is grey." in read_images([("a.png", grey), ("b.png", clear)]).notes
    assert "2 of 2 images are grey." in read_images([("a.png", grey), ("b.png", grey)]).notes
    assert "Skipped, because they are not images: c.txt." in read_images([("a.png", clear), ("c.txt", b"")]).notes
