"""Your own images: two uploads and related tasks in, the answer in words and pictures out. Nothing of it is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from m2st_core.analysis.images import PIXEL_SIDE, compare_images
from m2st_core.analysis.pictures import contact_sheets
from m2st_core.analysis.plan import Outcome
from m2st_core.analysis.report import html_report
from m2st_core.analysis.words import answer_of, verdict
from m2st_core.dashboard.images.features import ask_features
from m2st_core.dashboard.images.results import show_picture
from m2st_core.dashboard.jobs.jobs import watch_job
from m2st_core.dashboard.widgets.answer import as_text, show_answer
from m2st_core.dashboard.widgets.page import download
from m2st_core.data.images.features import PRETRAINED
from m2st_core.data.images.own import MOST_BYTES, MOST_IMAGES, RULE, SIDE
from m2st_core.types import Progress

NAMES = ("first", "second")
QUESTION = "Do your two samples of images come from the same source?"


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

    def work(progress: Progress) -> Outcome:
        given: dict[str, Any] = {"related_tasks": tasks, "features": features, "names": (first, second), "keep": False}
        return compare_images(samples[0], samples[1], progress=progress, **given)

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
    """Show the answer, the contact sheets, the images that a new study needs, and the report."""
    with st.container(border=True):
        show_answer(answer_of(outcome))
    sheets = contact_sheets(outcome)
    for column, of_sample in zip(st.columns(2, gap="large"), (sheets[:2], sheets[2:]), strict=True):
        with column:
            for sheet in reversed(of_sample):
                st.markdown(f"**{as_text(sheet.title)}**")
                show_picture(sheet.figure, sheet.alt)
    st.subheader("How many images a new study needs", anchor=False)
    for sentence in outcome.analysis.effect.sentences:
        st.markdown(as_text(sentence))
    for note in dict.fromkeys((*outcome.data.decisions[1:], *outcome.analysis.primary.notes)):
        st.caption(as_text(note))
    download("Report", lambda: html_report(outcome), "images.html", "own_images")
