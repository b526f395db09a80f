"""Results that come with the software: rows of the paper's experiments at full scale."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from m2st_core.paper.experiments import SHIPPED_LAYERS, Layer, PaperExperiment
from m2st_core.paper.published import FOLDER, in_words
from m2st_core.paper.shipped import (
    ABOUT,
    PLACE,
    file_name,
    grid,
    place_of,
    read_about,
    revised_methods,
    revisions,
    shipped,
)
from m2st_core.sweeps.spec import LIMIT, SweepSpec
from m2st_core.sweeps.store import SHIPPED, Store
from m2st_core.sweeps.summary import as_rows
from m2st_core.sweeps.trial import CODE, CellResult, data_of
from m2st_core.types import VERSION


class Outdated(ValueError):
    """A sentence on results that belong to another version of the software or to another sweep."""


@dataclass(frozen=True)
class Committed:
    """Rows of a sweep as ``Store.rows`` gives them, without times, and their provenance."""

    spec: SweepSpec
    rows: pd.DataFrame
    points: tuple[int, int]  # points of the grid that have results, and all points
    incomplete: tuple[str, ...]  # methods without results at some points
    repeats: tuple[int, int]  # fewest and most finished repeats of the points that have results
    date: str
    problem: str  # a sentence on rows that are outdated; empty if there are none

    @property
    def origin(self) -> str:
        """Repeats, tests and date, in words."""
        (least, most), (there, points) = self.repeats, self.points
        done = f"{most}" if least == most else f"{least} to {most}"
        done = done if least == self.spec.repeats else f"{done} of {self.spec.repeats}"
        where = "" if there == points else f" at {there} of {points} points (not all of {', '.join(self.incomplete)})"
        return f"{done} repeats × {self.spec.tests} test samples{where}, {self.date}"


def committed(experiment: PaperExperiment, layer: Layer, folder: Path | None = None) -> Committed | None:
    """Read the results of an experiment at full scale. None if there are none, an Outdated error if they do not fit.

    Experiments whose grids overlap share results.
    """
    spec, folder = experiment.spec("full", layer), folder or FOLDER
    about = read_about(folder)
    own = _file_of(spec, about) or file_name(experiment.name, layer)
    problem = _problem(own, about[own], spec) if own in about else ""
    found = shipped(spec, folder)
    if all(cell.method == LIMIT for cell, _, _ in found):  # every sweep on a task shares the limit
        if problem:
            raise Outdated(problem)
        return None
    repeats = Counter(place_of(vars(cell))[:-1] for cell, _, _ in found)
    points = {place[:-1] for place in grid(spec)}
    incomplete = tuple(dict.fromkeys(place[0] for place in sorted(points - set(repeats), key=str)))
    rows = as_rows((cell, CellResult(rejections, cell.tests, nan)) for cell, rejections, _ in found)
    bounds, counts = (min(repeats.values()), max(repeats.values())), (len(repeats), len(points))
    return Committed(spec, rows, counts, incomplete, bounds, max(date for _, _, date in found), problem)


def results_of(experiment: PaperExperiment) -> tuple[dict[Layer, Committed], list[str]]:
    """Committed results by layer, and a sentence for every layer that is outdated, in whole or in part."""
    results: dict[Layer, Committed] = {}
    problems = []
    for layer in SHIPPED_LAYERS if experiment.full else ():
        try:
            result = committed(experiment, layer)
        except Outdated as error:
            problems.append(str(error))
        else:
            results |= {layer: result} if result is not None else {}
            problems += [result.problem] if result is not None and result.problem else []
    return results, problems


def take_over(store: Store, spec: SweepSpec, folder: Path | None = None) -> int:
    """Store the cells that come with the software, so that they need not be computed. Return their number.

    Cells on images are left out, because the images here may be others.
    """
    found = [] if data_of(spec.task) else shipped(spec, folder or FOLDER)
    there = store.cells.results(cell.key for cell, _, _ in found)
    store.cells.add((cell, CellResult(r, cell.tests, SHIPPED)) for cell, r, _ in found if cell.key not in there)
    return len(found)


def commit(experiment: PaperExperiment, layer: Layer, store: Store, folder: Path | None = None) -> str:
    """Write the store's rows of an experiment if they are more than the files have. Return the file's name, or "".

    An experiment that was never run has no file, although it may share cells with others.
    """
    spec, folder = experiment.spec("full", layer), folder or FOLDER
    if store.runs.get(spec.run_id) is None:
        return ""
    cells = {cell.key: cell for _, cell in grid(spec).values()}
    results, about = store.cells.results(cells), read_about(folder)
    if len(results) <= len(shipped(spec, folder)):
        return ""
    rows = as_rows((cell, results[key]) for key, cell in cells.items() if key in results)
    name = _file_of(spec, about) or file_name(experiment.name, layer)
    folder.mkdir(parents=True, exist_ok=True)
    whole = {key: rows[key].astype("Int64") for key in ("n_tasks", "m_tr")}
    rows.assign(**whole)[[*PLACE, "rejections"]].to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
    date = time.strftime("%Y-%m-%d", time.gmtime(store.cells.newest(cells)))
    made = {"spec": spec.hash, "code": CODE, "version": VERSION, "date": date}
    about[name] = made | {"revisions": revisions(spec)}
    text = json.dumps(dict(sorted(about.items())), indent=1)
    (folder / ABOUT).write_text(f"{text}\n", encoding="utf-8")
    return name


def _file_of(spec: SweepSpec, about: Mapping[str, Mapping[str, Any]]) -> str:
    """The file of exactly this sweep; empty if there is none."""
    return next((name for name, entry in about.items() if entry["spec"] == spec.hash), "")


def _problem(name: str, entry: Mapping[str, Any], spec: SweepSpec) -> str:
    """A sentence on what of a file is outdated; empty if nothing is."""
    if entry["code"] != CODE:
        return f"{name}.csv was made by an older version of this software and is not shown."
    if entry["spec"] != spec.hash:
        return f"{name}.csv was made by a sweep with other settings and is not shown."
    revised = revised_methods(entry, spec)
    if not revised:
        return ""
    return f"Not shown: {in_words(revised)}, which changed after {name}.csv was computed."
