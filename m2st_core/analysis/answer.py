"""The answer in words: the verdict in the names of the groups, what it rests on, and what it does not mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from m2st_core.analysis.differences import Difference, differences
from m2st_core.analysis.pictures import images_of
from m2st_core.analysis.plan import Outcome
from m2st_core.data.repeats import repeats_in
from m2st_core.data.tables.upload import BY_ORDER
from m2st_core.types import TestResult

NAMED_COLUMNS = 3  # in a sentence
EFFECT_CAPTION = (
    "Medians, or shares of the rows. Intervals hold for each column by itself, not for all at once. The table shows "
    "typical values only: the test also sees spread, shape and combinations of columns."
)
WITHOUT_BLOCKS = (
    "It ignores the blocks: its intervals take all rows as independent, while the test compares rows within blocks. So "
    "an interval and the test may disagree, and then the test counts."
)
ONE_LOOK = "These data have been tested once in this session. This is the first result, and the one to report."
SEVERAL_LOOKS = (
    "These data have been tested {count} times in this session. Report the first result, or all: each further attempt "
    "makes a small p-value by chance more likely."
)


@dataclass(frozen=True)
class Answer:
    """The sentences of the answer and its table of columns, for the page and the report.

    ``caveats`` say what the p-value supposes of these rows, and which values were matched by their order only.
    ``both`` are the verdicts with the history and without, if there is one. Images have no table of columns.
    """

    verdict: str
    basis: str
    caveats: tuple[str, ...]
    both: tuple[str, str] | None
    differs: str
    not_meant: str
    table: tuple[dict[str, str], ...]
    caption: str


def answer_of(outcome: Outcome) -> Answer:
    """Put an outcome into words."""
    images = images_of(outcome.data)
    found = differences(outcome.data) if images is None else ()
    return Answer(
        verdict=verdict(outcome),
        basis=basis(outcome),
        caveats=caveats(outcome),
        both=two_verdicts(outcome),
        differs=what_differs(outcome, found) if images is None else which_pixel(outcome, *images),
        not_meant=not_meant(outcome),
        table=effect_table(outcome, found),
        caption=effect_caption(outcome),
    )


def unbroken(words: str) -> str:
    """Return the words for a large type: no line breaks within "p = 0.21" or before "%", escaped or not."""
    return re.sub(r"(?<=\bp) (?=\\?[=≤])|(?<=[=≤]) (?=\d)| (?=\\?%)", "\u00a0", words)


def p_short(result: TestResult) -> str:
    """Return the p-value as it is quoted: "p = 0.21", or "p ≤ 0.001" where more permutations could lower it."""
    return f"p {'≤' if result.at_floor and not result.enumerated else '='} {result.p_value:.3g}"


def verdict(outcome: Outcome) -> str:
    """Return the decision in one sentence."""
    analysis, data = outcome.analysis, outcome.data
    result = analysis.primary
    p = p_short(result)
    if analysis.decision in analysis.corrected:
        p = f"p = {analysis.decision.adjusted_p_value:.3g} after Holm's correction"
    if analysis.rejected:
        return f"Evidence that “{data.y_name}” differs from “{data.x_name}” ({p})"
    n, m = result.n_test
    tested = "test rows" if any(result.n_train) else "rows"
    return f"No evidence of a difference at α={result.alpha:g} with {n} and {m} {tested} ({p})"


def basis(outcome: Outcome) -> str:
    """Return what the verdict rests on: the test, its rows, and the smallest p-value within reach."""
    result = outcome.analysis.primary
    rows = f"{result.n_test[0]} and {result.n_test[1]} rows"
    learned = f", after learning on {result.n_train[0]} and {result.n_train[1]} others" if any(result.n_train) else ""
    history = len(outcome.learners[result.method].task_names) if result.method in outcome.learners else 0
    taught = f", taught by {history} related task{'s' * (history != 1)}," if history else ""
    within = "" if outcome.data.blocks is None else f", within the blocks of “{outcome.data.encoding.cleaning.block}”"
    said = [f"{result.label}{taught} compared {rows}{learned}{within}. It was declared before its result was known."]
    if not result.by_permutation:
        said.append("Its p-value is an approximation for large samples.")
    elif result.enumerated:
        said.append(f"All {result.n_permutations + 1:,} labellings of the rows were counted.")
    if result.at_floor:
        if result.enumerated:
            said.append("No labelling of these rows gives a smaller p-value.")
        else:
            said.append(f"No smaller p-value is possible with {result.n_permutations:,} permutations.")
    elif result.smallest_p > result.alpha / 5:
        said.append(f"The smallest p-value that these rows can give is {result.smallest_p:.3g}.")
    if result.by_permutation and not result.counts_itself:
        said.append("This preset leaves the observed labelling out, which makes p slightly too small.")
    if result.exact_if:
        said.append(f"The p-value is exact if {result.exact_if}.")
    return " ".join(said)


def caveats(outcome: Outcome) -> tuple[str, ...]:
    """Return what the p-value supposes of repeated rows, and how other values of the related tasks were matched."""
    taught = outcome.analysis.primary.method in outcome.learners
    by_order = next((note for note in outcome.data.decisions if taught and BY_ORDER in note), "")
    return tuple(filter(None, (if_independent(outcome), by_order)))


def if_independent(outcome: Outcome) -> str:
    """Return the condition that repeated rows put on the p-value; empty if there are none."""
    rows, _, _ = repeats_in((*outcome.data.decisions, *outcome.analysis.primary.notes)).partition(". ")
    return f"{rows}: the p-value is exact if the repeated rows are independent observations." if rows else ""


def two_verdicts(outcome: Outcome) -> tuple[str, str] | None:
    """Return the primary test's verdict with the history and Omnibus's without; None if no history was used."""
    without = outcome.without_history
    if without is None:
        return None
    found = ["evidence" if rejected else "no evidence" for rejected in (outcome.analysis.rejected, without.rejected)]
    results = (outcome.analysis.primary, without)
    first, second = (f"{word} ({p_short(r)}) by {r.label}" for word, r in zip(found, results, strict=True))
    return f"With the history: {first}", f"Without: {second}"


def what_differs(outcome: Outcome, found: Sequence[Difference]) -> str:
    """Return the columns whose intervals exclude zero in a sentence, largest first."""
    data = outcome.data
    apart = [one for one in found if one.low > 0 or one.high < 0]
    clear = [one for one in apart if not one.identifier]
    if not outcome.analysis.rejected:
        return ""
    if not clear and apart:
        return (
            f"Only “{apart[0].column}” differs clearly, which looks like an identifier. Perhaps the groups were only "
            "numbered one after the other: test again without it."
        )
    if not clear:
        return (
            "No single column differs clearly in its typical value. The groups may differ in spread, in shape, or in "
            "how columns go together."
        )
    named = "; ".join(
        f"“{one.column}”, with {one.typical_words[0]} in “{data.x_name}” and {one.typical_words[1]} in “{data.y_name}” "
        f"({one.words(one.difference, signed=True)}, 95 % interval {one.interval_words})"
        for one in clear[:NAMED_COLUMNS]
    )
    more = len(clear) - NAMED_COLUMNS
    others = f" {more} more columns differ clearly." if more > 1 else " One more column differs clearly."
    return f"What differs most: {named}." + (others if more > 0 else "")


def which_pixel(outcome: Outcome, x: np.ndarray, y: np.ndarray) -> str:
    """Return the pixel whose means differ most between images (n, h, w) and (m, h, w), in a sentence."""
    data, means = outcome.data, [part.mean(axis=0) for part in (x, y)]
    place = np.unravel_index(int(np.nanargmax(np.abs(means[0] - means[1]))), means[0].shape)
    first, second = (float(mean[place]) for mean in means)
    if not outcome.analysis.rejected:
        return ""
    decimals = max(0, 2 - int(np.floor(np.log10(max(abs(first), abs(second)) or 1))))
    return (
        f"What differs most on average: “pixel {place[0]},{place[1]}”, with a mean of {first:.{decimals}f} in "
        f"“{data.x_name}” and {second:.{decimals}f} in “{data.y_name}”."
    )


def not_meant(outcome: Outcome) -> str:
    """Return what the verdict does not say."""
    if outcome.analysis.rejected:
        return (
            "It does not say that the difference is large, that it matters, or what caused it. Groups that were "
            "collected differently may differ for that reason alone."
        )
    return (
        "It does not show that the groups are the same. They may differ in a way that these rows are too few to show."
    )


def effect_caption(outcome: Outcome) -> str:
    """Return what the table of effects shows, and what it leaves out."""
    return EFFECT_CAPTION if outcome.data.blocks is None else f"{EFFECT_CAPTION} {WITHOUT_BLOCKS}"


def looks(tested: int) -> str:
    """Return how often these data were tested in this session, and what to report."""
    return ONE_LOOK if tested < 2 else SEVERAL_LOOKS.format(count=tested)


def effect_table(outcome: Outcome, found: Sequence[Difference]) -> tuple[dict[str, str], ...]:
    """Return one row of words per column, largest standardised difference first."""
    data = outcome.data
    return tuple(
        {
            "Column": one.column,
            "Unit": "% of rows" if one.is_share else one.unit,
            f"“{data.x_name}”": one.number(one.x),
            f"“{data.y_name}”": one.number(one.y),
            "Difference": one.number(one.difference, signed=True),
            "95 % interval": one.interval_words,
            "In SDs": f"{one.size:+.2f}".replace("-", "−"),
        }
        for one in found
    )
