"""Rows of a target among known rows: found however they are written, and not found where only chance is at work."""

import math

import numpy as np
import pytest

from m2st_core.data.overlap import KnownRows, may_escape, same_rows

N, TASKS = 40, 6
CHANGES = {
    "equal": lambda rows, generator: rows,
    "rounded to 3 decimals": lambda rows, generator: rows.round(3),
    "jittered by 1e-6": lambda rows, generator: rows + 1e-6 * generator.standard_normal(rows.shape),
    "times 1,000": lambda rows, generator: rows * 1000,
    "in inches": lambda rows, generator: rows / 2.54,
    "rounded, then times 1,000": lambda rows, generator: rows.round(3) * 1000,
    "recalibrated by 10 %": lambda rows, generator: rows * 1.1,
    "a factor for each column": lambda rows, generator: rows * 10.0 ** np.arange(1, 1 + rows.shape[1]),
}


def history(columns, generator, draw=None):
    """A control group and six samples of fresh rows beside it."""
    draw = draw or (lambda rows: generator.standard_normal((rows, columns)))
    control = draw(N)
    samples = [part for _ in range(TASKS) for part in (control, draw(N))]
    return control, KnownRows(np.concatenate(samples), np.repeat(np.arange(2 * TASKS), N)), draw


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_every_row_of_a_shared_control_group_is_found(change, columns, seed):
    generator = np.random.default_rng(seed)
    control, known, draw = history(columns, generator)
    x, y = (CHANGES[change](rows, generator) for rows in (control, draw(N)))
    found = same_rows((x, y), known)
    assert set(range(N)) <= set(found.target)
    copies = found.target[(found.target < N) & (found.known % (2 * N) < N)]
    assert len(copies) >= N * TASKS  # in every task
    assert len(set(found.target)) <= N + 8  # with few columns some rows are near by chance


@pytest.mark.parametrize("change", ["equal", "jittered by 1e-6", "rounded to 3 decimals"])
def test_a_few_shared_rows_are_found_among_others(change):
    generator = np.random.default_rng(5)
    control, known, draw = history(5, generator)
    x = np.concatenate([draw(N - 3), CHANGES[change](control[:3], generator)])
    assert set(same_rows((x, draw(N)), known).target) == {N - 3, N - 2, N - 1}


