"""Every figure and table of the paper at a glance: its picture, whether the numbers agree, and a sentence on that."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import pandas as pd
import plotly.graph_objects as go

from m2st_core.data import size_unit
from m2st_core.figures.null import type_1_figure
from m2st_core.figures.power import layers_figure, layers_marks
from m2st_core.figures.relatedness import gamma_figure
from m2st_core.numbers import null_band
from m2st_core.paper.experiments import PAPER, Layer, PaperExperiment
from m2st_core.paper.published import (
    FAR,
    FOLDER,
    LEAST_REPEATS,
    compare_with_published,
    measured_gamma,
    published_gamma,
    published_table,
    with_one_history,
)
from m2st_core.paper.results import CommittedResults, results_of
from m2st_core.sweeps.grid import KEYS
from m2st_core.sweeps.spec import LIMIT
from m2st_core.sweeps.summary import summarise
from m2st_core.types import in_words

SHOWN = 200  # the size that figures show first, if they show one
RUN_HERE = "the paper's algorithms, run by this software"
NO_NUMBERS = "The paper shows this as a picture without numbers."
NO_TYPE_1 = "The paper prints no type-I errors."
NOT_RUN = "Not run at full scale yet."
Results = Mapping[Layer, CommittedResults]
State = Literal["agrees", "differs", "open"]


@dataclass(frozen=True)
class Card:
    """One entry of the gallery; ``compared`` has the numbers that were compared with published ones.

    Its ``picture``, an SVG, is empty while there is nothing to draw. ``bench reproduction --figures`` draws it.
    """

    experiment: PaperExperiment
    run: Literal["no", "in part", "whole"]
    state: State
    badge: str
    sentence: str
    picture: str
    compared: pd.DataFrame


def gallery() -> tuple[Card, ...]:
    """A card for every figure and table, in the order of the registry."""
    return _gallery(tuple(sorted((path, path.stat().st_mtime_ns) for path in FOLDER.glob("*.*"))))


@lru_cache(maxsize=4)
def _gallery(files: tuple[object, ...]) -> tuple[Card, ...]:
    """The cards, drawn again when a file has changed."""
    return tuple(gallery_card(experiment) for experiment in PAPER.values())


def gallery_card(experiment: PaperExperiment) -> Card:
    """Compare what comes with the software with what was published."""
    results, _ = results_of(experiment)
    paper = results.get("paper")
    compared = (
        compare_with_published(experiment.name, paper.rows) if paper else pd.DataFrame(columns=[*KEYS, "difference"])
    )
    compared = compared[compared["difference"].notna()]
    state, badge, sentence = _verdict(experiment, paper, compared)
    path = FOLDER / f"{experiment.name}.svg"
    picture = path.read_text(encoding="utf-8") if path.is_file() else ""
    done = experiment.full is None or (
        paper and paper.points[0] == paper.points[1] and paper.repeats[0] >= LEAST_REPEATS
    )
    return Card(
        experiment, "whole" if done else "in part" if paper else "no", state, badge, sentence, picture, compared
    )


def paper_verdict(cards: Sequence[Card]) -> str:
    """Where the paper's two main tests agree with Tables 5 and 6, which share N = 100 with Figure 2a, and where not."""
    compared = [card.compared for card in cards if card.experiment.kind == "tasks" and len(card.compared)]
    if not compared:
        return "None of the paper's tables has been compared yet."
    table = with_one_history(pd.concat(compared).drop_duplicates(KEYS).reset_index(drop=True))
    sentences = []
    for method, rows in reversed(list(table.groupby("method", sort=False))):  # Table 6, of Meta-MKL, comes first
        counts: dict[str, list[float]] = {"agree": [], "above": [], "below": []}
        for n_tasks, group in rows.groupby("n_tasks"):
            differences = group["difference"]
            side = "agree" if (differences.abs() <= FAR).all() else "above" if differences.mean() > 0 else "below"
            counts[side].append(n_tasks)
        sentences.append(f"**{method}** {_agreement_by_tasks(counts, rows)}")
    return f"{'. '.join(sentences)}. {_history_verdict(table)}".strip()


