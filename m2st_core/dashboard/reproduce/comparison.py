"""An experiment of the paper: published and measured results in one figure, their differences, and the tables."""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from m2st_core.dashboard.widgets.controls import Control
from m2st_core.dashboard.widgets.page import chart, download
from m2st_core.data import size_unit
from m2st_core.paper.committed import (
    NO_NUMBERS,
    NO_TYPE_1,
    RUN_HERE,
    Committed,
    Results,
    experiment_figure,
    free_choice,
    results_of,
)
from m2st_core.paper.experiments import Layer, PaperExperiment
from m2st_core.paper.published import LEAST_REPEATS, compare, measured_gamma, published_gamma, published_table, reasons
from m2st_core.sweeps.spec import LIMIT
from m2st_core.sweeps.summary import summarise

MARKS: dict[str, dict[Layer, str]] = {  # how each layer is drawn, by kind of experiment
    "ablation": {"paper": "Circles", "ours": "Squares"},
    "type-I": {"paper": "Names without a mark", "ours": "Names with (ours)"},
}
CURVES: dict[Layer, str] = {"paper": "Solid lines", "ours": "Dashed lines"}
SIZE_LABELS = {"m_te": "Test rows m_te", "m_tr": "Training rows m_tr"}
DEFAULT_SIZE = 200
OURS = Control(
    "ours",
    "Show ours",
    False,
    "Our own family of tests, on learned features, with the same samples. These are other methods than the paper's, so "
    "they form a layer of their own.",
    prefix="paper_",
)


def show_comparison(experiment: PaperExperiment) -> None:
    """Show the results that come with the software: the figure, their origin, and differences from the paper."""
    results, problems = results_of(experiment)
    for problem in problems:
        st.warning(problem)
    with_ours = "ours" in results and OURS.draw()
    shown: Results = {layer: result for layer, result in results.items() if with_ours or layer == "paper"}
    if not shown and published_table(experiment.name).empty:
        st.info(f"Not computed at full scale yet. {_nothing_published(experiment)}")
        return
    name, sizes = free_choice(experiment)
    size = None
    if sizes:
        default = DEFAULT_SIZE if DEFAULT_SIZE in sizes else sizes[0]
        label = SIZE_LABELS[name]
        size = Control(name, label, default, "The size in the figure.", sizes, buttons=True, prefix="paper_").draw()
    chart(experiment_figure(experiment, shown, size), "paper_layers", _alt(experiment, shown, size))
    st.caption("  \n".join(_caption(experiment, shown)))
    if "paper" in shown:
        _show_differences(experiment, shown["paper"])
    with st.container(horizontal=True):
        for result in shown.values():
            preset = result.spec.preset
            cells = partial(result.rows.to_csv, index=False)
            download(f"Cells, {preset} (CSV)", cells, f"{experiment.name}-{preset}.csv", "paper")


def _alt(experiment: PaperExperiment, shown: Results, size: int | None) -> str:
    """The figure as text: the rate of every method at its largest size."""
    layers = []
    for layer, result in shown.items():
        table = summarise(result.rows)
        table = table if size is None or experiment.kind != "tasks" else table[table["m_te"] == size]
        last = table.groupby("method", sort=False).tail(1)
        rates = ", ".join(f"{row.method} {row.rate:.2f}" for row in last.itertuples())
        layers.append(f"{RUN_HERE if layer == 'paper' else 'ours'}: {rates}")
    return f"{experiment.title}. At the largest size: {'; '.join(layers) or 'published numbers only'}."


def _caption(experiment: PaperExperiment, shown: Results) -> list[str]:
    """Lines that say how each layer is drawn and where it comes from."""
    marks = MARKS.get(experiment.kind, CURVES)
    published = not published_table(experiment.name).empty
    lines = ["Open diamonds: published." if published else _nothing_published(experiment)]
    for layer, result in shown.items():
        lines.append(f"{marks[layer]}: {RUN_HERE if layer == 'paper' else 'ours'}; {result.origin}.")
    if any(LIMIT in result.spec.methods for result in shown.values()):
        lines.append("Dotted: tests without related tasks. Grey: the limit, the true log-likelihood ratio as witness.")
    if "paper" not in shown:
        lines.append("The paper's algorithms have not been run here at full scale yet.")
    elif experiment.kind == "type-I":
        lines.append("Dashed: α. Bars: Wilson's 95 % intervals. Grey band: 99 % of valid tests fall here.")
    else:
        unit = f" Sizes count rows {size_unit(experiment.full.task)}." if experiment.full else ""
        lines.append(f"Bands and bars: one standard error between repeats.{unit}")
    return [*lines, *([experiment.note] if experiment.note else [])]


