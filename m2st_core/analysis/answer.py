"""Results in words: the p-value, the verdict and its basis, what differs, what is assumed, and a methods sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from m2st_core.analysis.effect import Difference, differences, effect_table
from m2st_core.analysis.pictures import images_of
from m2st_core.analysis.plan import Outcome
from m2st_core.data.repeated_rows import repeats_in
from m2st_core.data.tables.groups import NOT_THE_TARGETS
from m2st_core.numbers import count_of
from m2st_core.testing.methods import METHODS
from m2st_core.types import DECISIONS, VERSION, TestResult

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
OWN_WORK = re.compile(r"this project: .*?\)")  # up to the end of the document's name
TITLE = re.compile(r"\((\d{4})\),[^;]*")  # the year and the title after it
LEARNED = {"ours": "features", "paper": "deep kernels"}  # by the method's origin
PHIPSON = "Phipson, Smyth (2010), Permutation p-values should never be zero"
GASPARIN = "Gasparin, Wang, Ramdas (2025), Combining exchangeable p-values"
HOLM = "Holm (1979), A simple sequentially rejective multiple test procedure"
WITHOUT_ITSELF = "This rule leaves the observed labelling out, which makes p slightly too small."
CAMERA = " Another camera, compression or light is a difference, too."
INDEPENDENT = {
    "rows": "Rows are independent of each other. Several rows from one person, site or day are not: declare that "
    "column as the block, or keep one row of each.",
    "images": "Images are independent of each other. Several images of one scene or person are not: keep one of each.",
}
ASSUMPTIONS = (
    "If P and Q are the same, the {unit} are exchangeable: it does not matter which label each of them carries. Groups "
    "that were collected differently may differ for that reason alone, and the test may detect it.",
    "None of the {unit} is in both groups.",
    "The test was chosen before its result was known. If several tests were tried, all are reported.",
    "A small p-value shows that the groups differ, not that the difference matters. A large p-value does not show that "
    "they are the same.",
)
RELATED = (
    "Learning from related tasks favours differences like theirs and may miss others. No tested row may be among their "
    "labelled rows. Shared rows that were recognised have been removed from the related tasks. If no shared row "
    "remains, related tasks change the power of the test and not its level."
)


def p_text(result: TestResult) -> str:
    """Return the p-value as a number: 0.21, or ≤ 0.001 where more permutations could lower it."""
    return f"{'≤ ' if result.at_floor and not result.enumerated else ''}{result.p_value:.3g}"


def _p_short(result: TestResult) -> str:
    """Return the p-value as it is quoted: "p = 0.21", or "p ≤ 0.001"."""
    text = p_text(result)
    return f"p {text}" if text.startswith("≤") else f"p = {text}"


def error_text(result: TestResult) -> str | None:
    """Return the Monte-Carlo error of the p-value; None at its floor, or if no permutation was drawn."""
    drawn = result.by_permutation and not result.enumerated and not result.at_floor
    return f"± {result.p_value_se:.1g}" if drawn else None


def headline(result: TestResult, baseline: TestResult | None = None) -> str:
    """Return what a test finds, and what the baseline finds on the same rows if the test used related tasks."""

    def finds(test: TestResult) -> str:
        return f"finds {'a' if test.rejected else 'no'} difference ({test.p_words})."

    first = f"**{result.label}** {finds(result)}"
    if baseline is None:
        return first
    return f"{first} On the same rows **{baseline.label}**, without related tasks, {finds(baseline)}"


def p_value_sentences(result: TestResult) -> str:
    """Return what the p-value means, and no more than that."""
    level, (n, m) = f"α = {result.alpha:g}", result.n_test
    if result.rejected:
        decision = f"That is at most {level}: **{_lowered(result)}**, with {n} and {m} test rows."
    else:
        decision = (
            f"That is more than {level}: **{_lowered(result)}** with {n} and {m} test rows. "
            "This does not show that P and Q are the same."
        )
    return f"{_origin_sentences(result)} {decision}"


def _origin_sentences(result: TestResult) -> str:
    """Return how the p-value was computed."""
    p, drawn = result.p_value, result.n_permutations
    if result.split_p_values:
        return (
            f"The rows were split at random {len(result.split_p_values)} times, and each split gave a p-value, from "
            f"{min(result.split_p_values):.3g} to {max(result.split_p_values):.3g}. Twice the smallest of their "
            f"running medians is a valid p-value for all of them together: {result.p_words}."
        )
    if not result.by_permutation:
        return (
            f"If P and Q were the same, a statistic at least this large would occur with probability about {p:.3g}. "
            "This approximation holds for large samples; the p-value is not exact."
        )
    if result.enumerated:
        counted = (
            f"Of all {drawn + 1:,} labellings of these rows, {round(p * (drawn + 1)):,} give a statistic at least as "
            f"large as the observed one: {result.p_words}."
        )
    elif result.counts_itself:
        counted = (
            f"Among {drawn + 1:,} labellings (the observed one and {drawn:,} random ones), {round(p * (drawn + 1)):,} "
            f"gave a statistic at least as large as the observed one: {result.p_words}."
        )
    else:
        counted = (
            f"Of {drawn:,} random labellings, {round(p * drawn):,} reached the observed statistic: p = {p:.3g}. "
            f"{WITHOUT_ITSELF}"
        )
    sentences = ("If P and Q were the same, the labels would be arbitrary.", counted, result.condition)
    return " ".join(filter(None, sentences))


def _lowered(result: TestResult) -> str:
    """Return the decision within a sentence."""
    return DECISIONS[result.rejected][0].lower() + DECISIONS[result.rejected][1:]


def unbroken(words: str) -> str:
    """Return the words for a large type: no line breaks within "p = 0.21" or before "%", escaped or not."""
    return re.sub(r"(?<=\bp) (?=\\?[=≤])|(?<=[=≤]) (?=\d)| (?=\\?%)", "\u00a0", words)


@dataclass(frozen=True)
class Answer:
    """The sentences of the answer and its table of columns, for the page and the report.

    ``caveats`` are what the p-value supposes of these rows, and the values that stand for those of the target.
    ``both`` are the verdicts with the related tasks and without, if the test learned from them. Images have no table of
    columns.
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
    grey = images_of(outcome.data)
    columns = differences(outcome.data) if grey is None else ()
    return Answer(
        verdict=verdict(outcome),
        basis=_basis(outcome),
        caveats=_caveats(outcome),
        both=_two_verdicts(outcome),
        differs=_what_differs(outcome, columns) if grey is None else _which_pixel(outcome, *grey),
        not_meant=_not_meant(outcome),
        table=effect_table(outcome.data, columns),
        caption=EFFECT_CAPTION if outcome.data.blocks is None else f"{EFFECT_CAPTION} {WITHOUT_BLOCKS}",
    )


