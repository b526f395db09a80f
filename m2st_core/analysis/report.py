"""The report of an outcome: one self-contained HTML file, plain values for JSON, and code that repeats it."""

from __future__ import annotations

import base64
import io
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from m2st_core.analysis.answer import (
    Answer,
    answer_of,
    assumptions,
    looks,
    methods_sentence,
    references,
    secondary_table,
    unbroken,
)
from m2st_core.analysis.pictures import SHEETS, Picture, pictures, related_picture
from m2st_core.analysis.plan import Outcome, Plan
from m2st_core.analysis.related import RelatedCheck
from m2st_core.data.tables.encoding import Cleaning
from m2st_core.data.tables.examples import EXAMPLES
from m2st_core.data.tables.files import read_files
from m2st_core.data.tables.groups import likely_words, suggest_groups
from m2st_core.data.tables.questions import Marks, words_by_file
from m2st_core.data.tables.table import Table
from m2st_core.data.tables.upload import Upload
from m2st_core.testing.methods import METHODS
from m2st_core.types import VERSION

SHOWN_ROWS = 40  # of the table of columns
CONVERSIONS = ("column", "cell", "read as", "cells")
LIBRARIES = ("torch", "numpy", "pandas", "scipy", "plotly")
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
EXPLORATORY = (
    "This suggests where to look next. It proves nothing by itself, least of all without evidence of a difference."
)
ROLES = (
    "group", "task", "related_group", "groups", "decimal", "read_as", "totals", "encoding", "related_groups",
)  # fmt: skip
STYLE = Path(__file__).with_name("report.css").read_text(encoding="utf-8")


def html_report(
    outcome: Outcome,
    *,
    check: RelatedCheck | None = None,
    tested: Sequence[dict[str, Any]] = (),
    python: str = "",
    command: str = "",
    made: date | None = None,
) -> str:
    """Return the report, in the order of the page.

    ``tested`` lists all tests of these data in this session, if known. ``made`` is the report's date: today's.
    """
    analysis, data = outcome.analysis, outcome.data
    primary, effect = analysis.primary, analysis.effect
    drawn = pictures(outcome) | ({"related": related_picture(check)} if check is not None else {})
    first = "pixels" if "pixels" in drawn else "null"
    figures = {name: _figure(picture, with_library=name == first) for name, picture in drawn.items()}
    answer, when = answer_of(outcome), made or date.today()
    files = [[file[key] for key in ("name", "rows", "columns", "sha256")] for file in data.record.get("files", [])]
    groups = f"“{escape(data.x_name)}” against “{escape(data.y_name)}”"
    read = data.record.get("conversions")
    body = [
        f'<p class="small">{groups} · {when.day} {when:%B %Y} · m2st {VERSION}</p>',
        _card(answer, primary.split_p_values, len(tested)),
        figures.get("pixels", ""),
        figures.get("tiles", ""),
        *(figures.get(name, "") for name in SHEETS),
        _effects(answer),
        _section(f"How many {data.unit} a new study needs", _list([*effect.sentences, effect.how, effect.caveat])),
        _section("Assumptions", _list(assumptions(outcome))),
        "<h2>Details</h2>",
        _section("Statistics", _table(("quantity", "value"), _quantities(outcome))),
        figures["null"],
        _section("All tests of these data", _table(tested[0], map(dict.values, tested)) if len(tested) > 1 else ""),
        _secondary_tests(outcome),
        _section("Related tasks", _list(check.sentences if check is not None else ())),
        figures.get("related", ""),
        figures.get("weights", ""),
        _section(
            "What the test used (exploratory)",
            _list([EXPLORATORY, *outcome.explanation.importance.notes] if outcome.explanation is not None else ()),
        ),
        *(figures.get(name, "") for name in ("witness", "importance", "typical")),
        figures.get("samples", ""),
        _section("How cells were read", _table(CONVERSIONS, [row[:4] for row in read]) if read else ""),
        _section("How the data were prepared", _list(list(dict.fromkeys((*data.decisions, *primary.notes))))),
        _section("Files", _table(("file", "rows", "columns", "SHA-256"), files)),
        _section("Settings", _table(("setting", "value"), _settings(outcome))),
        _section("For the methods section", f"<p>{escape(methods_sentence(outcome))}</p>"),
        _section("References", _list(references(outcome))),
        _section("Versions", _table(("software", "version"), report_versions().items())),
        _section("The same in Python", f"<pre>{escape(python)}</pre>" if python else ""),
        _section("The same from the shell", f"<pre>{escape(command)}</pre>" if command else ""),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(answer.verdict)}</title><style>{STYLE}</style></head>\n<body>"
        + "\n".join(filter(None, body))
        + "</body></html>\n"
    )


