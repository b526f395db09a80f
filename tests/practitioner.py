"""Files of a practitioner: thirty tablets from each of two lines, and six earlier comparisons of the same kind.

In the new line, dissolution and hardness go together. No column differs in its mean or spread, and the machine, another
column with two values, has nothing to do with it.
"""

import io
import zipfile

import numpy as np
import pandas as pd

COLUMNS = ("weight", "hardness", "dissolution", "moisture")
CORRELATION = 0.85


def rows(generator, line, count):
    """Rows of one line."""
    values = generator.standard_normal((count, len(COLUMNS)))
    if line == "new":
        values[:, 2] = CORRELATION * values[:, 1] + np.sqrt(1 - CORRELATION**2) * values[:, 2]
    frame = pd.DataFrame((values * [4, 8, 5, 0.3] + [250, 90, 80, 3]).round(3), columns=COLUMNS)
    return frame.assign(line=line)


def comparison(generator, count, first_machine):
    """Both lines, in mixed order, with machines that were drawn at random."""
    frame = pd.concat([rows(generator, "old", count), rows(generator, "new", count)])
    frame.insert(4, "machine", generator.permutation(np.repeat(["A", "B"], [first_machine, 2 * count - first_machine])))
    return frame.iloc[generator.permutation(2 * count)]


def as_csv(frame):
    return frame.to_csv(index=False).encode()


def files(seed=0):
    """The target, and the history as one file with task and group, and as a ZIP of months with line, by name."""
    generator = np.random.default_rng(seed)
    target = comparison(generator, 30, 35)
    months = {f"2024-{month:02}": comparison(generator, 60, 70) for month in range(1, 7)}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, frame in months.items():
            archive.writestr(f"{name}.csv", as_csv(frame))
    together = pd.concat([frame.rename(columns={"line": "group"}).assign(task=name) for name, frame in months.items()])
    return {
        "tablets.csv": as_csv(target),
        "six_earlier.csv": as_csv(together),
        "six_months.zip": packed.getvalue(),
    }
