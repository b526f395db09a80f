"""Published numbers against the paper's algorithms as this software runs them, and why they differ where they do."""

from __future__ import annotations

import csv
import json
import time
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from m2st_core.paper.experiments import Layer, PaperExperiment
from m2st_core.sweeps.spec import CODE, Cell, SweepSpec
from m2st_core.sweeps.store import Store, as_rows
from m2st_core.sweeps.summary import summarise
from m2st_core.sweeps.trial import CellResult
from m2st_core.types import VERSION

FOLDER = Path(__file__).parents[2] / "docs" / "reproduction"
ABOUT = "about.json"
PLACE = ("method", "closeness", "n_tasks", "m_tr", "m_te", "repeat")  # what tells the cells of a sweep apart


class Outdated(ValueError):
    """Results that another version of the software or another sweep made, in a sentence."""


@dataclass(frozen=True)
class Committed:
    """The rows of a sweep, as ``Store.rows`` gives them but for the time they took, and where they come from."""

    spec: SweepSpec
    rows: pd.DataFrame
    repeats: tuple[int, int]  # finished, of the points of the grid: the fewest and the most
    version: str
    date: str

    @property
    def origin(self) -> str:
        """Preset, repeats, tests and date, in words."""
        least, most = self.repeats
        done = f"{most}" if least == most else f"{least} to {most}"
        done = done if least == self.spec.repeats else f"{done} of {self.spec.repeats}"
        return f"preset `{self.spec.preset}`, {done} repeats × {self.spec.tests} test samples, {self.date}"


def file_name(experiment: str, layer: Layer) -> str:
    """The name of a file, without its ending."""
    return experiment if layer == "paper" else f"{experiment}_ours"


def read_about(folder: Path | None = None) -> dict[str, dict[str, str]]:
    """What ``about.json`` says of each file; nothing in a copy without documents."""
    path = (folder or FOLDER) / ABOUT
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def committed(experiment: PaperExperiment, layer: Layer, folder: Path | None = None) -> Committed | None:
    """The results of an experiment at full scale; None if there are none, Outdated if they are of another time.

    Experiments whose sweeps are the same share a file.
    """
    spec, folder = experiment.spec("full", layer), folder or FOLDER
    about, name = read_about(folder), file_name(experiment.name, layer)
    for found, entry in about.items():
        if entry["spec"] == spec.hash:
            rows, repeats = _read(folder / f"{found}.csv", spec)
            return Committed(spec, rows, repeats, entry["version"], entry["date"])
    if name not in about:
        return None
    if about[name]["code"] != CODE:
        raise Outdated(f"{name}.csv was made by an older version of this software and is not shown.")
    raise Outdated(f"{name}.csv was made by a sweep with other settings and is not shown.")


def commit(experiment: PaperExperiment, layer: Layer, store: Store, folder: Path | None = None) -> str:
    """Write what the store has of an experiment, if that is more than the file has; the name of a file it wrote.

    An experiment that nobody ran has no file, though it may share cells with others.
    """
    spec, folder = experiment.spec("full", layer), folder or FOLDER
    if store.run(spec.hash[:12]) is None:
        return ""
    rows, about = store.rows(spec), read_about(folder)
    try:
        known = committed(experiment, layer, folder)
    except Outdated:
        known = None
    if len(rows) <= (0 if known is None else len(known.rows)):
        return ""
    name = next((n for n, entry in about.items() if entry["spec"] == spec.hash), file_name(experiment.name, layer))
    folder.mkdir(parents=True, exist_ok=True)
    whole = {key: rows[key].astype("Int64") for key in ("n_tasks", "m_tr")}
    rows.assign(**whole)[[*PLACE, "rejections"]].to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
    date = time.strftime("%Y-%m-%d", time.gmtime(store.newest(spec.cells())))
    about[name] = {"spec": spec.hash, "code": CODE, "version": VERSION, "preset": spec.preset, "date": date}
    text = json.dumps(dict(sorted(about.items())), indent=1)
    (folder / ABOUT).write_text(f"{text}\n", encoding="utf-8")
    return name


