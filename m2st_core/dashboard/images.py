"""Images: what describes them, results of a study, the example that the page opens with, and your own images."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from m2st_core.analysis.answer import answer_of, verdict
from m2st_core.analysis.images import PIXEL_SIDE, compare_images
from m2st_core.analysis.pictures import contact_sheets
from m2st_core.analysis.plan import Outcome
from m2st_core.analysis.report import html_report
from m2st_core.dashboard.explore.results import show_figure, show_power_table
from m2st_core.dashboard.jobs.jobs import watch_job
from m2st_core.dashboard.widgets.controls import Control
from m2st_core.dashboard.widgets.page import as_text, chart, download, show_answer, show_folded
from m2st_core.data.images.efficientnet import missing_weights
from m2st_core.data.images.features import PIXELS, PRETRAINED
from m2st_core.data.images.files import MOST_BYTES, MOST_IMAGES, RULE, SIDE
from m2st_core.data.images.sources import load_images
from m2st_core.figures.kernels import bars_figure, class_witness_figure, pair_figure
from m2st_core.figures.samples import image_grid
from m2st_core.figures.theme import colour_of
from m2st_core.rng import Streams
from m2st_core.studies.images import (
    ALONE,
    EXPLAINED,
    STORY,
    TAUGHT,
    ImagesResult,
    ImageStudy,
    KernelExplanation,
    shipped_story,
    story_finding,
)
from m2st_core.testing.methods import label_of
from m2st_core.types import Progress

GRID_COLUMNS = 8
EXAMPLES, TYPICAL, OF_STORY = 32, 16, 24  # images in a grid
NAMES = ("first", "second")
QUESTION = "Do your two samples of images come from the same source?"


def ask_features(prefix: str, default: str, pixels: str = "Pixels") -> str:
    """Ask what describes an image; say what is missing for pretrained features."""
    missing = missing_weights()
    words = {PRETRAINED: "Pretrained features (EfficientNet-Lite0)", PIXELS: pixels}
    chosen = Control(
        "features",
        "Compare the images by",
        PIXELS if missing else default,
        "A network pretrained on photographs describes what an image shows. Pixels say only where it is dark.",
        (PIXELS,) if missing else (PRETRAINED, PIXELS),
        shown=words.__getitem__,
        prefix=prefix,
    ).draw()
    if missing:
        st.caption(missing)
    return str(chosen)


def _show_grid(images: np.ndarray, alt: str) -> None:
    """Show images (n, c, h, w) in [0, 1] side by side."""
    _show_picture(image_grid(images, GRID_COLUMNS), alt)


def _show_picture(picture: np.ndarray, alt: str) -> None:
    """Show a picture (H, W, 4) of bytes, with a text for readers who cannot see it."""
    st.image(picture, alt=alt, output_format="PNG")


def show_examples(study: ImageStudy) -> None:
    """Show some images of both samples, as a test receives them."""
    target = study.target
    shown = target.show(EXAMPLES, EXAMPLES, Streams(study.seed).child("examples"))
    samples = (("x ~ P", shown.x, shown.x_classes), ("y ~ Q", shown.y, shown.y_classes))
    for column, (name, rows, classes) in zip(st.columns(2, gap="large"), samples, strict=True):
        names, counts = np.unique(classes, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:GRID_COLUMNS]
        listed = ", ".join(f"{names[index]} ({counts[index]})" for index in order)
        listed += "" if len(names) <= GRID_COLUMNS else f" and {len(names) - GRID_COLUMNS} other classes"
        with column:
            st.markdown(f"**{name}**")
            _show_grid(rows.reshape(EXAMPLES, *target.shape), f"{EXAMPLES} example images of {name}: {listed}.")
            st.caption(f"Classes: {listed}")
    origins = dict.fromkeys(load_images(name).origin for name in (target.first, target.second, target.learned_from))
    st.caption("Images: " + "; ".join(origins) + ".")


def show_result(result: ImagesResult, study: ImageStudy) -> None:
    """Show the power of each method, then the kernel of Feature-MKL."""
    st.header("Power against the number of test images", anchor=False)
    show_figure(study.spec, result.power, "images_power")
    by = "pretrained features" if study.described else "pixels"
    st.caption(
        f"Share of {study.tests} fresh test samples that are rejected at α = 0.05, after one training with "
        f"m_tr={study.m_tr} images per sample. Images are compared by {by}. Bands are ± one binomial standard error. "
        "The standard error between trainings needs several of them"
        + (": **Power** repeats the same target." if not study.described else ".")
    )
    explanation = result.explanation
    _show_pairs(explanation)
    left, right = st.columns(2, gap="large")
    with left:
        _show_classes(explanation)
    with right:
        st.header("The most typical images", anchor=False)
        for side, images in zip("PQ", explanation.most_typical(TYPICAL), strict=True):
            _show_grid(images, f"The {len(images)} images that are most typical of {side} for the learned kernel.")
            st.caption(f"Most typical of **{side}** for the learned kernel, the clearest first.")
    with st.expander("Tables"):
        show_power_table(result.power, "images_power")
        st.dataframe(explanation.classes, hide_index=True, width="stretch", key="images_classes")


def _show_pairs(explanation: KernelExplanation) -> None:
    """Show the kernels that have weight, and Ĵ of those of class pairs."""
    weights, criterion, kernels = explanation.weights, explanation.criterion, explanation.kernels()
    classes = sorted({name for pair in weights for name in pair})
    left, right = st.columns(2, gap="large")
    with left:
        st.header("The kernels that have weight", anchor=False)
        alt = "Bars of β: " + ", ".join(f"{name} {weight:.2f}" for name, weight in kernels.items()) + "."
        colour = colour_of(EXPLAINED)
        figure = bars_figure(list(kernels), list(kernels.values()), x_title="weight β", colour=colour)
        chart(figure, "images_weights", alt)
        st.caption(
            f"The weights of {label_of(EXPLAINED)}. Kernels of {len(weights)} single class pairs have "
            f"{sum(weights.values()):.2f} in all. Kernels learned from all pairs and Gaussian kernels have the rest."
        )
    with right:
        st.header("Ĵ of each class pair", anchor=False)
        chart(
            pair_figure(classes, criterion, "Ĵ"),
            "images_criterion",
            f"Matrix of Ĵ by pair of classes; {_largest(criterion)}.",
        )
        st.caption("Signal over noise of each pair's kernel on the target's training images, from which β is learned.")


def _largest(values: Mapping[tuple[str, str], float]) -> str:
    largest = sorted(values.items(), key=lambda item: -item[1])[:3]
    return "the largest: " + "; ".join(f"{a} or {b} {value:.2g}" for (a, b), value in largest)


def _show_classes(explanation: KernelExplanation) -> None:
    st.header("Witness by class", anchor=False)
    table, n = explanation.classes, explanation.n
    (top, high), (bottom, low) = table[["class", "mean"]].iloc[[0, -1]].to_numpy()
    alt = f"Mean witness value by class: from {top} ({high:.2g}, typical of P) to {bottom} ({low:.2g}, typical of Q)."
    chart(class_witness_figure(table), "images_by_class", alt)
    st.caption(
        f"The witness function of {label_of(EXPLAINED)} on {n} + {len(explanation.images) - n} held-out images. It is "
        "positive where the kernel finds more of P. Bars: ± one standard error."
    )


def show_story() -> str:
    """Show the example and return its finding."""
    result = shipped_story()
    explanation, n = result.explanation, result.explanation.n
    st.header("Do these two samples show the same mix of digits?", anchor=False)
    sides = (("x ~ P", explanation.images[:n]), ("y ~ Q", explanation.images[n:]))
    for column, (name, images) in zip(st.columns(2, gap="large"), sides, strict=True):
        with column:
            st.markdown(f"**{name}**")
            _show_grid(images[:OF_STORY], f"{OF_STORY} of {len(images)} digits of {name}, each in its own light.")
    shares = explanation.classes.sort_values("class")
    mix = ", ".join(f"{row['class']}: {row['share_p']:.0%} and {row['share_q']:.0%}" for _, row in shares.iterrows())
    st.caption(
        f"{OF_STORY} of {n} digits of each sample. Every image has its own light, which hides the difference from "
        f"kernels on pixels. Shares of the digits in x and y: {mix}. No test is told them."
    )
    st.header("What earlier tasks are worth", anchor=False)
    show_figure(STORY.spec, result.power, "story_power")
    taught, alone = (" and ".join(map(label_of, names)) for names in (TAUGHT, ALONE))
    st.caption(
        f"{taught} learned from {STORY.n_tasks} pairs of the digits 0 to 5; the target shows 6 to 9. {alone} learned "
        f"from no other digits. {STORY.repeats} trainings × {STORY.tests} test samples, with bands of ± one standard "
        f"error. Tests that learn from the target have {STORY.m_tr} further images of each sample for it."
    )
    st.header("The images that differ most", anchor=False)
    for column, side, images in zip(st.columns(2, gap="large"), "PQ", explanation.most_typical(TYPICAL), strict=True):
        with column:
            _show_grid(images, f"The {len(images)} images that are most typical of {side} for the learned kernel.")
            st.caption(f"Most typical of **{side}** for {label_of(TAUGHT[0])}, the clearest first.")
    show_folded("Table", "story_table", lambda: show_power_table(result.power, "story_power"))
    return story_finding(result.power)


def show_own_images() -> str:
    """Ask for two samples of images, test them, show the answer and return it as the page's sentence."""
    uploads: list[Sequence[UploadedFile]] = []
    for column, name in zip(st.columns(2, gap="large"), NAMES, strict=True):
        uploads.append(
            column.file_uploader(
                f"The {name} sample: PNGs or JPEGs, or a ZIP of them",
                None,  # what is not a PNG or JPEG gets a sentence, instead of being left out
                accept_multiple_files=True,
                key=f"own_images_{name}",
                help=f"At most {MOST_IMAGES:,} images of {MOST_BYTES >> 20} MB each.",
            )
        )
    related = st.file_uploader(
        "Related tasks, if there are any: a ZIP",
        ["zip"],
        key="own_images_related",
        help="Earlier comparisons of the same kind: a folder for each, with two folders of images in it. A test learns "
        "from them which differences to expect. Images of your samples are not learned from.",
    )
    features = ask_features("own_images_", PRETRAINED, f"Pixels ({PIXEL_SIDE}×{PIXEL_SIDE})")
    st.caption(RULE.format(side=SIDE) + " Your images are not stored.")
    settings = _settings([*uploads, [related] if related is not None else []], features)
    ready = all(uploads)
    if st.button("Compare", type="primary", key="own_images_go", disabled=not ready, help="Test the two samples."):
        st.session_state["own_images_asked"] = settings
    if not ready or st.session_state.get("own_images_asked") != settings:
        return QUESTION
    samples = [[(file.name, file.getvalue()) for file in files] for files in uploads]
    tasks = [(related.name, related.getvalue())] if related is not None else None
    first, second = (_name(files, f"{name} sample") for files, name in zip(uploads, NAMES, strict=True))
    given: dict[str, Any] = {"related_tasks": tasks, "features": features, "names": (first, second), "keep": False}

    def work(progress: Progress) -> Outcome:
        return compare_images(*samples, progress=progress, **given)

    job = watch_job("own_images", settings, work, "Reading the images, computing features, testing…")
    if job.state != "done":
        return QUESTION
    _show(job.result)
    return f"{as_text(verdict(job.result))}."