def _agreement_by_tasks(counts: Mapping[str, list[float]], rows: pd.DataFrame) -> str:
    """For which numbers of related tasks a method agrees, and how far it is from the paper for others."""
    parts = []
    if agree := counts["agree"]:
        figure = " (Figure 2a)" if 100 in agree else ""
        parts.append(f"agrees with the paper for N = {in_words([f'{n:g}' for n in agree])}{figure}")
    for side, words in (("above", "stronger"), ("below", "weaker")):
        if counts[side]:
            far = rows.loc[rows["n_tasks"].isin(counts[side]), "difference"].abs().max()
            named = in_words([f"{n:g}" for n in counts[side]])
            parts.append(f"is {words} here for N = {named} (by up to {far:.1f} standard errors)")
    return "; it ".join(parts)


def _history_verdict(table: pd.DataFrame) -> str:
    """Which deviations would be gone if the repeats of a published number shared one set of related tasks."""
    gone: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
    for (method, n_tasks), group in table[table["one_history"].notna()].groupby(["method", "n_tasks"]):
        if (group["difference"].abs() > FAR).any():
            explained = bool((group["one_history"].abs() <= FAR).all())
            gone[explained].setdefault(str(method), []).append(f"{n_tasks:g}")
    words = {
        explained: in_words([f"{method} at N = {in_words(counts)}" for method, counts in methods.items()])
        for explained, methods in gone.items()
    }
    if not any(words.values()):
        return ""
    but = f"{', but ' if words[True] else ''}not {words[False]}" if words[False] else ""
    return f"One lucky set of related tasks behind the published numbers would explain {words[True]}{but}."


def gallery_summary(cards: Sequence[Card]) -> str:
    """The number of experiments run, and of those that agree, in words. A table on two cards counts once."""
    entries: dict[str, list[Card]] = {}
    for card in cards:
        if card.experiment.kind != "type-I":
            entries.setdefault(re.split("[:,]", card.experiment.title)[0], []).append(card)
    runs = [{card.run for card in entry} for entry in entries.values()]
    whole, parts = sum(run == {"whole"} for run in runs), sum(run not in ({"whole"}, {"no"}) for run in runs)
    more = f", and {parts} more in part" if parts else ""
    sentence = f"This software has run {whole} of the paper's {len(entries)} figures and tables{more}."
    printed = pd.concat([card.compared for card in cards])
    numbers = printed.drop_duplicates(KEYS)
    if numbers.empty:
        return sentence
    agree = sum(all(card.state == "agrees" for card in entry) for entry in entries.values())
    every = f" In {agree} of them every number agrees." if agree else ""
    near = (numbers["difference"].abs() <= FAR).sum()
    once = " Numbers that the paper prints twice count once." if len(numbers) < len(printed) else ""
    return f"{sentence}{every} {near} of {len(numbers)} published numbers lie within two standard errors of ours.{once}"


def _verdict(
    experiment: PaperExperiment, paper: CommittedResults | None, compared: pd.DataFrame
) -> tuple[State, str, str]:
    """State, badge and sentence of a card. Doubtful numbers are not compared."""
    if experiment.full is None:
        return "open", "no standard errors", _gamma_sentence()
    table = published_table(experiment.name)
    table = table[table["m_te"].isin(experiment.full.m_te)]
    numbers = int((table["doubt"] == "").sum())
    if paper is None:
        needs = " It needs CIFAR-10.1 and a GPU." if experiment.kind == "images" else ""
        prints = f"The paper prints {len(table)} numbers." if numbers else nothing_published(experiment)
        return "open", "not run", f"{NOT_RUN}{needs} {prints}"
    if not numbers:
        return "open", "no published numbers", f"{nothing_published(experiment)} {_rates_sentence(paper)}"
    if compared.empty:
        return "open", "too few repeats", f"Fewer than {LEAST_REPEATS} repeats are done, too few to compare."
    far = int((compared["difference"].abs() > FAR).sum())
    rest = "" if len(compared) == numbers else f" {len(compared)} of {numbers} published numbers are compared so far."
    sentence = f"{agreement_with_paper(compared)}{rest}"
    if far:
        return "differs", f"{far} of {len(compared)} differ", sentence
    if rest:
        return "open", f"{len(compared)} of {numbers} run, all agree", sentence
    return "agrees", f"all {numbers} agree", sentence


