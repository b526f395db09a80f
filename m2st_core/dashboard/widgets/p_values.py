"""What a p-value means and how it was computed, in sentences."""

from __future__ import annotations

from m2st_core.types import TestResult


def p_text(result: TestResult) -> str:
    """The p-value, as an upper bound where more permutations could lower it."""
    return f"{'≤ ' if result.at_floor and not result.enumerated else ''}{result.p_value:.3g}"


def error_text(result: TestResult) -> str | None:
    """The Monte-Carlo error of the p-value; None at its floor, or if no permutation was drawn."""
    drawn = result.by_permutation and not result.enumerated and not result.at_floor
    return f"± {result.p_value_se:.1g}" if drawn else None


def p_value_sentences(result: TestResult) -> str:
    """Say what the p-value means, and no more than that."""
    level, (n, m) = f"α = {result.alpha:g}", result.n_test
    if result.rejected:
        decision = f"That is at most {level}: **evidence of a difference**, with {n} and {m} test rows."
    else:
        decision = (
            f"That is more than {level}: **no evidence of a difference** with {n} and {m} test rows. "
            "This does not show that P and Q are the same."
        )
    return f"{origin_sentences(result)} {decision}"


def origin_sentences(result: TestResult) -> str:
    """Say how the p-value was computed."""
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
            "This preset leaves the observed labelling out, which makes p slightly too small."
        )
    condition = f" The p-value is exact if {result.exact_if}." if result.exact_if else ""
    return f"If P and Q were the same, the labels would be arbitrary. {counted}{condition}"
