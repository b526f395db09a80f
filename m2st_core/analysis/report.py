"""The report of an outcome: one self-contained HTML file, and the same as plain values for JSON."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from html import escape
from importlib import metadata
from typing import Any

from m2st_core.analysis.pictures import Picture, pictures, related_picture
from m2st_core.analysis.plan import Outcome
from m2st_core.analysis.related_check import RelatedCheck
from m2st_core.analysis.writeup import assumptions, methods_sentence, references
from m2st_core.testing.method import ORIGINS
from m2st_core.testing.methods import METHODS
from m2st_core.types import VERSION

LIBRARIES = ("torch", "numpy", "pandas", "scipy", "plotly")
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
EXPLORATORY = (
    "This suggests where to look next. It proves nothing by itself, least of all without evidence of a difference."
)
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
table { border-collapse: collapse; margin: .5rem 0; display: block; overflow-x: auto; }
td, th { border: 1px solid #bbb; padding: .2rem .6rem; text-align: left; vertical-align: top; }
.answer { border-left: .4rem solid #0072B2; padding: .4rem 1rem; background: #f2f6fa; }
.small { color: #555; font-size: .9rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f5f5f5; padding: .6rem; }
"""


def html_report(
    outcome: Outcome,
    *,
    check: RelatedCheck | None = None,
    tested: Sequence[dict[str, Any]] = (),
    python: str = "",
    command: str = "",
) -> str:
    """Return the report of an outcome; ``tested`` lists all tests of these data in this session, if known."""
    analysis, data = outcome.analysis, outcome.data
    primary, effect = analysis.primary, analysis.effect
    drawn = pictures(outcome) | ({"related": related_picture(check)} if check is not None else {})
    figures = {name: _figure(picture, with_library=name == "null") for name, picture in drawn.items()}
    title = f"“{escape(data.x_name)}” against “{escape(data.y_name)}”"
    splits = ", ".join(f"{p:.3g}" for p in primary.split_p_values)
    files = [[file[key] for key in ("name", "rows", "columns", "sha256")] for file in data.record.get("files", [])]
    body = [
        f"<h1>{title}</h1>",
        f'<div class="answer"><p><b>{escape(analysis.sentence)}</b></p>',
        f"<p>{escape(primary.p_words)} ({escape(primary.error_words)}); "
        f"{'exact under the assumptions below' if primary.exact else 'not exact'}.</p>",
        f"<p>The p-values of the random splits, in the order drawn: {splits}.</p>" if splits else "",
        _tests_so_far(tested),
        "</div>",
        _section("How many rows are needed (approximate)", _list([*effect.sentences, effect.how, effect.caveat])),
        _section("Effect", _table(("quantity", "value"), _quantities(outcome))),
        figures["null"],
        _secondary_tests(outcome),
        figures.get("weights", ""),
        _section("Related tasks", _list(check.sentences if check is not None else ())),
        figures.get("related", ""),
        _section(
            "What the test used (exploratory)",
            _list([EXPLORATORY, *outcome.explanation.notes] if outcome.explanation is not None else ()),
        ),
        figures.get("witness", ""),
        figures.get("importance", ""),
        _typical_rows(outcome),
        figures["samples"],
        _section("Assumptions", _list(assumptions(outcome))),
        _section("How the data were prepared", _list([*data.decisions, *primary.notes])),
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
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>"
        + "\n".join(filter(None, body))
        + "</body></html>\n"
    )


def _figure(picture: Picture, with_library: bool) -> str:
    """Return a picture as HTML; plotly.js is included once."""
    drawn = picture.figure.update_layout(template="plotly_white", autosize=True).to_html(
        full_html=False,
        include_plotlyjs=with_library,
        config={"displaylogo": False, "responsive": True},
        div_id=f"figure-{picture.name}",
    )
    return _section(picture.title, f'{drawn}<p class="small">{escape(picture.caption)}</p>')


def _tests_so_far(tested: Sequence[dict[str, Any]]) -> str:
    if len(tested) < 2:
        return ""
    return (
        f"<p>These data have been tested {len(tested)} times in this session. Report all tests: each further attempt "
        "makes a small p-value by chance more likely.</p>" + _table(tuple(tested[0]), (row.values() for row in tested))
    )


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
        ("smallest possible p", f"{result.smallest_p:.3g}"),
        ("seed", f"{result.seed}"),
    ]


def _typical_rows(outcome: Outcome) -> str:
    explanation, data = outcome.explanation, outcome.data
    if explanation is None:
        return ""
    (at_x, of_x), (at_y, of_y) = explanation.typical_x, explanation.typical_y
    sides = ((data.x_name, data.x_rows[at_x], of_x), (data.y_name, data.y_rows[at_y], of_y))
    rows = [(name, i, f"{value:.3g}") for name, *both in sides for i, value in zip(*both, strict=True)]
    return _section("Rows most typical of each group", _table(("group", "row in the file", "witness"), rows))


def _settings(outcome: Outcome) -> Iterable[tuple[str, Any]]:
    primary, plan = outcome.analysis.primary, outcome.plan
    shown = vars(plan) | {
        "primary": f"{primary.label}: {ORIGINS[primary.origin]}",
        "secondary": ", ".join(METHODS[name].label for name in plan.secondary) or "none",
    }
    return ((name.replace("_", " "), value) for name, value in shown.items())


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inner}</section>" if inner else ""


def _list(items: Iterable[str]) -> str:
    entries = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{entries}</ul>" if entries else ""


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows]
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table><tr>{heads}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


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