def _card(answer: Answer, splits: Sequence[float], tested: int) -> str:
    """Return the answer: the verdict first."""
    both = ""
    if answer.both is not None:
        kinds = zip(("with", "without"), answer.both, strict=True)
        both = "".join(f'<p class="{kind}">{escape(sentence)}</p>' for kind, sentence in kinds)
    drawn = ", ".join(f"{p:.3g}" for p in splits)
    lines = (
        f"<h1>{escape(unbroken(answer.verdict))}</h1>",
        f"<p>{escape(answer.basis)}</p>",
        *(f"<p>{escape(sentence)}</p>" for sentence in answer.caveats),
        both,
        f"<p>The p-values of the random splits, in the order drawn: {drawn}.</p>" if drawn else "",
        f"<p>{escape(answer.differs)}</p>" if answer.differs else "",
        f"<p><b>What this does not mean.</b> {escape(answer.not_meant)}</p>",
        f'<p class="small">{escape(looks(tested))}</p>' if tested else "",
    )
    return f'<div class="answer">{"".join(lines)}</div>'


def _effects(answer: Answer) -> str:
    if not answer.table:
        return ""
    rows = answer.table[:SHOWN_ROWS]
    table = _table(rows[0], (row.values() for row in rows), named=True)
    inner = f'<div class="effects">{table}</div><p class="small">{escape(answer.caption)}</p>'
    return _section("How far apart the groups are", inner)


def _figure(picture: Picture, with_library: bool) -> str:
    """Return a picture as HTML; plotly.js is included once."""
    if isinstance(picture.figure, np.ndarray):
        shown = base64.b64encode(_as_png(picture.figure)).decode()
        drawn = f'<img alt="{escape(picture.alt)}" style="max-width:100%" src="data:image/png;base64,{shown}">'
    else:
        drawn = picture.figure.update_layout(template="plotly_white", autosize=True).to_html(
            full_html=False,
            include_plotlyjs=with_library,
            config={"displaylogo": False, "responsive": True},
            div_id=f"figure-{picture.name}",
        )
    inner = f'{drawn}<p class="small">{escape(picture.caption)}</p>'
    return _section(picture.title, inner).replace("<section>", '<section class="figure">', 1)


def _as_png(picture: np.ndarray) -> bytes:
    """Return a picture (H, W, 4) of bytes as PNG."""
    target = io.BytesIO()
    Image.fromarray(picture).save(target, "PNG")
    return target.getvalue()


def _secondary_tests(outcome: Outcome) -> str:
    rows = secondary_table(outcome)
    if not rows:
        return ""
    cells = [[f"{cell:.4g}" if isinstance(cell, float) else cell for cell in row.values()] for row in rows]
    said = f"<p>{escape(outcome.analysis.family_sentence)}</p>"
    return _section("Secondary tests", said + _table(rows[0], cells))


