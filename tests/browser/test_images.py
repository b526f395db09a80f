"""Images in a real browser: from two samples of digits to what the kernel finds typical."""

import re

from tests.browser.test_pages import keep

CLASSES = "images?images_part=Pairs+of+classes"
SMALL = f"{CLASSES}&images_digits_tests=20&images_digits_m_te=40&n_tasks=5&images_digits_rows_per_task=25"


def test_digits_are_trained_and_explained(visit):
    tab = visit()
    tab.open(f"{SMALL}&images_methods=Feature-MKL+(ours)&images_methods=MMD-O")
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


def test_missing_images_say_what_to_do(visit):
    tab = visit(viewport={"width": 400, "height": 800})
    tab.open(f"{CLASSES}&task=CIFAR-10+against+CIFAR-10.1")
    tab.page.get_by_text(re.compile("CIFAR-10 is not in")).first.wait_for()
    tab.assert_clean()
