"""Power curves: their figure, their finding in one sentence, and names of runs by what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.data import TASKS, size_unit
from m2st_core.figures.null import type_1_figure
from m2st_core.figures.power import FIGURES, power_figure, total_rows_figure
from m2st_core.numbers import null_band, wilson_interval
from m2st_core.studies.explore import DEFAULT_SWEEP
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import summarise
from m2st_core.tasks import IndependentTask
from m2st_core.testing.methods import METHODS, label_of

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


def sweep_finding(spec: SweepSpec, rows: pd.DataFrame, marked: int | None = None) -> str:
    """Say what the cells of a sweep show: power, or whether the tests keep their level if P = Q."""
    task = TASKS[spec.task]
    same = issubclass(task, IndependentTask) and dict(spec.settings).get(task.strength) == task.same_at
    if (same or spec.null) and not rows.empty:
        return level_finding(level_table(rows), spec.alpha)
    return power_finding(summarise(rows), spec.task, marked)


def power_finding(table: pd.DataFrame, task: str, marked: int | None = None) -> str:
    """Say how often the best of the paper's tests finds the difference, and whether a test without related tasks does.

    ``table`` is a summary with one point per method and size. It is read at the size ``marked`` if that was measured by
    the best test, and otherwise at the largest one. Where none of the paper's tests is there, the best other one leads.
    """
    if table.empty or table.duplicated(["method", "m_te"]).any():
        return ""
    learned = table["method"].map(_learns)
    kinds = (learned & (table["origin"] == "paper"), learned, ~learned)
    leading = table[next(kind for kind in kinds if kind.any())]
    sizes = [int(size) for size in leading["m_te"].unique()]
    size = marked if marked is not None and marked in sizes else max(sizes)
    here = leading[leading["m_te"] == size].sort_values("rate", ascending=False, kind="stable")
    best = here.iloc[0]
    sentence = (
        f"With {_rows_in_words(size, task)} to test, **{label_of(best['method'])}** finds the difference in "
        f"**{_of_100(best['rate'])}** samples"
    )
    if len(here) > 1 and leading["origin"].eq("paper").all():
        second = here.iloc[1]
        sentence += f", {label_of(second['method'])} in {100 * second['rate']:.0f}"
    others = table[~learned & (table["method"] != best["method"]) & (table["origin"] != "limit")]
    return f"{sentence}. {_baseline_sentence(table[table['method'] == best['method']], others, size)}".strip()


def _baseline_sentence(best: pd.DataFrame, others: pd.DataFrame, size: int) -> str:
    """Compare a test with the strongest one without related tasks, at this size and at all that both have."""
    at = others[others["m_te"] == size]
    if at.empty or not _learns(best["method"].iloc[0]):
        return ""
    other, mine = at.loc[at["rate"].idxmax()], best[best["m_te"] == size].iloc[0]
    name, there = label_of(other["method"]), f"finds it in {_of_100(other['rate'])}"
    both = best.merge(others[others["method"] == other["method"]], on="m_te", suffixes=("", "_other"))
    error = (mine["error"] ** 2 + other["error"] ** 2) ** 0.5
    if (both["rate_other"] >= both["rate"]).all() and len(both) > 1:
        return f"**{name}** uses no related tasks and is as good or better at every size: it {there}."
    if other["rate"] > mine["rate"] - 2 * error:
        return f"**{name}** uses no related tasks and is about as good: it {there}."
    return f"The best test without related tasks, {name}, {there}."


def _rows_in_words(size: int, task: str) -> str:
    """A size in rows, per sample and, where a size counts rows per mode, per mode.

    >>> _rows_in_words(200, "hdgm"), _rows_in_words(200, "blobs")
    ('200 rows per mode (400 per sample)', '200 rows per sample')
    """
    each = TASKS[task].rows_per_size
    return f"{size} rows {size_unit(task)}" + (f" ({each * size} per sample)" if each > 1 else "")


def _of_100(rate: float) -> str:
    return f"{100 * rate:.0f} of 100"


def rows_for_power(table: pd.DataFrame, goal: float = ENOUGH) -> dict[str, str]:
    """The size at which each method's curve reaches this power, by straight lines between its points.

    >>> table = pd.DataFrame({"method": ["a", "a", "b"], "m_te": [50, 100, 50], "rate": [0.6, 1.0, 0.9]})
    >>> rows_for_power(table), rows_for_power(table.assign(rate=0.1))
    ({'a': '75', 'b': '≤ 50'}, {'a': 'over 100', 'b': 'over 50'})
    """
    words = {}
    for method, group in table.groupby("method", sort=False):
        group = group.sort_values("m_te")
        sizes, rates = group["m_te"].to_numpy(float), group["rate"].to_numpy(float)
        above = np.flatnonzero(rates >= goal)
        if not len(above):
            words[method] = f"over {sizes[-1]:.0f}"
        elif above[0] == 0:
            words[method] = f"≤ {sizes[0]:.0f}"
        else:
            last = above[0] - 1
            share = (goal - rates[last]) / (rates[last + 1] - rates[last])
            words[method] = f"{sizes[last] + share * (sizes[last + 1] - sizes[last]):.0f}"
    return words


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

    >>> difference_names([DEFAULT_SWEEP, DEFAULT_SWEEP.with_(closeness=(0.5,))])
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
    usual, names = _entries(DEFAULT_SWEEP), dict[str, str]()
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


def sweep_figure(spec: SweepSpec, table: pd.DataFrame, kind: str = "power", marked: int | None = None) -> go.Figure:
    """The figure of a summary, drawn as the kind of experiment wants it. The band under P = Q is for the tests done."""
    if spec.null:
        ordered = table.sort_values(["method", "m_te"], kind="stable")
        return type_1_figure(ordered, spec.alpha, null_band(spec.alpha, max(1, int(table["tests"].max()))))
    if kind == "total":
        return total_rows_figure(table, size_unit=size_unit(spec.task))
    draw = FIGURES.get(kind, power_figure)
    return draw(table) if draw is not power_figure else power_figure(table, size_unit(spec.task), spec.m_te, marked)


def overlaid_power(runs: Mapping[str, SweepSpec], store: Store) -> pd.DataFrame:
    """One summary of several sweeps, each named in the column ``run``."""
    tables = [summarise(store.cells.rows(spec)).assign(run=name) for name, spec in runs.items()]
    tables = [table for table in tables if len(table)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
