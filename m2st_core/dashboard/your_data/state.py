"""What one browser session has brought: in memory, for this session only, and gone with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import streamlit as st

from m2st_core.analysis.gamma import LeftOutGamma
from m2st_core.analysis.plan import Outcome, Plan
from m2st_core.analysis.related_check import RelatedCheck
from m2st_core.data.tables.assembled import Assembled, Check, assemble, check
from m2st_core.data.tables.clean import CleanData, prepare
from m2st_core.data.tables.encoding import Cleaning, Encoding
from m2st_core.data.tables.examples import EXAMPLES
from m2st_core.data.tables.files import Table
from m2st_core.data.tables.limits import Limits, TableError, plain, safe_cell
from m2st_core.data.tables.upload import Upload
from m2st_core.testing.meta import MetaLearner

STEPS = ("Bring", "Check", "Choose", "Answer", "Understand")
LONGEST_SENTENCE = 1200


@dataclass(frozen=True)
class Trained:
    """A learner that was trained earlier, as it was brought."""

    name: str
    digest: str
    learner: MetaLearner
    encoding: Encoding


@dataclass
class Brought:
    """The files, the choices about them and what came out; one per session, never in the store."""

    files: dict[str, tuple[Table, ...]] = field(default_factory=dict)  # by slot: p, q, one, related
    two_files: bool = False
    roles: dict[str, str | None] = field(default_factory=dict)  # group, task, related_group
    trained: Trained | None = None
    example: str = ""
    rounds: dict[str, int] = field(default_factory=dict)  # how often a slot was filled: a new uploader each time
    refused: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)  # by slot: which files, and why
    cleaning: Cleaning = field(default_factory=Cleaning)
    plan: Plan | None = None
    declared: tuple[Hashable, Plan] | None = None
    outcome: tuple[Hashable, Outcome] | None = None
    history: tuple[Hashable, RelatedCheck | None, LeftOutGamma | None] | None = None
    tested: list[dict[str, Any]] = field(default_factory=list)
    memory: dict[str, tuple[Hashable, Any]] = field(default_factory=dict)

    @property
    def upload(self) -> Upload | None:
        """What was brought, if there is enough of it to go on."""
        slots = ("p", "q") if self.two_files else ("one",)
        target = tuple(table for slot in slots for table in self.files.get(slot, ()))
        if len(target) != len(slots):
            return None
        group = None if self.two_files else self.roles.get("group")
        if group is None and not self.two_files:
            return None
        task = self.roles.get("task", "task") or ""
        return Upload(target, self.files.get("related", ()), group, task, self.roles.get("related_group"))

    def put(self, slot: str, tables: Sequence[Table], limits: Limits) -> None:
        """Take tables in: related ones join those that are there, others replace them."""
        kept = self.files.get(slot, ()) if slot == "related" else ()
        known = {table.digest for table in kept}
        tables = (*kept, *(table for table in tables if table.digest not in known))
        cells = sum(t.frame.size for held, part in self.files.items() if held != slot for t in part)
        if cells + sum(table.frame.size for table in tables) > limits.cells:
            raise TableError(f"{tables[-1].name}: with it there are more than {limits.cells:,} cells. Bring fewer.")
        self.files[slot] = tables
        self.example = ""

    def take_example(self, name: str) -> None:
        """Replace everything by a bundled upload."""
        upload = EXAMPLES[name].load()
        self.files = {"one": upload.target, "related": upload.related}
        self.roles = {"group": upload.group, "task": upload.task, "related_group": upload.related_group}
        self.two_files, self.trained, self.example, self.cleaning = False, None, name, Cleaning()

    def remember(self, name: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value made for this key; only the latest is kept."""
        if name not in self.memory or self.memory[name][0] != key:
            self.memory.pop(name, None)
            self.memory[name] = (key, make())
        return self.memory[name][1]

    def assembled(self, upload: Upload) -> Assembled:
        """Who is compared with whom."""
        return self.remember("assembled", upload.digest, lambda: assemble(upload))

    def checked(self, upload: Upload) -> Check:
        """What was found."""
        return self.remember("checked", upload.digest, lambda: check(self.assembled(upload)))

    def clean(self, upload: Upload, cleaning: Cleaning | None = None) -> CleanData:
        """Arrays to test, by the choices made."""
        cleaning = cleaning or self.cleaning
        encoding = self.trained.encoding if self.trained else None
        return self.remember(
            "clean", self.key(upload, cleaning), lambda: prepare(self.assembled(upload), cleaning, encoding)
        )

    def key(self, upload: Upload, cleaning: Cleaning | None = None) -> Hashable:
        """What the data and their preparation are known by."""
        return upload.digest, cleaning or self.cleaning, self.trained.digest if self.trained else ""

    def tests_of(self, upload: Upload) -> list[dict[str, Any]]:
        """All tests of these target rows in this session, in whatever order the files came."""
        mark = target_mark(upload)
        return [
            {k: v for k, v in test.items() if k not in ("mark", "key")} for test in self.tested if test["mark"] == mark
        ]


def target_mark(upload: Upload) -> str:
    """The same for the same question about the same files."""
    return "".join(sorted(table.digest for table in upload.target)) + (upload.group or "")


def brought() -> Brought:
    """What the session at hand has brought."""
    if "own_data" not in st.session_state:
        st.session_state["own_data"] = Brought()
    state: Brought = st.session_state["own_data"]
    return state


def digest(data: bytes) -> str:
    """SHA-256, by which files are known."""
    return hashlib.sha256(data).hexdigest()


def say(sentence: str) -> str:
    """A sentence that may quote a file, shown letter by letter."""
    return plain(sentence, LONGEST_SENTENCE)


def show_table(frame: pd.DataFrame, **settings: Any) -> None:
    """A table whose words come from files: nothing in it is run, here or in the copy that can be downloaded."""
    safe = frame.rename(columns=lambda name: safe_cell(str(name)))
    for position, dtype in enumerate(safe.dtypes):
        if not pd.api.types.is_numeric_dtype(dtype):
            safe.isetitem(position, ["" if pd.isna(c) else safe_cell(c) for c in safe.iloc[:, position]])
    st.dataframe(safe, hide_index=True, width="stretch", **settings)


def go(step: str) -> None:
    """To another step; for callbacks."""
    st.session_state["data_step"] = step
