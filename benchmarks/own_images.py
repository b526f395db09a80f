"""Two samples of 60 JPEGs on the page Images, in a browser: seconds from upload to the answer with its pictures.

Then hostile files one after another: the sentence that the page says, and the server's memory over idle. Needs chromium
and playwright.
"""

from __future__ import annotations

import argparse
import io
import os
import struct
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.pages import SETTLED, server, tab

COUNT, WIDTH, HEIGHT = 60, 1600, 1200
MOST_SECONDS, MOST_MEMORY = 30, 1024  # limits: seconds, MB over idle
PAGE = "images?images_part=Your+own+images"
INPUT = "[data-testid=stFileUploader] input[type=file]"
SHEETS = (
    "() => [...document.querySelectorAll('img')].filter(i => /typical/.test(i.alt) && i.naturalWidth > 50).length >= 2"
)

ALERT = "[data-testid=stAlert]"
CAPTION = "[data-testid=stCaptionContainer]"
READY = "() => [...document.querySelectorAll('button')].some(b => b.innerText.trim() === 'Compare' && !b.disabled)"


def photographs(count: int, seed: int, tint: int = 0) -> dict[str, bytes]:
    """JPEGs of 1600×1200 by name: smooth random scenes, some with more red."""
    generator = np.random.default_rng(seed)
    found = {}
    for number in range(count):
        scene = generator.integers(0, 256, (12, 16, 3))
        scene[..., 0] = np.minimum(scene[..., 0] + tint, 255)
        large = Image.fromarray(scene.astype(np.uint8)).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        found[f"{number}.jpg"] = packed(large, "JPEG", quality=90)
    return found


def packed(image: Image.Image, form: str, **options: Any) -> bytes:
    """An image as the bytes of a file."""
    target = io.BytesIO()
    image.save(target, form, **options)
    return target.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A ZIP of these files."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target.getvalue()


def black_png(side: int) -> bytes:
    """A complete PNG of black pixels: small as a file, side² × 3 bytes in memory."""
    packer, row = zlib.compressobj(9), bytes(1 + 3 * side)
    pixels = b"".join([*(packer.compress(row) for _ in range(side)), packer.flush()])
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    made = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


