"""Write rows of the paper's experiments from the store into the package, their figures, and docs/reproduction.md."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from benchmarks.common import fill_page as fill_sections
from benchmarks.common import markdown, parse
from m2st_core.data import size_unit
from m2st_core.figures.theme import NULL_COLOUR
from m2st_core.numbers import null_band
from m2st_core.paper.experiments import PAPER, SHIPPED_LAYERS, PaperExperiment
from m2st_core.paper.gallery import (
    NO_NUMBERS,
    NO_TYPE_1,
    RUN_HERE,
    experiment_figure,
    gallery,
    gallery_summary,
    shown_size,
)
from m2st_core.paper.published import (
    FAR,
    FOLDER,
    LEAST_REPEATS,
    PUBLISHED_REPEATS,
    compare_with_published,
    history_spread,
    measured_gamma,
    one_history_sentence,
    published_gamma,
    published_table,
    reasons_of_differences,
    with_one_history,
    with_published,
)
from m2st_core.paper.results import CommittedResults, commit_results, results_of
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import summarise

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
SYMBOLS = {"closeness": "C", "n_tasks": "N"}
NESTED = ("table5", "table6")  # whose numbers of tasks and methods the nested design has
PICTURES = PAGE.with_suffix("")
AS_SVG = "([graph, size]) => Plotly.toImage(graph, {format: 'svg', ...size})"


def commit_all(store: Store) -> list[str]:
    """Write the rows of every experiment and layer for which the store has more than the files; return the names."""
    written = [
        commit_results(e, layer, store) for e in PAPER.values() if e.full is not None for layer in SHIPPED_LAYERS
    ]
    return [name for name in written if name]


def figures() -> dict[str, go.Figure]:
    """A figure for every experiment that has measured or published numbers."""
    drawn = {}
    for name, experiment in PAPER.items():
        results, _ = results_of(experiment)
        if results or experiment.full is None or not published_table(name).empty:
            rows = {layer: result.rows for layer, result in results.items()}
            drawn[name] = experiment_figure(experiment, rows, shown_size(experiment))
    return drawn


def thumbnail(experiment: PaperExperiment) -> go.Figure:
    """The curves and marks of the paper's layer, small, without text, for light and dark backgrounds."""
    paper = results_of(experiment)[0].get("paper")
    figure = experiment_figure(experiment, {"paper": paper.rows} if paper else {}, shown_size(experiment))
    figure.data = [trace for trace in figure.data if trace.hoverinfo != "skip" and trace.fill is None]
    figure.update_traces(marker_size=5, line_width=1.6, error_x=None, error_y=None, cliponaxis=False)
    axis = {"showticklabels": False, "ticks": "", "title": None, "showgrid": False, "zeroline": False}
    figure.update_xaxes(showline=True, linecolor=NULL_COLOUR, **axis)
    figure.update_yaxes(showline=True, linecolor=NULL_COLOUR, **axis)
    return figure.update_layout(
        width=240, height=110, margin=dict.fromkeys("lrtb", 6), showlegend=False, annotations=[],
        title=None, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
    )  # fmt: skip


def draw(drawn: Mapping[Path, go.Figure]) -> None:
    """Draw figures into files as SVG, in a browser."""
    from playwright.sync_api import sync_playwright  # required by developers only

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page()
        for path, figure in drawn.items():
            page = Path(folder) / f"{path.stem}.html"
            figure.write_html(page, include_plotlyjs=True)
            tab.goto(page.as_uri())
            graph = tab.wait_for_selector(".plotly-graph-div.js-plotly-plot")
            size = {"width": figure.layout.width or 900, "height": figure.layout.height}
            address = tab.evaluate(AS_SVG, [graph, size])
            path.write_text(unquote(address.partition(",")[2]) + "\n", encoding="utf-8")
        browser.close()


def draw_all() -> None:
    """Draw the figures of the page, and the thumbnails of the gallery."""
    white = {"template": "plotly_white", "paper_bgcolor": "white", "plot_bgcolor": "white"}
    drawn = figures()
    measured = [name for name in drawn if PAPER[name].full is None or results_of(PAPER[name])[0]]
    draw({PICTURES / f"{name}.svg": drawn[name].update_layout(white) for name in measured})
    draw({FOLDER / f"{name}.svg": thumbnail(PAPER[name]) for name in drawn})


