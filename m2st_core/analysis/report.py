"""One HTML file with everything: it needs no other file and asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from m2st_core.analysis.own_data import Outcome
from m2st_core.analysis.pictures import Picture, history_picture, pictures
from m2st_core.analysis.related_check import RelatedCheck
from m2st_core.analysis.words import assumptions, methods_sentence, references, versions
from m2st_core.testing.method import ORIGINS
from m2st_core.testing.methods import METHODS

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
EXPLORATORY = (
    "It suggests where to look next, and proves nothing by itself, least of all without evidence of a difference."
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
    history: RelatedCheck | None = None,
    tested: Sequence[dict[str, Any]] = (),
    python: str = "",
    command: str = "",
) -> str:
    """The report of an outcome; ``tested`` has all tests of these data in this session, where that is known."""
    analysis, plan, data = outcome.analysis, outcome.plan, outcome.data
    primary = analysis.primary
    drawn = pictures(outcome)
    shown = iter(_embedded([*drawn.values(), *([history_picture(history)] if history else [])]))
    figures = {name: next(shown) for name in drawn}
    body = [
        f"<h1>“{escape(data.x_name)}” against “{escape(data.y_name)}”</h1>",
        f'<div class="answer"><p><b>{escape(analysis.sentence)}</b></p><p>{escape(primary.p_words)} '
        f"({escape(primary.error_words)}); {'exact under the assumptions below' if primary.exact else 'not exact'}.</p>"
        f"{_splits_words(primary.split_p_values)}{_tested_words(tested)}</div>",
        _section(
            "How many rows it takes (approximate)",
            _list([*analysis.answer.sentences, analysis.answer.how, analysis.answer.caveat]),
        ),
        _section("Effect", _table(("quantity", "value"), _effect(outcome))),
        figures["null"],
    ]
    if analysis.secondary:
        rows = [
            (
                f"{v.result.label} ({v.role})",
                f"{v.result.p_value:.4g}",
                f"{v.adjusted_p_value:.4g}",
                "yes" if v.rejected else "no",
            )
            for v in analysis.corrected
        ]
        head = ("test", "p alone", "p after Holm", f"at most α={plan.alpha:g}")
        body.append(_section("Secondary tests", f"<p>{escape(analysis.family_sentence)}</p>" + _table(head, rows)))
    body.append(figures.get("weights", ""))
    if history is not None:
        body += [_section("The history", _list(history.sentences)), next(shown)]
    if outcome.explanation is not None:
        body.append(_section("What the test looked at (exploratory)", _list([EXPLORATORY, *outcome.explanation.notes])))
        body += [figures.get("witness", ""), figures.get("importance", ""), _typical(outcome)]
    body.append(figures["samples"])
    settings = [(name.replace("_", " "), value) for name, value in vars(plan).items()]
    settings[0] = ("primary", f"{primary.label}: {ORIGINS[primary.origin]}")
    settings[1] = ("secondary", ", ".join(METHODS[name].label for name in plan.secondary) or "none")
    body += [
        _section("Assumptions", _list(assumptions(outcome))),
        _section("What was done with the data", _list([*data.decisions, *primary.notes])),
        _section("Files", _table(("file", "rows", "columns", "SHA-256"), _files(outcome))),
        _section("Settings", _table(("setting", "value"), settings)),
        _section("For the methods section", f"<p>{escape(methods_sentence(outcome))}</p>"),
        _section("References", _list(references(outcome))),
        _section("Versions", _table(("software", "version"), versions().items())),
    ]
    for title, code in (("The same in Python", python), ("The same from the shell", command)):
        body.append(_section(title, f"<pre>{escape(code)}</pre>") if code else "")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(data.x_name)} against {escape(data.y_name)}</title><style>{STYLE}</style></head>\n<body>"
        + "\n".join(part for part in body if part)
        + "</body></html>\n"
    )


def _embedded(drawn: Sequence[Picture]) -> list[str]:
    """Each picture as HTML; plotly.js comes with the first."""
    parts = []
    for index, picture in enumerate(drawn):
        figure = picture.figure
        figure.update_layout(template="plotly_white", autosize=True)
        inner = figure.to_html(
            full_html=False,
            include_plotlyjs=index == 0,
            config={"displaylogo": False, "responsive": True},
            div_id=f"figure-{picture.name}",
        )
        caption = f'<p class="small">{escape(picture.caption)}</p>'
        parts.append(f"<section><h2>{escape(picture.title)}</h2>{inner}{caption}</section>")
    return parts


def _tested_words(tested: Sequence[dict[str, Any]]) -> str:
    if len(tested) < 2:
        return ""
    rows = [tuple(str(value) for value in test.values()) for test in tested]
    return (
        f"<p>These data have been tested {len(tested)} times in this session. Report all of them: each further try "
        f"makes a small p-value by chance more likely.</p>{_table(tuple(tested[0]), rows)}"
    )


def _splits_words(p_values: Sequence[float]) -> str:
    if not p_values:
        return ""
    listed = ", ".join(f"{p:.3g}" for p in p_values)
    return f"<p>The p-values of the {len(p_values)} random splits, in the order drawn: {listed}.</p>"


def _effect(outcome: Outcome) -> list[tuple[str, str]]:
    answer, result = outcome.analysis.answer, outcome.analysis.primary
    found = [("statistic", f"{result.statistic:.4g}"), ("MMD²", f"{answer.mmd2:.4g}")]
    if answer.criterion is not None:
        found.append(("Ĵ (signal over noise)", f"{answer.criterion:.4g}"))
    return [
        *found,
        ("rows learned from", f"{result.n_train[0]} + {result.n_train[1]}"),
        ("rows tested", f"{result.n_test[0]} + {result.n_test[1]}"),
        (
            "labellings, all counted" if result.enumerated else "permutations",
            f"{result.n_permutations + result.enumerated}",
        ),
        ("smallest possible p", f"{result.smallest_p:.3g}"),
        ("seed", f"{result.seed}"),
    ]


def _typical(outcome: Outcome) -> str:
    found = outcome.explanation
    assert found is not None
    rows = []
    sides = ((outcome.data.x_name, found.typical_x), (outcome.data.y_name, found.typical_y))
    for (name, (_, values)), numbers in zip(sides, outcome.row_numbers, strict=True):
        rows += [(name, f"{row}", f"{value:.3g}") for row, value in zip(numbers, values, strict=True)]
    return _section("Rows most typical of each group", _table(("group", "row in the file", "witness"), rows))


def _files(outcome: Outcome) -> list[tuple[Any, ...]]:
    files = outcome.data.record.get("files", [])
    return [(file["name"], file["rows"], file["columns"], file["sha256"]) for file in files]


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inner}</section>" if inner else ""


def _list(items: Iterable[str]) -> str:
    entries = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{entries}</ul>" if entries else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows]
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table><tr>{heads}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
