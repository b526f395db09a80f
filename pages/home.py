"""Home: one sample, two lenses, and a door for everybody."""

import streamlit as st

import m2st_core
from app import PAGES
from m2st_core.dashboard.widgets.page import chart, page_finding, page_title, run_page, show_part
from m2st_core.figures.samples import lens_figure
from m2st_core.figures.theme import WITH_RELATED, WITHOUT_RELATED
from m2st_core.studies.lessons import ALPHA, AXIS, N_TASKS, SIZE, STEP, TAUGHT, home_table
from m2st_core.studies.synthetic import DELTA
from m2st_core.testing.methods import label_of
from m2st_core.types import GENERIC_TEST

RELATED = ("hardly", "slightly", "somewhat", "fairly", "closely", "very closely")  # in the order of the table
STRONGEST = 3.0  # standard deviations of the noise at which a lens has its full colour
SMALLEST_P = 0.001
PATHS = {title: path for path, title in PAGES.items()}
DOORS = {
    "Learn": "Student: seven steps, one idea each",
    "Explore": "Researcher: the paper on one screen",
    "Test my data": "Practitioner: from files to an answer",
}


def next_sample() -> None:
    """Step to the next sample."""
    st.session_state["home_sample"] = st.session_state.get("home_sample", 0) + 1


def show_ways() -> None:
    """Show the two ways on from the picture: links, as Streamlit switches no page while a setting is in the address."""
    with st.container(key="home_ways"):
        st.page_link(PATHS["Test my data"], label="Test my data", width="stretch", help="From your files to an answer.")
        st.page_link(PATHS["Learn"], label="See why", width="stretch", help="Learn how earlier tasks teach a test.")


@st.cache_resource(max_entries=200, show_spinner=False)
def draw_lens(method: str, place: int, seed: int):
    """Draw what one test sees in one sample, once per server."""
    table = home_table()
    generic, taught = table.powers(place)
    if method == GENERIC_TEST:
        field, found, colour = table.generic_field[seed], generic, WITHOUT_RELATED
    else:
        field, found, colour = table.taught_field[place, seed], taught, WITH_RELATED
    return lens_figure(STEP * field, AXIS, (table.x[seed], table.y[seed]), found, colour, strongest=STRONGEST)


def show_lens(method: str, title: str, p_value: float, place: int, seed: int) -> None:
    """Show what one test sees and what it decides."""
    p = f"p ≤ {SMALLEST_P}" if p_value <= SMALLEST_P else f"p = {p_value:.2g}"
    verdict = f"**{p}: {'finds' if p_value <= ALPHA else 'misses'} the difference.**"
    st.header(title, anchor=False)
    st.markdown(f"{verdict} {label_of(method)}")
    chart(draw_lens(method, place, seed), f"home_{method}", f"What {label_of(method)} sees: {p}.")


def show_story() -> None:
    """Show the same rows through both lenses, below the sentence that compares them."""
    sentence, doors = st.columns([3, 1], gap="large")
    with doors:
        show_ways()
    slider, another = st.columns([3, 1], gap="large", vertical_alignment="bottom")
    related = slider.select_slider(
        "How related are the earlier tasks?",
        RELATED,
        "fairly",
        key="home_related",
        bind="query-params",
        help="In the earlier tasks P and Q differ as they do here, but less: from almost not at all to nearly as much.",
    )
    help = "Two new samples from the same P and Q, for both tests."
    another.button("Another sample", on_click=next_sample, width="stretch", help=help)
    table, place = home_table(), RELATED.index(related)
    seed = st.session_state.get("home_sample", 0) % len(table.x)
    closeness = float(table.closeness[place])
    generic, taught = table.powers(place)
    with sentence:
        page_finding(
            f"In 100 samples like this one, the generic test finds the difference **{100 * generic[0]:.0f} times**, "
            f"the taught test **{100 * taught[0]:.0f} times**."
        )
    left, right = st.columns(2, gap="large")
    with left:
        show_lens(GENERIC_TEST, "Through a generic kernel", table.generic_p[seed], 0, seed)
    with right:
        show_lens(TAUGHT, f"Taught by {N_TASKS} earlier tasks", table.taught_p[place, seed], place, seed)
    st.caption(
        f"Sample {seed + 1} of {len(table.x)}: the same {2 * SIZE} + {2 * SIZE} rows on both sides. The "
        "background is blue where a test sees more of P and orange where it sees more of Q; faint colours are noise. "
        f"The two columns correlate by ±{DELTA:g} in Q. In the earlier tasks they correlate by "
        f"±{0.6 - closeness:.1f} to ±{0.7 - closeness:.1f} (C = {closeness:g})."
    )


def show_doors() -> None:
    """Show the way on for a student, a researcher and a practitioner."""
    for column, (title, promise) in zip(st.columns(len(DOORS)), DOORS.items(), strict=True):
        column.page_link(PATHS[title], label=f"{promise} →", help=f"Open “{title}”.")


def main() -> None:
    """Show the page."""
    page_title("Are these two samples different?")
    show_part(show_story)
    show_doors()


run_page(main)
