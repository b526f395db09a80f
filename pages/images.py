"""Images: tests learned from pairs of classes, their power, and what their kernel finds typical."""

from dataclasses import dataclass, replace

import streamlit as st

from m2st_core.dashboard.images.results import show_examples, show_result
from m2st_core.dashboard.jobs.jobs import watch_study
from m2st_core.dashboard.jobs.sweeps import duration, gpu_in_words
from m2st_core.dashboard.widgets.controls import SEED, Control, ask, methods_control, parameter_controls, under
from m2st_core.dashboard.widgets.page import SIDEBAR, run_page
from m2st_core.data import TASKS
from m2st_core.data.images.cifar import SOURCES
from m2st_core.data.images.tasks import ImageTask
from m2st_core.studies.images import ImageStudy
from m2st_core.sweeps.cost import predict
from m2st_core.sweeps.trial import data_of
from m2st_core.testing.methods import METHODS

IMAGE_TASKS = {name: task for name, task in TASKS.items() if issubclass(task, ImageTask)}


@dataclass(frozen=True)
class Sizes:
    """The sizes to choose from for one source of images, and their defaults."""

    n_tasks: tuple[int, ...]
    m_tr: tuple[int, ...]
    m_te: tuple[int, ...]
    default_n_tasks: int
    default_m_tr: int
    default_m_te: tuple[int, ...]
    default_tests: int


DIGITS = Sizes((5, 10, 15), (20, 30, 40, 50), (20, 40, 60, 80, 100), 15, 40, (20, 40, 60, 100), 100)
CIFAR = Sizes((10, 20, 45), (50, 100, 200), (50, 100, 200, 500, 900), 45, 100, (100, 200), 20)
CIFAR_100 = replace(CIFAR, n_tasks=(10, 20, 45, 100, 500, 4950))


def ask_target() -> type[ImageTask]:
    """Ask for the data set to learn from, and for a target that learns from it."""
    sources = tuple(dict.fromkeys(task.learned_from for task in IMAGE_TASKS.values()))
    source = Control(
        "source",
        "Learn from",
        sources[0],
        "The data set whose pairs of classes are the related tasks. Digits come with the software. CIFAR images are "
        "read from your folder, if you have them.",
        sources,
        shown=lambda name: SOURCES[name].title if name in SOURCES else "Digits",
        prefix="images_",
    ).draw()
    targets = tuple(name for name, task in IMAGE_TASKS.items() if task.learned_from == source)
    target = Control(
        "target",
        "Target",
        targets[0],
        "The two samples of images to tell apart. Images of the related tasks are never among them.",
        targets,
        shown=lambda name: IMAGE_TASKS[name].title,
        note=lambda name: IMAGE_TASKS[name].description,
        prefix=f"images_{source}_",
    ).draw()
    return IMAGE_TASKS[target]


def study_controls(source: str) -> tuple[Control, ...]:
    """The controls of a study that learns from this data set, but for its target."""
    sizes = CIFAR_100 if source == "cifar100" else CIFAR if source in SOURCES else DIGITS
    methods = methods_control(
        METHODS,
        ("Feature-MKL", "Meta-WiTS", "MMD-D", "MMD-O"),
        "The tests to compare on the same samples, in the preset recommended.",
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
            "n_tasks",
            "Class pairs N",
            sizes.default_n_tasks,
            "Related tasks, drawn at random. More give a better kernel and take longer.",
            sizes.n_tasks,
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
    return (
        *under("images_", methods),
        *under(prefix, m_te),
        *under(prefix, *training, section="Training and precision"),
        SEED,
    )


def ask_study(target: type[ImageTask]) -> ImageStudy | None:
    """Ask for everything else. If a choice is empty, say so and return None."""
    settings = tuple(ask(parameter_controls(target.name)).items())
    values = ask(study_controls(target.learned_from))
    if not values["methods"] or not values["m_te"]:
        st.warning("Choose at least one method and one number of test images.")
        return None
    values["m_te"] = tuple(sorted(values["m_te"]))
    return ImageStudy(task=target.name, settings=settings, data=data_of(target.name), **values)


def main() -> None:
    """Show the page as numbered steps."""
    st.title("Images")
    st.write(
        "Do two samples of images come from the same source? Kernels learned from other pairs of classes help to "
        f"tell from few images of the target. Choose what to learn from and what to test in {SIDEBAR}."
    )
    with st.sidebar:
        target = ask_target()
        missing = target().missing()
        study = None if missing else ask_study(target)
    if missing:
        st.info(
            f"{missing} Nothing is downloaded for you. **Digits** are always available: choose them under *Learn from*."
        )
        return
    if study is None:
        return
    st.subheader("Two samples")
    show_examples(study)
    if st.session_state.get("images_trained") != study:
        cost = predict(study.spec)
        st.subheader("Train and test")
        st.write(f"About **{duration(cost.seconds)}** on one core with these settings{gpu_in_words(cost)}.")
        if st.button("Train", type="primary", key="images_go", help="Learn from the class pairs, then measure power."):
            st.session_state["images_trained"] = study
            st.rerun()
        st.info("Press **Train** to see power, the weights of the class pairs, and what the kernel finds typical.")
        return
    job = watch_study("images", study, "Learning from class pairs, then testing…")
    if job.state == "done":
        show_result(job.result, study)


run_page(main)
