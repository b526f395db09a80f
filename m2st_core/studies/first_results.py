"""What Weights and One test open with: the results of their default settings, as shipped.

``python -m m2st_core bench first_results`` computes them and writes them beside this module. The pages read them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.studies.one_test import OneTest, SingleTest
from m2st_core.studies.weights import LearnedFeatures, WeightsResult, WeightsStudy
from m2st_core.sweeps.trial import CODE
from m2st_core.testing.methods import METHODS
from m2st_core.types import BASELINE, TestResult

FILE = Path(__file__).with_suffix(".npz")
WEIGHTS, TEST = WeightsStudy(), SingleTest()


@dataclass(frozen=True)
class FirstResults:
    """The results, and the version of the code that made them."""

    weights: WeightsResult
    test: OneTest
    made_by: str

    def save(self, path: Path = FILE) -> None:
        """Write the results; maps in half precision, relative to their largest value."""
        weights, without = self.weights, self.test.without
        if weights.features is None or without is None:
            raise TypeError("Both studies learn from related tasks.")
        maps = np.concatenate([weights.witnesses, weights.mixture[None]])
        scale = np.abs(maps).max(axis=(1, 2), keepdims=True)
        features = weights.features
        np.savez_compressed(
            path,
            table=weights.table.to_csv(index=False),
            repeats=weights.repeats.to_csv(index=False, float_format="%.6g"),
            shares=features.shares.to_csv(index=False),
            learned=json.dumps({"share": features.share, "senses": features.senses}),
            x=weights.sample[0].astype(np.float32),
            y=weights.sample[1].astype(np.float32),
            maps=(maps / scale).astype(np.float16),
            scale=scale,
            test=json.dumps([one.to_dict() for one in (self.test.result, without)]),
            nulls=np.stack([self.test.result.null, without.null]).astype(np.float32),
            made_by=self.made_by,
        )


@lru_cache(1)
def first_results(path: Path = FILE) -> FirstResults:
    """The results as shipped."""
    with np.load(path, allow_pickle=False) as stored:
        parts = {name: stored[name] for name in stored.files}
    maps, learned = parts["maps"] * parts["scale"], json.loads(str(parts["learned"]))
    weights = WeightsResult(
        table=_table(parts["table"]),
        repeats=_table(parts["repeats"]),
        sample=(parts["x"], parts["y"]),
        witnesses=maps[:-1],
        mixture=maps[-1],
        features=LearnedFeatures(_table(parts["shares"]), **learned),
    )
    tested = zip(json.loads(str(parts["test"])), parts["nulls"].astype(np.float64), strict=True)
    return FirstResults(weights, OneTest(*(_result(values, null) for values, null in tested)), str(parts["made_by"]))


def _table(text: np.ndarray) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(str(text)))


def _result(values: dict[str, Any], null: np.ndarray) -> TestResult:
    plain: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in values.items() if name != "exact"
    }
    return TestResult(**plain, null=null)


def shipped_result(study: Hashable) -> WeightsResult | OneTest | None:
    """The shipped result of a study; None if it has other settings than the shipped ones."""
    if study == WEIGHTS:
        return first_results().weights
    return first_results().test if study == TEST else None


def compute_first_results() -> FirstResults:
    """Compute the results."""
    return FirstResults(WEIGHTS.run(), TEST.run(), code_version())


def code_version() -> str:
    """The versions of the sampling and of the tests. Numbers of another version do not agree with the code."""
    return json.dumps(
        {"code": CODE} | {name: METHODS[name].revision for name in (WEIGHTS.method, TEST.method, BASELINE)}
    )
