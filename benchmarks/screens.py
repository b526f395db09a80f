"""Take the pictures of docs/dashboard.md and README.md from the dashboard itself, and write them to docs/screens.

The animated one moves Home's slider from far to near, then plays Learn's shuffles. Needs chromium and playwright.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

from PIL import Image

from benchmarks.common import parse
from benchmarks.pages import ROOT, SETTLED, SLIDER, open_page, server, tab

FOLDER = ROOT / "docs" / "screens"
WIDE, PHONE = {"width": 1280, "height": 880}, {"width": 400, "height": 860}
SCREENS = {  # name: address, colours, size
    "home": ("", "light", WIDE),
    "learn": ("learn?step=Related+tasks+help", "light", WIDE),
    "explore": ("explore", "light", WIDE),
    "power-dark": ("power", "dark", WIDE),
    "weights": ("weights", "light", WIDE),
    "paper": ("paper", "light", WIDE),
    "one-test-dark": ("one_test", "dark", WIDE),
    "phone-dark": ("", "dark", PHONE),
    "answer": ("test_my_data", "light", WIDE),
}
COLOURS = 256  # of a picture's palette
FILM, FILM_SIZE = "story.gif", {"width": 960, "height": 900}
FILM_PAGES = ("", "learn?step=Shuffle+the+labels")
HOLD, STEP = 1500, 700  # ms that a frame stays


def picture(page: Any) -> Image.Image:
    """A picture of the tab."""
    page.wait_for_function(SETTLED)
    page.wait_for_timeout(600)  # plotly draws
    page.mouse.move(0, 0)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def take(page: Any, address: str, name: str) -> None:
    """Write the picture of a screen."""
    path_and_query, scheme, size = SCREENS[name]
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size(size)
    open_page(page, f"{address}/{path_and_query}")
    if name == "answer":
        page.get_by_role("button", name="Try Handwriting").click()
        page.get_by_role("button", name="Run").first.click()
        page.locator(".st-key-data_card").get_by_role("heading").first.wait_for()
    page.locator(".js-plotly-plot .main-svg, [data-testid=stImage] img").first.wait_for()
    path = FOLDER / f"{name}.png"
    picture(page).quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1024:.0f} kB", flush=True)


def moves(page: Any) -> Iterator[Image.Image]:
    """Pictures of the tab at every position of its first slider, from the left."""
    slider = page.locator(SLIDER).first
    slider.press("Home")
    page.wait_for_timeout(300)
    yield picture(page)
    for _ in range(int(float(slider.get_attribute("max") or 0))):
        slider.press("ArrowRight")
        page.wait_for_timeout(300)
        yield picture(page)


def film(page: Any, address: str) -> None:
    """Write the animated picture. The first and the last frame of a page stay longer."""
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(FILM_SIZE)
    drawn, durations = [], []
    for path in FILM_PAGES:
        open_page(page, f"{address}/{path}")
        page.locator(".js-plotly-plot .main-svg").first.wait_for()
        shown = [frame.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE) for frame in moves(page)]
        drawn += shown
        durations += [HOLD, *[STEP] * (len(shown) - 2), HOLD]
    file = FOLDER / FILM
    drawn[0].save(file, save_all=True, append_images=drawn[1:], duration=durations, loop=0, optimize=True)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1024:.0f} kB, {len(drawn)} frames", flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    """Take all pictures, or some."""
    names = parse(arguments, __doc__, only={**SCREENS, FILM: FILM}).only
    with server() as (host, _), tab() as page:
        address = f"http://{host}"
        if FILM in names:
            film(page, address)
        for name in SCREENS:
            if name in names:
                take(page, address, name)
