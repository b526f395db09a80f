"""One figure or table of the paper: its layers in one figure, their differences, and the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import pandas as pd
import streamlit as st

from m2st_core.dashboard.widgets.controls import Control
from m2st_core.dashboard.widgets.page import chart, download, page_finding, page_title
from m2st_core.data import size_unit
from m2st_core.paper.experiments import LAYERS, Layer, PaperExperiment
from m2st_core.paper.gallery import (
    NOT_RUN,
    RUN_HERE,
    Results,
    State,
    experiment_figure,
    free_choice,
    gallery_card,
    nothing_published,
    shown_size,
)
from m2st_core.paper.published import (
    LEAST_REPEATS,
    compare_with_published,
    measured_gamma,
    one_history_sentence,
    published_gamma,
    published_table,
    reasons_of_differences,
    with_one_history,
)
from m2st_core.paper.results import CommittedResults, results_of
from m2st_core.sweeps.spec import LIMIT
from m2st_core.sweeps.summary import summarise
from m2st_core.testing.methods import label_of

COLOURS: dict[State, Literal["green", "orange", "gray"]] = {"agrees": "green", "differs": "orange", "open": "gray"}
MARKS: dict[str, dict[Layer, str]] = {  # how each layer is drawn, by kind of experiment
    "ablation": {"paper": "Circles", "ours": "Squares"},
    "type-I": {"paper": "Names without a mark", "ours": "Names with (ours)"},
}
CURVES: dict[Layer, str] = {"paper": "Lines without (ours)", "ours": "Dashed lines with (ours)"}
ONE_HISTORY = "if repeats share a history"
ONE_HISTORY_HELP = (
    "The same difference if the paper's repeats share one set of related tasks: the spread between such sets, measured "
    "here, is added to both standard errors."
)
SIZE_LABELS = {"m_te": "Test rows m_te", "m_tr": "Training rows m_tr"}
OURS = Control(
    "ours",
    "Show ours",
    False,
    "Our own family of tests, on learned features, with the same samples. These are other methods than the paper's, so "
    "they form a layer of their own.",
    prefix="paper_",
)


def show_entry(experiment: PaperExperiment) -> None:
    """Show what is published and what comes with the software, beside each other."""
    back = "← All figures and tables"
    st.button(back, key="paper_back", help="Back to the gallery.", on_click=st.query_params.clear)
    page_title(experiment.title)
    card = gallery_card(experiment)
    page_finding(card.sentence)
    st.badge(card.badge, color=COLOURS[card.state])
    if experiment.kind == "relatedness":
        _show_gamma(experiment)
        return
    _show_layers(experiment)
    _show_published(experiment)


def _show_layers(experiment: PaperExperiment) -> None:
    results, problems = results_of(experiment)
    with_ours = "ours" in results and OURS.draw()
    shown: Results = {layer: result for layer, result in results.items() if with_ours or layer == "paper"}
    if shown or not published_table(experiment.name).empty:
        size = _ask_size(experiment)
        rows = {layer: result.rows for layer, result in shown.items()}
        chart(experiment_figure(experiment, rows, size), "paper_layers", figure_text(experiment, rows, size))
        st.caption("  \n".join([*_caption(experiment, shown), *problems]))
    elif problems:
        st.caption("  \n".join(problems))
    if "paper" in shown:
        _show_differences(experiment, shown["paper"])
    with st.container(horizontal=True):
        for layer, result in shown.items():
            cells = partial(result.rows.to_csv, index=False)
            download(f"Cells, {LAYERS[layer]} (CSV)", cells, f"{experiment.name}-{layer}.csv", "paper")


def _ask_size(experiment: PaperExperiment) -> int | None:
    """Ask for the one size that the figure shows, if it shows one."""
    name, sizes = free_choice(experiment)
    default = shown_size(experiment)
    if default is None:
        return None
    label, help_ = SIZE_LABELS[name], "The size in the figure."
    return int(Control(name, label, default, help_, sizes, buttons=True, prefix="paper_").draw())


def figure_text(experiment: PaperExperiment, rows: Mapping[Layer, pd.DataFrame], size: int | None) -> str:
    """The figure as text: the rate of every method at its largest size."""
    layers = []
    for layer, results in rows.items():
        table = summarise(results)
        table = table if size is None or experiment.kind != "tasks" else table[table["m_te"] == size]
        last = table.groupby("method", sort=False).tail(1)
        rates = ", ".join(f"{row.method} {row.rate:.2f}" for row in last.itertuples())
        layers.append(f"{RUN_HERE if layer == 'paper' else 'ours'}: {rates}")
    return f"{experiment.title}. At the largest size: {'; '.join(layers) or 'published numbers only'}."


def _caption(experiment: PaperExperiment, shown: Results) -> list[str]:
    """Lines that say how each layer is drawn and where it comes from."""
    marks = MARKS.get(experiment.kind, CURVES)
    published = not published_table(experiment.name).empty
    lines = ["Open diamonds: published, 2021." if published else nothing_published(experiment)]
    for layer, result in shown.items():
        lines.append(f"{marks[layer]}: {RUN_HERE if layer == 'paper' else 'ours'}; {result.origin}.")
    if any(LIMIT in result.spec.methods for result in shown.values()):
        lines.append(
            "Green: with related tasks. Grey: without. Open circles: the limit, with the true log p/q as witness."
        )
    if "paper" not in shown:
        lines.append(NOT_RUN)
    elif experiment.kind == "type-I":
        lines.append("Dashed: α. Bars: Wilson's 95 % intervals. Grey band: 99 % of valid tests fall here.")
    else:
        unit = f" Sizes count rows {size_unit(experiment.full.task)}." if experiment.full else ""
        lines.append(f"Bands and bars: one standard error between repeats, from {LEAST_REPEATS} repeats on.{unit}")
    return [*lines, *([experiment.note] if experiment.note else [])]


def _show_differences(experiment: PaperExperiment, result: CommittedResults) -> None:
    """Compare published with measured numbers, and explain every cell that is far off."""
    table = with_one_history(compare_with_published(experiment.name, result.rows))
    if table.empty:
        return
    far, shared = reasons_of_differences(table), one_history_sentence(table)
    if far:
        st.header("Why some numbers differ", anchor=False)
        st.markdown("\n".join(f"- **{where}**: {why}" for where, why in far))
    if shared:
        st.markdown(shared)
    st.header("Every number", anchor=False)
    show_numbers(table, "paper_differences", with_n=len(result.spec.n_tasks) > 1)


def show_numbers(table: pd.DataFrame, key: str, *, with_n: bool) -> None:
    """Show measured beside published numbers; standard errors need five repeats."""
    shown = pd.DataFrame(
        {
            "method": table["method"].map(label_of),
            "N": table["n_tasks"].astype("Int64"),
            "m_te": table["m_te"],
            "published": _with_errors(table["published"], table["published_error"]),
            "this software": _with_errors(table["rate"], table["error"].where(table["repeats"] >= LEAST_REPEATS)),
            "difference in SE": table["difference"],
            "repeats": table["repeats"],
        }
    )
    shown = shown if with_n else shown.drop(columns="N")
    if "one_history" in table and table["one_history"].notna().any():
        shown.insert(shown.columns.get_loc("difference in SE") + 1, ONE_HISTORY, table["one_history"])
    help_ = f"This software minus published, in standard errors of both. It needs at least {LEAST_REPEATS} repeats."
    config = {
        "difference in SE": st.column_config.NumberColumn(format="%+.1f", help=help_),
        ONE_HISTORY: st.column_config.NumberColumn(format="%+.1f", help=ONE_HISTORY_HELP),
    }
    st.dataframe(shown, hide_index=True, width="stretch", key=key, column_config=config, placeholder="–")


def _with_errors(values: pd.Series, errors: pd.Series) -> list[str | None]:
    texts: list[str | None] = []
    for value, error in zip(values, errors, strict=True):
        texts.append(None if pd.isna(value) else f"{value:.3f}" if pd.isna(error) else f"{value:.3f} ± {error:.3f}")
    return texts


def _show_gamma(experiment: PaperExperiment) -> None:
    chart(experiment_figure(experiment, {}), "paper_gamma_chart", "γ̂ against the closeness C, published and measured.")
    measured = measured_gamma()
    st.caption(
        "Open diamonds: published, 2021. Other marks: the paper's estimator, run by this software on "
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
    help_ = "What γ̂ means, its spread, and a quick measurement."
    st.page_link("pages/relatedness.py", label="Measure it here, on “Relatedness”", help=help_)


def _show_published(experiment: PaperExperiment) -> None:
    table = published_table(experiment.name)
    if table.empty:
        return
    with st.expander("The table as published"):
        cells = [f"{r.power:.3f} ± {r.std_error:.3f}{' *' if r.doubt else ''}" for r in table.itertuples()]
        keys = [
            key for key in ("method", "meta_source", "n_tasks", "m_tr") if key == "method" or table[key].nunique() > 1
        ]
        columns = "m_te = " + table["m_te"].astype(str)
        wide = table.assign(cell=cells, column=columns).pivot_table("cell", keys, "column", "first", sort=False)
        wide = wide.reset_index().rename(columns={"n_tasks": "N", "meta_source": "related tasks from"})
        st.dataframe(wide, hide_index=True, width="stretch", key="paper_published", placeholder="–")
        number = " N is the number of related tasks." if "N" in wide else ""
        st.caption(f"Power ± standard error; sizes {table['size_unit'].iloc[0]}.{number}")
        for doubt in sorted(set(table["doubt"]) - {""}):
            st.caption(f"\\* not to be compared with ours: {doubt}.")
