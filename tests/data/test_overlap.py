"""Rows of a target among known rows: found however they are written, and not found where only chance is at work."""

import numpy as np
import pytest

from m2st_core.data.overlap import KnownRows, same_rows

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
    assert set(range(N)) <= set(found.target) and found.chance > 0.5


def test_two_values_are_too_few_to_tell():
    generator = np.random.default_rng(0)
    control, known, fresh = history(0, generator, lambda rows: generator.integers(0, 2, (rows, 1)).astype(float))
    assert len(same_rows((control, fresh(N)), known)) == 0
