"""Cells that come with the software: which files have them, and what identifies a cell among all sweeps."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from m2st_core.paper.experiments import PAPER, SHIPPED_LAYERS, Layer
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.trial import CODE, Cell, canonical, data_of
from m2st_core.testing.methods import METHODS

ABOUT = "about.json"
PLACE = ("method", "closeness", "n_tasks", "m_tr", "m_te", "repeat")  # identifies a cell of a sweep
OWN = (*PLACE, "rows_per_task", "revision")  # in which cells of a sweep differ
Identity = tuple[str, ...]  # equal exactly if the keys of two cells are, which take long to compute


def file_name(experiment: str, layer: Layer) -> str:
    """The name of a file, without its ending."""
    return experiment if layer == "paper" else f"{experiment}_{layer}"


def read_about(folder: Path) -> dict[str, dict[str, Any]]:
    """The entry of each file in ``about.json``; empty if there is none."""
    path = folder / ABOUT
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def shipped(spec: SweepSpec, folder: Path) -> list[tuple[Cell, int, str]]:
    """Cells of a sweep that come with the software, in the order of the grid: (cell, rejections, date)."""
    known = _index(tuple(_files(folder)))
    return [(cell, *known[what]) for what, cell in grid(spec).values() if what in known]


def revisions(spec: SweepSpec) -> dict[str, int]:
    """The revision of each method of a sweep."""
    return {name: METHODS[name].revision for name in spec.methods if name in METHODS}


def revised_methods(entry: Mapping[str, Any], spec: SweepSpec) -> list[str]:
    """Methods that changed after a file was made. Files that record no revisions have revision 0."""
    before = entry.get("revisions", {})
    return [name for name, revision in revisions(spec).items() if revision != before.get(name, 0)]


@dataclass(frozen=True)
class _File:
    """A file of this version, and all that its results depend on."""

    path: Path
    state: tuple[int, int]  # when it was written, and its size
    spec_json: str
    stamp: str
    revised: tuple[str, ...]
    date: str


def _files(folder: Path) -> Iterator[_File]:
    """The files of this version."""
    owners = {file_name(e.name, layer): (e, layer) for e in PAPER.values() if e.full for layer in SHIPPED_LAYERS}
    for name, entry in read_about(folder).items():
        if entry["code"] == CODE and name in owners:
            sweep, path = owners[name][0].spec("full", owners[name][1]), folder / f"{name}.csv"
            if entry["spec"] == sweep.hash:
                state = path.stat().st_mtime_ns, path.stat().st_size
                revised = tuple(revised_methods(entry, sweep))
                yield _File(path, state, sweep.to_json(), _stamp(sweep), revised, entry["date"])


@lru_cache(maxsize=4)
def _index(files: tuple[_File, ...]) -> dict[Identity, tuple[int, str]]:
    """Rejections and date of every cell in these files; the first file wins."""
    known: dict[Identity, tuple[int, str]] = {}
    for file in files:
        for what, (method, rejections) in _read(file).items():
            if method not in file.revised:
                known.setdefault(what, (rejections, file.date))
    return known


@lru_cache(maxsize=64)
def _read(file: _File) -> dict[Identity, tuple[str, int]]:
    """Method and rejections of each cell of a file. Lines that are not cells of the sweep are errors."""
    path, spec = file.path, SweepSpec.from_json(file.spec_json)
    results: dict[Identity, tuple[str, int]] = {}
    cells = grid(spec)
    with path.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            place, count = place_of(line), int(line["rejections"])
            if place not in cells:
                raise ValueError(f"{path.name} has a cell that its sweep lacks: {place}.")
            what, cell = cells[place]
            if what in results:
                raise ValueError(f"{path.name} has a cell twice: {place}.")
            if not 0 <= count <= spec.tests:
                raise ValueError(f"{path.name} has {count} rejections of {spec.tests} tests: {place}.")
            results[what] = cell.method, count
    return results


def _stamp(spec: SweepSpec) -> str:
    """What a sweep's cells depend on besides the sweep."""
    return canonical([CODE, revisions(spec), data_of(spec.task)])


def grid(spec: SweepSpec) -> dict[tuple[str, ...], tuple[Identity, Cell]]:
    """Cells of a sweep, and what identifies each among all sweeps, by their place."""
    return _grid_again(spec.to_json(), _stamp(spec))


@lru_cache(maxsize=64)
def _grid_again(spec_json: str, stamp: str) -> dict[tuple[str, ...], tuple[Identity, Cell]]:
    """Listing a large grid takes long, so it is cached."""
    cells = list(SweepSpec.from_json(spec_json).cells())
    common = canonical({name: value for name, value in vars(cells[0]).items() if name not in OWN})
    places = [place_of(vars(cell)) for cell in cells]
    whats = [
        (common, str(cell.rows_per_task), str(cell.revision), *place) for cell, place in zip(cells, places, strict=True)
    ]
    return dict(zip(places, zip(whats, cells, strict=True), strict=True))


def place_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The place of a cell or of a file's line in the grid, as text."""
    return tuple("" if values[name] is None else str(values[name]) for name in PLACE)