def _nothing_published(experiment: PaperExperiment) -> str:
    return NO_TYPE_1 if experiment.kind == "type-I" else NO_NUMBERS


def _show_differences(experiment: PaperExperiment, result: Committed) -> None:
    """Compare published with measured numbers, and explain every cell that is far off."""
    table = compare(experiment.name, result.rows)
    if table.empty:
        return
    st.markdown("**Difference from the published numbers**")
    shown = pd.DataFrame(
        {
            "method": table["method"],
            "N": table["n_tasks"].astype("Int64"),
            "m_te": table["m_te"],
            "published": _with_errors(table["published"], table["published_error"]),
            "this software": _with_errors(table["rate"], table["error"]),
            "difference in SE": table["difference"],
            "repeats": table["repeats"],
        }
    )
    if table["n_tasks"].nunique() <= 1:
        shown = shown.drop(columns="N")
    help_ = f"This software minus published, in standard errors of both. It needs at least {LEAST_REPEATS} repeats."
    config = {"difference in SE": st.column_config.NumberColumn(format="%+.1f", help=help_)}
    st.dataframe(
        shown, hide_index=True, width="stretch", key="paper_differences", column_config=config, placeholder="–"
    )
    far = reasons(table)
    if far:
        st.markdown("Off by more than two standard errors:\n" + "\n".join(f"- {where}: {why}" for where, why in far))


def _with_errors(values: pd.Series, errors: pd.Series) -> list[str]:
    return [f"{value:.3f} ± {error:.3f}" for value, error in zip(values, errors, strict=True)]


def show_gamma(experiment: PaperExperiment) -> None:
    """Show γ̂ against the closeness, published and measured."""
    chart(experiment_figure(experiment, {}), "paper_gamma_chart", "γ̂ against the closeness C, published and measured.")
    measured = measured_gamma()
    st.caption(
        "Open diamonds: published. Other marks: the paper's estimator, run by this software on "
        f"{measured['date'].iloc[0]} with 2,000 rows per half and sample, 10 tasks, 10 restarts and 100 steps."
    )
    titles = {
        "closeness": "closeness C",
        "gamma_hat": "published γ̂",
        "on_training_rows": "γ̂ on training halves",
        "on_test_rows": "γ̂ on test halves",
        "floor": "noise floor",
    }
    table = measured.merge(published_gamma(), on="closeness")[list(titles)].rename(columns=titles)
    st.dataframe(table, hide_index=True, width="content", key="paper_gamma")


def show_published(experiment: PaperExperiment) -> None:
    """Show the paper's numbers, arranged as in its table."""
    table = published_table(experiment.name)
    if table.empty:
        return
    st.subheader("Published")
    cells = [f"{r.power:.3f} ± {r.std_error:.3f}{' *' if r.doubt else ''}" for r in table.itertuples()]
    keys = [key for key in ("method", "meta_source", "n_tasks", "m_tr") if key == "method" or table[key].nunique() > 1]
    columns = "m_te = " + table["m_te"].astype(str)
    wide = table.assign(cell=cells, column=columns).pivot_table("cell", keys, "column", "first", sort=False)
    wide = wide.reset_index().rename(columns={"n_tasks": "N", "meta_source": "related tasks from"})
    st.dataframe(wide, hide_index=True, width="stretch", key="paper_published", placeholder="–")
    number = " N is the number of related tasks." if "N" in wide else ""
    st.caption(f"Power ± standard error; sizes {table['size_unit'].iloc[0]}.{number}")
    for doubt in sorted(set(table["doubt"]) - {""}):
        st.caption(f"\\* not to be compared with ours: {doubt}.")
