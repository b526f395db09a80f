"""The example that Images opens with: digits in another mix, with and without what other digits have taught.

``python -m m2st_core bench image_story`` computes it and writes it beside this module. The page reads it.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from m2st_core.data import make_task
from m2st_core.studies.images import ImagesResult, ImageStudy, KernelExplanation
from m2st_core.sweeps.trial import CODE
from m2st_core.testing.methods import METHODS, label_of
from m2st_core.types import GENERIC_TEST

FILE = Path(__file__).with_suffix(".npz")
TAUGHT, ALONE = ("Feature-MKL",), ("MMD-D", GENERIC_TEST)
TASK = "digits-shift"
LEVELS = 255  # of grey in a stored picture
STUDY = ImageStudy(
    task=TASK,
    settings=tuple(make_task(TASK).settings.items()),
    methods=TAUGHT + ALONE,
    n_tasks=15,
    rows_per_task=100,
    m_tr=40,
    m_te=(20, 40, 60, 80, 100),
    tests=50,
    seed=0,
    repeats=4,
)


@dataclass(frozen=True)
class Story:
    """The finished study of the example, and the version of the code that made it."""

    result: ImagesResult
    made_by: str

    def save(self, path: Path = FILE) -> None:
        """Write the story."""
        explanation = self.result.explanation
        named = {"weights": _joined(explanation.weights), "criterion": _joined(explanation.criterion)}
        np.savez_compressed(
            path,
            power=self.result.power.to_csv(index=False),
            images=np.rint(LEVELS * explanation.images).astype(np.uint8),
            witness=explanation.witness.astype(np.float32),
            n=explanation.n,
            classes=explanation.classes.to_csv(index=False),
            kernels=json.dumps(named | {"other_weights": explanation.other_weights}),
            made_by=self.made_by,
        )


@lru_cache(1)
def shipped_story(path: Path = FILE) -> Story:
    """The story as shipped."""
    with np.load(path, allow_pickle=False) as stored:
        parts = {name: stored[name] for name in stored.files}
    kernels = json.loads(str(parts["kernels"]))
    explanation = KernelExplanation(
        images=parts["images"] / LEVELS,
        witness=parts["witness"],
        n=int(parts["n"]),
        weights=_split(kernels["weights"]),
        other_weights=kernels["other_weights"],
        criterion=_split(kernels["criterion"]),
        classes=pd.read_csv(io.StringIO(str(parts["classes"])), dtype={"class": str}),
    )
    power = pd.read_csv(io.StringIO(str(parts["power"])))
    return Story(ImagesResult(power, explanation), str(parts["made_by"]))


def make_story() -> Story:
    """Compute the story."""
    return Story(STUDY.run(), code_version())


def code_version() -> str:
    """The versions of the sampling and of the tests. Numbers of another version do not agree with the code."""
    return json.dumps({"code": CODE} | {name: METHODS[name].revision for name in TAUGHT + ALONE})


def story_finding(power: pd.DataFrame) -> str:
    """Say what the related tasks are worth at the largest number of images, best test against best test."""
    largest = power[power["m_te"] == power["m_te"].max()].set_index("method")
    taught, alone = (max(names, key=lambda name: float(largest["rate"][name])) for names in (TAUGHT, ALONE))
    shares = [f"{100 * float(largest['rate'][name]):.0f} %" for name in (taught, alone)]
    size = int(largest["m_te"].iloc[0])
    return (
        f"Two samples of {size} digits, mixed differently: **{label_of(taught)}**, taught by {STUDY.n_tasks} pairs "
        f"of other digits, notices this in **{shares[0]}** of all cases. **{label_of(alone)}**, which learns from no "
        f"other task, does so in **{shares[1]}**."
    )


def _joined(values: dict[tuple[str, str], float]) -> dict[str, float]:
    return {f"{a} or {b}": value for (a, b), value in values.items()}


def _split(values: dict[str, float]) -> dict[tuple[str, str], float]:
    pairs = {tuple(name.split(" or ")): value for name, value in values.items()}
    return {(a, b): value for (a, b), value in pairs.items()}
