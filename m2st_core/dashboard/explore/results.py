"""The results of a sweep: its figure, its table, downloads and code that repeats it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from m2st_core.dashboard.widgets.page import chart, download, shared, show_folded
from m2st_core.data import TASKS, size_unit
from m2st_core.figures.null import type_1_figure
from m2st_core.figures.power import add_earlier
from m2st_core.numbers import null_band
from m2st_core.paper.published import with_published
from m2st_core.studies.power import level_finding, level_table, rows_for_power, sweep_figure
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.summary import summarise
from m2st_core.testing.methods import label_of

COLUMNS = {  # of a summary: title and help
    "label": ("method", None),
    "closeness": ("C", "The paper's closeness. At 0 the related tasks are nearly the target, at 0.6 hardly related."),
    "n_tasks": ("N", "Number of related tasks."),
    "m_tr": ("m_tr", "Training rows of the target, counted as the line above the table says."),
    "m_te": ("m_te", "Rows of each tested sample, counted as the line above the table says."),
    "rate": ("rejected", "Share of the test samples that were rejected: power, or the type-I error if P = Q."),
    "error": ("± SE", "Standard error between repeats. With a single repeat it is the binomial one."),
    "interval": ("95 % interval", "Wilson's interval for all tests together. It ignores the spread between repeats."),
    "repeats": ("repeats", "Trainings behind the number, each with fresh related tasks and training rows."),
    "tests": ("tests", "Test samples of all repeats together."),
    "published": ("published", "The paper's number for the same setting."),
    "difference": ("difference in SE", "Measured minus published, in standard errors of both."),
    "doubt": ("doubt", "Why a published number should not be compared with the measured one."),
}


class Earlier(NamedTuple):
    """Curves of other settings, which stay for comparison."""

    name: str
    table: pd.DataFrame
    pinned: bool


AXES = ("test rows", "all rows")
FORMATS = {"rate": "%.3f", "error": "%.3f", "published": "%.3f", "difference": "%+.1f"}


def show_figure(
    spec: SweepSpec,
    table: pd.DataFrame,
    key: str,
    kind: str = "power",
    earlier: Sequence[Earlier] = (),
    marked: int | None = None,
    height: int = 460,
) -> None:
    """Draw the chart, with its numbers as text for readers who cannot see it, over curves of other settings."""
    rate = "Type-I error" if spec.null else "Power"
    best = table.loc[table.groupby("method", sort=False)["m_te"].idxmax()]
    values = "; ".join(f"{label_of(row.method)} {row.rate:.2f} ± {row.error:.2f}" for row in best.itertuples())
    counted = "all target" if kind == "total" else "test"
    axis = f"{rate} against the number of {counted} rows {size_unit(spec.task)}"
    others = "".join(f" {'Pinned' if other.pinned else 'Pale'}: {other.name}." for other in earlier)
    alt = f"{axis}; at the largest size: {values or 'none'}.{others}"
    chart(shared(_draw_curves, spec, table, kind, tuple(earlier), marked, height), f"{key}_chart", alt)


def _draw_curves(
    spec: SweepSpec,
    table: pd.DataFrame,
    kind: str = "power",
    earlier: Sequence[Earlier] = (),
    marked: int | None = None,
    height: int = 460,
) -> go.Figure:
    """The curves of a sweep over those of other settings, with a line at the size ``marked``."""
    figure = sweep_figure(spec, table, kind, marked).update_layout(height=height)
    for other in earlier:
        training = other.table["m_tr"].fillna(0) if kind == "total" else 0
        shown = other.table.assign(m_te=other.table["m_te"] + training)
        add_earlier(figure, shown, other.name, pinned=other.pinned)
    return figure


def show_power_table(table: pd.DataFrame, key: str) -> None:
    """Show the numbers without columns that are constant or empty."""
    interval = [f"{low:.3f} – {high:.3f}" for low, high in zip(table["low"], table["high"], strict=True)]
    table = table.assign(interval=interval, label=table["method"].map(label_of))
    hidden = {name for name in ("closeness", "n_tasks", "m_tr") if table[name].nunique() <= 1}
    hidden |= {"published", "difference"} if table["published"].isna().all() else set()
    hidden |= set() if table["doubt"].astype(bool).any() else {"doubt"}
    titles = {name: title for name, (title, _) in COLUMNS.items() if name not in hidden}
    config = {title: st.column_config.Column(help=help_) for title, help_ in COLUMNS.values()}
    for name, format_ in FORMATS.items():
        title, help_ = COLUMNS[name]
        config[title] = st.column_config.NumberColumn(format=format_, help=help_)
    shown = table[list(titles)].rename(columns=titles)
    st.dataframe(shown, hide_index=True, width="stretch", key=f"{key}_table", column_config=config, placeholder="–")


def _ask_axis(key: str) -> None:
    """Ask whether training rows count on the horizontal axis."""
    st.segmented_control(
        "Horizontal axis",
        AXES,
        default=AXES[0],
        required=True,
        key=f"{key}_axis",
        label_visibility="collapsed",
        help="Against all rows, the training rows of methods that split count too: the same cost to you.",
    )


def show_results(
    spec: SweepSpec,
    rows: pd.DataFrame,
    key: str,
    earlier: Sequence[Earlier] = (),
    level: pd.DataFrame | None = None,
    marked: int | None = None,
) -> None:
    """Show figure, table and downloads of the finished cells, and the type-I error of ``level``, cells with P = Q."""
    if rows.empty and not earlier:
        st.caption("No points yet. They appear here as soon as they are computed.")
        return
    table = shared(with_published, shared(summarise, rows))
    choice = not spec.null and table["m_tr"].notna().any()
    kind = "total" if choice and st.session_state.get(f"{key}_axis", AXES[0]) == AXES[1] else "power"
    show_figure(spec, table, key, kind, earlier, marked)
    if rows.empty:
        return
    name = spec.run_id
    null_notes = "Dashed: α. Bars: Wilson's 95 % intervals. Grey band: 99 % of valid tests fall here."
    notes = null_notes if spec.null else "± is one standard error between repeats."
    notes += " Open diamonds: published numbers." if table["published"].notna().any() else ""
    with st.container(horizontal=True, vertical_alignment="center"):
        if choice:
            _ask_axis(key)
        st.caption(f"Sizes count rows {_unit_in_words(spec.task)}. {notes}")
    if not spec.null:
        _show_sizes(table, key)
    if level is not None and not level.empty:
        _show_level(spec, level, key)

    def numbers() -> None:
        show_power_table(table, key)
        with st.container(horizontal=True):
            download("Figure (HTML)", lambda: sweep_figure(spec, table, kind).to_html(), f"{name}.html", key)
            download("Table (CSV)", lambda: table.to_csv(index=False), f"{name}.csv", key)
            download("All cells (CSV)", lambda: rows.to_csv(index=False), f"{name}-cells.csv", key)
            download("Settings (TOML)", spec.to_toml, f"{name}.toml", key)

    show_folded("Numbers and downloads", f"{key}_numbers", numbers)


def _unit_in_words(task: str) -> str:
    """What a size counts; twice as many rows per sample where it counts rows per mode.

    >>> _unit_in_words("hdgm"), _unit_in_words("blobs")
    ('per mode: a sample has twice as many', 'per sample')
    """
    return "per mode: a sample has twice as many" if TASKS[task].rows_per_size > 1 else "per sample"


def _show_sizes(table: pd.DataFrame, key: str) -> None:
    """Show power with its standard error by method and size, and the size that 80 % power needs."""
    varying = [name for name in ("closeness", "n_tasks", "m_tr") if table[name].nunique() > 1]
    if varying or table.duplicated(["method", "m_te"]).any():
        return
    words = [f"{rate:.2f} ± {error:.2f}" for rate, error in zip(table["rate"], table["error"], strict=True)]
    wide = table.assign(words=words).pivot(index="method", columns="m_te", values="words")
    wide = wide.reindex(list(dict.fromkeys(table["method"]))).fillna("–")
    needed = rows_for_power(table)
    wide = wide.assign(needed=[needed[method] for method in wide.index])
    wide.index = [label_of(method) for method in wide.index]
    titles = {size: f"{size:g}" for size in wide.columns if size != "needed"} | {"needed": "rows for 80 %"}
    wide = wide.rename(columns=titles).rename_axis(index="power ± SE", columns=None)
    st.dataframe(wide, width="stretch", key=f"{key}_sizes")


def _show_level(spec: SweepSpec, rows: pd.DataFrame, key: str) -> None:
    """Show how often each test rejects if P = Q, all sizes together, and where that was measured."""
    table = shared(level_table, rows)
    figure = shared(type_1_figure, table, spec.alpha, shared(null_band, spec.alpha, int(table["tests"].max())))
    values = "; ".join(f"{label_of(row.method)} {row.rate:.3f}" for row in table.itertuples())
    left, right = st.columns([5, 3], gap="large", vertical_alignment="center")
    with left:
        chart(figure, f"{key}_type_1", f"Type-I error at α = {spec.alpha:g}: {values}.")
    with right:
        st.markdown("**Type-I error**", help="Share of samples with P = Q that are rejected, all sizes together.")
        st.markdown(level_finding(table, spec.alpha, spec.methods))
        sizes = ", ".join(f"{size:g}" for size in sorted(rows["m_te"].unique()))
        training = f", m_tr = {rows['m_tr'].max():g}" if rows["m_tr"].notna().any() else ""
        where = (
            "" if rows["n_tasks"].isna().all() else f"C = {rows['closeness'].max():g}, N = {rows['n_tasks'].max():g}, "
        )
        st.caption(f"Measured at {where}m_te = {sizes}{training}.")


def show_code(spec: SweepSpec) -> None:
    """Show code that repeats the sweep elsewhere."""

    def code() -> None:
        st.code(sweep_as_python(spec), language="python")
        st.code(sweep_as_shell(spec), language="bash")

    show_folded("Repeat this in Python or in the shell", "lab_code", code)


def sweep_as_python(spec: SweepSpec) -> str:
    """A script that computes the same rows."""
    return f'''from m2st_core.sweeps.executors import make_executor
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import summarise, summary_text
from m2st_core.sweeps.work import run_sweep

SPEC = SweepSpec.from_toml("""
{spec.to_toml()}""")

if __name__ == "__main__":
    executor = make_executor("pool")
    rows = run_sweep(SPEC, Store(), executor)
    executor.close()
    print(summary_text(summarise(rows)))
'''


def sweep_as_shell(spec: SweepSpec) -> str:
    """Shell commands that compute the same rows."""
    return f"""cat > spec.toml <<'END'
{spec.to_toml()}END
python -m m2st_core sweep spec.toml --out rows.csv --figure power.html
"""
