"""Take the pictures of docs/dashboard.md and README.md from the dashboard itself, and write them to docs/screens.

The animated one moves Home's slider from far to near, then plays Learn's shuffles. Needs chromium and playwright.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.pages import ROOT, SETTLED, SLIDER, open_page, server, tab
from m2st_core.dashboard.learn.pictures import SHUFFLES

FOLDER = ROOT / "docs" / "screens"
WIDE, PHONE = {"width": 1280, "height": 880}, {"width": 400, "height": 860}
SCREENS = {  # name: address, colours, size
    "home": ("", "light", WIDE),
    "learn": ("learn?step=History+rescues", "light", WIDE),
    "power-dark": ("power", "dark", WIDE),
    "weights": ("weights", "light", WIDE),
    "paper": ("paper", "light", WIDE),
    "one-test-dark": ("one_test", "dark", WIDE),
    "phone-dark": ("", "dark", PHONE),
    "answer": ("test_my_data", "light", WIDE),
}
COLOURS = 96  # of a picture's palette
FILM, FILM_SIZE = "story.gif", (960, 660)
HOLD, STEP = 1400, 500  # ms that a frame stays


def picture(page: Any) -> Image.Image:
    """What the tab shows."""
    page.wait_for_function(SETTLED)
    page.wait_for_timeout(600)  # plotly draws
    page.mouse.move(0, 0)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def take(address: str, names: Sequence[str]) -> None:
    """Write a picture of each screen."""
    for name in names:
        place, scheme, size = SCREENS[name]
        with tab(viewport=size, color_scheme=scheme) as page:
            open_page(page, f"{address}/{place}")
            if name == "answer":
                page.get_by_role("button", name="Try Handwriting").click()
                page.get_by_role("button", name="Run").first.click()
                page.locator(".st-key-data_card").get_by_role("heading").first.wait_for()
            page.locator(".js-plotly-plot .main-svg, [data-testid=stImage] img").first.wait_for()
            path = FOLDER / f"{name}.png"
            picture(page).quantize(COLOURS).save(path, optimize=True)
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1024:.0f} kB", flush=True)


def frames(address: str) -> Iterator[tuple[Image.Image, int]]:
    """The frames of the film and how long each stays."""
    with tab(viewport={"width": FILM_SIZE[0], "height": FILM_SIZE[1]}) as page:
        open_page(page, f"{address}/?home_related=hardly")
        slider = page.locator(SLIDER).first
        last = int(float(slider.get_attribute("max") or 0))
        for place in range(last + 1):
            if place:
                slider.press("ArrowRight")
                page.wait_for_timeout(300)
            yield picture(page), HOLD if place in (0, last) else STEP + 300
        for shown in SHUFFLES[1:]:
            open_page(page, f"{address}/learn?step=Shuffle+the+labels&learn_shown={shown}")
            yield picture(page), HOLD if shown == SHUFFLES[-1] else STEP


def film(address: str) -> None:
    """Write the animated picture."""
    shown, durations = zip(*frames(address), strict=True)
    drawn = [frame.quantize(COLOURS, dither=Image.Dither.NONE) for frame in shown]
    path = FOLDER / FILM
    drawn[0].save(path, save_all=True, append_images=drawn[1:], duration=list(durations), loop=0, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1024:.0f} kB, {len(drawn)} frames", flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    """Take all pictures, or those that are named."""
    parser = argparse.ArgumentParser(prog="m2st_core bench screens", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join([*SCREENS, FILM])}; all if none is named")
    names = parser.parse_args(arguments).names or [*SCREENS, FILM]
    Path(FOLDER).mkdir(exist_ok=True)
    with server() as address:
        take(address, [name for name in SCREENS if name in names])
        if FILM in names:
            film(address)


if __name__ == "__main__":
    main()
