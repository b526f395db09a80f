"""Results that come with the software: rows of the paper's experiments at full scale, in files of a folder.

``about.json`` says what each file was made by. Experiments whose grids overlap share cells.
"""

from __future__ import annotations

import csv
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.paper.experiments import PAPER, PUBLISHED_RULES, SHIPPED_LAYERS, Layer, PaperExperiment
from m2st_core.paper.published import FOLDER
from m2st_core.sweeps.cells import CODE, Cell, CellResult, cell_data
from m2st_core.sweeps.grid import as_rows, grid_of
from m2st_core.sweeps.spec import LIMIT, SweepSpec
from m2st_core.sweeps.store import SHIPPED, Store
from m2st_core.testing.methods import METHODS
from m2st_core.types import EXACT, VERSION, in_words

ABOUT = "about.json"
CELL = ("method", "closeness", "n_tasks", "m_tr", "m_te", "repeat")  # columns that identify a cell of a sweep


@dataclass(frozen=True)
class CommittedResults:
    """Rows of a sweep as ``Store.rows`` gives them, without times, and their provenance."""

    spec: SweepSpec
    rows: pd.DataFrame
    points: tuple[int, int]  # points of the grid that have results, and all points
    incomplete: tuple[str, ...]  # methods without results at some points
    repeats: tuple[int, int]  # fewest and most finished repeats of the points that have results
    date: str

    @property
    def origin(self) -> str:
        """Repeats, tests and date, in words."""
        (least, most), (measured, points) = self.repeats, self.points
        done = f"{most}" if least == most else f"{least} to {most}"
        done = done if least == self.spec.repeats else f"{done} of {self.spec.repeats}"
        at = (
            "" if measured == points else f" at {measured} of {points} points (not all of {', '.join(self.incomplete)})"
        )
        return f"{done} repeats × {self.spec.tests} test samples{at}, {self.date}"


def results_of(
    experiment: PaperExperiment, folder: Path | None = None
) -> tuple[dict[Layer, CommittedResults], list[str]]:
    """Committed results at full scale by layer, and a sentence for every file that is outdated, in whole or in part.

    Experiments whose grids overlap share results.
    """
    folder = folder or FOLDER
    results: dict[Layer, CommittedResults] = {}
    problems = []
    for layer in SHIPPED_LAYERS if experiment.full else ():
        spec, about = experiment.spec("full", layer), read_provenance(folder)
        name = _file_of(spec, about) or results_file(experiment.name, layer)
        problems += [problem] if name in about and (problem := _problem(name, about[name], spec)) else []
        cells = _shipped(spec, folder)
        if any(cell.method != LIMIT for cell, _, _ in cells):  # every sweep on a task shares the limit
            results[layer] = _committed(spec, cells)
    return results, problems


def reproduction_rows(folder: Path | None = None) -> pd.DataFrame:
    """Every cell of the files of this version once: its task, its place in the grid, rejections and tests."""
    tables = [pd.DataFrame(columns=["task", "null", *CELL, "rejections", "tests"])]
    for file in _files(folder or FOLDER):
        rows, spec = pd.read_csv(file.path), file.spec
        rows = rows[~rows["method"].isin(file.revised)]
        tables.append(rows.assign(task=spec.task, null=spec.null, tests=spec.tests))
    return pd.concat(tables[1:] or tables).drop_duplicates(["task", "null", *CELL], ignore_index=True)


def _committed(spec: SweepSpec, cells: list[tuple[Cell, int, str]]) -> CommittedResults:
    """The results in these cells of a sweep."""
    repeats = Counter(_identity(vars(cell))[:-1] for cell, _, _ in cells)
    points = {_identity(vars(cell))[:-1] for cell in grid_of(spec).cells.values()}
    incomplete = tuple(dict.fromkeys(point[0] for point in sorted(points - set(repeats), key=str)))
    rows = as_rows((cell, CellResult(rejections, cell.tests, nan)) for cell, rejections, _ in cells)
    bounds, counts = (min(repeats.values()), max(repeats.values())), (len(repeats), len(points))
    return CommittedResults(spec, rows, counts, incomplete, bounds, max(date for _, _, date in cells))


def take_over_results(store: Store, spec: SweepSpec, folder: Path | None = None) -> int:
    """Store the cells that come with the software, so that they need not be computed. Return their number.

    Cells on images are left out, because the images here may be others.
    """
    cells = [] if cell_data(spec.task) else _shipped(spec, folder or FOLDER)
    stored = store.cells.results(cell.key for cell, _, _ in cells)
    store.cells.add((cell, CellResult(r, cell.tests, SHIPPED)) for cell, r, _ in cells if cell.key not in stored)
    return len(cells)


def commit_results(experiment: PaperExperiment, layer: Layer, store: Store, folder: Path | None = None) -> str:
    """Write the store's rows of an experiment if they are more than the files have. Return the file's name, or "".

    An experiment that was never run has no file, although it may share cells with others.
    """
    spec, folder = experiment.spec("full", layer), folder or FOLDER
    if store.runs.get(spec.run_id) is None:
        return ""
    cells = grid_of(spec).cells
    results, about = store.cells.results(cells), read_provenance(folder)
    if len(results) <= len(_shipped(spec, folder)):
        return ""
    rows = as_rows((cell, results[key]) for key, cell in cells.items() if key in results)
    name = _file_of(spec, about) or results_file(experiment.name, layer)
    folder.mkdir(parents=True, exist_ok=True)
    whole = {key: rows[key].astype("Int64") for key in ("n_tasks", "m_tr")}
    rows.assign(**whole)[[*CELL, "rejections"]].to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
    date = time.strftime("%Y-%m-%d", time.gmtime(store.cells.newest(cells)))
    revisions = _revisions(spec)
    about[name] = {"spec": spec.hash, "code": CODE, "version": VERSION, "date": date, "revisions": revisions}
    text = json.dumps(dict(sorted(about.items())), indent=1)
    (folder / ABOUT).write_text(f"{text}\n", encoding="utf-8")
    return name


