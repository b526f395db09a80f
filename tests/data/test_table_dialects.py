"""Random tables in random dialects: what is read is what was written, or it is asked about.

``M2ST_EXAMPLES=2000 pytest tests/data/test_table_dialects.py`` tries more of them.
"""

import csv
import io
import os
import random
from decimal import Decimal

import numpy as np
import pytest

from m2st_core.data.tables.assemble import assemble
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.upload import Upload

GROUPS = {".": ("", ",", " ", "'", "\u00a0"), ",": ("", ".", " ", "\u202f")}
UNITS = ("", "", "", "%", " %", " kg", " mg/dL", "$", " €")
SIGNS = ("-", "−", "–")
EXAMPLES = int(os.environ.get("M2ST_EXAMPLES", "25"))
LARGEST = 10**7


def draw_dialect(chance):
    """How a writer writes numbers and files."""
    mark = chance.choice(".,")
    return {
        "mark": mark,
        "group": chance.choice(GROUPS[mark]),
        "minus": chance.choice(SIGNS),
        "separator": chance.choice((";", "\t", "|", ",") if mark == "." else (";", "\t", "|")),
        "encoding": chance.choice(("utf-8", "utf-8-sig", "utf-16")),
        "end": chance.choice(("\n", "\r\n")),
        "quoting": chance.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)),
    }


def draw_column(chance):
    """Its decimals, its unit, and eight different numbers with as many digits as happen to be drawn."""
    numbers = set()
    while len(numbers) < 8:
        most = chance.choice((9, 999, 99_999, LARGEST))
        numbers.add(chance.randint(-most, most))
    return chance.randint(0, 4), chance.choice(UNITS), chance.sample(sorted(numbers), 8)


def written(number, decimals, dialect, unit):
    """The number as a cell."""
    digits = f"{abs(number):,.{decimals}f}".replace(",", "G").replace(".", "M")
    text = digits.replace("G", dialect["group"]).replace("M", dialect["mark"])
    text = f"${text}" if unit == "$" else f"{text}{unit}"
    return dialect["minus"] + text if number < 0 else text


def file_of(rows, dialect):
    stream = io.StringIO()
    writer = csv.writer(
        stream, delimiter=dialect["separator"], lineterminator=dialect["end"], quoting=dialect["quoting"]
    )
    writer.writerows(rows)
    return stream.getvalue().encode(dialect["encoding"])


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_numbers_come_back_or_are_asked_about(seed):
    """Both files of an upload are in one dialect, of which nothing is known."""
    chance = random.Random(seed)
    columns = [draw_column(chance) for _ in range(chance.choice((2, 3)))]
    dialect = draw_dialect(chance)
    names = [f"c{i}" for i in range(len(columns))]
    meant = {
        name: np.array([float(Decimal(n).scaleb(-decimals)) for n in numbers])
        for name, (decimals, _, numbers) in zip(names, columns, strict=True)
    }
    cells = [
        [written(Decimal(n).scaleb(-decimals), decimals, dialect, unit) for n in numbers]
        for decimals, unit, numbers in columns
    ]
    rows = list(zip(*cells, strict=True))
    p, q = (
        read_table(name, file_of([names, *part], dialect)) for name, part in (("p.csv", rows[:4]), ("q.csv", rows[4:]))
    )
    made = assemble(Upload((p, q)))
    asked = {name for question in made.readings.questions for name in question.columns}
    for name in names:
        if name not in asked:
            assert made.numbers(name).tolist() == meant[name].tolist(), (dialect, cells)
    answered = assemble(Upload((p, q), decimal=dialect["mark"], read_as={name: "numbers" for name in names}))
    assert not answered.readings.questions
    for name in names:
        assert answered.numbers(name).tolist() == meant[name].tolist(), (dialect, cells)
