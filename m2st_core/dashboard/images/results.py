"""What a study of images shows: the samples, power, β of class pairs, and what the kernel finds typical."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import streamlit as st

from m2st_core.dashboard.power_lab.results import show_figure, show_table
from m2st_core.dashboard.widgets.controls import chart
from m2st_core.data.images.cifar import load_images
from m2st_core.figures.samples import image_grid
from m2st_core.figures.weights import class_witness_figure, pair_figure
from m2st_core.rng import Streams
from m2st_core.studies.images import EXPLAINED, ImagesFound, ImageStudy, Seen
from m2st_core.sweeps.spec import label_of

COLUMNS = 8
SHOWN = 32
TYPICAL = 16


def grid(images: np.ndarray, alt: str) -> None:
    """Images as one picture, as wide as its column at most."""
    st.image(image_grid(images, COLUMNS), alt=alt, output_format="PNG")


def show_examples(study: ImageStudy) -> None:
    """Some images of both samples, as a test gets them."""
    target = study.target
    shown = target.show(SHOWN, SHOWN, Streams(study.seed).child("examples"))
    parts = (("x ~ P", shown.x, shown.x_classes), ("y ~ Q", shown.y, shown.y_classes))
    for column, (name, rows, classes) in zip(st.columns(2, gap="large"), parts, strict=True):
        names, counts = np.unique(classes, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:COLUMNS]
        words = ", ".join(f"{names[index]} ({counts[index]})" for index in order)
        more = "" if len(names) <= COLUMNS else f" and {len(names) - COLUMNS} other classes"
        with column:
            st.markdown(f"**{name}**")
            grid(rows.reshape(SHOWN, *target.shape), f"{SHOWN} example images of {name}: {words}{more}.")
            st.caption(f"Classes: {words}{more}")
    origins = dict.fromkeys(load_images(name).origin for name in (target.first, target.second, target.learned_from))
    st.caption("Images: " + "; ".join(origins) + ".")


def show_found(found: ImagesFound, study: ImageStudy) -> None:
    """Power, then what was learned."""
    st.subheader("Power against the number of test images")
    show_figure(study.spec, found.power, "images_power")
    st.caption(
        f"Share of {study.tests} fresh test samples that are rejected at α=0.05, after one training with "
        f"m_tr={study.m_tr} images per sample; bands are ± one binomial standard error. The standard error between "
        "trainings needs several of them: **Power lab** repeats the same target."
    )
    seen = found.seen
    show_pairs(seen)
    left, right = st.columns(2, gap="large")
    with left:
        show_classes(seen)
    with right:
        show_typical(seen)
    with st.expander("Tables"):
        show_table(found.power, "images_power")
        st.dataframe(seen.classes, hide_index=True, width="stretch", key="images_classes")


def show_pairs(seen: Seen) -> None:
    """β over class pairs, and what it rests on."""
    classes = sorted({name for pair in seen.weights for name in pair})
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("β over class pairs")
        alt = f"Matrix of {EXPLAINED}'s weights by pair of classes; {_largest(seen.weights)}."
        chart(pair_figure(classes, seen.weights, "β"), "images_weights", alt)
        kinds = ", ".join(f"{name} {weight:.2f}" for name, weight in seen.others.items() if weight >= 5e-3)
        st.caption(
            f"The weights of {label_of(EXPLAINED)}: {sum(seen.weights.values()):.2f} in all on kernels of single class "
            f"pairs, of which it draws {len(seen.weights)}; other squares stay empty. The rest: {kinds or 'nothing'}."
        )
    with right:
        st.subheader("Ĵ of the same kernels")
        alt = f"Matrix of Ĵ by pair of classes; {_largest(seen.criterion)}."
        chart(pair_figure(classes, seen.criterion, "Ĵ"), "images_criterion", alt)
        st.caption(
            "Signal over noise of each pair's kernel on the target's training images, from which β is learned. Where "
            "no pair stands out, β goes to kernels that all pairs have taught together."
        )


def _largest(values: Mapping[tuple[str, str], float]) -> str:
    """The three largest, in words."""
    first = sorted(values.items(), key=lambda item: -item[1])[:3]
    return "the largest: " + "; ".join(f"{a} or {b} {value:.2g}" for (a, b), value in first)


def show_classes(seen: Seen) -> None:
    """The mean witness value of each class."""
    st.subheader("Witness by class")
    table = seen.classes
    alt = f"Mean witness value by class: from {table['class'].iloc[0]} ({table['mean'].iloc[0]:.2g}, typical of P) to "
    alt += f"{table['class'].iloc[-1]} ({table['mean'].iloc[-1]:.2g}, typical of Q)."
    chart(class_witness_figure(table), "images_by_class", alt)
    st.caption(
        f"The witness function of the kernel of {label_of(EXPLAINED)}, on {seen.n} + {len(seen.images) - seen.n} "
        "images that taught it nothing: positive where it sees more of P. Bars: ± one standard error."
    )


def show_typical(seen: Seen) -> None:
    """The images most typical of either side."""
    st.subheader("The most typical images")
    for side, images in zip("PQ", seen.most_typical(TYPICAL), strict=True):
        alt = f"The {len(images)} images that the learned kernel finds most typical of {side}, clearest first."
        grid(images, alt)
        st.caption(f"Most typical of **{side}** for the learned kernel, the clearest first.")
