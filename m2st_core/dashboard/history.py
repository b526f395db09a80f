"""The store's latest runs, as people read them."""

from __future__ import annotations

import pandas as pd

from m2st_core.experiments.store import Store

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
