"""A sweep's results on a page: the figure, the table with its intervals, and everything to take away."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from m2st_core.dashboard.jobs.sweeps import sweep_queue
from m2st_core.data import size_unit
from m2st_core.figures.weights import training_figure
from m2st_core.paper.published import with_published
from m2st_core.sweeps.spec import SweepSpec, label_of
from m2st_core.sweeps.summary import summarise, sweep_figure
from m2st_core.testing.learner_files import learner_from_parts

COLUMNS = {
    "label": "method",
    "preset": "preset",
    "closeness": "C",
    "n_tasks": "N",
    "m_tr": "m_tr",
    "m_te": "m_te",
    "rate": "rejected",
    "error": "± SE",
    "interval": "95 % interval",
    "repeats": "repeats",
    "tests": "tests",
    "published": "published",
    "difference": "difference in SE",
    "doubt": "doubt",
}
HELPS = {
    "C": "Closeness: how far the meta-tasks are from the target; 0 is nearly the target itself.",
    "N": "Number of meta-tasks.",
    "m_tr": "Rows of the target that taught the test, counted as the line above the table says.",
    "m_te": "Rows of each tested sample, counted as the line above the table says.",
    "repeats": "Trainings with fresh meta-tasks and training rows behind the number.",
    "tests": "Test samples of all repeats together.",
    "rejected": "Share of the test samples that were rejected: power, or type-I error when there is no difference.",
    "± SE": "Standard error between repeats; with one repeat, that of the binomial.",
    "95 % interval": "Wilson's interval for all tests together, which leaves the spread between repeats out.",
    "published": "The paper's number for the same setting.",
    "difference in SE": "Measured minus published, in standard errors of both.",
    "doubt": "Why a published number should not be compared with the measured one.",
}


def show_figure(spec: SweepSpec, table: pd.DataFrame, key: str, kind: str = "power") -> None:
    """The chart, with its numbers in words for those who can not see it."""
    what = "Type-I error" if spec.null else "Power"
    best = table.loc[table.groupby("method", sort=False)["m_te"].idxmax()]
    values = "; ".join(f"{label_of(row.method)} {row.rate:.2f} ± {row.error:.2f}" for row in best.itertuples())
    alt = f"{what} against the number of test rows {size_unit(spec.task)}; at the largest size: {values}."
    st.plotly_chart(sweep_figure(spec, table, kind), width="stretch", key=f"{key}_chart", alt=alt)


def show_table(table: pd.DataFrame, key: str) -> None:
    """The numbers; columns that say nothing here are left out."""
    interval = [f"{low:.3f} – {high:.3f}" for low, high in zip(table["low"], table["high"], strict=True)]
    shown = table.assign(interval=interval, label=table["method"].map(label_of))[list(COLUMNS)].rename(columns=COLUMNS)
    for name in ("preset", "C", "N", "m_tr"):
        if shown[name].nunique() <= 1:
            shown = shown.drop(columns=name)
    if shown["published"].isna().all():
        shown = shown.drop(columns=["published", "difference in SE"])
    if not shown["doubt"].astype(bool).any():
        shown = shown.drop(columns="doubt")
    formats = {"rejected": "%.3f", "± SE": "%.3f", "published": "%.3f", "difference in SE": "%+.1f"}
    config = {name: st.column_config.Column(help=help_) for name, help_ in HELPS.items()}
    config |= {name: st.column_config.NumberColumn(format=f, help=HELPS[name]) for name, f in formats.items()}
    st.dataframe(shown, hide_index=True, width="stretch", key=f"{key}_table", column_config=config, placeholder="–")


def show_results(spec: SweepSpec, rows: pd.DataFrame, key: str, kind: str = "power") -> None:
    """Figure, table and downloads of the cells that are there."""
    if rows.empty:
        st.caption("There are no points yet. They appear here as soon as they are computed.")
        return
    table = with_published(summarise(rows))
    show_figure(spec, table, key, kind)
    if spec.null:
        notes = "Dashed: α. Bars: Wilson's 95 % intervals. Grey band: where the rates of 99 of 100 valid tests lie."
    else:
        notes = "± is one standard error between repeats."
    if table["published"].notna().any():
        notes += " Open diamonds: published numbers."
    st.caption(f"Sizes count rows {size_unit(spec.task)}. {notes}")
    show_table(table, key)
    name = spec.run_id
    with st.container(horizontal=True):
        download("Figure (HTML)", lambda: sweep_figure(spec, table, kind).to_html(), f"{name}.html", key)
        download("Table (CSV)", lambda: table.to_csv(index=False), f"{name}.csv", key)
        download("All cells (CSV)", lambda: rows.to_csv(index=False), f"{name}-cells.csv", key)
        download("Settings (TOML)", spec.to_toml, f"{name}.toml", key)


def download(label: str, data: Callable[[], str], file_name: str, key: str) -> None:
    """A button whose file is made when it is pressed."""
    st.download_button(
        label, data, file_name, key=f"{key}_{label}", on_click="ignore", help=f"Save {file_name} on your computer."
    )


def show_code(spec: SweepSpec) -> None:
    """How to repeat the sweep elsewhere."""
    with st.expander("Repeat this in Python or in the shell"):
        st.code(as_python(spec), language="python")
        st.code(as_shell(spec), language="bash")


def as_python(spec: SweepSpec) -> str:
    """A script that gives the same rows."""
    return f'''from m2st_core.sweeps.executors import make_executor
from m2st_core.sweeps.spec import SweepSpec, label_of
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import as_text, summarise
from m2st_core.sweeps.sweep import run_sweep

SPEC = SweepSpec.from_toml("""
{spec.to_toml()}""")

if __name__ == "__main__":
    executor = make_executor("pool")
    rows = run_sweep(SPEC, Store(), executor)
    executor.close()
    print(as_text(summarise(rows)))
'''


def as_shell(spec: SweepSpec) -> str:
    """The same, as commands."""
    return f"""cat > spec.toml <<'END'
{spec.to_toml()}END
python -m m2st_core sweep spec.toml --out rows.csv --figure power.html
"""


def show_training(spec: SweepSpec) -> None:
    """Training curves of the first repeat, for methods that climb step by step."""
    courses = training_courses(spec)
    if not courses:
        return
    with st.expander("Training curves"):
        for title, course in courses.items():
            st.caption(f"{title}, first repeat: the criterion on training rows and on rows held out.")
            alt = f"The training criterion of {title} over {len(course['step'])} checks."
            st.plotly_chart(training_figure(course), width="stretch", key=f"course_{title}", alt=alt)


def training_courses(spec: SweepSpec) -> dict[str, dict[str, list[float]]]:
    """The first repeat's training curves in the store, by method; methods that learn in closed form have none."""
    learners = {cell.learner.key: cell for cell in spec.cells() if cell.repeat == 0 and cell.learner is not None}
    return {label_of(cell.method): course for key, cell in learners.items() if (course := _course(key, cell.learner))}


@st.cache_data(max_entries=64, show_spinner=False)
def _course(key: str, _learner: object) -> dict[str, list[float]] | None:
    parts = sweep_queue().store.learner(_learner)  # type: ignore[arg-type]
    if parts is None:
        return None
    course = learner_from_parts(*parts).course
    if not len(course.step):
        return None
    return {
        "step": course.step.tolist(),
        "train": course.train[:, 0].tolist(),
        "held_out": course.held_out[:, 0].tolist(),
    }