def _read(path: Path, spec: SweepSpec) -> tuple[pd.DataFrame, tuple[int, int]]:
    """The sweep's cells with their results, in the order of the grid, and the fewest and most repeats of its points.

    A line that is none of the sweep's cells is an error.
    """
    found: dict[tuple[Any, ...], int] = {}
    with path.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            place = _place(line)
            if place in found:
                raise ValueError(f"{path.name} has a cell twice: {place}.")
            found[place] = int(line["rejections"])
    cells = _grid(spec.to_json())
    for place, rejections in found.items():
        if place not in cells:
            raise ValueError(f"{path.name} has a cell that its sweep lacks: {place}.")
        if not 0 <= rejections <= spec.tests:
            raise ValueError(f"{path.name} has {rejections} rejections of {spec.tests} tests: {place}.")
    counts = Counter({place[:-1]: 0 for place in cells})
    counts.update(place[:-1] for place in found)
    results = ((cell, CellResult(found[place], cell.tests, nan)) for place, cell in cells.items() if place in found)
    return as_rows(results), (min(counts.values()), max(counts.values()))


@lru_cache(maxsize=32)
def _grid(spec_json: str) -> dict[tuple[Any, ...], Cell]:
    """The cells of a sweep by their place; listing a large grid is worth doing once."""
    return {_place(vars(cell)): cell for cell in SweepSpec.from_json(spec_json).cells()}


def _place(values: Any) -> tuple[Any, ...]:
    """Where a cell or a line of a file is in the grid, as text that is the same for both."""
    texts = (values[name] for name in PLACE)
    return tuple("" if text is None else str(text) for text in texts)


FAR = 2.0  # standard errors
UNEXPLAINED = "Not explained yet."
EXPLANATIONS = "explanations.csv"
WHERE = ("closeness", "n_tasks", "m_te")  # columns that narrow an explanation down, where they are filled in


def explanations(folder: Path | None = None) -> pd.DataFrame:
    """The sentences on deviations: of an experiment and method, perhaps at one closeness, N or m_te only."""
    path = (folder or FOLDER) / EXPLANATIONS
    return pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=["experiment", "method", *WHERE, "sentence"])


def compare(experiment: str, rows: pd.DataFrame, known: pd.DataFrame | None = None) -> pd.DataFrame:
    """The summary of the cells that have a published number, with a column ``why``.

    It holds the sentence of every cell that is off by more than two standard errors. The narrowest explanation counts.
    """
    known = explanations() if known is None else known
    table = summarise(rows)
    table = table[table["published"].notna()]
    order = table["method"].map({method: place for place, method in enumerate(table["method"].unique())})
    table = table.iloc[order.argsort(kind="stable")].reset_index(drop=True)
    known = known[known["experiment"] == experiment]
    return table.assign(why=[_why(row, known) for _, row in table.iterrows()])


def _why(row: pd.Series, known: pd.DataFrame) -> str:
    if pd.isna(row["difference"]) or abs(row["difference"]) <= FAR:
        return ""
    fits = known[known["method"] == row["method"]]
    for name in WHERE:
        fits = fits[fits[name].isna() | (fits[name] == row[name])]
    if len(fits):
        return str(fits.loc[fits[list(WHERE)].notna().sum(axis=1).idxmax(), "sentence"])
    return f"The published number is doubtful: {row['doubt']}." if row["doubt"] else UNEXPLAINED


def reasons(compared: pd.DataFrame) -> list[tuple[str, str]]:
    """The cells that are far off, gathered by their sentence: where, and why."""
    far = compared[compared["why"] != ""]
    found = []
    for (method, why), group in far.groupby(["method", "why"], sort=False):
        places = [f"m_te = {_listed(part['m_te'])}" for _, part in group.groupby("n_tasks", sort=False)]
        if compared["n_tasks"].nunique() > 1:
            counts = [f"N = {n:g}" for n in group["n_tasks"].unique()]
            places = [f"{count}, {place}" for count, place in zip(counts, places, strict=True)]
        found.append((f"{method}, {'; '.join(places)}", why))
    return found


def _listed(values: pd.Series) -> str:
    return ", ".join(str(value) for value in values)