@pytest.mark.parametrize(
    "draw",
    [
        lambda g: lambda rows: g.standard_normal((rows, 1)),
        lambda g: lambda rows: g.standard_normal((rows, 4)),
        lambda g: lambda rows: g.standard_normal((rows, 2)).round(1),
        lambda g: lambda rows: g.integers(0, 3, (rows, 3)).astype(float),
        lambda g: lambda rows: g.poisson(0.3, (rows, 6)).astype(float),
        lambda g: lambda rows: g.standard_t(1.5, (rows, 3)),
        lambda g: lambda rows: np.repeat(g.standard_normal((rows // 2, 3)), 2, axis=0),  # pairs of equal rows
    ],
)
def test_fresh_rows_are_not_taken_for_shared_ones(draw):
    """In 30 histories without a shared row at most one is suspected."""
    suspected = 0
    for seed in range(30):
        generator = np.random.default_rng(seed)
        _, known, fresh = history(0, generator, draw(generator))
        suspected += len(same_rows((fresh(N), fresh(N)), known)) > 0
    assert suspected <= 1


def with_one_row_twice(generator, rows):
    drawn = generator.standard_normal((rows, 2))
    drawn[1] = drawn[0]
    return drawn


PARTLY = {
    "one row twice": with_one_row_twice,
    "many zeros": lambda g, rows: np.where(g.random((rows, 1)) < 0.1, 0.0, g.standard_normal((rows, 2))),
    "replicates": lambda g, rows: np.repeat(g.standard_normal((rows // 2, 2)), 2, axis=0),
    "one decimal": lambda g, rows: g.standard_normal((rows, 2)).round(1),
    "ten binary columns": lambda g, rows: g.integers(0, 2, (rows, 10)).astype(float),
    "a category and three decimals": lambda g, rows: np.hstack(
        [np.eye(8)[g.integers(0, 8, rows)], g.standard_normal((rows, 2)).round(3)]
    ),
}


@pytest.mark.parametrize("kind", PARTLY)
@pytest.mark.parametrize("seed", range(3))
def test_a_part_of_a_control_group_is_found_whatever_its_rows_are_like(kind, seed):
    generator = np.random.default_rng(seed)
    control = PARTLY[kind](generator, 50)
    samples = [part for _ in range(TASKS) for part in (control, PARTLY[kind](generator, N))]
    known = KnownRows(np.concatenate(samples), np.repeat(np.arange(2 * TASKS), [50, N] * TASKS))
    found = same_rows((control[:N], PARTLY[kind](generator, N)), known)
    assert set(found.target) == set(range(N))


def test_a_sample_of_few_values_is_recognised_as_a_whole():
    generator = np.random.default_rng(0)
    control, known, fresh = history(0, generator, lambda rows: generator.integers(0, 3, (rows, 3)).astype(float))
    found = same_rows((control[::-1], fresh(N)), known)
    assert set(range(N)) <= set(found.target) and found.unseen > N / 2


def test_two_values_are_too_few_to_tell():
    generator = np.random.default_rng(0)
    control, known, fresh = history(0, generator, lambda rows: generator.integers(0, 2, (rows, 1)).astype(float))
    assert len(same_rows((control, fresh(N)), known)) == 0


def no_control(draw, generator):
    """A target and six tasks, no row of which is shared; ``draw`` gives a pair of samples."""
    samples = [part for _ in range(TASKS) for part in draw(generator)]
    return draw(generator), KnownRows(np.concatenate(samples), np.repeat(np.arange(2 * TASKS), N))


def answers(generator, items=25, straight=0.03):
    """Two samples of persons of whom some give the same answer to every item."""
    persons = generator.integers(1, 7, (2 * N, items)).astype(float)
    persons[generator.random(2 * N) < straight] = generator.integers(1, 7, 1)
    return persons[:N], persons[N:]


UNSHARED = {
    "control in whole numbers, treated with decimals": lambda g: (
        g.normal(50, 10, (N, 2)).round(),
        g.normal(50, 10, (N, 2)),
    ),
    "one scale stretched": lambda g: (g.integers(1, 6, (N, 3)) * 1.0, g.integers(1, 6, (N, 3)) * 1.25 - 0.25),
    "another scale from 0 to 100": lambda g: (g.integers(1, 6, (N, 5)) * 1.0, (g.integers(1, 6, (N, 5)) - 1) * 25.0),
    "straight-liners, 1 %": lambda g: answers(g, straight=0.01),
    "straight-liners, 3 %": answers,
    "straight-liners, 10 %": lambda g: answers(g, straight=0.1),
}


@pytest.mark.parametrize("kind", UNSHARED)
def test_what_meets_by_chance_is_no_evidence_of_sharing(kind):
    """Of 20 targets without a shared row at most one is suspected (at 1 % each, so it is in 98 % of such tests)."""
    suspected = [len(same_rows(*no_control(UNSHARED[kind], np.random.default_rng(seed)))) > 0 for seed in range(20)]
    assert sum(suspected) <= 1


COARSE = {
    "one decimal": lambda g, rows: g.standard_normal((rows, 2)).round(1),
    "ten binary columns": lambda g, rows: g.integers(0, 2, (rows, 10)) * 1.0,
    "five answers": lambda g, rows: g.integers(1, 6, (rows, 5)) * 1.0,
    "whole numbers": lambda g, rows: g.normal(0, 10, (rows, 2)).round(),
}
FINE = {
    "two columns": lambda g, rows: g.standard_normal((rows, 2)),
    "one column and a category": lambda g, rows: np.stack([g.standard_normal(rows), g.integers(0, 2, rows)], axis=1),
    "heavy tails": lambda g, rows: g.standard_cauchy((rows, 3)),
    "correlated": lambda g, rows: g.standard_normal((rows, 1)) + 0.01 * g.standard_normal((rows, 4)),
    "three decimals": lambda g, rows: g.standard_normal((rows, 4)).round(3),
}


@pytest.mark.parametrize("kind", COARSE | FINE)
@pytest.mark.parametrize("shared", [0, 10])
def test_the_search_says_what_it_could_have_missed(kind, shared):
    """Ten of 40 rows are in every task, or none is: either they are found, or more than two may be unseen."""
    draw, generator = (COARSE | FINE)[kind], np.random.default_rng(3)
    control = draw(generator, N + 10)
    samples = [part for _ in range(TASKS) for part in (control[10:] if not shared else control[:N], draw(generator, N))]
    x = np.concatenate([control[:shared], draw(generator, N - shared)])
    found = same_rows((x, draw(generator, N)), KnownRows(np.concatenate(samples), np.repeat(np.arange(2 * TASKS), N)))
    if kind in FINE:
        assert set(found.target) == set(range(shared)) and found.unseen == 0
    else:
        assert found.unseen > 0.05 * N


def test_how_many_copies_may_escape_is_what_a_simulation_gives():
    """Of 20 rows, s are copies; the others meet a known row with probability 0.05; the search needs k matches."""
    generator, assumed, expected = np.random.default_rng(0), 0.1, 0.05
    needed = next(k for k in range(1, 22) if sum(binomial(20, j, assumed) for j in range(k, 21)) < 1e-6)
    escaped = [(s + generator.binomial(20 - s, expected, 20_000) < needed).mean() for s in range(21)]
    assert may_escape(20, assumed, expected) == max(s for s in range(21) if escaped[s] > 0.05)


def binomial(n, k, p):
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)