def verdict(outcome: Outcome) -> str:
    """Return the decision in one sentence."""
    analysis, data = outcome.analysis, outcome.data
    result = analysis.primary
    p = _p_short(result)
    if analysis.decision in analysis.corrected:
        p = f"p = {analysis.decision.adjusted_p_value:.3g} after Holm's correction"
    if analysis.rejected:
        return f"Evidence that “{data.y_name}” differs from “{data.x_name}” ({p})"
    n, m = result.n_test
    tested = f"test {data.unit}" if any(result.n_train) else data.unit
    return f"{DECISIONS[False]} at α={result.alpha:g} with {n} and {m} {tested} ({p})"


def _basis(outcome: Outcome) -> str:
    """Return what the verdict rests on: the test, its rows, and the smallest p-value within reach."""
    result, data = outcome.analysis.primary, outcome.data
    rows = f"{result.n_test[0]} and {result.n_test[1]} {data.unit}{data.described_by and f' by {data.described_by}'}"
    learned = f", after learning on {result.n_train[0]} and {result.n_train[1]} others" if any(result.n_train) else ""
    tasks = len(outcome.learners[result.method].task_names) if result.method in outcome.learners else 0
    taught = f", taught by {count_of(tasks, 'related task')}," if tasks else ""
    within = f", within the blocks of “{data.record['cleaning']['block']}”" if data.blocks is not None else ""
    sentences = [
        f"{result.label}{taught} compared {rows}{learned}{within}.",
        "It was declared before its result was known.",
    ]
    if outcome.baseline is not None:
        sentences.append(f"{outcome.baseline.label}, without related tasks, is shown to compare and decides nothing.")
    if not result.by_permutation:
        sentences.append("Its p-value is an approximation for large samples.")
    elif result.enumerated:
        sentences.append(f"All {result.n_permutations + 1:,} labellings of the {data.unit} were counted.")
    if result.at_floor and result.enumerated:
        sentences.append(f"No labelling of these {data.unit} gives a smaller p-value.")
    elif result.at_floor:
        sentences.append(f"No smaller p-value is possible with {result.n_permutations:,} permutations.")
    elif result.smallest_p > result.alpha / 5:
        sentences.append(f"The smallest p-value that these {data.unit} can give is {result.smallest_p:.3g}.")
    if result.by_permutation and not result.counts_itself:
        sentences.append(WITHOUT_ITSELF)
    return " ".join(filter(None, (*sentences, result.condition)))


