"""Numbers in plain words."""

from __future__ import annotations

from m2st_core.types import TestResult

SIDEBAR = "the sidebar (on a small screen: » at the top left)"


def p_value_in_words(result: TestResult) -> str:
    """What this p-value means, without saying more than it does."""
    p, level = result.p_value, f"α = {result.alpha:g}"
    arbitrary = "If P and Q were the same, the labels would be arbitrary."
    if result.exact:
        reached = round(p * (result.n_permutations + 1))
        meaning = (
            f"{arbitrary} Among {result.n_permutations + 1:,} labellings (the observed one and "
            f"{result.n_permutations:,} random ones), {reached:,} gave a statistic at least as large as the observed "
            f"one: p = {p:.3g}."
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
    n, m = result.n_test
    if result.rejected:
        return f"{meaning} That is at most {level}: **evidence of a difference**, with {n} and {m} test rows."
    return (
        f"{meaning} That is more than {level}: **no evidence of a difference** with {n} and {m} test rows. "
        "It does not show that P and Q are the same."
    )


def interval_in_words(interval: tuple[float, float]) -> str:
    """A 95 % interval of a share."""
    return f"95 %: {interval[0]:.0%} – {interval[1]:.0%}"