def _file_of(spec: SweepSpec, about: Mapping[str, Mapping[str, Any]]) -> str:
    """The file of exactly this sweep; empty if there is none."""
    return next((name for name, entry in about.items() if entry["spec"] == spec.hash), "")


def _problem(name: str, entry: Mapping[str, Any], spec: SweepSpec) -> str:
    """The outdated part of a file in a sentence; empty if nothing is outdated."""
    if entry["code"] != CODE:
        return f"{name}.csv was made by an older version of this software and is not shown."
    if entry["spec"] != spec.hash:
        return f"{name}.csv was made by a sweep with other settings and is not shown."
    revised = _revised_methods(entry, spec)
    if not revised:
        return ""
    return f"Not shown: {in_words(revised)}, which changed after {name}.csv was computed."


def results_file(experiment: str, layer: Layer) -> str:
    """The name of a layer's file, without its ending."""
    return experiment if layer == "paper" else f"{experiment}_{layer}"


def read_provenance(folder: Path) -> dict[str, dict[str, Any]]:
    """The entry of each file in ``about.json``; empty if there is none."""
    path = folder / ABOUT
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _shipped(spec: SweepSpec, folder: Path) -> list[tuple[Cell, int, str]]:
    """Cells of a sweep that come with the software, in the order of the grid: (cell, rejections, date)."""
    results, keys = _read_cells(tuple(_files(folder))), grid_of(_with_usual_rule(spec)).cells
    cells = zip(keys, grid_of(spec).cells.values(), strict=True)
    return [(cell, *results[key]) for key, cell in cells if key in results]


def _with_usual_rule(spec: SweepSpec) -> SweepSpec:
    """The sweep with the exact rule of p-values, if the paper's rejects alike at this B and α."""
    b = np.arange(spec.n_permutations + 1)
    alike = ((1 + b) / (1 + spec.n_permutations) <= spec.alpha) == (b / spec.n_permutations <= spec.alpha)
    return spec.with_(rule=EXACT) if spec.rule == PUBLISHED_RULES["paper"] and alike.all() else spec


def _revisions(spec: SweepSpec) -> dict[str, int]:
    return {name: METHODS[name].revision for name in spec.methods if name in METHODS}


def _revised_methods(entry: Mapping[str, Any], spec: SweepSpec) -> list[str]:
    """Methods that changed after a file was made. Files that record no revisions have revision 0."""
    before = entry.get("revisions", {})
    return [name for name, revision in _revisions(spec).items() if revision != before.get(name, 0)]


@dataclass(frozen=True)
class _File:
    """A file of this version, and all that its results depend on."""

    path: Path
    state: tuple[int, int]  # when it was written, and its size
    spec: SweepSpec
    data: str  # fingerprint of the user's images
    revised: tuple[str, ...]  # methods that changed since
    date: str


def _files(folder: Path) -> Iterator[_File]:
    """The files of this version."""
    layers = ((e, layer) for e in PAPER.values() if e.full for layer in SHIPPED_LAYERS)
    sweeps = {results_file(e.name, layer): e.spec("full", layer) for e, layer in layers}
    for name, entry in read_provenance(folder).items():
        sweep, path = sweeps.get(name), folder / f"{name}.csv"
        if sweep is not None and (entry["code"], entry["spec"]) == (CODE, sweep.hash):
            state = path.stat().st_mtime_ns, path.stat().st_size
            revised = tuple(_revised_methods(entry, sweep))
            yield _File(path, state, sweep, cell_data(sweep.task), revised, entry["date"])


@lru_cache(maxsize=4)
def _read_cells(files: tuple[_File, ...]) -> dict[str, tuple[int, str]]:
    """Rejections and date of every cell in these files, by its key; the first file wins.

    Lines that are not cells of the file's sweep are errors.
    """
    results: dict[str, tuple[int, str]] = {}
    for file in files:
        keys = {_identity(vars(cell)): key for key, cell in grid_of(file.spec).cells.items()}
        seen = set()
        with file.path.open(encoding="utf-8", newline="") as lines:
            for line in csv.DictReader(lines):
                cell, count = _identity(line), int(line["rejections"])
                if cell not in keys:
                    raise ValueError(f"{file.path.name} has a cell that its sweep lacks: {cell}.")
                if cell in seen:
                    raise ValueError(f"{file.path.name} has a cell twice: {cell}.")
                if not 0 <= count <= file.spec.tests:
                    raise ValueError(f"{file.path.name} has {count} rejections of {file.spec.tests} tests: {cell}.")
                seen.add(cell)
                if line["method"] not in file.revised:
                    results.setdefault(keys[cell], (count, file.date))
    return results


def _identity(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The identifying values of a cell or of a file's line, as text."""
    return tuple("" if values[name] is None else str(values[name]) for name in CELL)
