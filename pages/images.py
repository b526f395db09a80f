"""Images: a finished example, tests of your own images, and tests learned from pairs of classes."""

from dataclasses import dataclass

import streamlit as st

import m2st_core
from m2st_core.dashboard.explore.rail import ask_setting
from m2st_core.dashboard.images import ask_features, show_examples, show_own_images, show_result, show_story
from m2st_core.dashboard.jobs.jobs import watch_study
from m2st_core.dashboard.widgets.controls import (
    Control,
    ask_controls,
    controls_under,
    methods_control,
)
from m2st_core.dashboard.widgets.page import latest_of_page, page_finding, page_title, run_page
from m2st_core.data import TASKS
from m2st_core.data.images.features import PIXELS
from m2st_core.data.images.sources import SOURCES
from m2st_core.data.images.tasks import ImageTask
from m2st_core.numbers import duration
from m2st_core.studies.explore import ExploreSetting
from m2st_core.studies.images import ImageStudy, study_cost
from m2st_core.studies.power import power_finding
from m2st_core.sweeps.cells import cell_data
from m2st_core.testing.methods import METHODS
from m2st_core.types import DEFAULT_TAUGHT_TEST, GENERIC_TEST

IMAGE_TASKS = {name: task for name, task in TASKS.items() if issubclass(task, ImageTask)}


@dataclass(frozen=True)
class Sizes:
    """The sizes to choose from for one source of images, and their defaults."""

    m_tr: tuple[int, ...]
    m_te: tuple[int, ...]
    default_m_tr: int
    default_m_te: tuple[int, ...]
    default_tests: int


DIGITS = Sizes((20, 30, 40, 50), (20, 40, 60, 80, 100), 40, (20, 40, 60, 100), 50)
CIFAR = Sizes((50, 100, 200), (50, 100, 200, 500, 900), 100, (100, 200), 20)


def study_controls(source: str) -> tuple[Control, ...]:
    """The controls of a study that learns from this data set, but for what the rail has."""
    sizes = CIFAR if source in SOURCES else DIGITS
    methods = methods_control(
        METHODS,
        (DEFAULT_TAUGHT_TEST, "Feature-MKL", GENERIC_TEST),
        "The tests to compare on the same samples. Tuned ones of the paper's tests take seconds, the others minutes.",
    )
    m_te = Control(
        "m_te",
        "Test images m_te, per sample",
        sizes.default_m_te,
        "Images in each tested sample. More give more power.",
        sizes.m_te,
    )
    training = (
        Control(
            "m_tr",
            "Training images m_tr, per sample",
            sizes.default_m_tr,
            "Target images that a test learns from. They are never tested. More give a better kernel.",
            sizes.m_tr,
        ),
        Control(
            "rows_per_task",
            "Images per class and pair",
            100,
            "Images in each related task. More give a better kernel. The paper uses 100.",
            (25, 50, 100),
        ),
        Control(
            "tests",
            "Test samples",
            sizes.default_tests,
            "Fresh samples for each size. More make the bands narrower and take longer.",
            (20, 50, 100, 200),
        ),
    )
    prefix = f"images_{source}_"
    return (*controls_under("images_", methods), *controls_under(prefix, m_te, *training))


def ask_study(setting: ExploreSetting, features: str) -> ImageStudy | None:
    """Ask for everything else. If a choice is empty, say so and return None."""
    target = IMAGE_TASKS[setting.task]
    values = ask_controls(study_controls(target.learned_from))
    if not values["methods"] or not values["m_te"]:
        st.warning("Choose at least one method and one number of test images.")
        return None
    values["m_te"] = tuple(sorted(values["m_te"]))
    pairs = len(target(**setting.settings).pairs())
    return ImageStudy(
        task=target.name,
        settings=setting.parameters,
        n_tasks=min(setting.n_tasks, pairs),
        seed=setting.seed,
        data=cell_data(target.name),
        features=features,
        **values,
    )


PART = Control(
    "part",
    "Show",
    "example",
    "A finished example, a test of your own images, or the power of tests that learned from pairs of classes.",
    ("example", "own", "classes"),
    shown={"example": "An example", "own": "Your own images", "classes": "Pairs of classes"}.__getitem__,
    buttons=True,
    prefix="images_",
)


def main() -> None:
    """Show the page."""
    page_title("Images")
    said = st.container()
    part = PART.draw()
    show = {"example": show_story, "own": show_own_images, "classes": show_classes}[part]
    sentence = show()
    with said:
        page_finding(sentence)


def show_classes() -> str:
    """Ask for a task and show what tests that learned from pairs of classes find. Return the finding."""
    place, body = st.container(), st.container()
    more = st.expander("More settings")
    with place:
        setting = ask_setting(tuple(IMAGE_TASKS))
        missing = IMAGE_TASKS[setting.task]().missing()
        features = PIXELS if missing else ask_features("images_", PIXELS)
    with more:
        study = None if missing else ask_study(setting, features)
    sentence = "Do two samples of images come from the same source?"
    with body:
        if missing:
            st.info(f"{missing} Nothing is downloaded for you. **Digits** are always available: choose them as task.")
        elif study is not None:
            sentence = show_study(study) or sentence
    return sentence


def show_study(study: ImageStudy) -> str:
    """Show the samples and, digits at once and larger images on request, what tests find. Return the finding."""
    cost = study_cost(study)
    job = None
    results = st.container()
    if study.quick or st.session_state.get("images_trained") == study:
        with results:
            job = watch_study("images", study, "Learning from class pairs, then testing…", cost.seconds)
    else:
        st.caption(f"About **{duration(cost.seconds)}** on one core with these settings{cost.gpu_words}.")
        if st.button("Train", type="primary", key="images_go", help="Learn from the class pairs, then measure power."):
            st.session_state["images_trained"] = st.session_state["images_agreed"] = study
            st.rerun()
    st.header("Two samples", anchor=False)
    show_examples(study)
    shown = latest_of_page("images", study, job.result if job is not None and job.state == "done" else None)
    if shown is None:
        return ""
    with results, shown.marked():
        show_result(shown.result, shown.settings)
    return shown.before + power_finding(shown.result.power, study.task)


run_page(main)
