"""Numbers in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from m2st_core.analysis.correction import Analysis
from m2st_core.sweeps.spec import label_of, origin_of
from m2st_core.testing.method import ORIGINS
from m2st_core.types import TestResult

SIDEBAR = "the sidebar (on a small screen: » at the top left)"
WHOSE = (
    f"Marked **(ours)**: {ORIGINS['ours']}. **Meta-…** and **AGT-…** without the mark, and MMD-D w/ AC: "
    f"{ORIGINS['paper']}. All others: {ORIGINS['no history']}."
)
"""One line for places where methods are chosen."""
PRESET_WORDS = {
    "recommended": "our own settings, for all tests",
    "paper": "the settings of the paper's text, which train much longer",
    "released": "the settings of the paper's published code, which train much longer",
}


def chosen_in_words(preset: str, methods: Sequence[str]) -> str:
    """Which settings and whose tests were chosen, for a first look: a list."""
    said = [f"Preset **{preset}**: {PRESET_WORDS[preset]}."]
    for origin in reversed(ORIGINS):
        own = [method for method in methods if origin_of(method) == origin]
        said += [f"**{', '.join(map(label_of, own))}**: {ORIGINS[origin]}."] if own else []
    return "\n".join(f"- {line}" for line in said)


def p_shown(result: TestResult) -> str:
    """The p-value as a number to show: a bound where more permutations could lower it."""
    return f"{'≤ ' if result.at_floor and not result.enumerated else ''}{result.p_value:.3g}"


def error_shown(result: TestResult) -> str | None:
    """The Monte-Carlo error as a number to show; none at the floor, or where no permutation was drawn."""
    drawn = result.by_permutation and not result.enumerated and not result.at_floor
    return f"± {result.p_value_se:.1g}" if drawn else None


def p_value_in_words(result: TestResult) -> str:
    """What this p-value means, without saying more than it does."""
    meaning = meaning_in_words(result)
    level, (n, m) = f"α = {result.alpha:g}", result.n_test
    if result.rejected:
        return f"{meaning} That is at most {level}: **evidence of a difference**, with {n} and {m} test rows."
    return (
        f"{meaning} That is more than {level}: **no evidence of a difference** with {n} and {m} test rows. "
        "It does not show that P and Q are the same."
    )


def meaning_in_words(result: TestResult) -> str:
    """Where the p-value comes from."""
    p = result.p_value
    arbitrary = "If P and Q were the same, the labels would be arbitrary."
    if result.split_p_values:
        low, high = min(result.split_p_values), max(result.split_p_values)
        meaning = (
            f"The rows were split at random {len(result.split_p_values)} times, and each split gave a p-value, from "
            f"{low:.3g} to {high:.3g}. Twice the smallest of their running medians is a p-value for all of them "
            f"together: {result.p_words}."
        )
    elif result.enumerated:
        reached = round(p * (result.n_permutations + 1))
        meaning = (
            f"{arbitrary} Of all {result.n_permutations + 1:,} labellings of these rows, {reached:,} give a statistic "
            f"at least as large as the observed one: {result.p_words}."
        )
    elif result.exact:
        reached = round(p * (result.n_permutations + 1))
        meaning = (
            f"{arbitrary} Among {result.n_permutations + 1:,} labellings (the observed one and "
            f"{result.n_permutations:,} random ones), {reached:,} gave a statistic at least as large as the observed "
            f"one: {result.p_words}."
        )
    elif result.by_permutation:
        reached = round(p * result.n_permutations)
        meaning = (
            f"{arbitrary} Of {result.n_permutations:,} random labellings, {reached:,} reached the observed statistic: "
            f"p = {p:.3g}. Leaving the observed labelling out, as this preset does, makes p slightly too small."
        )
    else:
        meaning = (
            f"If P and Q were the same, a statistic at least this large would appear with probability about {p:.3g}. "
            "This is an approximation for large samples, not an exact p-value."
        )
    return meaning


def decision_in_words(analysis: Analysis) -> str:
    """What the primary p-value means, and the decision after the correction that was declared."""
    if analysis.decision not in analysis.corrected:
        return p_value_in_words(analysis.primary)
    found = "**evidence of a difference**" if analysis.rejected else "**no evidence of a difference**"
    return (
        f"{meaning_in_words(analysis.primary)} Corrected together with all secondary tests, p = "
        f"{analysis.decision.adjusted_p_value:.3g} against α = {analysis.primary.alpha:g}: {found}."
    )


def interval_in_words(interval: tuple[float, float]) -> str:
    """A 95 % interval of a share."""
    return f"95 %: {interval[0]:.0%} – {interval[1]:.0%}"
