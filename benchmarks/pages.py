"""Time the dashboard in a browser, on a warm server.

Measured are the times to a page's first chart, from a slider's move to its picture, from Train to the first point, and
from the upload of images to the answer. Needs chromium and playwright.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import numpy as np
from PIL import Image

from app import PAGES, TABS
from benchmarks.common import Page, parse
from m2st_core.dashboard.learn.lessons import LESSONS

ROOT = Path(__file__).parents[1]
PATIENCE = 240_000  # ms, on a machine that has other things to do
MOVES = 20
OPENINGS = 3
HOME_GOAL, PAGE_GOAL, SLIDER_GOAL, POINT_GOAL, IMAGES_GOAL = 1.5, 2.0, 0.4, 5.0, 30  # seconds
CHART = ".js-plotly-plot .main-svg"
SIGHTS = {  # what says something first on a page without a chart: a thumbnail, and the answer of the first example
    "Paper": ("thumbnail", "[data-testid=stImage] img"),
    "Test my data": ("finding", ".st-key-finding strong"),
}
WITH_SLIDER = [lesson.name for lesson in LESSONS if not lesson.control.buttons]
SLIDER = "[data-testid=stSlider] input[type=range]"
BAND = ".band .tasks"  # the closeness C on Explore, which keys move
OWN_IMAGES = "images?images_part=Your+own+images"
INPUT = "[data-testid=stFileUploader] input[type=file]"
CONTACT_SHEETS = (
    "() => [...document.querySelectorAll('img')].filter(i => /typical/.test(i.alt) && i.naturalWidth > 50).length >= 2"
)
SETTLED = """() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'
    && document.querySelector('h1, h2') && !document.querySelector('[data-testid=stSkeleton]')"""
WATCH = """() => {
    const drawn = '.js-plotly-plot .main-svg'
    const picture = () => [...document.querySelectorAll(drawn)].map(svg => svg.innerHTML).join('')
    const before = picture()
    let began
    addEventListener('keydown', () => { began = performance.now() }, {once: true, capture: true})
    window.moved = new Promise(done => new MutationObserver((changes, observer) => {
        const redrawn = changes.some(({target, addedNodes}) => target.closest?.(drawn)
            || [...addedNodes].some(node => node.closest?.(drawn) || node.querySelector?.(drawn)))
        if (!redrawn || !picture() || picture() === before) return
        observer.disconnect()
        requestAnimationFrame(() => done(performance.now() - began))
    }).observe(document.body, {subtree: true, childList: true, attributes: true}))
}"""  # it sleeps until a chart changes: reading all of them in every frame would slow down what it times


@contextmanager
def server(script: str = "app.py", *options: str) -> Iterator[tuple[str, int]]:
    """A server with a store of its own: its host and port, and its process. It ends with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    host = f"127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "streamlit", "run", script, "--server.port", str(port)]
        process = subprocess.Popen(
            [*command, "--server.headless", "true", *options], cwd=ROOT, env=os.environ | {"M2ST_HOME": home},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while process.poll() is None:
                try:
                    urllib.request.urlopen(f"http://{host}/_stcore/health", timeout=1)
                    break
                except OSError:
                    time.sleep(0.2)
            else:
                raise RuntimeError("the server did not start")
            yield host, process.pid
        finally:
            process.kill()
            process.wait()


@contextmanager
def tab(**context: Any) -> Iterator[Any]:
    """A tab of a browser of its own."""
    from playwright.sync_api import sync_playwright  # required by developers only

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | context))
        page.set_default_timeout(PATIENCE)
        yield page
        browser.close()


def open_page(page: Any, address: str, sight: str = CHART) -> float | None:
    """Open an address; the seconds to its first chart, or to another sight. None if it has none."""
    began = time.perf_counter()
    page.goto(address)
    drawn = f"[...document.querySelectorAll('{sight}')].some(one => one.tagName !== 'IMG' || one.naturalWidth)"
    page.wait_for_function(f"() => {drawn} || ({SETTLED})()")
    seconds = time.perf_counter() - began
    page.wait_for_function(SETTLED)
    return seconds if page.locator(sight).count() else None


def move_slider(page: Any) -> list[float]:
    """Seconds from a key to the new picture, over 20 moves of Explore's band or the first slider, back and forth."""
    band, names = page.locator(BAND), ("aria-valuenow", "aria-valuemin", "aria-valuemax")
    slider, names = (band, names) if band.count() else (page.locator(SLIDER).first, ("value", "min", "max"))
    slider.focus()
    step, seconds = "ArrowLeft", []
    for _ in range(MOVES):
        value, low, high = (float(slider.get_attribute(name) or 0) for name in names)
        step = "ArrowRight" if value <= low else "ArrowLeft" if value >= high else step
        if band.count():  # to and fro between two shipped values of C
            step = "ArrowLeft" if step == "ArrowRight" else "ArrowRight"
        page.evaluate(WATCH)
        page.keyboard.press(step)
        seconds.append(page.evaluate("() => window.moved") / 1000)
        page.wait_for_function(SETTLED)
    return seconds


