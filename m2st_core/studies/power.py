"""Power curves: the shipped ones, their figure, their finding in one sentence, and names of runs by what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from m2st_core.data import TASKS, size_unit
from m2st_core.figures.null import type_1_figure
from m2st_core.figures.power import FIGURES, power_figure, total_rows_figure
from m2st_core.numbers import null_band, wilson_interval
from m2st_core.sweeps.cells import CellResult
from m2st_core.sweeps.grid import grid_of
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import summarise
from m2st_core.tasks import IndependentTask
from m2st_core.testing.methods import METHODS, label_of

DEFAULT = SweepSpec(
    methods=("Meta-WiTS", "Meta-Witness", "MMD-M"), m_te=(10, 20, 30, 50, 100, 200), repeats=4, tests=50
)
CLOSENESSES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
SHIPPED = Path(__file__).with_name("shipped_power.csv")
ENOUGH = 0.8  # the power that a planned study usually asks for
SYMBOLS: dict[
    str, str | Callable[[str], str]
] = {  # entries of a spec in few words, in the order in which a name lists them
    "task": lambda value: TASKS[value].title if value in TASKS else value,
    "settings.delta": "Δ={}",
    "method": label_of,
    "closeness": "C={}",
    "n_tasks": "N={}",
    "null": lambda value: "P = Q" if value == "True" else "P ≠ Q",
    "rows_per_task": "{} rows per task",
    "m_tr": "m_tr={}",
    "m_te": "m_te={}",
    "repeats": "{} repeats",
    "tests": "{} tests",
    "alpha": "α={}",
    "n_permutations": "B={}",
    "rule": "p={}",
    "seed": "seed {}",
}
NAMED = ("closeness", "n_tasks")  # in the name of every run that learns from related tasks


def shipped_specs() -> tuple[SweepSpec, SweepSpec]:
    """The sweeps whose cells are shipped: power at each closeness, and the type-I error at the default one."""
    return DEFAULT.with_(closeness=CLOSENESSES), DEFAULT.with_(null=True)


@cache
def shipped_results() -> dict[str, CellResult]:
    """The shipped results by the keys of their cells."""
    if not SHIPPED.exists():
        return {}
    table = pd.read_csv(SHIPPED)
    results = map(CellResult, table["rejections"].tolist(), table["tests"].tolist(), table["seconds"].tolist())
    return dict(zip(table["key"], results, strict=True))


def add_shipped(store: Store) -> None:
    """Put the shipped cells into the store. Cells of another version have other keys and are left out."""
    cells = {key: cell for spec in shipped_specs() for key, cell in grid_of(spec).cells.items()}
    known, shipped = store.cells.results(cells), shipped_results()
    store.cells.add((cells[key], shipped[key]) for key in cells.keys() & shipped.keys() - known.keys())


def is_shipped(spec: SweepSpec) -> bool:
    """Whether every cell of a sweep is shipped."""
    return grid_of(spec).cells.keys() <= shipped_results().keys()


def sweep_finding(spec: SweepSpec, rows: pd.DataFrame) -> str:
    """Say what the cells of a sweep show: power, or whether the tests keep their level if P = Q."""
    task = TASKS[spec.task]
    same = issubclass(task, IndependentTask) and dict(spec.settings).get(task.strength) == task.same_at
    if (same or spec.null) and not rows.empty:
        return level_finding(level_table(rows), spec.alpha)
    return power_finding(summarise(rows), size_unit(spec.task))


def power_finding(table: pd.DataFrame, unit: str) -> str:
    """Say which test needs the fewest rows for 80 % power, and what the best test of the other kind needs.

    ``table`` is a summary with one point per method and size.
    """
    if table.empty or table.duplicated(["method", "m_te"]).any():
        return ""
    reached = table[table["rate"] >= ENOUGH].groupby("method")["m_te"].min()
    last = table.loc[table.groupby("method")["m_te"].idxmax()].set_index("method")
    order = sorted(last.index, key=lambda name: (reached.get(name, float("inf")), -last["rate"][name]))
    best = order[0]
    others = [name for name in order if _learns(name) != _learns(best)] or order[1:][-1:]
    if best not in reached:
        row = last.loc[best]
        return (
            f"No test reaches {_percent(ENOUGH)} power with {row['m_te']:.0f} rows {unit}. **{label_of(best)}** comes "
            f"closest, with {_percent(row['rate'])}."
        )
    sentence = f"**{label_of(best)}** reaches {_percent(ENOUGH)} power with {reached[best]:.0f} test rows {unit}"
    training = last["m_tr"][best]
    sentence += "" if pd.isna(training) else f" and {training:.0f} training rows"
    for other in others[:1]:
        words = f"needs {reached[other]:.0f}" if other in reached else f"does not with {last['m_te'][other]:.0f}"
        sentence += f". **{label_of(other)}** {words}"
    return f"{sentence}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _learns(method: str) -> bool:
    """Whether a method learns from related tasks."""
    return method in METHODS and METHODS[method].uses_related_tasks


def level_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Rejection rates under P = Q by method, all sizes together, with Wilson's 95 % interval."""
    table = rows.groupby("method", sort=False)[["rejections", "tests"]].sum().reset_index()
    intervals = [wilson_interval(k, n) for k, n in zip(table["rejections"], table["tests"], strict=True)]
    low, high = zip(*intervals, strict=True)
    return table.assign(rate=table["rejections"] / table["tests"], low=low, high=high, m_te=0)


