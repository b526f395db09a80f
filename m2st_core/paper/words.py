"""The reproduction of the paper as figures and as the tables of docs/reproduction.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.data import size_unit
from m2st_core.figures.power import layers_figure, layers_marks, type_1_figure
from m2st_core.figures.relatedness import gamma_figure
from m2st_core.paper.committed import FAR, Committed, Outdated, committed, compare, reasons
from m2st_core.paper.experiments import LAYERS, PAPER, Layer, PaperExperiment
from m2st_core.sweeps.summary import measured_gamma, null_band, published_gamma, published_table, summarise

Results = Mapping[Layer, Committed]
RUN_HERE = "the paper's algorithms, run by this software"
NO_NUMBERS = "The paper shows this as a picture, without numbers."
NO_TYPE_1 = "The paper prints no type-I errors."


def results_of(experiment: PaperExperiment) -> tuple[dict[Layer, Committed], list[str]]:
    """What comes with the software, by layer, and a sentence for every layer that is outdated."""
    found: dict[Layer, Committed] = {}
    problems = []
    for layer in LAYERS if experiment.full else ():
        try:
            result = committed(experiment, layer)
        except Outdated as error:
            problems.append(str(error))
        else:
            if result is not None:
                found[layer] = result
    return found, problems


def free_choice(experiment: PaperExperiment) -> tuple[str, tuple[int, ...]]:
    """The size that a figure shows one value of, and its values; none where the figure shows everything."""
    spec = experiment.full
    if spec is not None and experiment.kind == "tasks":
        return "m_te", spec.m_te
    return ("m_tr", spec.m_tr) if spec is not None and len(spec.m_tr) > 1 else ("", ())


def experiment_figure(experiment: PaperExperiment, results: Results, chosen: int | None = None) -> go.Figure:
    """The layers of an experiment in one figure; where there is a free choice, at the chosen size."""
    spec = experiment.full
    if spec is None:
        return gamma_figure(published_gamma(), measured_gamma())
    tables: dict[str, pd.DataFrame] = {layer: summarise(result.rows) for layer, result in results.items()}
    published = published_table(experiment.name)
    if chosen is not None:
        name, _ = free_choice(experiment)
        tables = {layer: table[table[name].isna() | (table[name] == chosen)] for layer, table in tables.items()}
        published = published[published[name] == chosen]
    if spec.null:
        tests = max((int(table["tests"].max()) for table in tables.values()), default=spec.repeats * spec.tests)
        return type_1_figure(pd.concat(tables.values(), ignore_index=True), spec.alpha, null_band(spec.alpha, tests))
    if experiment.kind == "ablation":
        return layers_marks(tables, published[published["m_te"].isin(spec.m_te)])
    if experiment.kind == "tasks":
        return layers_figure(tables, published, "n_tasks", "number of meta-tasks N")
    return layers_figure(tables, published, "m_te", f"test rows m_te {size_unit(spec.task)}")


def fill_page(page: str) -> str:
    """The page with every part between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` written anew."""

    def part(match: re.Match[str]) -> str:
        return f"{match[1]}\n\n{section(PAPER.find(match[2]))}\n\n{match[4]}"

    return re.sub(r"(<!-- begin (\S+) -->)(.*?)(<!-- end \2 -->)", part, page, flags=re.DOTALL)


def section(experiment: PaperExperiment) -> str:
    """An experiment in Markdown: where its numbers come from, the figure, the tables, and why cells are far off."""
    results, problems = results_of(experiment)
    picture = f"![{experiment.title}](reproduction/{experiment.name}.svg)"
    if experiment.full is None:
        measured = f"Run by this software on {measured_gamma()['date'].iloc[0]}:"
        return f"{picture}\n\n{measured}\n\n{_gamma_table()}"
    paragraphs = [*problems, *([picture] if results else ["Not computed yet."])]
    for layer, result in results.items():
        words = RUN_HERE if layer == "paper" else LAYERS[layer]
        first = next(e for e in PAPER.values() if e.full is not None and e.spec("full", layer) == result.spec)
        if first.name != experiment.name:
            paragraphs.append(f"{words[0].upper()}{words[1:]}: the same sweep as for {first.title}.")
            continue
        paragraphs.append(f"{words[0].upper()}{words[1:]}: {result.origin}.")
        paragraphs.append(_rates(summarise(result.rows), size_unit(result.spec.task)))
        if layer == "paper":
            paragraphs += _remarks(experiment, result)
    return "\n\n".join(paragraphs)


def _remarks(experiment: PaperExperiment, result: Committed) -> list[str]:
    """What stands below the table of the paper's algorithms."""
    if result.spec.null:
        low, high = null_band(result.spec.alpha, result.spec.repeats * result.spec.tests)
        return [f"{NO_TYPE_1} Of valid tests 99 in 100 have a rate from {low:.3f} to {high:.3f} with all repeats."]
    if published_table(experiment.name).empty:
        return [NO_NUMBERS]
    far = reasons(compare(experiment.name, result.rows))
    if not far:
        return ["Every cell with a published number is within two standard errors of it, or has too few repeats."]
    return ["Off by more than two standard errors:", "\n".join(f"- {where}: {why}" for where, why in far)]


def _rates(table: pd.DataFrame, unit: str) -> str:
    """A row for each method, a column for each size; published and difference below where there is a number."""
    keys = [key for key in ("closeness", "n_tasks", "m_tr") if table[key].nunique() > 1]
    sizes = sorted(table["m_te"].unique())
    lines = [f"| m_te {unit} | " + " | ".join(map(str, sizes)) + " |", "|---" * (1 + len(sizes)) + "|"]
    for labels, group in table.groupby(["method", *keys], dropna=False, sort=False):
        named = [f"{key}={value:g}" for key, value in zip(keys, labels[1:], strict=True) if not pd.isna(value)]
        cells = {row.m_te: _cell(row) for row in group.itertuples()}
        name = ", ".join([labels[0], *named]).replace("n_tasks=", "N=").replace("closeness=", "C=")
        lines.append(f"| {name} | " + " | ".join(cells.get(size, "–") for size in sizes) + " |")
    return "\n".join(lines)


def _cell(r: Any) -> str:
    """One row of a summary."""
    ours = f"{r.rate:.3f} ± {r.error:.3f}"
    if np.isnan(r.published):
        return ours
    published = f"published {r.published:.3f} ± {r.published_error:.3f}"
    if np.isnan(r.difference):
        return f"{ours}<br>{published}"
    difference = f"{r.difference:+.1f} SE"
    return f"{ours}<br>{published}<br>{f'**{difference}**' if abs(r.difference) > FAR else difference}"


def _gamma_table() -> str:
    """γ̂ for each closeness."""
    table = measured_gamma().merge(published_gamma(), on="closeness")
    lines = ["| C | published | on training halves | on test halves | noise floor |", "|---|---|---|---|---|"]
    for r in table.itertuples():
        values = (r.gamma_hat, r.on_training_rows, r.on_test_rows, r.floor)
        lines.append(f"| {r.closeness:g} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    return "\n".join(lines)
