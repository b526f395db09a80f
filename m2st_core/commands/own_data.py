"""``test`` and ``meta-train``: tests on the user's tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from m2st_core.analysis.plan import Plan, carry_out
from m2st_core.analysis.recommendation import Recommendation, advise
from m2st_core.analysis.related import check_uploaded_tasks
from m2st_core.analysis.report import DataSource, as_command, as_python, html_report
from m2st_core.commands.service import check_file, check_folder, write_whole
from m2st_core.data.tables.encoding import Cleaning
from m2st_core.data.tables.files import read_files
from m2st_core.data.tables.prepare import Prepared, prepare
from m2st_core.data.tables.questions import Marks, in_shell
from m2st_core.data.tables.upload import Upload
from m2st_core.learners.mixtures import WEIGHTS_USED
from m2st_core.testing.learner_files import open_learner
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.testing.method import ORIGINS
from m2st_core.testing.methods import METHODS, find_method
from m2st_core.types import TestResult

RECOMMENDED = "recommended"


def names_by_origin(with_related_tasks: bool = False) -> str:
    """Names of all tests, or of those that learn from related tasks, grouped by origin for help texts."""
    methods = [
        method
        for method in METHODS.values()
        if not method.changes and (method.uses_related_tasks or not with_related_tasks)
    ]
    names = {origin: ", ".join(m.name for m in methods if m.origin == origin) for origin in ORIGINS}
    return "; ".join(f"{names[origin]} ({words})" for origin, words in ORIGINS.items() if names[origin])


def run_test(options: argparse.Namespace) -> None:
    """Read the tables, test, print, and write the report where asked for."""
    check_file(options.report)
    _check_preset(options)
    learner, encoding = open_learner(options.learner) if options.learner else (None, None)
    usual = encoding.cleaning if encoding else Cleaning(scaling="none") if learner else Cleaning()
    cleaning = _chosen_cleaning(options, usual)
    origin = DataSource(
        target=tuple(options.files),
        related=tuple(options.related or ()),
        example=options.example,
        group=options.group_column,
        task=options.task_column,
        related_group=options.related_group_column,
        learner=options.learner,
        groups=tuple(options.groups),
        related_groups=tuple(options.related_groups),
        **_chosen_readings(options),
    )
    data = prepare(origin.upload(), cleaning=cleaning, encoding=encoding)
    advice = _primary_method(options, data, learner)
    plan = Plan(
        primary=advice.method,
        secondary=tuple(_with_preset(name, options.preset) for name in options.secondary),
        alpha=options.alpha,
        n_permutations=options.permutations,
        train_fraction=options.train_fraction,
        seed=options.seed,
        splits=options.splits,
        family=options.family,
    )
    outcome = carry_out(data, plan, learner=learner, explained=bool(options.report), device=options.device)
    if advice.reasons:
        label = METHODS[advice.method].label
        print("\n".join([f"{RECOMMENDED}: {label}", *(f"- {why}" for why in advice.reasons)]), file=sys.stderr)
    if options.report:
        python, command = as_python(origin, cleaning, plan), as_command(origin, cleaning, plan, options.report)
        report = html_report(outcome, python=python, command=command)
        write_whole(options.report, lambda file: file.write_text(report, encoding="utf-8"))
    analysis = outcome.analysis
    if options.json:
        values = analysis.primary.to_dict()
        values["notes"] = list(dict.fromkeys(map(in_shell, (*data.decisions, *values["notes"]))))
        secondary = [
            {name: getattr(v.result, name) for name in ("method", "origin", "p_value")} | {"holm": v.adjusted_p_value}
            for v in analysis.secondary
        ]
        if secondary:
            holm = analysis.decision.adjusted_p_value
            values |= {"family": analysis.family, "holm": holm, "secondary": secondary}
        print(json.dumps(values, ensure_ascii=False))
        return
    print("\n".join([analysis.sentence, "", _describe(analysis.primary, data)]))
    for verdict in analysis.secondary:
        print(f"secondary  {verdict.sentence}")
    if analysis.secondary:
        print(f"family     {analysis.family_sentence}")
    if options.report:
        print(f"report     {options.report}")


def _check_preset(options: argparse.Namespace) -> None:
    """Refuse a preset beside a learner, which has its own, and where no named test of the paper could have it."""
    if options.preset and options.learner:
        raise ValueError(
            "--preset was chosen when the learner was trained. Leave it out, and name further tests with their "
            "settings, such as 'MMD-D · tuned'."
        )
    named = [name for name in (options.method, *options.secondary) if name != RECOMMENDED]
    if options.preset and not any(METHODS[name].algorithm for name in named):
        raise ValueError("--preset has the settings of tests of the paper. Name one, such as --method Meta-MKL.")


def _primary_method(options: argparse.Namespace, data: Prepared, learner: MetaLearner | None) -> Recommendation:
    """The chosen method; else the learner's; else the recommended one with its reasons."""
    if options.method != RECOMMENDED:
        return Recommendation(_with_preset(options.method, options.preset), ())
    if learner is not None:
        return Recommendation(learner.method, ())
    return advise(data, check=check_uploaded_tasks(data, seed=options.seed, device=options.device))


