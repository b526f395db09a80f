"""Tables of runs: all of them, how the settings of several differ, and their results together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from m2st_core.dashboard.jobs.sweep_queue import SweepQueue
from m2st_core.dashboard.jobs.sweeps import STATE_ICONS
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import OLDER, Run
from m2st_core.sweeps.summary import summarise


def all_runs(queue: SweepQueue) -> pd.DataFrame:
    """Every run, the newest first, with its state in the queue."""
    frame = queue.store.runs()
    states = []
    for run, state in zip(frame["id"], frame["state"], strict=True):
        if state != OLDER:
            status = queue.status(run)
            state = "deleted" if status is None else status.state
        states.append(f"{STATE_ICONS.get(state, '')} {state}")
    return pd.DataFrame(
        {
            "run": frame["id"],
            "state": states,
            "name": frame["name"],
            "done": (frame["done"] / frame["cells"].clip(lower=1)).astype(float),
            "cells": frame["cells"],
            "started": pd.to_datetime(frame["created"], unit="s", utc=True),
            "last change": pd.to_datetime(frame["updated"], unit="s", utc=True),
            "note": frame["message"].where(frame["state"] == OLDER, ""),
        }
    )


def spec_differences(specs: dict[str, SweepSpec]) -> pd.DataFrame:
    """One row per entry and one column per run. Entries where the runs differ come first and are marked."""
    table = pd.DataFrame({name: _entries(spec) for name, spec in specs.items()}).fillna("–")
    differs = table.nunique(axis=1) > 1
    return table.assign(differs=differs).sort_values("differs", ascending=False, kind="stable")


def _entries(spec: SweepSpec) -> pd.Series:
    values: dict[str, Any] = spec.to_dict()
    values |= {f"settings.{name}": value for name, value in values.pop("settings").items()}
    texts = {n: ", ".join(map(str, v)) if isinstance(v, list) else str(v) for n, v in values.items()}
    return pd.Series(texts, dtype=object)


def overlaid(runs: Sequence[Run], rows: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One summary of several runs, each named in the column ``run``."""
    tables = [summarise(cells).assign(run=run.id[:6]) for run, cells in zip(runs, rows, strict=True) if len(cells)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
