"""Example uploads. Each is written as files and read like files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from m2st_core.data.images.sets import load_digits_by_class
from m2st_core.data.synthetic import HDGM, hdgm_related_tasks
from m2st_core.data.tables.files import Table, read_table
from m2st_core.data.tables.upload import Upload
from m2st_core.rng import Streams
from m2st_core.types import Registry, TwoSample

SCANNER_ROWS, CHECKS, CHECK_ROWS = 30, 9, 75  # images of each group now, earlier checks, and images of each group there
WORN_LINE, SENSITIVITY = 4, 0.75
DIGITS_ROWS, DIGITS_SHARE = 30, 0.4
PIXELS = [f"pixel {row},{column}" for row in range(8) for column in range(8)]
WHITE = 16  # the most ink of a pixel
AGE = "age (years)"
DIABETES_NAMES = {
    "age": AGE,
    "bmi": "body mass index (kg/m²)",
    "bp": "blood pressure (mm Hg)",
    "s1": "total cholesterol",
    "s2": "LDL cholesterol",
    "s3": "HDL cholesterol",
    "s4": "cholesterol to HDL ratio",
    "s5": "log triglycerides",
    "s6": "blood sugar",
}
DIABETES_BANDS = (0, 30, 35, 40, 45, 50, 55, 60, 65, 100)


@dataclass(frozen=True)
class Example:
    """A bundled upload. ``description`` says what P, Q and the related tasks are, ``source`` how real they are."""

    name: str
    title: str
    description: str
    source: str
    load: Callable[[], Upload]


def scanner(draw: int = 0) -> Upload:
    """Deal the images of all digits to the earlier checks, and 60 of the rest to the target, at random by ``draw``.

    Line 4 of every image of the second group has lost a quarter of its ink, rounded to whole numbers.
    """
    images = np.concatenate(load_digits_by_class())
    dealt = Streams(0).numpy("scanner").permutation(len(images))
    used = 2 * CHECKS * CHECK_ROWS
    now = Streams(draw).numpy("scanner now").permutation(dealt[used:])[: 2 * SCANNER_ROWS]

    def compared(chosen: np.ndarray) -> pd.DataFrame:
        rows = len(chosen) // 2
        ink = np.rint(WHITE * images[chosen]).reshape(-1, 8, 8)
        ink[rows:, WORN_LINE] = np.rint(SENSITIVITY * ink[rows:, WORN_LINE])
        frame = pd.DataFrame(ink.reshape(-1, 64).astype(int), columns=PIXELS)
        return frame.assign(group=["last month"] * rows + ["this month"] * rows)

    earlier = np.split(dealt[:used], CHECKS)
    related = [compared(chosen).assign(task=f"check {number}") for number, chosen in enumerate(earlier, 1)]
    return Upload((_table("scans.csv", compared(now)),), (_table("earlier_checks.csv", *related),), "group")


def _digits() -> Upload:
    """Deal rows without replacement within a task. The target's digits are in no related task."""
    streams = Streams(0)

    def mixed(first: int, second: int, rows: int) -> pd.DataFrame:
        generator = streams.numpy(f"digits {first} {second}")
        images = load_digits_by_class()
        a, b = (images[digit][generator.permutation(len(images[digit]))] for digit in (first, second))
        changed = round(rows * DIGITS_SHARE)
        q = np.concatenate([a[rows : 2 * rows - changed], b[:changed]])
        frame = pd.DataFrame(np.concatenate([a[:rows], q]), columns=PIXELS)
        return frame.assign(group=["before"] * rows + ["after"] * rows)

    others = combinations([digit for digit in range(10) if digit not in (3, 8)], 2)
    related = [mixed(a, b, 40).assign(task=f"{a} joined by {b}") for a, b in others]
    return Upload((_table("digits.csv", mixed(3, 8, DIGITS_ROWS)),), (_table("digits_history.csv", *related),), "group")


def _diabetes() -> Upload:
    """Split patients by age band, so that no row is in two tasks."""
    from sklearn.datasets import load_diabetes

    frame = load_diabetes(as_frame=True, scaled=False).frame.rename(columns=DIABETES_NAMES)
    later = frame.pop("target")
    frame["group"] = np.where(later > later.median(), "fast", "slow")
    frame = frame.sort_values("group", ascending=False, kind="stable")
    bands = pd.cut(frame[AGE], DIABETES_BANDS, right=False)
    parts = [frame[bands == band] for band in bands.cat.categories]
    names = [f"age {band.left} to {band.right - 1}" for band in bands.cat.categories]
    related = [part.assign(task=name) for part, name in zip(parts[:-1], names[:-1], strict=True)]
    return Upload((_table("age_65_and_over.csv", parts[-1]),), (_table("younger.csv", *related),), "group")


def _hdgm() -> Upload:
    """Draw the paper's synthetic target with fewer related tasks than in the paper."""
    target = _frame(HDGM(delta=0.7).sample(200, seed=1))
    related = [_frame(sample).assign(task=name) for name, sample in hdgm_related_tasks(0.3, 20, 200, seed=2).items()]
    return Upload((_table("hdgm.csv", target),), (_table("hdgm_history.csv", *related),), "group")


def _frame(sample: TwoSample) -> pd.DataFrame:
    names = [f"x{index + 1}" for index in range(sample.x.shape[1])]
    frame = pd.DataFrame(sample.pooled.numpy(), columns=names)
    return frame.assign(group=["P"] * sample.sizes[0] + ["Q"] * sample.sizes[1])


def _table(name: str, *frames: pd.DataFrame) -> Table:
    return read_table(name, pd.concat(frames).to_csv(index=False).encode())


EXAMPLES: Registry[Example] = Registry(
    "example",
    {
        example.name: example
        for example in (
            Example(
                "scanner",
                "Scanner: has one of its lines worn out?",
                "P is 30 handwritten digits scanned last month, and Q is 30 others of this month. One of the scanner's "
                "eight lines has lost a quarter of its sensitivity. The nine related tasks are earlier checks of worn "
                "scanners, with 75 and 75 images each. Here the history decides.",
                "Real images, simulated wear.",
                scanner,
            ),
            Example(
                "digits",
                "Digits: has another digit slipped in?",
                "P is 30 scanned images of the digit 3 (64 pixels), and Q is 30 images of which 12 show an 8. "
                "The 28 related tasks make the same change between every two of the other eight digits.",
                "Real images.",
                _digits,
            ),
            Example(
                "diabetes",
                "Diabetes: slow against fast progression in older patients",
                "P are patients of 65 and over whose diabetes progressed slowly within a year, and Q those in whom it "
                "progressed fast. They are compared by their measurements at the start. The related tasks are the same "
                "in eight younger age bands (442 patients in all, each in one band).",
                "Real data.",
                _diabetes,
            ),
            Example(
                "hdgm",
                "HDGM: the paper's synthetic task",
                "P is a mixture of two round Gaussians, and Q has the same means with correlated columns (Δ = 0.7), "
                "200 simulated rows each. The 20 related tasks have weaker correlations (Δ from 0.305 to 0.4).",
                "Simulated.",
                _hdgm,
            ),
        )
    },
)
