"""The controls of a study of images: what to learn from, what to test, how much of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from m2st_core.dashboard.widgets import controls
from m2st_core.data import TASKS
from m2st_core.data.images.cifar import SOURCES
from m2st_core.data.images.tasks import ImageTask
from m2st_core.studies.images import ImageStudy
from m2st_core.sweeps.trial import data_of
from m2st_core.testing.methods import METHODS

DEFAULT_METHODS = ("Feature-MKL", "Meta-WiTS", "MMD-D", "MMD-O")
TESTS = (20, 50, 100, 200)


@dataclass(frozen=True)
class Sizes:
    """What can be chosen for one source of images, and what is chosen at first."""

    n_tasks: tuple[int, ...]
    rows: tuple[int, ...]
    m_tr: tuple[int, ...]
    m_te: tuple[int, ...]
    first_m_tr: int
    first_m_te: tuple[int, ...]
    first_tests: int
    first_n_tasks: int


DIGITS = Sizes((5, 10, 15), (25, 50, 100), (20, 30, 40, 50), (20, 40, 60, 80, 100), 40, (20, 40, 60, 100), 100, 15)
CIFAR = Sizes((10, 20, 45), (25, 50, 100), (50, 100, 200), (50, 100, 200, 500, 900), 100, (100, 200), 20, 45)
CIFAR_100 = replace(CIFAR, n_tasks=(10, 20, 45, 100, 500, 4950))


def source_titles() -> dict[str, str]:
    """Every data set that some target learns from, by the words a user sees."""
    names = dict.fromkeys(task.learned_from for task in TASKS.values() if issubclass(task, ImageTask))
    return {SOURCES[name].title if name in SOURCES else "Digits": name for name in names}


def ask_source() -> str:
    """The data set whose class pairs teach."""
    titles = source_titles()
    title: str = st.selectbox(
        "Learn from",
        list(titles),
        key="images_source",
        bind="query-params",
        help="The data set whose pairs of classes are the meta-tasks. Digits come with the software; CIFAR images are "
        "read from your folder, if they are there.",
    )
    return titles[title]


def ask_target(source: str) -> type[ImageTask]:
    """A target that learns from this data set."""
    tasks = {t.title: t for t in TASKS.values() if issubclass(t, ImageTask) and t.learned_from == source}
    title: str = st.selectbox(
        "Target",
        list(tasks),
        key=f"images_target_{source}",
        bind="query-params",
        help="Which two samples of images to tell apart. Images of the meta-tasks are never among them.",
    )
    st.caption(tasks[title].description)
    return tasks[title]


def ask_study(source: str, target: type[ImageTask]) -> ImageStudy | None:
    """Everything else; None, after saying so, while a choice is empty."""
    sizes = CIFAR_100 if source == "cifar100" else CIFAR if source in SOURCES else DIGITS
    settings = controls.pick_parameters(target.name)
    methods = controls.pick_methods(
        "Methods",
        "images_methods",
        list(METHODS),
        DEFAULT_METHODS,
        "The tests to compare on the same samples, in the preset recommended.",
    )
    m_te = tuple(
        sorted(
            st.multiselect(
                "Test images m_te, per sample",
                sizes.m_te,
                sizes.first_m_te,
                key=f"images_{source}_m_te",
                bind="query-params",
                help="Images in each tested sample. More give more power.",
            )
        )
    )
    with st.expander("How much to learn from, how exactly to measure"):
        m_tr = _pick(
            "Training images m_tr, per sample",
            f"{source}_m_tr",
            sizes.m_tr,
            sizes.first_m_tr,
            "Images of the target that teach a test. They are never tested; more teach a better kernel.",
        )
        n_tasks = _pick(
            "Class pairs N",
            f"{source}_tasks",
            sizes.n_tasks,
            sizes.first_n_tasks,
            "Meta-tasks, drawn at random. More teach a better kernel and take longer.",
        )
        rows = _pick(
            "Images per class and pair",
            f"{source}_rows",
            sizes.rows,
            sizes.rows[-1],
            "In each meta-task. More teach a better kernel; the paper has 100.",
        )
        tests = _pick(
            "Test samples",
            f"{source}_tests",
            TESTS,
            sizes.first_tests,
            "Fresh ones for each size. More make the bands narrower and take longer.",
        )
    seed = controls.pick_seed()
    if not methods or not m_te:
        st.warning("Choose at least one method and one number of test images.")
        return None
    chosen = tuple(settings.items())
    return ImageStudy(target.name, chosen, methods, n_tasks, rows, m_tr, m_te, tests, seed, data_of(target.name))


def _pick(label: str, key: str, options: tuple[int, ...], default: int, help_: str) -> int:
    return int(st.select_slider(label, options, default, key=f"images_{key}", bind="query-params", help=help_))
