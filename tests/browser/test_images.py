"""Images in a real browser: from two samples of digits to what the kernel finds typical."""

import re

from benchmarks.pages import INPUT, photographs, zipped
from tests.browser.test_pages import keep

CLASSES = "images?images_part=Pairs+of+classes"
SMALL = f"{CLASSES}&images_digits_tests=20&images_digits_m_te=40&n_tasks=5&images_digits_rows_per_task=25"


def test_digits_are_trained_and_explained(visit):
    tab = visit()
    tab.open(f"{SMALL}&images_methods=Feature-MKL+(ours)&images_methods=MMD-O+%C2%B7+tuned")
    page = tab.page
    for name in ("x ~ P", "y ~ Q"):
        picture = page.get_by_alt_text(re.compile(f"32 example images of {name}"))
        tab.page.wait_for_function("image => image.naturalWidth > 100", arg=picture.element_handle())
    page.get_by_text("The most typical images").wait_for()
    tab.settle()
    page.get_by_alt_text(re.compile("most typical of P")).wait_for()
    assert page.locator(".js-plotly-plot").count() == 4
    keep(tab, "images-trained")
    tab.assert_clean()


def test_a_training_can_be_cancelled(visit):
    tab = visit()
    tab.open(f"{CLASSES}&images_digits_tests=200&seed=5")
    tab.page.get_by_role("button", name="Compute it").click()  # a link to long work asks first
    tab.page.get_by_role("button", name="Cancel").click()
    tab.page.get_by_text("Cancelled. Change a setting").wait_for()
    tab.assert_clean()


def test_own_images_from_upload_to_answer_with_pictures(visit):
    """A drawing among the files is not left out in silence. Without it the answer comes, with both contact sheets."""
    tab = visit(viewport={"width": 400, "height": 800})
    tab.open("images?images_part=Your+own+images")
    page, inputs = tab.page, tab.page.locator(INPUT)
    packs = [
        {"name": f"{name}.zip", "mimeType": "application/zip", "buffer": zipped(photographs(8, seed, tint))}
        for name, seed, tint in (("march", 1, 0), ("april", 2, 120))
    ]
    drawing = {"name": "drawing.svg", "mimeType": "image/svg+xml", "buffer": b"<svg/>"}
    inputs.nth(0).set_input_files([packs[0], drawing])
    page.get_by_text("march.zip").first.wait_for()
    tab.settle()
    inputs.nth(1).set_input_files(packs[1])
    page.get_by_text("april.zip").first.wait_for()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_text("drawing.svg is an SVG drawing").first.wait_for()
    page.get_by_role("button", name="Remove drawing.svg").click()
    page.get_by_text("drawing.svg is an SVG drawing").first.wait_for(state="detached")
    page.get_by_role("button", name="Compare", exact=True).click()
    for name in ("march", "april|second sample"):
        picture = page.get_by_alt_text(re.compile(f"Most typical of “({name})”"))
        page.wait_for_function("image => image.naturalWidth > 50", arg=picture.element_handle())
    keep(tab, "own-images")
    tab.assert_clean()
