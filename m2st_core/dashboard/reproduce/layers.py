"""An experiment of the paper on a page: its three layers in one figure, the differences, and what is published."""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from m2st_core.dashboard.power_lab.results import download
from m2st_core.dashboard.widgets.controls import chart
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
from m2st_core.paper.published import (
    LEAST_REPEATS,
    compare,
    measured_gamma,
    published_gamma,
    published_table,
    reasons,
)
from m2st_core.sweeps.spec import LIMIT
from m2st_core.sweeps.summary import summarise

SHORT = {"n_tasks": "N", "meta_source": "meta-tasks from"}
LOOKS: dict[str, dict[Layer, str]] = {  # of the layers, by kind of experiment
    "ablation": {"paper": "Circles", "ours": "Squares"},
    "type-I": {"paper": "Names without a remark", "ours": "Names with (ours)"},
}
CURVES: dict[Layer, str] = {"paper": "Solid lines", "ours": "Dashed lines"}
USUAL = 200  # m_te


def show_layers(experiment: PaperExperiment) -> None:
    """What comes with the software: the figure with its layers, where they come from, and the differences."""
    results, problems = results_of(experiment)
    for problem in problems:
        st.warning(problem)
    shown = _pick_layers(results)
    if not shown and published_table(experiment.name).empty:
        st.info(f"Not computed at full scale yet. {_nothing_published(experiment)}")
        return
    chosen = _pick_size(experiment)
    chart(experiment_figure(experiment, shown, chosen), "paper_layers", _in_words(experiment, shown, chosen))
    _caption(experiment, shown)
    if "paper" in shown:
        _show_differences(experiment, shown["paper"])
    with st.container(horizontal=True):
        for result in shown.values():
            name = f"{experiment.name}-{result.spec.preset}.csv"
            download(f"Cells, {result.spec.preset} (CSV)", partial(result.rows.to_csv, index=False), name, "paper")


def _pick_layers(results: Results) -> Results:
    """The layers to show; ours is off at first."""
    if "ours" not in results:
        return results
    wanted = st.toggle(
        "Show ours",
        key="paper_ours",
        bind="query-params",
        help="Our own family of tests, on learned features, with the same samples. It is another method than the "
        "paper's, so it is shown as a layer of its own.",
    )
    return {layer: result for layer, result in results.items() if wanted or layer == "paper"}


def _pick_size(experiment: PaperExperiment) -> int | None:
    """The size at which the figure is drawn, where it shows one of several."""
    name, values = free_choice(experiment)
    if not values:
        return None
    what = {"m_te": "Test rows m_te", "m_tr": "Training rows m_tr"}[name]
    default = USUAL if USUAL in values else values[0]
    chosen: int = st.segmented_control(
        what, values, default=default, required=True, key=f"paper_{name}", help="The figure shows this size."
    )
    return chosen


def _in_words(experiment: PaperExperiment, shown: Results, chosen: int | None) -> str:
    """The figure for those who can not see it: every method at its largest size."""
    parts = []
    for layer, result in shown.items():
        table = summarise(result.rows)
        table = table if chosen is None or experiment.kind != "tasks" else table[table["m_te"] == chosen]
        last = table.groupby("method", sort=False).tail(1)
        values = ", ".join(f"{row.method} {row.rate:.2f}" for row in last.itertuples())
        parts.append(f"{RUN_HERE if layer == 'paper' else 'ours'}: {values}")
    return f"{experiment.title}. At the largest size: {'; '.join(parts) or 'published numbers only'}."


def _caption(experiment: PaperExperiment, shown: Results) -> None:
    """What each layer looks like and where it comes from."""
    looks = LOOKS.get(experiment.kind, CURVES)
    numbers = not published_table(experiment.name).empty
    lines = ["Open diamonds: published." if numbers else _nothing_published(experiment)]
    for layer, result in shown.items():
        lines.append(f"{looks[layer]}: {RUN_HERE if layer == 'paper' else 'ours'}; {result.origin}.")
    if any(LIMIT in result.spec.methods for result in shown.values()):
        lines.append("Dotted: tests without related tasks. Grey: the limit, the true log-likelihood ratio as witness.")
    if "paper" not in shown:
        lines.append("The paper's algorithms have not been run here at full scale yet.")
    elif experiment.kind == "type-I":
        lines.append(
            "Dashed: α. Bars: Wilson's 95 % intervals. Grey band: where the rates of 99 of 100 valid tests lie."
        )
    else:
        lines.append(f"Bands and bars: one standard error between repeats. {_sizes(experiment)}")
    st.caption("  \n".join([*lines, *([experiment.note] if experiment.note else [])]))