def _caveats(outcome: Outcome) -> tuple[str, ...]:
    """Return what the p-value supposes of repeated rows, and how other values of the related tasks were matched."""
    taught = outcome.analysis.primary.method in outcome.learners
    by_order = next((note for note in outcome.data.decisions if taught and NOT_THE_TARGETS in note), "")
    return tuple(filter(None, (_if_independent(outcome), by_order)))


def _if_independent(outcome: Outcome) -> str:
    """Return the condition that repeated rows put on the p-value; empty if there are none."""
    rows, _, _ = repeats_in((*outcome.data.decisions, *outcome.analysis.primary.notes)).partition(". ")
    return f"{rows}: the p-value is exact if the repeated rows are independent observations." if rows else ""


def _two_verdicts(outcome: Outcome) -> tuple[str, str] | None:
    """Return the primary test's verdict with related tasks and the baseline's without; None if none were used."""
    if outcome.baseline is None:
        return None
    results = (outcome.analysis.primary, outcome.baseline)
    rejected = (outcome.analysis.rejected, outcome.baseline.rejected)
    first, second = (
        f"{'evidence' if rejects else 'no evidence'} ({_p_short(result)}) by {result.label}"
        for rejects, result in zip(rejected, results, strict=True)
    )
    return f"With the related tasks: {first}", f"Without: {second}"


def _what_differs(outcome: Outcome, columns: Sequence[Difference]) -> str:
    """Return the columns whose intervals exclude zero in a sentence, largest first."""
    data = outcome.data
    apart = [column for column in columns if column.low > 0 or column.high < 0]
    clear = [column for column in apart if not column.identifier]
    if not outcome.analysis.rejected or data.encoding is None:
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
        f"“{c.column}”, with {c.typical_words[0]} in “{data.x_name}” and {c.typical_words[1]} in “{data.y_name}” "
        f"({c.words(c.difference, signed=True)}, 95 % interval {c.interval_words})"
        for c in clear[:NAMED_COLUMNS]
    )
    more = len(clear) - NAMED_COLUMNS
    others = f" {more} more columns differ clearly." if more > 1 else " One more column differs clearly."
    return f"What differs most: {named}." + (others if more > 0 else "")


def _which_pixel(outcome: Outcome, x: np.ndarray, y: np.ndarray) -> str:
    """Return the pixel whose means differ most between images (n, h, w) and (m, h, w), in a sentence."""
    data, means = outcome.data, [images.mean(axis=0) for images in (x, y)]
    pixel = np.unravel_index(int(np.nanargmax(np.abs(means[0] - means[1]))), means[0].shape)
    first, second = (float(mean[pixel]) for mean in means)
    if not outcome.analysis.rejected:
        return ""
    decimals = max(0, 2 - int(np.floor(np.log10(max(abs(first), abs(second)) or 1))))
    return (
        f"What differs most on average: “pixel {pixel[0]},{pixel[1]}”, with a mean of {first:.{decimals}f} in "
        f"“{data.x_name}” and {second:.{decimals}f} in “{data.y_name}”."
    )


def _not_meant(outcome: Outcome) -> str:
    """Return what the verdict does not mean."""
    unit = outcome.data.unit
    if not outcome.analysis.rejected:
        return (
            "It does not show that the groups are the same. They may differ in a way that these "
            f"{unit} are too few to show."
        )
    return (
        "It does not show that the difference is large, that it matters, or what caused it. Groups that were "
        f"collected differently may differ for that reason alone.{CAMERA if unit == 'images' else ''}"
    )


def secondary_table(outcome: Outcome) -> list[dict[str, str | float]]:
    """Return one row for each test that was corrected together with others."""
    return [
        {
            "Test": test.result.label,
            "Role": test.role,
            "p alone": test.result.p_value,
            "p after Holm": test.adjusted_p_value,
            f"At most α={outcome.plan.alpha:g}": "yes" if test.rejected else "no",
        }
        for test in outcome.analysis.corrected
    ]


