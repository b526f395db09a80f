"""Time the dashboard in a browser, on a warm server: to a page's first chart, and from a slider's move to its picture.

Needs chromium and playwright.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import numpy as np

from app import PAGES
from m2st_core.dashboard.learn.lessons import LESSONS

ROOT = Path(__file__).parents[1]
PATIENCE = 240_000  # ms, on a machine that has other things to do
MOVES = 20
OPENINGS = 3
HOME_GOAL, PAGE_GOAL, SLIDER_GOAL, POINT_GOAL = 1.5, 2.0, 0.4, 5.0  # seconds
CHART = ".js-plotly-plot .main-svg"
SIGHTS = {  # what says something first on a page without a chart: a thumbnail, and the answer of the first example
    "Paper": ("thumbnail", "[data-testid=stImage] img"),
    "Test my data": ("finding", ".st-key-finding strong"),
}
WITH_SLIDER = [lesson.name for lesson in LESSONS if not lesson.control.buttons]
SLIDER = "[data-testid=stSlider] input[type=range]"
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
def server() -> Iterator[str]:
    """A server with a store of its own; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
        process = subprocess.Popen(
            [*command, "--server.headless", "true"], cwd=ROOT, env=os.environ | {"M2ST_HOME": home},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        address = f"http://127.0.0.1:{port}"
        try:
            while process.poll() is None:
                try:
                    urllib.request.urlopen(f"{address}/_stcore/health", timeout=1)
                    break
                except OSError:
                    time.sleep(0.2)
            yield address
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
    """Seconds from a key to the new picture, over 20 moves of the page's first slider, back and forth."""
    slider = page.locator(SLIDER).first
    slider.focus()
    step, seconds = "ArrowLeft", []
    for _ in range(MOVES):
        place, low, high = (float(slider.get_attribute(name) or 0) for name in ("value", "min", "max"))
        step = "ArrowRight" if place <= low else "ArrowLeft" if place >= high else step
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


def main(arguments: Sequence[str] = ()) -> None:
    """Print the seconds."""
    argparse.ArgumentParser(prog="m2st_core bench pages", description=__doc__).parse_args(arguments)
    with server() as address, tab() as page:
        places = {title: "" if title == "Home" else Path(path).stem for path, (title, _) in PAGES.items()}
        for place in places.values():  # warms the server
            open_page(page, f"{address}/{place}")
        print(f"| page | first sight | seconds, median of {OPENINGS} | goal |\n|---|---|---|---|")
        for title, place in places.items():
            name, sight = SIGHTS.get(title, ("chart", CHART))
            seconds = [open_page(page, f"{address}/{place}", sight) for _ in range(OPENINGS)]
            goal = HOME_GOAL if title == "Home" else PAGE_GOAL
            shown = "never" if None in seconds else f"{np.median(np.array(seconds, float)):.2f}"
            print(f"| {title} | {name} | {shown} | {goal} |", flush=True)
        print(f"\n| slider | seconds to the new picture, 95 % of the first {MOVES} moves | of {MOVES} more | goal |")
        print("|---|---|---|---|")
        sliders = {"Home": ""} | {f"Learn, {title}": f"learn?step={quote_plus(title)}" for title in WITH_SLIDER}
        for title, place in sliders.items():
            open_page(page, f"{address}/{place}")
            first, warm = (np.quantile(move_slider(page), 0.95) for _ in range(2))
            print(f"| {title} | {first:.2f} | {warm:.2f} | {SLIDER_GOAL} |", flush=True)
        print(f"\nTrain's first point on Power: {first_point(page, address):.2f} s (goal {POINT_GOAL})")


if __name__ == "__main__":
    main()
