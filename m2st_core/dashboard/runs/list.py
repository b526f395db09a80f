"""The store's runs as tables: what there is, and how some of them differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from m2st_core.dashboard.jobs.sweep_queue import SweepQueue
from m2st_core.dashboard.jobs.sweeps import STATE_ICONS
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import OLDER, Run, Store
from m2st_core.sweeps.summary import summarise

SHOWN = 5


def last_runs(count: int = SHOWN) -> pd.DataFrame:
    """The newest runs: name, state, cells done, and when; a ValueError says why the store can not be read."""
    runs = Store().runs().head(count)
    done = [f"{done} of {cells}" if cells else "–" for done, cells in zip(runs["done"], runs["cells"], strict=True)]
    return pd.DataFrame(
        {
            "Run": runs["name"],
            "State": runs["state"],
            "Cells done": done,
            "Last change": pd.to_datetime(runs["updated"], unit="s").dt.strftime("%Y-%m-%d %H:%M UTC"),
            "Id": runs["id"],
        }
    )


def run_history(queue: SweepQueue) -> pd.DataFrame:
    """Every run, the newest first: id, state (as the queue knows it), name, how much is done, when."""
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
    """One row per entry, one column per run, and whether the runs differ there; differing entries first."""
    entries = {name: _flat(spec) for name, spec in specs.items()}
    keys = list(dict.fromkeys(key for values in entries.values() for key in values))
    table = pd.DataFrame({name: [values.get(key, "–") for key in keys] for name, values in entries.items()}, index=keys)
    differs = table.nunique(axis=1) > 1
    return table.assign(differs=differs).sort_values("differs", ascending=False, kind="stable")


def _flat(spec: SweepSpec) -> dict[str, str]:
    values: dict[str, Any] = spec.to_dict()
    settings = {f"settings.{name}": value for name, value in values.pop("settings").items()}
    return {
        name: ", ".join(f"{v}" for v in value) if isinstance(value, list) else f"{value}"
        for name, value in (values | settings).items()
    }


def overlaid(runs: Sequence[Run], rows: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One summary of several runs, each named in the column ``run``."""
    tables = [summarise(part).assign(run=run.id[:6]) for run, part in zip(runs, rows, strict=True) if len(part)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
