"""Results that come with the software: rows of the paper's experiments at full scale, and the figure of each."""

from __future__ import annotations

import csv
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from m2st_core.data import size_unit
from m2st_core.figures.power import layers_figure, layers_marks, type_1_figure
from m2st_core.figures.relatedness import gamma_figure
from m2st_core.paper.experiments import LAYERS, Layer, PaperExperiment
from m2st_core.paper.published import FOLDER, measured_gamma, published_gamma, published_table
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import as_rows, null_band, summarise
from m2st_core.sweeps.trial import CODE, Cell, CellResult
from m2st_core.types import VERSION

ABOUT = "about.json"
PLACE = ("method", "closeness", "n_tasks", "m_tr", "m_te", "repeat")  # identifies a cell of a sweep
RUN_HERE = "the paper's algorithms, run by this software"
NO_NUMBERS = "The paper shows this as a picture, without numbers."
NO_TYPE_1 = "The paper prints no type-I errors."


class Outdated(ValueError):
    """A sentence on results that belong to another version of the software or to another sweep."""


@dataclass(frozen=True)
class Committed:
    """Rows of a sweep as ``Store.rows`` gives them, without times, and their provenance."""

    spec: SweepSpec
    rows: pd.DataFrame
    repeats: tuple[int, int]  # fewest and most finished repeats of the grid's points
    version: str
    date: str

    @property
    def origin(self) -> str:
        """Preset, repeats, tests and date, in words."""
        least, most = self.repeats
        done = f"{most}" if least == most else f"{least} to {most}"
        done = done if least == self.spec.repeats else f"{done} of {self.spec.repeats}"
        return f"preset `{self.spec.preset}`, {done} repeats × {self.spec.tests} test samples, {self.date}"


Results = Mapping[Layer, Committed]


def file_name(experiment: str, layer: Layer) -> str:
    """The name of a file, without its ending."""
    return experiment if layer == "paper" else f"{experiment}_ours"


def read_about(folder: Path | None = None) -> dict[str, dict[str, str]]:
    """The entry of each file in ``about.json``; empty in a copy without documents."""
    path = (folder or FOLDER) / ABOUT
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def committed(experiment: PaperExperiment, layer: Layer, folder: Path | None = None) -> Committed | None:
    """Read the results of an experiment at full scale. None if there are none, an Outdated error if they do not fit.

    Experiments with equal sweeps share a file.
    """
    spec, folder = experiment.spec("full", layer), folder or FOLDER
    about, name = read_about(folder), file_name(experiment.name, layer)
    for stem, entry in about.items():
        if entry["spec"] == spec.hash:
            rows, repeats = _read(folder / f"{stem}.csv", spec)
            return Committed(spec, rows, repeats, entry["version"], entry["date"])
    if name not in about:
        return None
    if about[name]["code"] != CODE:
        raise Outdated(f"{name}.csv was made by an older version of this software and is not shown.")
    raise Outdated(f"{name}.csv was made by a sweep with other settings and is not shown.")


def results_of(experiment: PaperExperiment) -> tuple[dict[Layer, Committed], list[str]]:
    """Committed results by layer, and a sentence for every layer that is outdated."""
    results: dict[Layer, Committed] = {}
    problems = []
    for layer in LAYERS if experiment.full else ():
        try:
            result = committed(experiment, layer)
        except Outdated as error:
            problems.append(str(error))
        else:
            results |= {layer: result} if result is not None else {}
    return results, problems


def commit(experiment: PaperExperiment, layer: Layer, store: Store, folder: Path | None = None) -> str:
    """Write the store's rows of an experiment if they are more than the file has. Return the file's name, or "".

    An experiment that was never run has no file, although it may share cells with others.
    """
    spec, folder = experiment.spec("full", layer), folder or FOLDER
    if store.run(spec.run_id) is None:
        return ""
    rows, about = store.rows(spec), read_about(folder)
    try:
        previous = committed(experiment, layer, folder)
    except Outdated:
        previous = None
    if len(rows) <= (0 if previous is None else len(previous.rows)):
        return ""
    name = next((n for n, entry in about.items() if entry["spec"] == spec.hash), file_name(experiment.name, layer))
    folder.mkdir(parents=True, exist_ok=True)
    whole = {key: rows[key].astype("Int64") for key in ("n_tasks", "m_tr")}
    rows.assign(**whole)[[*PLACE, "rejections"]].to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
    date = time.strftime("%Y-%m-%d", time.gmtime(store.newest(cell.key for cell in spec.cells())))
    about[name] = {"spec": spec.hash, "code": CODE, "version": VERSION, "preset": spec.preset, "date": date}
    text = json.dumps(dict(sorted(about.items())), indent=1)
    (folder / ABOUT).write_text(f"{text}\n", encoding="utf-8")
    return name


def _read(path: Path, spec: SweepSpec) -> tuple[pd.DataFrame, tuple[int, int]]:
    """Results in the order of the grid, and the fewest and most repeats of its points. Other lines are errors."""
    rejections: dict[tuple[str, ...], int] = {}
    cells = _grid(spec.to_json())
    with path.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            place, count = _place(line), int(line["rejections"])
            if place in rejections:
                raise ValueError(f"{path.name} has a cell twice: {place}.")
            if place not in cells:
                raise ValueError(f"{path.name} has a cell that its sweep lacks: {place}.")
            if not 0 <= count <= spec.tests:
                raise ValueError(f"{path.name} has {count} rejections of {spec.tests} tests: {place}.")
            rejections[place] = count
    repeats = Counter({place[:-1]: 0 for place in cells})
    repeats.update(place[:-1] for place in rejections)
    results = [
        (cell, CellResult(rejections[place], cell.tests, nan)) for place, cell in cells.items() if place in rejections
    ]
    return as_rows(results), (min(repeats.values()), max(repeats.values()))


@lru_cache(maxsize=32)
def _grid(spec_json: str) -> dict[tuple[str, ...], Cell]:
    """Cells of a sweep by their place. Listing a large grid takes long, so it is cached."""
    return {_place(vars(cell)): cell for cell in SweepSpec.from_json(spec_json).cells()}


def _place(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The place of a cell or of a file's line in the grid, as text."""
    return tuple("" if values[name] is None else str(values[name]) for name in PLACE)


def free_choice(experiment: PaperExperiment) -> tuple[str, tuple[int, ...]]:
    """The size that a figure fixes at one value, with all its values; empty if the figure shows all sizes."""
    spec = experiment.full
    if spec is not None and experiment.kind == "tasks":
        return "m_te", spec.m_te
    return ("m_tr", spec.m_tr) if spec is not None and len(spec.m_tr) > 1 else ("", ())


def experiment_figure(experiment: PaperExperiment, results: Results, chosen: int | None = None) -> go.Figure:
    """The layers of an experiment in one figure, at the chosen size if there is a free choice."""
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
        return layers_figure(tables, published, "n_tasks", "number of related tasks N")
    return layers_figure(tables, published, "m_te", f"test rows m_te {size_unit(spec.task)}")
