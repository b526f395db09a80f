"""The student's journey through Learn, and the teacher's view with its keys, in a real browser."""

from playwright.sync_api import expect

from m2st_core.dashboard.learn.lessons import LAST, LESSONS, QUIZ


def step(tab, number):
    name = f"{number}. {LESSONS[number - 1].name}" if number <= len(LESSONS) else LAST
    expect(tab.page.get_by_role("heading", level=2, name=name, exact=True)).to_be_visible()


def counter(tab):
    return tab.page.locator(".textpoint text", has_text="shuffles").first


def test_a_student_walks_through_all_steps_and_answers_the_quiz(visit):
    tab = visit()
    tab.open("learn")
    assert tab.page.get_by_role("heading", level=1).count() == 1
    for number in range(1, len(LESSONS) + 1):
        step(tab, number)
        tab.settle()
        expect(tab.page.locator(".st-key-learn_picture .main-svg").first).to_be_visible()
        if number == 2:
            expect(counter(tab)).to_contain_text("99 shuffles")
            play = tab.page.get_by_role("button", name="Play")
            tab.page.wait_for_function("button => button.onclick", arg=play.element_handle())
            play.press("Enter")
            expect(counter(tab)).not_to_contain_text("99 shuffles")
            tab.page.get_by_role("button", name="Pause").click()
        tab.page.get_by_role("button", name="Next →").click()
    step(tab, len(LESSONS) + 1)
    for question in QUIZ:
        answer = list(question.answers)[question.right]
        tab.page.get_by_role("radiogroup", name=question.words).get_by_text(answer, exact=True).click()
        expect(tab.page.get_by_text(question.answers[answer]).first).to_be_visible()
    expect(tab.page.get_by_text("5 of 5 right.").first).to_be_visible()
    tab.page.locator(".st-key-learn_recap").get_by_role("link", name="Test my data").click()
    tab.wait_url("/test_my_data")
    tab.assert_clean()


def test_a_teacher_has_keys_and_no_chrome(visit):
    tab = visit(reduced_motion="reduce")
    tab.open("learn?teacher=1")
    step(tab, 1)
    tab.page.wait_for_function("() => window.learnKeys")
    expect(tab.page.get_by_test_id("stHeader")).to_be_hidden()
    expect(tab.page.get_by_text("seed 0").first).to_be_visible()
    tab.page.keyboard.press("r")
    expect(tab.page.get_by_text("seed 1").first).to_be_visible()
    tab.page.keyboard.press("ArrowRight")
    step(tab, 2)
    expect(tab.page.get_by_text("asks for less motion").first).to_be_visible()
    expect(tab.page.get_by_role("button", name="Play")).to_be_hidden()
    tab.page.keyboard.press("ArrowLeft")  # at once: it waits for Back
    step(tab, 1)
    tab.settle()
    tab.page.get_by_role("slider").first.focus()
    tab.page.keyboard.press("ArrowRight")  # moves the slider, not the step
    expect(tab.page.get_by_text("Δ = 0.9", exact=False).first).to_be_visible()
    step(tab, 1)
    assert tab.page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth + 1")
    tab.assert_clean()


def test_the_next_step_is_shown_from_its_top(visit):
    tab = visit()
    tab.page.set_viewport_size({"width": 1280, "height": 600})
    tab.open("learn")
    step(tab, 1)
    tab.settle()
    tab.page.get_by_role("button", name="Next →").scroll_into_view_if_needed()
    place = "() => document.querySelector('[data-testid=stMain]').scrollTop"
    assert tab.page.evaluate(place) > 0
    tab.page.get_by_role("button", name="Next →").click()
    step(tab, 2)
    tab.page.wait_for_function(f"({place})() === 0")
    tab.assert_clean()