def _nothing_published(experiment: PaperExperiment) -> str:
    return NO_TYPE_1 if experiment.kind == "type-I" else NO_NUMBERS


def _sizes(experiment: PaperExperiment) -> str:
    return "" if experiment.full is None else f"Sizes count rows {size_unit(experiment.full.task)}."


def _show_differences(experiment: PaperExperiment, result: Committed) -> None:
    """Published against the paper's algorithms as run here, and a sentence for every cell that is far off."""
    table = compare(experiment.name, result.rows)
    if table.empty:
        return
    st.markdown("**Difference from the published numbers**")
    shown = pd.DataFrame({"method": table["method"]})
    if table["n_tasks"].nunique() > 1:
        shown["N"] = table["n_tasks"].astype(int)
    shown = shown.assign(
        m_te=table["m_te"],
        published=_with_errors(table["published"], table["published_error"]),
        here=_with_errors(table["rate"], table["error"]),
        difference=table["difference"],
        repeats=table["repeats"],
    ).rename(columns={"here": "this software", "difference": "difference in SE"})
    config = {
        "difference in SE": st.column_config.NumberColumn(
            format="%+.1f",
            help=f"This software minus published, in standard errors of both; counted from {LEAST_REPEATS} repeats on.",
        )
    }
    st.dataframe(
        shown, hide_index=True, width="stretch", key="paper_differences", column_config=config, placeholder="–"
    )
    far = reasons(table)
    if far:
        st.markdown("Off by more than two standard errors:\n" + "\n".join(f"- {where}: {why}" for where, why in far))


def _with_errors(values: pd.Series, errors: pd.Series) -> list[str]:
    return [f"{value:.3f} ± {error:.3f}" for value, error in zip(values, errors, strict=True)]


def show_gamma(experiment: PaperExperiment) -> None:
    """γ̂ against the closeness: published, and measured by this software."""
    chart(experiment_figure(experiment, {}), "paper_gamma_chart", "γ̂ against the closeness C, published and measured.")
    measured = measured_gamma()
    st.caption(
        "Open diamonds: published. Other marks: the paper's estimator, run by this software on "
        f"{measured['date'].iloc[0]}; 2,000 rows per half and sample, 10 tasks, 10 restarts, 100 steps."
    )
    table = measured.merge(published_gamma(), on="closeness")[
        ["closeness", "gamma_hat", "on_training_rows", "on_test_rows", "floor"]
    ]
    names = ["closeness C", "published γ̂", "γ̂ on training halves", "γ̂ on test halves", "noise floor"]
    st.dataframe(table.set_axis(names, axis=1), hide_index=True, width="content", key="paper_gamma")


def show_published(experiment: PaperExperiment) -> None:
    """The paper's numbers, as its table has them."""
    table = published_table(experiment.name)
    if table.empty:
        return
    st.subheader("Published")
    cells = [f"{r.power:.3f} ± {r.std_error:.3f}{' *' if r.doubt else ''}" for r in table.itertuples()]
    keys = [key for key in ("method", "meta_source", "n_tasks", "m_tr") if key == "method" or table[key].nunique() > 1]
    unit = table["size_unit"].iloc[0]
    columns = "m_te = " + table["m_te"].astype(str)
    wide = table.assign(cell=cells, column=columns).pivot_table("cell", keys, "column", "first", sort=False)
    wide = wide.reset_index().rename(columns=SHORT)
    st.dataframe(wide, hide_index=True, width="stretch", key="paper_published", placeholder="–")
    st.caption(f"Power ± standard error; sizes {unit}." + (" N is the number of meta-tasks." if "N" in wide else ""))
    for doubt in sorted(set(table["doubt"]) - {""}):
        st.caption(f"\\* not to be compared with ours: {doubt}.")
