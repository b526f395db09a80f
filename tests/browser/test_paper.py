"""The gallery of the paper in a real browser: a card opens its entry, and Back leads to the gallery."""

import re


def heading(tab, words):
    """Wait until the page is the one with this heading."""
    tab.page.get_by_role("heading", level=1, name=re.compile(words)).wait_for()
    tab.settle()


def test_a_card_opens_an_entry_that_can_be_linked_and_left(visit):
    tab = visit()
    tab.open("paper")
    tab.page.wait_for_function(
        """() => { const drawn = [...document.querySelectorAll('[data-testid=stImage] img')]
            const cards = [...document.querySelectorAll('[class*="st-key-paper_card_"]')]
            return cards.length === 12 && drawn.length === 12 && drawn.every(image => image.naturalWidth) }"""
    )
    tab.settle()
    tab.page.get_by_role("button", name="Figure 2a", exact=True).click()
    heading(tab, "^Figure 2a")
    tab.wait_url(r"/paper\?experiment=fig2a$")
    tab.page.locator(".js-plotly-plot .main-svg").first.wait_for()
    tab.page.go_back()
    heading(tab, "^Paper$")
    tab.wait_url("/paper$")
    tab.open("paper?experiment=table3")
    heading(tab, "^Table 3")
    tab.page.get_by_role("button", name="All figures and tables").click()
    heading(tab, "^Paper$")
    tab.assert_clean()
