"""How often columns are set aside as identifiers, and how often repeated rows are noted.

Every draw is one CSV file that has all columns of a kind, read and classified as the user's are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

import numpy as np
import pandas as pd

from m2st_core.data.repeated_rows import repeated_rows_note
from m2st_core.data.tables.assemble import assemble
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.upload import Upload
from m2st_core.rng import Streams

Make = Callable[[int, np.random.Generator], np.ndarray]
ROWS = (20, 50, 150, 500)


def _gaps(n: int, g: np.random.Generator) -> np.ndarray:
    """Whole numbers from 1, of which one in six is missing."""
    return np.sort(g.choice(n * 6 // 5, n, replace=False)) + 1


def _wide_gaps(n: int, g: np.random.Generator) -> np.ndarray:
    """Whole numbers in steps of 1 to 59."""
    return 1_000 + np.cumsum(g.integers(1, 60, n))


MEASUREMENTS: Mapping[str, Make] = {
    "income": lambda n, g: g.lognormal(10.4, 0.6, n).round(),
    "salary (EUR)": lambda n, g: g.normal(45_000, 9_000, n).round(),
    "dose_mg": lambda n, g: g.normal(250, 60, n).round(),
    "age": lambda n, g: g.integers(18, 90, n),
    "count": lambda n, g: g.poisson(6, n),
    "cells": lambda n, g: g.negative_binomial(2, 0.002, n),
    "population": lambda n, g: g.lognormal(11, 2, n).round(),
    "year": lambda n, g: g.integers(1950, 2025, n),
    "birth year": lambda n, g: g.normal(1970, 15, n).round(),
    "price": lambda n, g: g.lognormal(3, 1, n).round(),
    "price_cents": lambda n, g: g.choice([99, 199, 499, 999, 1999], n),
    "answer": lambda n, g: g.integers(1, 6, n),
    "zip": lambda n, g: g.integers(10_000, 99_999, n),
    "number of patients": lambda n, g: g.poisson(300, n),
    "number": lambda n, g: g.poisson(8, n),
    "score": lambda n, g: g.integers(0, 101, n),
    "x": lambda n, g: g.normal(100, 15, n).round(),
    "v1": lambda n, g: g.normal(100_000, 20_000, n).round(),
    "reaction_time": lambda n, g: g.lognormal(6.3, 0.3, n).round(),
    "steps": lambda n, g: g.normal(8_000, 3_000, n).round(),
    "revenue": lambda n, g: g.lognormal(20.7, 0.5, n).round(),
    "income per person": lambda n, g: g.lognormal(9, 0.5, n).round(),
    "time_ms": lambda n, g: g.normal(35_000, 5_000, n).round(),
    "time": lambda n, g: g.normal(35_000, 5_000, n).round(1),
    "steps_per_day": lambda n, g: g.normal(40_000, 4_000, n).round(),
    "received_eur": lambda n, g: g.normal(40_000, 4_000, n).round(),
    "amount received": lambda n, g: g.normal(45_000, 4_000, n).round(),
    "start_salary": lambda n, g: g.normal(45_000, 3_000, n).round(),
    "weight end (mg)": lambda n, g: g.normal(43_000, 400, n).round(),
    "cells_per_ml": lambda n, g: g.normal(1.5e9, 1e8, n).round(),
    "gdp": lambda n, g: g.normal(1.5e9, 1e8, n).round(),
    "frequency_hz": lambda n, g: g.normal(1.2e9, 1e7, n).round(),
    "Messung": lambda n, g: g.normal(5_000, 900, n).round(),
    "transaction": lambda n, g: g.lognormal(8, 1, n).round(),
    "ID_um": lambda n, g: g.normal(12_000, 1_500, n).round(),
    "atomic number": lambda n, g: g.integers(1, 10_000, n),
    "serum NO": lambda n, g: g.normal(9_000, 1_500, n).round(),
    "rank": lambda n, g: g.permutation(n) + 1,
    "colour": lambda n, g: g.choice(["red", "green", "blue", "grey"], n),
}
IDENTIFIERS: Mapping[str, Make] = {
    "id": lambda n, g: g.choice(10**6, n, replace=False),
    "record_no": lambda n, g: _gaps(n, g) + 1_000,
    "patientNr": lambda n, g: _gaps(n, g),
    "Unnamed: 0": lambda n, g: g.choice(10**5, n, replace=False),
    "timestamp": lambda n, g: 1_700_000_000 + np.cumsum(g.integers(1, 600, n)),
    "measured (ms)": lambda n, g: 1_700_000_000_000 + np.cumsum(g.integers(1, 10**6, n)),
    "date": lambda n, g: 45_000 + g.integers(0, 300, n),
    "time": lambda n, g: 45_000 + g.uniform(0, 300, n).round(4),
    "visit_dt": lambda n, g: 44_000 + np.cumsum(g.integers(1, 4, n)),
    "julian day": lambda n, g: 2_460_000 + np.cumsum(g.integers(1, 4, n)),
    "sampling date": lambda n, g: 2_021 + g.uniform(0, 2, n).round(4),
    "tube_no": _wide_gaps,
    "SampleNo2": _wide_gaps,
    "lab_code": _wide_gaps,
    "my_ids": _wide_gaps,
    "accession": _wide_gaps,
    "Aktenzeichen": _wide_gaps,
    "bestellnr": _wide_gaps,
    "номер": _wide_gaps,
    "编号": _wide_gaps,
    "N° dossier": _wide_gaps,
    "wafer": _wide_gaps,
    "x": lambda n, g: np.arange(1, n + 1),
    "y": lambda n, g: _gaps(n, g),
    "v1": lambda n, g: 7 * np.arange(n) + 3,
    "v2": lambda n, g: 7 * _gaps(n, g),
    "uuid": lambda n, g: np.array([str(UUID(bytes=g.bytes(16), version=4)) for _ in range(n)]),
    "photo": lambda n, g: np.array([f"scans/img {number}.png" for number in g.choice(10**5, n, replace=False)]),
    "label": lambda n, g: np.array([f"P{number:03}" for number in _gaps(n, g)]),
}


def _answers(columns: int, together: float, straight: float = 0.0) -> Make:
    """Answers from 1 to 5 that share this part of their variance; some people give the same answer throughout."""

    def make(n: int, g: np.random.Generator) -> np.ndarray:
        own, shared = g.standard_normal((n, columns)), g.standard_normal((n, 1))
        found = np.clip(np.round(3 + 1.1 * (together**0.5 * shared + (1 - together) ** 0.5 * own)), 1, 5)
        return np.where(g.random((n, 1)) < straight, found[:, :1], found)

    return make


def _indicators(n: int, g: np.random.Generator) -> np.ndarray:
    """Indicators of three categories with three levels each."""
    return np.concatenate([np.eye(3)[g.integers(0, 3, n)] for _ in range(3)], axis=1)


def _weights(n: int, g: np.random.Generator) -> np.ndarray:
    """Weights in whole kilograms and, from these, in pounds."""
    weight = g.normal(70, 12, n).round()
    return np.stack([weight, (weight * 2.20462).round(1)], axis=1)


def _sites(n: int, g: np.random.Generator) -> np.ndarray:
    """One of eight sites with its latitude and longitude."""
    site = g.integers(0, 8, n)
    return np.stack([site, g.uniform(45, 55, 8)[site].round(4), g.uniform(5, 15, 8)[site].round(4)], axis=1)


def _designed(n: int, g: np.random.Generator) -> np.ndarray:
    """Indicators of five doses, each given equally often."""
    return np.eye(5)[g.permutation(np.arange(n) % 5)]


DISCRETE: Mapping[str, Make] = {
    "three yes or no": lambda n, g: g.integers(0, 2, (n, 3)),
    "ten yes or no, one in ten yes": lambda n, g: g.random((n, 10)) < 0.1,
    "two answers 1–5": _answers(2, 0.3),
    "five answers 1–5, correlation 0.8": _answers(5, 0.8),
    "ten answers 1–5, one in five straight": _answers(10, 0.5, 0.2),
    "indicators of three categories": _indicators,
    "age and sex": lambda n, g: np.stack([g.normal(45, 12, n).round(), g.integers(0, 2, n)], axis=1),
    "five counts of 2": lambda n, g: g.poisson(2, (n, 5)),
    "prices and doses": lambda n, g: np.stack(
        [g.choice([9.99, 19.99, 49.99], n), g.choice([0, 0.5, 1, 5, 10], n)], axis=1
    ),
    "a weight in kg and in lb": _weights,
    "a site, its latitude and longitude": _sites,
    "indicators of five doses, equally often": _designed,
    "amounts, two in three zero": lambda n, g: g.lognormal(0, 1, (n, 3)) * (g.random((n, 1)) < 1 / 3),
}
COPIES: Mapping[str, Make] = {
    "normal d=2, each row five times": lambda n, g: np.tile(g.standard_normal((n // 5, 2)), (5, 1)),
    "normal d=5, each row twice": lambda n, g: np.tile(g.standard_normal((n // 2, 5)), (2, 1)),
    "25 answers, each row five times": lambda n, g: np.tile(_answers(25, 0.5)(n // 5, g), (5, 1)),
}


def set_aside(makes: Mapping[str, Make], rows: int, seed: int, shuffled: bool = True) -> set[str]:
    """The columns of one file that are set aside as identifiers."""
    generator = Streams(seed).numpy(f"identifiers {rows}")
    frame = pd.DataFrame({name: make(rows, generator) for name, make in makes.items()})
    frame["group"] = np.repeat(["old", "new"], [rows // 2, rows - rows // 2])
    frame = frame.sample(frac=1, random_state=generator) if shuffled else frame
    table = read_table("data.csv", frame.to_csv(index=False).encode())
    return set(assemble(Upload((table,), group="group")).identifiers)


def shares_set_aside(makes: Mapping[str, Make], rows: int, draws: int) -> dict[str, float]:
    """The share of the draws in which each column is set aside."""
    found = [set_aside(makes, rows, seed, shuffled=bool(seed % 2)) for seed in range(draws)]
    return {name: sum(name in names for names in found) / draws for name in makes}


def shares_remarked(makes: Mapping[str, Make], rows: int, draws: int) -> dict[str, float]:
    """The share of the draws in which repeated rows are remarked upon."""
    shares = {}
    for name, make in makes.items():
        streams = [Streams(seed).numpy(f"{name} {rows}") for seed in range(draws)]
        shares[name] = sum(bool(repeated_rows_note(make(rows, g).astype(float))) for g in streams) / draws
    return shares
