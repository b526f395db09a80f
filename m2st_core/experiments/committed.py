"""Full-scale results that come with the repository, so that they can be looked at without computing anything."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

DOCS = Path(__file__).parents[2] / "docs"


def committed_rows(experiment: str) -> pd.DataFrame | None:
    """The rows of ``docs/<experiment>.csv``; None where there are none, as in a copy without its documents."""
    path = DOCS / f"{experiment}.csv"
    return pd.read_csv(path) if path.is_file() else None
