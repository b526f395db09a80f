"""Write docs/reproduction: rows of the paper's experiments from the store, their figures, and docs/reproduction.md."""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.data import size_unit
from m2st_core.paper.committed import Committed, commit, results_of
from m2st_core.paper.experiments import LAYERS, PAPER, PaperExperiment
from m2st_core.paper.gallery import NO_NUMBERS, NO_TYPE_1, RUN_HERE, experiment_figure, shown_size
from m2st_core.paper.published import (
    FAR,
    FOLDER,
    LEAST_REPEATS,
    compare,
    measured_gamma,
    published_gamma,
    published_table,
    reasons,
    with_published,
)
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import null_band, summarise

PAGE = FOLDER.with_suffix(".md")
AS_SVG = "([graph, height]) => Plotly.toImage(graph, {format: 'svg', width: 900, height: height})"


def commit_all(store: Store) -> list[str]:
    """Write the rows of every experiment and layer for which the store has more than the files; return the names."""
    written = [commit(e, layer, store) for e in PAPER.values() if e.full is not None for layer in LAYERS]
    return [name for name in written if name]


def figures() -> dict[str, go.Figure]:
    """A figure for every experiment that has results."""
    drawn = {}
    for name, experiment in PAPER.items():
        results, _ = results_of(experiment)
        if results or experiment.full is None:
            rows = {layer: result.rows for layer, result in results.items()}
            drawn[name] = experiment_figure(experiment, rows, shown_size(experiment))
    return drawn


def draw(drawn: Mapping[str, go.Figure]) -> None:
    """Draw figures as SVG in a browser."""
    from playwright.sync_api import sync_playwright  # required by developers only

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page()
        for name, figure in drawn.items():
            figure.update_layout(template="plotly_white", paper_bgcolor="white", plot_bgcolor="white")
            page = Path(folder) / f"{name}.html"
            figure.write_html(page, include_plotlyjs=True)
            tab.goto(page.as_uri())
            graph = tab.wait_for_selector(".plotly-graph-div.js-plotly-plot")
            address = tab.evaluate(AS_SVG, [graph, figure.layout.height])
            (FOLDER / f"{name}.svg").write_text(unquote(address.partition(",")[2]) + "\n", encoding="utf-8")
        browser.close()


def fill_page(page: str) -> str:
    """Rewrite every section of the page between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``."""

    def rewritten(match: re.Match[str]) -> str:
        return f"{match[1]}\n\n{section(PAPER.find(match[2]))}\n\n{match[4]}"

    return re.sub(r"(<!-- begin (\S+) -->)(.*?)(<!-- end \2 -->)", rewritten, page, flags=re.DOTALL)


def section(experiment: PaperExperiment) -> str:
    """An experiment in Markdown: its figure, the provenance of its numbers, its tables, and why cells are far off."""
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
        paragraphs.append(_rates(result))
        if layer == "paper":
            paragraphs += _remarks(experiment, result)
    return "\n\n".join(paragraphs)


def _remarks(experiment: PaperExperiment, result: Committed) -> list[str]:
    """Paragraphs below the table of the paper's algorithms."""
    if result.spec.null:
        low, high = null_band(result.spec.alpha, result.spec.repeats * result.spec.tests)
        return [f"{NO_TYPE_1} Of valid tests 99 in 100 have a rate from {low:.3f} to {high:.3f} with all repeats."]
    if published_table(experiment.name).empty:
        return [NO_NUMBERS]
    far = reasons(compare(experiment.name, result.rows))
    if not far:
        return ["Every cell with a published number is within two standard errors of it, or has too few repeats."]
    return ["Off by more than two standard errors:", "\n".join(f"- {where}: {why}" for where, why in far)]


def _rates(result: Committed) -> str:
    """A row for each method and a column for each size, with published numbers and differences in the cells."""
    table, spec = with_published(summarise(result.rows)), result.spec
    keys = [key for key in ("closeness", "n_tasks", "m_tr") if len(getattr(spec, key)) > 1]
    sizes = sorted(table["m_te"].unique())
    lines = [f"| m_te {size_unit(spec.task)} | " + " | ".join(map(str, sizes)) + " |", "|---" * (1 + len(sizes)) + "|"]
    for labels, group in table.groupby(["method", *keys], dropna=False, sort=False):
        named = [f"{key}={value:g}" for key, value in zip(keys, labels[1:], strict=True) if not pd.isna(value)]
        cells = {row.m_te: _cell(row) for row in group.itertuples()}
        name = ", ".join([labels[0], *named]).replace("n_tasks=", "N=").replace("closeness=", "C=")
        lines.append(f"| {name} | " + " | ".join(cells.get(size, "–") for size in sizes) + " |")
    return "\n".join(lines)


def _cell(r: Any) -> str:
    """One row of a summary."""
    few = f"({r.repeats} repeat{'s' if r.repeats > 1 else ''})"
    ours = f"{r.rate:.3f} {f'± {r.error:.3f}' if r.repeats >= LEAST_REPEATS else few}"
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


def main(arguments: Sequence[str] = ()) -> None:
    """Write new rows and the page; with --figures, draw every figure again."""
    parser = argparse.ArgumentParser(prog="m2st_core bench reproduction", description=__doc__)
    parser.add_argument("--figures", action="store_true", help="draw every figure (needs chromium)")
    options = parser.parse_args(arguments)
    written = commit_all(Store())
    print(f"rows: {', '.join(written) or 'nothing new'}")
    if options.figures:
        drawn = figures()
        draw(drawn)
        print(f"figures: {', '.join(drawn)}")
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"page: {PAGE.name}")


if __name__ == "__main__":
    main()