def first_point(page: Any, address: str) -> float:
    """Seconds from Train to the first point of new curves on Power."""
    open_page(page, f"{address}/power?lab_methods=MMD-M&seed=7")
    points = page.locator(".st-key-lab_chart .scatterlayer .points path")
    before = points.count()  # pale curves of the setting before
    began = time.perf_counter()
    page.get_by_role("button", name="Train", exact=True).click()
    page.wait_for_function(
        "before => document.querySelectorAll('.st-key-lab_chart .scatterlayer .points path').length > before",
        arg=before,
    )
    return time.perf_counter() - began


def photographs(count: int, seed: int, tint: int = 0) -> dict[str, bytes]:
    """JPEGs of 1600×1200 by name: smooth random scenes, some with more red."""
    generator = np.random.default_rng(seed)
    files = {}
    for number in range(count):
        scene = generator.integers(0, 256, (12, 16, 3))
        scene[..., 0] = np.minimum(scene[..., 0] + tint, 255)
        target = io.BytesIO()
        large = Image.fromarray(scene.astype(np.uint8)).resize((1600, 1200), Image.Resampling.BICUBIC)
        large.save(target, "JPEG", quality=90)
        files[f"{number}.jpg"] = target.getvalue()
    return files


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A ZIP of these files."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target.getvalue()


def compare_images(page: Any, address: str, samples: Sequence[bytes]) -> float:
    """Seconds from the upload of ZIPs, two samples and perhaps related tasks, to the pictures of the answer."""
    page.goto(f"{address}/{OWN_IMAGES}")
    page.wait_for_selector(INPUT, state="attached")
    page.wait_for_function(SETTLED)
    began = time.perf_counter()
    for index, data in enumerate(samples):
        with page.expect_response(lambda answer: answer.request.method == "PUT" and "upload_file" in answer.url):
            page.locator(INPUT).nth(index).set_input_files(
                {"name": f"{index}.zip", "mimeType": "application/zip", "buffer": data}
            )
        page.wait_for_timeout(300)
        page.wait_for_function(SETTLED)
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_function(CONTACT_SHEETS)
    return time.perf_counter() - began


def main(arguments: Sequence[str] = ()) -> None:
    """Print the seconds."""
    parse(arguments, __doc__)
    table = Page()
    with server() as (host, _), tab() as page:
        address = f"http://{host}"
        titles = TABS | PAGES
        paths = {title: "" if title == "Home" else Path(script).stem for script, title in titles.items()}
        for path in paths.values():  # warms the server
            open_page(page, f"{address}/{path}")
        table.head("page", "first sight", f"seconds, median of {OPENINGS}", "goal")
        for title, path in paths.items():
            name, sight = SIGHTS.get(title, ("chart", CHART))
            spent = [open_page(page, f"{address}/{path}", sight) for _ in range(OPENINGS)]
            shown = "never" if None in spent else f"{np.median(np.array(spent, float)):.2f}"
            table.row(title, name, shown, HOME_GOAL if title == "Home" else PAGE_GOAL)
        table.say("")
        table.head("slider", f"95 % of the first {MOVES} moves, seconds to the new picture", f"of {MOVES} more", "goal")
        sliders = {"Home": "", "Explore, C": "explore"} | {
            f"Learn, {title}": f"learn?step={quote_plus(title)}" for title in WITH_SLIDER
        }
        for title, path in sliders.items():
            open_page(page, f"{address}/{path}")
            table.row(title, *(f"{np.quantile(move_slider(page), 0.95):.2f}" for _ in range(2)), SLIDER_GOAL)
        table.say("", f"Train's first point on Power: {first_point(page, address):.2f} s (goal {POINT_GOAL})", "")
        table.head("60 + 60 JPEGs of 1600×1200 on Images", "seconds", "goal")
        samples = [zipped(photographs(60, 1)), zipped(photographs(60, 2, tint=40))]
        related = {
            f"task {k}/{side}/{name}": data
            for k in range(5)
            for side in "ab"
            for name, data in photographs(20, 100 + 2 * k + (side == "b"), tint=40 * (side == "b")).items()
        }
        table.row("two ZIPs", f"{compare_images(page, address, samples):.1f}", IMAGES_GOAL)
        taught = compare_images(page, address, [*samples, zipped(related)])
        table.row("and 5 related tasks of 20 + 20", f"{taught:.1f}", IMAGES_GOAL)