def _quantities(outcome: Outcome) -> list[tuple[str, str]]:
    effect, result = outcome.analysis.effect, outcome.analysis.primary
    labellings = "labellings, all counted" if result.enumerated else "permutations"
    return [
        ("statistic", f"{result.statistic:.4g}"),
        ("MMD²", f"{effect.mmd2:.4g}"),
        *([] if effect.criterion is None else [("Ĵ (signal over noise)", f"{effect.criterion:.4g}")]),
        (f"training {outcome.data.unit}", f"{result.n_train[0]} + {result.n_train[1]}"),
        (f"test {outcome.data.unit}", f"{result.n_test[0]} + {result.n_test[1]}"),
        (labellings, f"{result.n_permutations + result.enumerated}"),
        ("p-value", f"{result.p_value:.4g}, {result.error_words}"),
        (
            "exact",
            "yes, under the assumptions above"
            if result.exact
            else f"if {result.exact_if}"
            if result.exact_if
            else "no",
        ),
        ("smallest possible p", f"{result.smallest_p:.3g}"),
        ("seed", f"{result.seed}"),
    ]


def _settings(outcome: Outcome) -> Iterable[tuple[str, Any]]:
    primary, plan = outcome.analysis.primary, outcome.plan
    shown = vars(plan) | {
        "primary": primary.label,
        "secondary": ", ".join(METHODS[name].label for name in plan.secondary) or "none",
    }
    return ((name.replace("_", " "), value) for name, value in shown.items())


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inner}</section>" if inner else ""


def _list(items: Iterable[str]) -> str:
    entries = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{entries}</ul>" if entries else ""


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]], named: bool = False) -> str:
    names = [escape(name) for name in head]  # on a phone they stand beside the cells, if ``named``
    cells = [f'<td data-name="{name}">' if named else "<td>" for name in names]
    lines = ["".join(f"{td}{escape(str(cell))}</td>" for td, cell in zip(cells, row, strict=True)) for row in rows]
    heads, body = "</th><th>".join(names), "</tr><tr>".join(lines)
    return f"<table><thead><tr><th>{heads}</th></tr></thead><tbody><tr>{body}</tr></tbody></table>"


def report_versions() -> dict[str, str]:
    """Return the versions of the software that computed the outcome."""
    return {"m2st": VERSION, "Python": platform.python_version()} | {n: metadata.version(n) for n in LIBRARIES}


