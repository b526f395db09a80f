"""Write docs/reproduction: the rows of the paper's experiments that the store has, their figures, and the page."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import plotly.graph_objects as go

from m2st_core.paper.committed import FOLDER, commit
from m2st_core.paper.experiments import LAYERS, PAPER
from m2st_core.paper.words import experiment_figure, fill_page, free_choice, results_of
from m2st_core.sweeps.store import Store

PAGE = FOLDER.with_suffix(".md")
SHOWN = 200  # m_te of figures against N
AS_SVG = "([graph, height]) => Plotly.toImage(graph, {format: 'svg', width: 900, height: height})"


def commit_all(store: Store) -> list[str]:
    """Write the rows of every experiment and layer of which the store has more than the files; what was written."""
    found = [commit(e, layer, store) for e in PAPER.values() if e.full is not None for layer in LAYERS]
    return [name for name in found if name]


def figures() -> dict[str, go.Figure]:
    """A figure for every experiment that has results."""
    found = {}
    for name, experiment in PAPER.items():
        results, _ = results_of(experiment)
        if results or experiment.full is None:
            chosen = SHOWN if free_choice(experiment)[1] else None
            found[name] = experiment_figure(experiment, results, chosen)
    return found


def draw(drawn: Mapping[str, go.Figure]) -> None:
    """Figures as SVG, drawn by a browser."""
    from playwright.sync_api import sync_playwright  # a requirement of developers only

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


def main(arguments: Sequence[str] = ()) -> None:
    """Write what has changed; with --figures, draw every figure anew."""
    parser = argparse.ArgumentParser(prog="m2st_core bench reproduction", description=__doc__)
    parser.add_argument("--figures", action="store_true", help="draw every figure, which needs chromium")
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