def fill_page(page: str) -> str:
    """Rewrite every section of the page."""
    own = {"verdict": verdict, "nested": nested_section}
    return fill_sections(page, lambda name: own[name]() if name in own else section(PAPER[name]))


def compared(name: str) -> pd.DataFrame:
    """The numbers of a table that have a published one, also as if the repeats behind each shared a history."""
    return with_one_history(compare_with_published(name, results_of(PAPER[name])[0]["paper"].rows))


def verdict() -> str:
    """Say how much agrees, what one history changes, and how tests without related tasks do."""
    shared = one_history_sentence(pd.concat([compared(name) for name in NESTED]))
    table = summarise(results_of(PAPER["fig2a"])[0]["paper"].rows)
    rates = table.pivot(index="m_te", columns="method", values="rate")
    paragraphs = [
        f"**{gallery_summary(gallery())}**",
        f"Of Tables 5 and 6: {shared[0].lower()}{shared[1:]} {_shares(history_spread())}" if shared else "",
        "MMD-O, a Gaussian kernel whose width is learned on the target's own 50 rows per mode, is at least as strong "
        f"here as Meta-MKL {in_sizes(rates['MMD-O'] >= rates['Meta-MKL'])} of Figure 2a. SCF, whose χ² p-value rejects "
        f"too often, is above both {in_sizes(rates['SCF'] > rates[['MMD-O', 'Meta-MKL']].max(axis=1))}. The paper "
        "prints no numbers for MMD-O and SCF, and we did not read them off its figure.",
    ]
    return "\n\n".join(filter(None, paragraphs))


def in_sizes(holds: pd.Series) -> str:
    """At which m_te something holds, in words.

    >>> in_sizes(pd.Series([True, True, False], [50, 80, 100])), in_sizes(pd.Series([False, True], [50, 80]))
    ('up to m_te=80', 'at m_te=80')
    """
    if holds.all():
        return "at every size"
    sizes = list(holds.index[holds])
    if holds.iloc[: len(sizes)].all() and sizes:
        return f"up to m_te={sizes[-1]}"
    return f"at m_te={', '.join(map(str, sizes))}" if sizes else "at no size"


def nested_section() -> str:
    """The variance between and within histories, and the published numbers as if each had one history."""
    found = history_spread()
    if found.empty:
        return f"Not measured yet: this needs {LEAST_REPEATS} histories for each N."
    design = (
        f"{found['histories'].min()} histories × {found['repeats'].min()} initialisations. In each cell: σ_h, the "
        "standard deviation of power between histories; σ_w, that within them; and the histories' share of the "
        f"variance, σ_h²/(σ_h² + σ_w²), with its 95 % interval. {_shares(found)}"
    )
    tables = [design, by_size(found, ["n_tasks"], _share)]
    for name in NESTED:
        table = compared(name)
        ratio = (table["published_error"] / np.sqrt(table["within"] / PUBLISHED_REPEATS)).median()
        tables += [
            f"{PAPER[name].title}. The published ± is {ratio:.2f} × σ_w/√20 in the median.",
            by_size(table, ["n_tasks"], _three_ways),
        ]
    return "\n\n".join(tables)


def by_size(table: pd.DataFrame, keys: Sequence[str], cell: Callable[[Any], str], unit: str = "per mode") -> str:
    """A row for each method and setting, and a column for each size."""
    rows, sizes = [], sorted(table["m_te"].unique())
    for (method, *values), group in table.groupby(["method", *keys], dropna=False, sort=False):
        settings = zip(keys, values, strict=True)
        named = [f"{SYMBOLS.get(key, key)}={value:g}" for key, value in settings if not pd.isna(value)]
        cells = {row.m_te: cell(row) for row in group.itertuples()}
        rows.append([", ".join([method, *named]), *(cells.get(size, "–") for size in sizes)])
    return markdown([f"m_te {unit}", *sizes], rows)


def _share(r: Any) -> str:
    """Standard deviations between and within histories, and the share of the former's variance."""
    share = f"{100 * r.share:.0f} % ({100 * r.low:.0f} to {100 * r.high:.0f})"
    return f"{np.sqrt(r.between):.3f}, {np.sqrt(r.within):.3f}<br>{share}"


def _shares(found: pd.DataFrame) -> str:
    """The range of the histories' shares, in words."""
    low, high, above = (
        f"{100 * value:.0f}" for value in (found["share"].min(), found["share"].max(), found["high"].max())
    )
    return f"The history's share of the variance between repeats is {low} to {high} % (95 % intervals up to {above} %)."


