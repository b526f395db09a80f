"""How much an upload may bring, and the one error that says what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields


class TableError(ValueError):
    """One sentence that names the file, the row, the column and the remedy, on one line whatever it quotes."""

    def __init__(self, sentence: str) -> None:
        super().__init__(" ".join(sentence.split()))


@dataclass(frozen=True)
class Limits:
    """The most that is taken in; each has an environment variable, ``M2ST_MOST_BYTES`` and so on.

    ``bytes`` counts a file as it comes, ``unpacked`` everything a packed file holds; ``rows`` and ``cells`` count the
    whole upload, ``cells`` also after categories have become columns; ``levels`` are the different values beyond which
    a column of words is taken for free text.
    """

    bytes: int = 20 * 2**20
    unpacked: int = 60 * 2**20
    rows: int = 300_000
    columns: int = 5_000
    cells: int = 6_000_000
    tasks: int = 200
    levels: int = 200

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise TableError(f"The limit {field.name!r} must be a whole number ≥ 1. Got {value!r}.")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """The defaults, changed by what the environment sets.

        >>> Limits.from_environment({"M2ST_MOST_ROWS": "1000"}).rows
        1000
        """
        found = {}
        for field in fields(cls):
            variable = f"M2ST_MOST_{field.name.upper()}"
            if text := environment.get(variable, "").strip():
                try:
                    found[field.name] = int(text.replace("_", ""))
                except ValueError:
                    raise TableError(f"{variable} must be a whole number. Got {text!r}.") from None
        return cls(**found)

    @property
    def words(self) -> str:
        """The limits, as the page states them."""
        return (
            f"At most {_megabytes(self.bytes)} per file ({_megabytes(self.unpacked)} unpacked), {self.rows:,} rows, "
            f"{self.columns:,} columns, {self.cells:,} cells and {self.tasks:,} related tasks in all."
        )

    def check_bytes(self, name: str, size: int) -> None:
        """Refuse a file that is too large to be looked at."""
        if size > self.bytes:
            raise TableError(
                f"{name}: the file has {_megabytes(size)}, and {_megabytes(self.bytes)} is the most that is read. "
                "Leave out columns or rows that are not needed."
            )

    def check_size(self, name: str, rows: int, columns: int) -> None:
        """Refuse a table of too many rows, columns or cells."""
        for what, count, most in (
            ("columns", columns, self.columns),
            ("rows", rows, self.rows),
            ("cells", rows * columns, self.cells),
        ):
            if count > most:
                raise TableError(
                    f"{name}: there are {count:,} {what}, and {most:,} is the most that is read. "
                    f"Leave out {'columns' if what == 'columns' else 'rows or columns'} that are not needed."
                )


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MB" if size >= 2**20 else f"{size / 2**10:,.0f} kB"
