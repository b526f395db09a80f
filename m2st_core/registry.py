"""Named things that a user may ask for: tasks, methods, presets."""

from __future__ import annotations

import difflib
from typing import TypeVar

Entry = TypeVar("Entry")


class Registry(dict[str, Entry]):
    """A dictionary whose unknown names give an error with the nearest known one.

    >>> Registry("method", {"MMD-D": 1, "ME": 2}).find("mmd-d")
    Traceback (most recent call last):
    ValueError: Unknown method 'mmd-d'. Did you mean 'MMD-D'? Known: MMD-D, ME.
    """

    def __init__(self, what: str, entries: dict[str, Entry]) -> None:
        super().__init__(entries)
        self.what = what

    def find(self, name: object) -> Entry:
        """The entry of this name, or a ValueError that helps."""
        if isinstance(name, str) and name in self:
            return self[name]
        by_lower = {known.lower(): known for known in self}
        close = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.5)
        guess = f"Did you mean {by_lower[close[0]]!r}? " if close else ""
        raise ValueError(f"Unknown {self.what} {name!r}. {guess}Known: {', '.join(self)}.")