def _three_ways(r: Any) -> str:
    """A difference in standard errors, with the spread between histories, and with our spread within them."""
    if np.isnan(r.one_history):
        return "not compared" if r.doubt else "–"
    ways = (r.difference, r.one_history, r.own_spread)
    return " → ".join(f"**{way:+.1f}**" if abs(way) > FAR else f"{way:+.1f}" for way in ways)


def section(experiment: PaperExperiment) -> str:
    """An experiment in Markdown: its figure, the provenance of its numbers, its tables, and why cells are far off."""
    results, problems = results_of(experiment)
    picture = f"![{experiment.title}](reproduction/{experiment.name}.svg)"
    if experiment.full is None:
        measured = f"Run by this software on {measured_gamma()['date'].iloc[0]}:"
        return f"{picture}\n\n{measured}\n\n{_gamma_table()}"
    paragraphs = [*problems, *([picture] if results else ["Not computed yet."])]
    for layer, result in results.items():
        words = RUN_HERE if layer == "paper" else layer
        first = next(e for e in PAPER.values() if e.full is not None and e.spec("full", layer) == result.spec)
        if first.name != experiment.name:
            paragraphs.append(f"{words[0].upper()}{words[1:]}: the same sweep as for {first.title}.")
            continue
        paragraphs.append(f"{words[0].upper()}{words[1:]}: {result.origin}.")
        paragraphs.append(_rates(result))
        if layer == "paper":
            paragraphs += _remarks(experiment, result)
    return "\n\n".join(paragraphs)


def _remarks(experiment: PaperExperiment, result: CommittedResults) -> list[str]:
    """Paragraphs below the table of the paper's algorithms."""
    if result.spec.null:
        low, high = null_band(result.spec.alpha, result.spec.repeats * result.spec.tests)
        return [f"{NO_TYPE_1} Of valid tests 99 in 100 have a rate from {low:.3f} to {high:.3f} with all repeats."]
    if published_table(experiment.name).empty:
        return [NO_NUMBERS]
    table = compare_with_published(experiment.name, result.rows)
    far, doubtful = reasons_of_differences(table), (table["doubt"] != "").any()
    if not far:
        return ["Every cell with a published number is within two standard errors of it, or has too few repeats."]
    listed = "\n".join(f"- {where}: {why}" for where, why in far)
    return [f"Off by more than two standard errors{', or not compared' if doubtful else ''}:", listed]


def _rates(result: CommittedResults) -> str:
    """Rates with published numbers and differences in the cells."""
    keys = [key for key in ("closeness", "n_tasks", "m_tr") if len(getattr(result.spec, key)) > 1]
    return by_size(with_published(summarise(result.rows)), keys, _cell, size_unit(result.spec.task))


def _cell(r: Any) -> str:
    """One row of a summary."""
    few = f"({r.repeats} repeat{'s' if r.repeats > 1 else ''})"
    ours = f"{r.rate:.3f} {f'± {r.error:.3f}' if r.repeats >= LEAST_REPEATS else few}"
    if np.isnan(r.published):
        return ours
    published = f"published {r.published:.3f} ± {r.published_error:.3f}"
    if np.isnan(r.difference):
        return f"{ours}<br>{published}{'<br>not compared' if r.doubt else ''}"
    difference = f"{r.difference:+.1f} SE"
    return f"{ours}<br>{published}<br>{f'**{difference}**' if abs(r.difference) > FAR else difference}"


def _gamma_table() -> str:
    """γ̂ for each closeness."""
    table = measured_gamma().merge(published_gamma(), on="closeness")
    values = table[["gamma_hat", "on_training_rows", "on_test_rows", "floor"]].to_numpy()
    rows = [
        [f"{closeness:g}", *(f"{value:.3f}" for value in line)]
        for closeness, line in zip(table["closeness"], values, strict=True)
    ]
    return markdown(["C", "published", "on training halves", "on test halves", "noise floor"], rows)


def main(arguments: Sequence[str] = ()) -> None:
    """Write new rows and the page; with --figures, draw every figure again, which needs chromium."""
    options = parse(arguments, __doc__, figures=False)
    print(f"rows: {', '.join(commit_all(Store())) or 'nothing new'}")
    if options.figures:
        draw_all()
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