def _with_preset(name: str, preset: str | None) -> str:
    """The name of the line with this preset, if the test is one of the paper's whose settings are not named."""
    method = METHODS[name]
    return find_method(name, preset).name if method.algorithm == method.name else method.name


def _chosen_cleaning(options: argparse.Namespace, usual: Cleaning) -> Cleaning:
    """The usual choices, with those of the command line in their place."""
    for name in ("scaling", "levels", "leave_out", "use"):
        if options.command == "test" and options.learner and getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} was chosen when the learner was trained. Leave it out.")
    given = {
        "missing": options.missing,
        "scaling": options.scaling,
        "levels": options.levels,
        "left_out": options.leave_out and tuple(options.leave_out),
        "use": options.use and tuple(options.use),
        "block": options.block_column if options.command == "test" else None,
        "ids": options.id_column,
    }
    return replace(usual, **{name: value for name, value in given.items() if value is not None})


def _by_file(option: str, values: str, value: str, words: Sequence[str]) -> Marks:
    """The value of an option for all files, or by file from words such as P.csv=cp1251."""
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    return _pairs(words, f"{option} takes {values} once, or FILE={value} for each file.") or ""


def _chosen_readings(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of an upload that answer questions about reading."""
    return {
        "decimal": _by_file("--decimal", ". or ,", "MARK", options.decimal),
        "read_as": _pairs(options.read_as, "--read-as takes COLUMN=KIND, such as plate=words."),
        "totals": options.totals,
        "encoding": _by_file("--encoding", "NAME", "NAME", options.encoding),
    }


def _pairs(words: Sequence[str], problem: str) -> dict[str, str]:
    """Values by name, from words such as plate=words."""
    pairs = [word.rpartition("=") for word in words]
    if wrong := [word for word, (name, _, _) in zip(words, pairs, strict=True) if not name]:
        raise ValueError(f"{problem} Got {wrong[0]!r}.")
    return {name: value for name, _, value in pairs}


def run_meta_train(options: argparse.Namespace) -> None:
    """Read the related tasks, learn, and save the learner."""
    (check_file if options.out.lower().endswith(".zip") else check_folder)(options.out)
    readings = _chosen_readings(options)
    upload = Upload((), read_files(options.related), related_group=options.group_column, **readings)
    data = prepare(upload, cleaning=_chosen_cleaning(options, Cleaning()))
    learner = meta_train(
        options.method, data.related or {}, preset=options.preset, seed=options.seed, device=options.device
    )
    try:
        learner.save(options.out, data.encoding)
    except OSError as error:
        raise ValueError(f"{options.out} cannot be written: {error.strerror}.") from None
    print(
        f"{METHODS[learner.method].label} learned from {len(data.task_names)} tasks with {learner.columns} columns; "
        f"saved in {options.out}, together with these rows"
    )
    for note in data.decisions:
        print(f"note: {in_shell(note)}")


def _describe(result: TestResult, data: Prepared) -> str:
    lines = [f"p-value    {result.p_value:.4g} ({result.error_words})"]
    if result.split_p_values:
        lines.append(f"splits     {', '.join(f'{p:.3g}' for p in result.split_p_values)} (combined into the p-value)")
    lines.append(f"statistic  {result.statistic:.6g}")
    if result.criterion is not None:
        lines.append(f"criterion  {result.criterion:.4g} (Ĵ on the test rows: signal over noise)")
    learned = f"learned on {result.n_train[0]} + {result.n_train[1]} rows, " if any(result.n_train) else ""
    lines.append(f"rows       {learned}tested on {result.n_test[0]} + {result.n_test[1]}")
    lines.append(f"columns    {', '.join(data.features)}")
    lines.append(f"settings   {result.label}, seed {result.seed}, {result.device}")
    for words, beta in (("weights β", result.weights), ("β shrunk", result.diagnostics.get(WEIGHTS_USED, {}))):
        heavy = sorted(beta.items(), key=lambda item: -item[1])[:5]
        if heavy:
            shown = ", ".join(f"{name} {weight:.2f}" for name, weight in heavy if weight > 0.005)
            lines.append(f"{words:11}{shown}")
    lines.append(f"time       {result.seconds:.2f} s")
    notes = dict.fromkeys(map(in_shell, (*data.decisions, *result.notes)))
    return "\n".join(lines + [f"note       {note}" for note in notes])
