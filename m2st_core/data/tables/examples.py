"""Example uploads. Each is written as files and read like files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from m2st_core.data.synthetic import HDGM, hdgm_related_tasks
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.table import Table
from m2st_core.data.tables.upload import Upload
from m2st_core.rng import Streams
from m2st_core.types import Registry, TwoSample

FORMS = (
    (0, 130), (130, 256), (256, 386), (386, 516), (516, 646), (646, 776), (1029, 1157), (1157, 1287), (1287, 1415),
    (1667, 1797),
)  # fmt: skip
WRITERS = (6, 7)  # the two forms of the example
BATCHES, BATCH_ROWS, HAND_ROWS = 4, 25, 15  # earlier batches, digits of each hand there, and digits of each hand now
DIGITS_ROWS, DIGITS_SHARE = 30, 0.4
PIXELS = [f"pixel {row},{column}" for row in range(8) for column in range(8)]
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


def handwriting(draw: int = 0, writers: tuple[int, int] = WRITERS, *, same: bool = False) -> Upload:
    """Deal the digits of two forms at random by ``draw``: to four earlier batches, and 15 of each form to the target.

    The set is stored form by form: every form has the same 130 digits in the same order, by one hand. With ``same``
    both groups of the target are from the first form.
    """
    from sklearn.datasets import load_digits

    images, streams = load_digits().data.astype(int), Streams(draw)
    hands = [streams.numpy(f"hand {writer}").permutation(np.arange(*FORMS[writer])) for writer in writers]
    used, names = BATCHES * BATCH_ROWS, ("one hand", "another hand")

    def compared(first: np.ndarray, second: np.ndarray) -> pd.DataFrame:
        frame = pd.DataFrame(images[np.concatenate([first, second])], columns=PIXELS)
        return frame.assign(group=[names[0]] * len(first) + [names[1]] * len(second))

    first, second = (hand[used:] for hand in hands)
    half = len(first) // 2
    now = (first[:half], first[half : 2 * half]) if same else (first[:HAND_ROWS], second[:HAND_ROWS])
    earlier = zip(*(np.split(hand[:used], BATCHES) for hand in hands), strict=True)
    related = [compared(*pair).assign(task=f"batch {number}") for number, pair in enumerate(earlier, 1)]
    return Upload((_table("digits_now.csv", compared(*now)),), (_table("earlier_batches.csv", *related),), "group")


def _digits() -> Upload:
    """Deal rows without replacement within a task. The target's digits are in no related task."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    streams = Streams(0)

    def mixed(first: int, second: int, rows: int) -> pd.DataFrame:
        generator = streams.numpy(f"digits {first} {second}")
        a, b = (generator.permutation(images[labels == digit] / 16) for digit in (first, second))
        changed = round(rows * DIGITS_SHARE)
        q = np.concatenate([a[rows : 2 * rows - changed], b[:changed]])
        frame = pd.DataFrame(np.concatenate([a[:rows], q]), columns=PIXELS)
        return frame.assign(group=["before"] * rows + ["after"] * rows)

    pairs = combinations([digit for digit in range(10) if digit not in (3, 8)], 2)
    related = [mixed(a, b, 40).assign(task=f"{a} joined by {b}") for a, b in pairs]
    return Upload((_table("digits.csv", mixed(3, 8, DIGITS_ROWS)),), (_table("digits_related.csv", *related),), "group")


def _diabetes() -> Upload:
    """Split patients by age band, so that no row is in two tasks."""
    from sklearn.datasets import load_diabetes

    frame = load_diabetes(as_frame=True, scaled=False).frame.rename(columns=DIABETES_NAMES)
    later = frame.pop("target")
    frame["group"] = np.where(later > later.median(), "fast", "slow")
    frame = frame.sort_values("group", ascending=False, kind="stable")
    bands = pd.cut(frame[AGE], DIABETES_BANDS, right=False)
    *younger, oldest = bands.cat.categories
    related = [frame[bands == band].assign(task=f"age {band.left} to {band.right - 1}") for band in younger]
    return Upload((_table("age_65_and_over.csv", frame[bands == oldest]),), (_table("younger.csv", *related),), "group")


def _hdgm() -> Upload:
    """Draw the paper's synthetic target with fewer related tasks than in the paper."""
    target = _frame(HDGM(delta=0.7).sample(200, seed=1))
    related = [_frame(sample).assign(task=name) for name, sample in hdgm_related_tasks(0.3, 20, 200, seed=2).items()]
    return Upload((_table("hdgm.csv", target),), (_table("hdgm_related.csv", *related),), "group")


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
                "handwriting",
                "Handwriting: has somebody else filled in this form?",
                "P is 15 digits by one hand, and Q is 15 by another, as we read the order of scikit-learn's digits, "
                "which name no writers. The related tasks are four earlier batches by the same two hands, 25 and 25 "
                "digits each. Here the related tasks decide: the two forms were chosen for it, and the digits are "
                "dealt with seed 0. Of 40 such deals, a test with related tasks finds 68 %, and one without 12 %.",
                "Real images.",
                handwriting,
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