def agreement_with_paper(compared: pd.DataFrame) -> str:
    """Say which methods agree with the paper, and how far the others are from it."""
    groups = {str(method): group["difference"] for method, group in compared.groupby("method", sort=False)}
    near = [method for method, differences in groups.items() if (differences.abs() <= FAR).all()]
    several = "" if compared["m_te"].nunique() == 1 else " at every size"
    parts = [f"{in_words(near)} agree{'s' if len(near) == 1 else ''} with the paper{several}"] if near else []
    for method, differences in groups.items():
        far = differences[differences.abs() > FAR]
        if len(far):
            side = "above" if far.min() > 0 else "below" if far.max() < 0 else "away from"
            most = f"{'up to ' if len(far) > 1 else ''}{far.abs().max():.1f} standard errors"
            parts.append(f"{method} is {most} {side} {'it' if parts else 'the paper'}")
    return f"{'; '.join(parts)}."


def nothing_published(experiment: PaperExperiment) -> str:
    """A sentence on why there is nothing to compare with."""
    return NO_TYPE_1 if experiment.kind == "type-I" else NO_NUMBERS


def _rates_sentence(paper: CommittedResults) -> str:
    """The strongest test at the largest size, or the tests that reject too often if P = Q."""
    table = summarise(paper.rows[paper.rows["method"] != LIMIT])
    if paper.spec.null:
        _, high = null_band(paper.spec.alpha, int(table["tests"].max()))
        above = [f"{row.method} ({row.rate:.3f})" for row in table[table["rate"] > high].itertuples()]
        if not above:
            return f"All {len(table)} tests keep their level."
        kept = f"{len(table) - len(above)} of {len(table)} tests keep their level."
        return f"{kept} Those that reject too often: {in_words(above)}."
    table = table[table["m_te"] == table["m_te"].max()].set_index("method")["rate"]
    best = str(table.idxmax())
    other = f", and Meta-MKL has {table['Meta-MKL']:.2f}" if best != "Meta-MKL" and "Meta-MKL" in table else ""
    return (
        f"Of the {len(table)} tests run here {best} has the most power at m_te = {max(paper.spec.m_te)}: "
        f"{table[best]:.2f}{other}."
    )


def _gamma_sentence() -> str:
    ours, theirs = measured_gamma().sort_values("closeness"), published_gamma().sort_values("closeness")
    grows = "grows with C" if ours["on_test_rows"].is_monotonic_increasing else "does not grow steadily with C"
    last, fresh, training = (ours[name].iloc[-1] for name in ("closeness", "on_test_rows", "on_training_rows"))
    return (
        f"γ̂ {grows}: at C = {last:g} it is {fresh:.3f} on fresh rows and {training:.3f} on training rows. The paper "
        f"has {theirs['gamma_hat'].iloc[-1]:.3f}, without a standard error."
    )


def shown_size(experiment: PaperExperiment) -> int | None:
    """The size that a figure shows first; None if it shows all sizes."""
    _, sizes = free_choice(experiment)
    return None if not sizes else SHOWN if SHOWN in sizes else sizes[0]


def free_choice(experiment: PaperExperiment) -> tuple[str, tuple[int, ...]]:
    """The size that a figure fixes at one value, with all its values; empty if the figure shows all sizes."""
    spec = experiment.full
    if spec is not None and experiment.kind == "tasks":
        return "m_te", spec.m_te
    return ("m_tr", spec.m_tr) if spec is not None and len(spec.m_tr) > 1 else ("", ())


def experiment_figure(
    experiment: PaperExperiment, rows: Mapping[Layer, pd.DataFrame], chosen: int | None = None
) -> go.Figure:
    """The layers of an experiment in one figure, at the chosen size if there is a free choice.

    Standard errors are shown from five repeats on.
    """
    spec = experiment.full
    if spec is None:
        return gamma_figure(published_gamma(), measured_gamma())
    tables: dict[str, pd.DataFrame] = {layer: _summary(results) for layer, results in rows.items()}
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


def _summary(rows: pd.DataFrame) -> pd.DataFrame:
    table = summarise(rows)
    return table.assign(error=table["error"].where(table["repeats"] >= LEAST_REPEATS))