def report_decisions(outcome: Outcome, tested: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return all choices and results as plain values for JSON."""
    analysis, effect = outcome.analysis, outcome.analysis.effect
    return {
        "data": dict(outcome.data.record),
        "plan": vars(outcome.plan) | {"secondary": list(outcome.plan.secondary)},
        "primary": analysis.primary.to_dict(),
        "family": {"of": analysis.family, "primary_holm_p_value": analysis.decision.adjusted_p_value},
        "secondary": [
            test.result.to_dict() | {"holm_p_value": test.adjusted_p_value, "rejected": test.rejected}
            for test in analysis.secondary
        ],
        "power": {
            "estimate": effect.power,
            "interval": effect.power_interval,
            "rows_for_80_percent": effect.rows_for_power,
            "how": effect.how,
        },
        "tested_in_this_session": list(tested),
        "versions": report_versions(),
    }


@dataclass(frozen=True)
class DataSource:
    """The files or the example of the data, the roles of columns, answers about reading, and a learner's file."""

    target: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    example: str = ""
    group: str | None = None
    task: str = "task"
    related_group: str | None = None
    learner: str = ""
    groups: tuple[str, ...] = ()
    decimal: Marks = ""
    read_as: Mapping[str, str] = field(default_factory=dict)
    totals: str = ""
    encoding: Marks = ""
    related_groups: tuple[str, ...] = ()

    def upload(self) -> Upload:
        """Read the files or the example."""
        if self.example:
            if self.target or self.related:
                raise ValueError("Give files or an example, not both.")
            return replace(EXAMPLES[self.example].load(), groups=self.groups, related_groups=self.related_groups)
        target = read_files(self.target)
        if len(target) != (1 if self.group else 2):
            wanted = "one file with a group column" if self.group else "two files, or one with --group-column"
            raise ValueError(f"test needs {wanted}. Got {len(target)}.{'' if self.group else self._likely(target)}")
        return Upload(target, read_files(self.related), **{name: getattr(self, name) for name in ROLES})

    def _likely(self, target: tuple[Table, ...]) -> str:
        """The columns of the only file that may be the group."""
        related = suggest_groups(*read_files(self.related), task=self.task)
        likely = likely_words(suggest_groups(*target, related=related)) if len(target) == 1 else ""
        return f" Likely: --group-column {likely}." if likely else ""


def as_command(source: DataSource, cleaning: Cleaning, plan: Plan, report: str = "report.html") -> str:
    """Return a command line that repeats the outcome."""
    if source.learner:  # it fixes all other choices about columns
        cleaning = Cleaning(missing=cleaning.missing, block=cleaning.block, ids=cleaning.ids)
    options = (  # flag, value, default
        ("--example", source.example, ""),
        ("--group-column", None if source.example else source.group, ""),
        ("--groups", source.groups, ()),
        ("--related-groups", source.related_groups, ()),
        *(("--decimal", word, "") for word in words_by_file(source.decimal)),
        ("--read-as", tuple(f"{column}={kind}" for column, kind in source.read_as.items()), ()),
        ("--totals", source.totals, ""),
        *(("--encoding", word, "") for word in words_by_file(source.encoding)),
        ("--related", source.related, ()),
        ("--task-column", source.task if source.related else None, DataSource.task),
        ("--related-group-column", source.related_group if source.related else None, ""),
        ("--learner", source.learner, ""),
        ("--method", plan.primary, None),
        ("--secondary", plan.secondary, ()),
        ("--missing", cleaning.missing, None if source.learner else Cleaning.missing),
        ("--scaling", cleaning.scaling, Cleaning.scaling),
        ("--levels", cleaning.levels, Cleaning.levels),
        ("--block-column", cleaning.block, None),
        ("--id-column", cleaning.ids, None),
        ("--alpha", plan.alpha, Plan.alpha),
        ("--permutations", plan.n_permutations, Plan.n_permutations),
        ("--train-fraction", plan.train_fraction, Plan.train_fraction),
        ("--splits", plan.splits, Plan.splits),
        ("--family", plan.family, Plan.family),
        ("--seed", plan.seed, None),
        ("--leave-out", cleaning.left_out, ()),
        ("--use", cleaning.use, ()),
        ("--report", report, None),
    )
    words = ["python", "-m", "m2st_core", "test", *source.target]
    for flag, value, default in options:
        if value is not None and value != default:
            words += [flag, *(value if isinstance(value, tuple) else [str(value)])]
    return shlex.join(words)


def as_python(source: DataSource, cleaning: Cleaning, plan: Plan) -> str:
    """Return a script that repeats the outcome."""
    roles = _changed(source, DataSource(), ROLES)
    start, files = "", [source.target, source.related] if source.related else [source.target]
    upload = f"m2st.Upload({', '.join([*(f'm2st.read_files({list(names)!r})' for names in files), *roles])})"
    if source.example:
        upload = f"m2st.EXAMPLES[{source.example!r}].load()"
        if order := _changed(source, DataSource(), ("groups", "related_groups")):
            start, upload = "from dataclasses import replace\n\n", f"replace({upload}, {', '.join(order)})"
    choices = ", ".join(_changed(cleaning, Cleaning(), tuple(vars(cleaning))))
    settings = ", ".join([repr(plan.primary), *_changed(plan, Plan(), tuple(vars(plan))[1:])])
    learner, encoding, passed = "", "", ""
    if source.learner:
        learner = f"learner, encoding = m2st.open_learner({source.learner!r})\n"
        encoding, passed = ", encoding=encoding", ", learner=learner"
    return f"""{start}import m2st_core as m2st

{learner}upload = {upload}
data = m2st.prepare(upload, cleaning=m2st.Cleaning({choices}){encoding})
outcome = m2st.carry_out(data, m2st.Plan({settings}){passed})
print(outcome.analysis.primary.p_value, outcome.analysis.sentence)
open("report.html", "w", encoding="utf-8").write(m2st.html_report(outcome))
"""


def _changed(chosen: object, default: object, names: tuple[str, ...]) -> list[str]:
    """Return ``name=value`` for the fields that differ from the default."""
    return [f"{k}={getattr(chosen, k)!r}" for k in names if getattr(chosen, k) != getattr(default, k)]
