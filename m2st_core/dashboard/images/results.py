"""The results of a study of images: example images, power, β over class pairs, and what is typical of P and Q."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import streamlit as st

from m2st_core.dashboard.power_lab.results import show_figure, show_table
from m2st_core.dashboard.widgets.page import chart
from m2st_core.data.images.sources import load_images
from m2st_core.figures.kernels import bars_figure, class_witness_figure, pair_figure
from m2st_core.figures.samples import image_grid
from m2st_core.figures.theme import colour_of
from m2st_core.rng import Streams
from m2st_core.studies.images import EXPLAINED, ImagesResult, ImageStudy, KernelExplanation
from m2st_core.testing.methods import label_of

GRID_COLUMNS = 8
EXAMPLES = 32
TYPICAL = 16


def show_grid(images: np.ndarray, alt: str) -> None:
    """Show images (n, c, h, w) in [0, 1] side by side."""
    show_picture(image_grid(images, GRID_COLUMNS), alt)


def show_picture(picture: np.ndarray, alt: str) -> None:
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
            show_grid(rows.reshape(EXAMPLES, *target.shape), f"{EXAMPLES} example images of {name}: {listed}.")
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
            show_grid(images, f"The {len(images)} images that are most typical of {side} for the learned kernel.")
            st.caption(f"Most typical of **{side}** for the learned kernel, the clearest first.")
    with st.expander("Tables"):
        show_table(result.power, "images_power")
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