def level_finding(table: pd.DataFrame, alpha: float, methods: Sequence[str] = ()) -> str:
    """Say whether the tests keep their level, and which of ``methods`` were not measured."""
    above = table.loc[table["low"] > alpha, "method"].map(label_of)
    if len(above):
        sentence = f"More false alarms than α = {alpha:g}: {', '.join(above)}."
    else:
        sentence = f"False alarms as α = {alpha:g} promises, in {table['tests'].max():,} tests of each method shown."
    unknown = [label_of(name) for name in methods if name not in set(table["method"])]
    return f"{sentence} Not measured with these settings: {', '.join(unknown)}." if unknown else sentence


def _entries(spec: SweepSpec) -> dict[str, str]:
    """All entries of a spec as text, those of its task too."""
    values: dict[str, Any] = spec.to_dict()
    values |= {f"settings.{name}": value for name, value in values.pop("settings").items()}
    lists = {name: value if isinstance(value, list) else [value] for name, value in values.items()}
    return {name: ", ".join(map(str, values)) for name, values in lists.items()}


def spec_differences(specs: Mapping[str, SweepSpec]) -> pd.DataFrame:
    """One row per entry in which the runs differ, and one column per run."""
    table = pd.DataFrame({name: pd.Series(_entries(spec), dtype=object) for name, spec in specs.items()}).fillna("–")
    return table[table.nunique(axis=1) > 1]


def words_of(entry: str, value: str) -> str:
    """An entry of a spec in few words.

    >>> words_of("closeness", "0.3"), words_of("settings.dimension", "4"), words_of("m_te", "10, 20, 50")
    ('C=0.3', 'dimension=4', 'm_te=10 … 50')
    """
    first, *others = value.split(", ")
    value = f"{first} … {others[-1]}" if len(others) > 1 else value
    words = SYMBOLS.get(entry, entry.removeprefix("settings.") + "={}")
    return words.format(value) if isinstance(words, str) else words(value)


def difference_names(specs: Sequence[SweepSpec]) -> list[str]:
    """A name per spec that says where it differs from the others; their methods if nothing else differs.

    >>> difference_names([DEFAULT, DEFAULT.with_(closeness=(0.5,))])
    ['C=0.3', 'C=0.5']
    """
    values = [_entries(spec) for spec in specs]
    names = dict.fromkeys((*SYMBOLS, *(name for each in values for name in each if name != "methods")))
    differing = [name for name in names if len({each.get(name) for each in values}) > 1]
    if not differing:
        return [", ".join(map(label_of, spec.methods)) for spec in specs]
    return [", ".join(words_of(name, each[name]) for name in differing if name in each) for each in values]


def run_names(specs: Mapping[str, SweepSpec]) -> dict[str, str]:
    """Names of runs by id: the setting, as far as it is not the default, then the methods.

    Runs that would have the same name are distinguished by where they differ.
    """
    usual, names = _entries(DEFAULT), dict[str, str]()
    for run, spec in specs.items():
        values = _entries(spec)
        always = NAMED if any(map(_learns, spec.methods)) else ()
        named = {*always, "task", "null", "m_tr", "alpha", *(name for name in values if "." in name)}
        shown = [name for name in dict.fromkeys((*SYMBOLS, *values)) if name in named and name in values]
        shown = [name for name in shown if name in always or values[name] != usual.get(name)]
        setting = ", ".join(words_of(name, values[name]) for name in shown)
        names[run] = " · ".join(filter(None, [setting, ", ".join(spec.methods)]))
    for name in set(names.values()):
        alike = [run for run in names if names[run] == name]
        if len(alike) > 1:
            differences = difference_names([specs[run] for run in alike])
            names |= {run: f"{name} · {difference}" for run, difference in zip(alike, differences, strict=True)}
    return names


def sweep_figure(spec: SweepSpec, table: pd.DataFrame, kind: str = "power") -> go.Figure:
    """The figure of a summary, drawn as the kind of experiment wants it. The band under P = Q is for the tests done."""
    if spec.null:
        ordered = table.sort_values(["method", "m_te"], kind="stable")
        return type_1_figure(ordered, spec.alpha, null_band(spec.alpha, max(1, int(table["tests"].max()))))
    if kind == "total":
        return total_rows_figure(table, size_unit=size_unit(spec.task))
    draw = FIGURES.get(kind, power_figure)
    if draw is not power_figure:
        return draw(table)
    margin = 0.05 * (max(spec.m_te) - min(spec.m_te)) or 1
    sizes = [min(spec.m_te) - margin, max(spec.m_te) + margin]  # the whole grid, so that the axis stays while it fills
    return power_figure(table, size_unit=size_unit(spec.task)).update_xaxes(range=sizes)


def overlaid_power(runs: Mapping[str, SweepSpec], store: Store) -> pd.DataFrame:
    """One summary of several sweeps, each named in the column ``run``."""
    tables = [summarise(store.cells.rows(spec)).assign(run=name) for name, spec in runs.items()]
    tables = [table for table in tables if len(table)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
