"""β weights: how a mixture weighs the kernels of related tasks, what each sees, and what more training rows change."""

import streamlit as st

import m2st_core
from m2st_core.dashboard.explore.rail import ask_setting
from m2st_core.dashboard.jobs.jobs import watch_study
from m2st_core.dashboard.widgets.controls import Control
from m2st_core.dashboard.widgets.page import (
    chart,
    choice_sentences,
    clickable_chart,
    latest_of_page,
    page_finding,
    page_title,
    run_page,
    shared,
    show_folded,
)
from m2st_core.dashboard.your_data.state import show_upload_table, user_data
from m2st_core.figures.kernels import map_figure, mixture_figure, rank_figure
from m2st_core.studies.explore import MIXTURE, ExploreSetting, shipped_settings
from m2st_core.studies.weights import FEATURES, PLANES, Weights, WeightsStudy, upload_seconds, upload_weights
from m2st_core.testing.methods import label_of

YOURS = "my files"
CHOICE = Control(
    "kind",
    "Mixture",
    MIXTURE,
    "Meta-MKL weighs deep kernels, one for each of some related tasks. Feature-MKL, ours, weighs kernels on features "
    "learned from all of them. My files: the related tasks that you brought in Test my data.",
    (MIXTURE, FEATURES, YOURS),
    shown=lambda name: name if name == YOURS else label_of(name),
    buttons=True,
    prefix="weights_",
)
BARS, SMALL = 275, 185
SHARE = (
    "**Share of the statistic's spread**: a kernel's β times the standard deviation of its MMD² if P = Q. β alone "
    "would mislead: narrow kernels have small values."
)


def show_weights(weights: Weights, m_tr: int) -> None:
    """Show the weights with a picture of each kernel, what is seen through them, and what more training rows change."""
    rows, first, maps = weights.at(m_tr), weights.first(m_tr), weights.maps
    pictures = None if maps is None else maps.kernels
    figure = mixture_figure(
        rows, BARS, weights.symbol, measured=weights.measured, method=weights.method, pictures=pictures
    )
    alt = f"Weights of {len(first)} kernels. {weights.basis(m_tr)}"
    clicked = clickable_chart(figure, f"weights_bars_{weights.method}_{len(first)}", alt)
    st.caption(f"{SHARE if weights.measured == 'share' else ''} {weights.basis(m_tr)}".strip())
    if maps is None:
        return
    chosen = int(first[weights.measured].idxmax()) if clicked is None or clicked not in first.index else clicked
    course, one, mixture = st.columns(3, gap="medium")
    with course:
        st.markdown("**Largest** weight and others, by m_tr")
        figure = rank_figure(weights.ranked(), int(rows["m_tr"].iloc[0]), weights.method, f"m_tr {weights.unit}", SMALL)
        chart(figure, "weights_course", weights.course())
    seen = {
        f"What **{first['name'][chosen]}** sees (β = {first['beta'][chosen]:.2f})": (one, maps.kernels[chosen]),
        "What the **mixture** sees": (mixture, maps.mixture(first["used"])),
    }
    for key, (title, (place, values)) in zip(("weights_kernel", "weights_mixture"), seen.items(), strict=True):
        with place:
            st.markdown(title)
            chart(map_figure(values, maps.axes, SMALL), key, f"Map of the witness. {title.replace('*', '')}.")
    st.caption(f"{weights.course()} Maps: blue where there is more of P, orange where more of Q, empty without rows.")


def show_setting(setting: ExploreSetting, method: str) -> str:
    """Show the weights at the rail's setting, or offer to compute them, and return the finding."""
    study = WeightsStudy.at(setting, method)
    ask = f"β of {label_of(study.method)} is not shipped at this setting. Shipped: {shipped_settings('hdgm')}."
    job = watch_study(
        "weights", study, "Learning from the related tasks…", study.expected_seconds, shared(study.shipped),
        ask="" if method == FEATURES else ask,
    )  # fmt: skip
    shown = latest_of_page("weights", study, job.result if job.state == "done" else None)
    if shown is None:
        return "Nothing is computed at this setting yet." if job.state == "asked" else "Learning…"
    with shown.marked():
        show_weights(shown.result, setting.m_tr)
    show_more(shown.result, setting.m_tr)
    return f"{shown.before}{shown.result.finding(setting.m_tr)}"


def show_uploaded() -> str:
    """Show β of the related tasks that were brought to Test my data, and return the finding."""
    data = user_data()
    upload = data.upload
    if upload is None or not upload.related:
        st.page_link("pages/test_my_data.py", label="Bring them in Test my data", help="Files stay in your session.")
        return "You have no related tasks here yet: bring a target and earlier comparisons, and their β appears."
    prepared = data.prepared(upload)
    count = len(prepared.task_names)
    ask = f"Meta-MKL · tuned learns from your {count} related tasks, then finds β on halves of your target."
    expected = upload_seconds(prepared)
    weights = data.compute(
        "uploaded_weights", prepared.digest, lambda progress: upload_weights(prepared, progress=progress),
        "Learning from your related tasks…", expected, ask,
    )  # fmt: skip
    if weights is None:
        return f"Which of your **{count}** related tasks would a test trust?"
    show_weights(weights, 0)
    show_more(weights, 0)
    return weights.finding(0)


def show_more(weights: Weights, m_tr: int) -> None:
    """Offer the numbers, and what the mixtures are."""
    table = weights.summary(m_tr)
    show_folded("Table", "weights_table", lambda: show_upload_table(table))
    show_folded("What is mixed", "weights_mixed", explain_mixtures)


def explain_mixtures() -> None:
    """Say what the mixtures learn, and from what."""
    st.markdown(
        r"A mixture tests with $k_\beta=\sum_i\beta_i k_i$, β ≥ 0. Each $k_i$ was learned from a related task. "
        "Meta-MKL finds the β with the largest Ĵ, the signal over noise that determines power, on m_tr rows of the "
        "target; Meta-MKL-A weighs all kernels equally and needs no such rows. Feature-MKL also estimates how similar "
        "the target is to the related tasks.\n\n" + choice_sentences([MIXTURE, FEATURES])
    )


def main() -> None:
    """Show the page."""
    page_title("β weights", sidebar=True)
    headline, right = st.columns([3, 2], gap="medium", vertical_alignment="center")
    body = st.container()
    setting = ask_setting(PLANES)
    with right:
        choice = CHOICE.draw()
    with body:
        finding = show_uploaded() if choice == YOURS else show_setting(setting, choice)
    with headline:
        page_finding(finding)


run_page(main)