def looks(tested: int) -> str:
    """Return how often these data were tested in this session, and what to report."""
    return ONE_LOOK if tested < 2 else SEVERAL_LOOKS.format(count=tested)


def assumptions(outcome: Outcome) -> tuple[str, ...]:
    """Return the conditions under which the p-value is valid, in plain words."""
    data, primary = outcome.data, outcome.analysis.primary
    independence, others = INDEPENDENT[data.unit], [sentence.format(unit=data.unit) for sentence in ASSUMPTIONS]
    if data.blocks is not None:
        independence = (
            f"Rows are exchangeable within each block of {data.record['cleaning']['block']!r}. Blocks may differ from "
            "each other in any way, because labels are permuted only within them."
        )
    if METHODS[outcome.plan.primary].uses_related_tasks:
        others.append(RELATED)
    if primary.condition:
        others.append(f"{primary.condition} The rows cannot show this: too many are alike.")
    if repeats := _if_independent(outcome):
        others.append(repeats)
    if not primary.counts_itself:
        others.append("This p-value is not exact: it assumes large samples, or leaves out the observed labelling.")
    return independence, *others


def methods_sentence(outcome: Outcome) -> str:
    """Return a paragraph for the methods section of a paper."""
    result, data, plan = outcome.analysis.primary, outcome.data, outcome.plan
    method = METHODS[result.method]
    learned = ""
    if method.uses_related_tasks:
        learner = outcome.learners[result.method]
        learned = f" whose {LEARNED[method.origin]} were learned from {len(learner.task_names)} related comparisons"
        if learner.knowledge.kernel is not None and method.preset.meta_network.pretraining is not None:
            learned += ", starting from a classifier of them (a setting of m2st)"
    if any(result.n_train):
        verb = "adapted" if method.uses_related_tasks else "learned"
        learned += f", {verb} on {result.n_train[0]} and {result.n_train[1]} other {data.unit}"
    blocks = " within blocks" if data.blocks is not None else ""
    if not result.by_permutation:
        how = "the statistic's asymptotic distribution"
    elif result.enumerated:
        how = f"all {result.n_permutations + 1} labellings{blocks}"
    else:
        error = f" (Monte-Carlo standard error {result.p_value_se:.2g})"
        error = " (the smallest p that they can give)" if result.at_floor else error
        how = f"{result.n_permutations} random permutations{blocks}{error}"
    if result.split_p_values:
        splits = len(result.split_p_values)
        how += f" under each of {splits} random splits, combined as twice the smallest running median"
    described = data.described_by or count_of(len(data.columns), "variable")
    paragraph = (
        f"{result.n_test[0]} {data.unit} of “{data.x_name}” and {result.n_test[1]} {data.unit} of “{data.y_name}”, "
        f"described by {described}, were compared by the two-sample test {result.method} "
        f"({cited(method.reference)}){learned}; it was declared the primary test beforehand. "
        f"{_p_short(result)}, from {how}; significance level {result.alpha:g}, seed {result.seed}, m2st {VERSION}."
    )
    if result.condition:
        paragraph += f" {result.condition}"
    if plan.secondary:
        others = ", ".join(name + (" of m2st" if METHODS[name].origin == "ours" else "") for name in plan.secondary)
        together = "together with the primary test" if plan.family == "all" else "among themselves"
        paragraph += f" Secondary tests ({others}) were corrected by Holm's procedure, {together}."
        if plan.family == "all":
            paragraph += f" The primary test's corrected p is {outcome.analysis.decision.adjusted_p_value:.4g}."
    return paragraph


def cited(reference: str) -> str:
    """Return a reference as it is cited within a sentence: authors and year.

    >>> cited("this project: a thing (docs/thing.md), after Kübler, Muandet (2022), A witness two-sample test")
    'm2st, after Kübler, Muandet 2022'
    """
    return TITLE.sub(r"\1", OWN_WORK.sub("m2st", reference))


def references(outcome: Outcome) -> list[str]:
    """Return the works to cite, each once."""
    primary = outcome.analysis.primary
    works = [METHODS[name].reference.replace("this project", "m2st") for name in outcome.plan.methods]
    works += [PHIPSON] if primary.counts_itself else []
    works += [HOLM] if outcome.plan.secondary else []
    works += [GASPARIN] if primary.split_p_values else []
    return list(dict.fromkeys(works))
