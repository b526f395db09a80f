"""The report of an outcome: one self-contained HTML file, and the same as plain values for JSON."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from datetime import date
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

from m2st_core.analysis.answer import Answer, answer_of, looks, unbroken
from m2st_core.analysis.pictures import Picture, pictures, related_picture
from m2st_core.analysis.plan import Outcome
from m2st_core.analysis.related import RelatedCheck
from m2st_core.analysis.writeup import assumptions, methods_sentence, references
from m2st_core.testing.methods import METHODS
from m2st_core.types import VERSION

SHOWN_ROWS = 40  # of the table of columns
CONVERSIONS = ("column", "cell", "read as", "cells")
LIBRARIES = ("torch", "numpy", "pandas", "scipy", "plotly")
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
EXPLORATORY = (
    "This suggests where to look next. It proves nothing by itself, least of all without evidence of a difference."
)
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
        _effects(answer),
        _section("How many rows a new study needs", _list([*effect.sentences, effect.how, effect.caveat])),
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
            _list([EXPLORATORY, *outcome.explanation.notes] if outcome.explanation is not None else ()),
        ),
        *(figures.get(name, "") for name in ("witness", "importance", "typical")),
        figures.get("samples", ""),
        _section("How cells were read", _table(CONVERSIONS, [row[:4] for row in read]) if read else ""),
        _section("How the data were prepared", _list(list(dict.fromkeys((*data.decisions, *primary.notes))))),
        _section("Files", _table(("file", "rows", "columns", "SHA-256"), files)),
        _section("Settings", _table(("setting", "value"), _settings(outcome))),
        _section("For the methods section", f"<p>{escape(methods_sentence(outcome))}</p>"),
        _section("References", _list(references(outcome))),
        _section("Versions", _table(("software", "version"), versions().items())),
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
    drawn = picture.figure.update_layout(template="plotly_white", autosize=True).to_html(
        full_html=False,
        include_plotlyjs=with_library,
        config={"displaylogo": False, "responsive": True},
        div_id=f"figure-{picture.name}",
    )
    inner = f'{drawn}<p class="small">{escape(picture.caption)}</p>'
    return _section(picture.title, inner).replace("<section>", '<section class="figure">', 1)


def _secondary_tests(outcome: Outcome) -> str:
    analysis = outcome.analysis
    if not analysis.secondary:
        return ""
    rows = [
        (
            f"{test.result.label} ({test.role})",
            f"{test.result.p_value:.4g}",
            f"{test.adjusted_p_value:.4g}",
            "yes" if test.rejected else "no",
        )
        for test in analysis.corrected
    ]
    head = ("test", "uncorrected p", "p after Holm", f"at most α={outcome.plan.alpha:g}")
    return _section("Secondary tests", f"<p>{escape(analysis.family_sentence)}</p>" + _table(head, rows))


def _quantities(outcome: Outcome) -> list[tuple[str, str]]:
    effect, result = outcome.analysis.effect, outcome.analysis.primary
    labellings = "labellings, all counted" if result.enumerated else "permutations"
    return [
        ("statistic", f"{result.statistic:.4g}"),
        ("MMD²", f"{effect.mmd2:.4g}"),
        *([] if effect.criterion is None else [("Ĵ (signal over noise)", f"{effect.criterion:.4g}")]),
        ("training rows", f"{result.n_train[0]} + {result.n_train[1]}"),
        ("test rows", f"{result.n_test[0]} + {result.n_test[1]}"),
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


def versions() -> dict[str, str]:
    """Return the versions of the software that computed the outcome."""
    return {"m2st": VERSION, "Python": platform.python_version()} | {n: metadata.version(n) for n in LIBRARIES}


def decisions(outcome: Outcome, tested: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
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
        "versions": versions(),
    }
