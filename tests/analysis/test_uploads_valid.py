"""Simulated uploads without a difference, from CSV text to p-values: a small version of ``bench uploads``.

The bands hold 99.9 % of a binomial with p=0.05, so a valid pipeline fails one of these with probability below 0.4 %.
"""

import pytest
from scipy import stats

from benchmarks import uploads


@pytest.mark.parametrize(
    ("way", "runs"),
    [(uploads.without_history, 40), (uploads.with_learner, 20), (lambda seed: uploads.at_sites(seed, "site"), 40)],
    ids=["two files", "a learner", "within sites"],
)
def test_the_primary_test_and_the_family_keep_their_level(way, runs):
    found = uploads.count(way, runs, first=300_000)
    low, high = stats.binom.interval(0.999, runs, uploads.ALPHA)
    assert low <= found.primary <= high and found.family <= high, found


def test_permuting_at_will_does_not_keep_the_level_where_sites_differ():
    """About a quarter of such uploads are rejected; below the band's end with probability below 0.1 %."""
    found = uploads.count(lambda seed: uploads.at_sites(seed, None), 40, first=300_000)
    assert found.primary > stats.binom.interval(0.99, 40, uploads.ALPHA)[1], found