def _settings(uploads: Sequence[Sequence[UploadedFile]], features: str) -> str:
    """What identifies a comparison: the uploaded files and the features."""
    files = [[(file.file_id, file.name) for file in group] for group in uploads]
    return hashlib.sha256(repr((files, features)).encode()).hexdigest()


def _name(files: Sequence[UploadedFile], otherwise: str) -> str:
    """The name of a single ZIP, without its extension."""
    return files[0].name.removesuffix(".zip") if len(files) == 1 and files[0].name.endswith(".zip") else otherwise


def _show(outcome: Outcome) -> None:
    with st.container(border=True):
        show_answer(answer_of(outcome))
    sheets = contact_sheets(outcome)
    for column, of_sample in zip(st.columns(2, gap="large"), (sheets[:2], sheets[2:]), strict=True):
        with column:
            for sheet in reversed(of_sample):
                st.markdown(f"**{as_text(sheet.title)}**")
                _show_picture(sheet.figure, sheet.alt)
    st.subheader("How many images a new study needs", anchor=False)
    for sentence in outcome.analysis.effect.sentences:
        st.markdown(as_text(sentence))
    for note in dict.fromkeys((*outcome.data.decisions[1:], *outcome.analysis.primary.notes)):
        st.caption(as_text(note))
    download("Report", lambda: html_report(outcome), "images.html", "own_images")