def hostile() -> dict[str, bytes]:
    """Files that must be refused with a sentence, or used with a note, by name."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (400, 600, 3), dtype=np.uint8))
    deep = Image.fromarray(np.full((300, 300), 40_000, np.uint16))
    return {
        "bomb of 20,000×20,000.png": black_png(20_000),
        "just too large, 6,400×6,400.png": black_png(6_400),
        "cut off.jpg": packed(noise, "JPEG")[:2000],
        "cut off.png": packed(noise, "PNG")[:2000],
        "text.png": b"hello",
        "drawing named.png": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
        "drawing.svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
        "moving.gif": packed(noise, "GIF", save_all=True, append_images=[noise.rotate(90)]),
        "moving named.png": packed(noise, "GIF", save_all=True, append_images=[noise.rotate(90)]),
        "dot of 1×1.png": packed(noise.resize((1, 1)), "PNG"),
        "large but allowed, 6,300×6,300.png": black_png(6_300),
        "CMYK.jpg": packed(noise.convert("CMYK"), "JPEG"),
        "16 bits.png": packed(deep, "PNG"),
        "JPEG named.png": packed(noise, "JPEG"),
        "a ZIP of a ZIP bomb.zip": zipped({"inner.zip": zipped({"zeros.png": bytes(200 * 2**20)})}),
        "zeros of 200 MB in a.zip": zipped({"zeros.png": bytes(200 * 2**20)}),
    }


class Watcher:
    """The largest memory of the server since the last look, in MB, read ten times a second."""

    def __init__(self) -> None:
        own = _children(os.getpid())
        self.pids = [pid for pid in own if b"streamlit" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        self.idle, self.peak, self.running = self.now(), 0.0, True
        threading.Thread(target=self._watch, daemon=True).start()

    def now(self) -> float:
        """The memory of the server and its workers."""
        return sum(_resident(pid) for root in self.pids for pid in (root, *_children(root)))

    def processor(self) -> float:
        """Seconds of processor time that the server has used."""
        return sum(_processor(pid) for pid in self.pids)

    def _watch(self) -> None:
        while self.running:
            self.peak = max(self.peak, self.now())
            time.sleep(0.1)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _resident(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return 0.0


def _processor(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def opened(page: Any, address: str) -> Iterator[Any]:
    """The page for own images, settled."""
    page.goto(f"{address}/{PAGE}")
    page.wait_for_selector(INPUT, state="attached")
    page.wait_for_function(SETTLED)
    yield page


def compare(page: Any, samples: Sequence[Any], related: Any = None) -> float:
    """Upload two samples, press Compare; seconds until the contact sheets of the answer are there."""
    began = time.perf_counter()
    for place, files in enumerate([*samples, *([related] if related else [])]):
        upload(page, place, files)
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_function(SHEETS)
    seconds = time.perf_counter() - began
    if ("taught by" in page.locator(".stMain").inner_text().partition("What this does not mean")[0]) != bool(related):
        raise RuntimeError("The answer does not say whether there were related tasks.")
    return seconds


def upload(page: Any, place: int, files: str | list[str]) -> None:
    """Upload files, and wait until the server has them and the page has run with them."""
    sent: list[Any] = []

    def count(answer: Any) -> None:
        if answer.request.method == "PUT" and "upload_file" in answer.url:
            sent.append(answer)

    page.on("response", count)
    page.locator(INPUT).nth(place).set_input_files(files)
    while len(sent) < (1 if isinstance(files, str) else len(files)):
        page.wait_for_timeout(50)
    page.remove_listener("response", count)
    page.wait_for_timeout(300)
    page.wait_for_function(SETTLED)


def times(page: Any, address: str, folder: Path, watcher: Watcher) -> None:
    """Print the seconds of each way to upload, and the server's memory over idle."""
    first, second = photographs(COUNT, 1), photographs(COUNT, 2, tint=40)
    for name, files in (("march", first), ("april", second)):
        (folder / name).mkdir()
        for own, data in files.items():
            (folder / name / own).write_bytes(data)
        (folder / f"{name}.zip").write_bytes(zipped(files))
    tasks = {
        f"task {k}/{side}/{name}": data
        for k in range(5)
        for side in "ab"
        for name, data in photographs(20, 100 + 2 * k + (side == "b"), tint=40 * (side == "b")).items()
    }
    (folder / "related.zip").write_bytes(zipped(tasks))
    loose = [sorted(map(str, (folder / name).iterdir())) for name in ("march", "april")]
    packs = [str(folder / "march.zip"), str(folder / "april.zip")]
    ways = {
        "two ZIPs": (packs, None),
        "two folders, their files chosen together": (loose, None),
        "two ZIPs and 5 related tasks of 20 + 20": (packs, str(folder / "related.zip")),
    }
    head = ["seconds", "limit", "processor seconds of the server", "MB over idle"]
    print(f"| {COUNT} + {COUNT} JPEGs of {WIDTH}×{HEIGHT} | {' | '.join(head)} |" + "\n|---|---|---|---|---|")
    for words, (samples, related) in ways.items():
        with opened(page, address):
            before, watcher.peak = watcher.processor(), 0.0
            seconds = compare(page, samples, related)
            spent, more = watcher.processor() - before, watcher.peak - watcher.idle
            print(f"| {words} | {seconds:.1f} | {MOST_SECONDS} | {spent:.1f} | {more:.0f} |", flush=True)


def refusals(page: Any, address: str, folder: Path, watcher: Watcher) -> None:
    """Print what the page says about each hostile file, and the server's memory over idle."""
    good = folder / "good.zip"
    good.write_bytes(zipped(photographs(8, 3)))
    print(f"\n| file | what the page says | MB over idle, at most {MOST_MEMORY} |\n|---|---|---|")
    for name, data in hostile().items():
        with opened(page, address):
            (folder / name).write_bytes(data)
            inputs = page.locator(INPUT)
            inputs.nth(1).set_input_files(str(good))
            page.wait_for_function(SETTLED)
            watcher.peak = 0.0
            others = [] if name.endswith(".zip") else [str(path) for path in sorted((folder / "march").iterdir())[:8]]
            inputs.nth(0).set_input_files([str(folder / name), *others])
            page.wait_for_function(READY)
            page.wait_for_function(SETTLED)
            page.get_by_role("button", name="Compare", exact=True).click()
            page.wait_for_function(f"() => ({SHEETS})() || document.querySelector('{ALERT}')")
            page.wait_for_function(SETTLED)  # the notes are there too
            said = page.locator(ALERT).all_inner_texts()
            notes = [text for text in page.locator(CAPTION).all_inner_texts() if text.startswith("“")]
            words = " ".join([*said, *notes]).replace("\n", " ").replace("|", "/") or "used"
            print(f"| {name} | {words} | {watcher.peak - watcher.idle:.0f} |", flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="m2st_core bench own_images", description=__doc__)
    parser.add_argument("--only", choices=("times",), help="no hostile files")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, server() as address:
        with tab() as page:
            with opened(page, address):
                watcher = Watcher()  # the server is warm, and nothing was uploaded
            times(page, address, Path(folder), watcher)
            if not options.only:
                refusals(page, address, Path(folder), watcher)
        watcher.running = False


if __name__ == "__main__":
    main()
