"""The data of one browser session: files, choices and results, in memory only and deleted with the session."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pandas as pd
import streamlit as st

from m2st_core.analysis.pictures import Picture
from m2st_core.analysis.plan import Plan
from m2st_core.dashboard.jobs.host import host
from m2st_core.dashboard.jobs.jobs import watch_job
from m2st_core.dashboard.widgets.page import as_text, chart
from m2st_core.data.tables.assemble import Assembled, assemble
from m2st_core.data.tables.cells import safe_frame
from m2st_core.data.tables.encoding import Cleaning, Encoding
from m2st_core.data.tables.examples import EXAMPLES
from m2st_core.data.tables.groups import OTHERS, GroupColumn, group_of_related, half_of, other_labels, suggest_groups
from m2st_core.data.tables.prepare import Prepared, prepare
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.table import Limits, Table
from m2st_core.data.tables.upload import Upload
from m2st_core.testing.meta import MetaLearner
from m2st_core.types import Progress

STEPS = {
    "Bring": "files, or an example",
    "Check": "what was read, and the test to run",
    "Answer": "the verdict, what differs, and a report",
}
COPIES = 2  # a table in memory, and the arrays made of it

Made = TypeVar("Made")
Answers = dict[str, Any]
"""Fields of an upload: decimal, read_as, totals, encoding."""


@dataclass(frozen=True)
class UploadedLearner:
    """A learner from a file, with the encoding it was trained with."""

    name: str
    digest: str
    learner: MetaLearner
    encoding: Encoding


@dataclass(eq=False)
class UserData:
    """Files by slot (p, q, one, related), choices about them, and results; never in the store."""

    files: dict[str, tuple[Table, ...]] = field(default_factory=dict)
    two_files: bool = False
    roles: dict[str, str | None] = field(default_factory=dict)  # columns: task, and group of an example
    chosen: dict[tuple[str, ...], str] = field(default_factory=dict)  # the group column, by slot and candidates
    groups: tuple[str, ...] = ()  # the values of P and Q, or one against all others; empty: as the file has them
    related_groups: dict[str, tuple[str, ...]] = field(default_factory=dict)  # in the related tasks, by upload
    answers: dict[str, Answers] = field(default_factory=dict)  # to questions about reading, by the digest of the files
    trained: UploadedLearner | None = None
    example: str = ""
    rounds: dict[str, int] = field(default_factory=dict)  # successful uploads per slot, each with a new uploader
    refused: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)  # per slot: file ids, and the reason
    cleaning: Cleaning = field(default_factory=Cleaning)
    declared: tuple[str, Plan] | None = None  # the plan, and the digest of the data it is for
    tested: dict[Hashable, tuple[str, dict[str, Any]]] = field(default_factory=dict)  # target id, and the table's row
    memory: dict[str, tuple[Hashable, Any]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # bytes of a table in memory, by its digest
    removal_notice: str = ""  # why the files were removed; shown once

    @property
    def bytes(self) -> int:
        """About how much memory the files take, with what is made of them."""
        held = (table for tables in self.files.values() for table in tables)
        return COPIES * sum(self._size(table) for table in held)

    def _size(self, table: Table) -> int:
        if table.digest not in self.sizes:
            self.sizes[table.digest] = int(table.frame.memory_usage(deep=True).sum()) + len(table.raw)
        return self.sizes[table.digest]

    def release(self, reason: str) -> None:
        """Remove all files and what was made of them; the list of tests done stays."""
        if self.files or self.trained:
            self.removal_notice = reason
        self.files, self.memory, self.trained, self.declared, self.sizes = {}, {}, None, None, {}

    @property
    def learner(self) -> MetaLearner | None:
        """The uploaded learner."""
        return self.trained.learner if self.trained else None

    @property
    def upload(self) -> Upload | None:
        """The upload, once both groups are known."""
        upload = self._as_in_files
        if upload is None:
            return None
        upload = replace(upload, related_groups=self.related_groups.get(upload.digest, ()))
        return replace(upload, **self.answers.get(upload.files_digest, {}))

    @property
    def _as_in_files(self) -> Upload | None:
        """The upload without the choices on the related tasks' values and on reading."""
        slots = ("p", "q") if self.two_files else ("one",)
        target = tuple(table for slot in slots for table in self.files.get(slot, ()))
        if len(target) != len(slots) or not (self.two_files or self.group) or self.asks_related:
            return None
        return Upload(
            target,
            self.files.get("related", ()),
            self.group,
            self._task,
            self.related_group,
            () if self.two_files else self.groups,
        )

    @property
    def _task(self) -> str:
        return self.roles.get("task", "task") or ""

    @property
    def group(self) -> str | None:
        """The group column of the target: the only one that could be, or the one that was chosen."""
        if self.two_files or not self.files.get("one"):
            return None
        return self.roles.get("group") if self.example else self._settled("one", self.group_columns)

    @property
    def group_columns(self) -> dict[str, GroupColumn]:
        """The columns of the target's file that may be the group, the likeliest first."""
        tables, related = self.files.get("one", ()), self.related_columns
        key = tuple(table.digest for table in (*tables, *self.files.get("related", ()))), self._task
        return self.remember("group columns", key, lambda: suggest_groups(*tables, related=related))

    @property
    def related_columns(self) -> dict[str, GroupColumn]:
        """The columns of the related tasks that may be their group."""
        tables, task = self.files.get("related", ()), self._task
        key = tuple(table.digest for table in tables), task
        return self.remember("related columns", key, lambda: suggest_groups(*tables, task=task))

    @property
    def related_group_by_name(self) -> str | None:
        """The group column that all related files have: called like the target's, or group."""
        named = Upload((), self.files.get("related", ()), self.group, self._task)
        groups = [group_of_related(table, named) for table in named.related if not half_of(table, named)]
        return groups[0] if groups and all(groups) else None

    @property
    def related_group(self) -> str | None:
        """The group column of the related tasks, if it is not found by its name."""
        by_name, chosen = self.related_group_by_name, self.chosen.get(_among(self.related_slot, self.related_columns))
        if self.example or by_name:
            return None if self.example or chosen == by_name else chosen
        return self._settled(self.related_slot, self.related_columns, alone=self.group is None)

    @property
    def related_slot(self) -> str:
        """The key of the choice of the related tasks' group column: another default is another choice."""
        return f"related {self.related_group_by_name or ''}"

    @property
    def asks_group(self) -> bool:
        """Whether it is open which column is the group of the target."""
        return bool(self.files.get("one")) and not self.two_files and self.group is None and bool(self.group_columns)

    @property
    def asks_related(self) -> bool:
        """Whether it is open which column is the group of the related tasks."""
        named = Upload((), self.files.get("related", ()), self.group, self._task)
        needed = any(not half_of(table, named) for table in named.related) and bool(self.related_columns)
        return needed and not self.example and self.related_group_by_name is None and self.related_group is None

    def _settled(self, slot: str, columns: Mapping[str, GroupColumn], alone: bool = True) -> str | None:
        """The column that was chosen as the group, or, if it may stand ``alone``, the only one that could be."""
        return next(iter(columns)) if alone and len(columns) == 1 else self.chosen.get(_among(slot, columns))

    def choose_group(self, slot: str, columns: Mapping[str, GroupColumn], column: str | None) -> None:
        """Remember the group column among these for the session."""
        if column is not None:
            self.chosen[_among(slot, columns)] = column

    def swap(self, made: Assembled, target: bool = True) -> None:
        """Exchange P and Q of the target and of the related tasks, or of those with other values only."""
        order = tuple(label for p, q in other_labels(made.target, made.related) for label in (q, p))
        if target and self.two_files:
            self.files["p"], self.files["q"] = self.files["q"], self.files["p"]
        elif target and made.target is not None:
            p, q = made.target.labels
            self.groups = (q,) if p == OTHERS else (q, p)
            self.rounds["groups"] = self.rounds.get("groups", 0) + 1
        if (upload := self._as_in_files) is not None:
            self.related_groups[upload.digest] = order

    def put(self, slot: str, tables: Sequence[Table], limits: Limits) -> None:
        """Store tables in a slot. Related tables join the earlier ones, others replace them."""
        kept = self.files.get(slot, ()) if slot == "related" else ()
        digests = {table.digest for table in kept}
        tables = (*kept, *(table for table in tables if table.digest not in digests))
        others = [table for name, held in self.files.items() if name != slot for table in held]
        if sum(table.frame.size for table in (*others, *tables)) > limits.cells:
            raise TableError(f"{tables[-1].name}: with it there are more than {limits.cells:,} cells. Bring fewer.")
        self._check_room(tables)
        self.files[slot] = tables
        self.example = ""

    def _check_room(self, tables: Sequence[Table]) -> None:
        """Refuse files for which the server has no memory."""
        held = {table.digest for kept in self.files.values() for table in kept}
        needed = COPIES * sum(self._size(table) for table in tables if table.digest not in held)
        if not host().make_room(needed):
            raise TableError(
                f"{tables[-1].name}: the server's memory for files is taken by others at the moment. Please try again "
                "in a few minutes, or bring fewer rows. What you brought before is still here."
            )

    def take_example(self, name: str) -> None:
        """Replace everything by an example."""
        upload = EXAMPLES[name].load()
        self.files = {"one": upload.target, "related": upload.related}
        self.roles = {"group": upload.group, "task": upload.task}
        self.two_files, self.trained, self.example, self.cleaning = False, None, name, Cleaning()
        self.groups = upload.groups

    def remember(self, name: str, key: Hashable, make: Callable[[], Made]) -> Made:
        """The value made for this key. Only the latest is kept."""
        if self.recall(name, key) is None:
            self.memory.pop(name, None)
            self.memory[name] = (key, make())
        made: Made = self.memory[name][1]
        return made

    def recall(self, name: str, key: Hashable) -> Any:
        """The remembered value, or None if there is none for this key."""
        kept = self.memory.get(name)
        return kept[1] if kept is not None and kept[0] == key else None

    def compute(
        self, name: str, key: Hashable, work: Callable[..., Any], doing: str, expected: float | None = None,
        ask: str = "",
    ) -> Any:  # fmt: skip
        """The result of ``work(progress=…)`` in a background job for this key, or None while it is not done.

        ``expected`` seconds and what to ``ask`` before it starts are as in ``watch_job``.
        """

        def plainly(progress: Progress) -> Any:
            try:
                return work(progress=progress)
            except ValueError as error:
                raise ValueError(as_text(str(error))) from None

        if self.recall(name, key) is None:
            job = watch_job(name, key, plainly, doing, expected=expected, ask=ask)
            if job.state != "done":
                return None
            self.memory[name] = (key, job.result)
        return self.memory[name][1]

    def assembled(self, upload: Upload) -> Assembled:
        """The upload as pairs of samples."""
        return self.remember("assembled", upload.digest, lambda: assemble(upload))

    def prepared(self, upload: Upload) -> Prepared:
        """The upload, prepared as chosen."""
        made, encoding = self.assembled(upload), self.trained.encoding if self.trained else None
        key = upload.digest, self.cleaning, self.trained.digest if self.trained else ""
        return self.remember("prepared", key, lambda: prepare(made, cleaning=self.cleaning, encoding=encoding))

    def tests_of(self, upload: Upload) -> list[dict[str, Any]]:
        """All tests of these target rows in this session, whatever the order of the files."""
        target = target_id(self.assembled(upload))
        return [row for tested, row in self.tested.values() if tested == target]


def _among(slot: str, columns: Mapping[str, GroupColumn]) -> tuple[str, ...]:
    """The key of a choice among these columns."""
    return (slot, *sorted(columns))


def target_id(made: Assembled) -> str:
    """An id of the compared groups, whichever is P."""
    labels = sorted(made.target.labels) if made.target else []
    return "".join(sorted(table.digest for table in made.upload.target)) + (made.upload.group or "") + repr(labels)


def user_data() -> UserData:
    """The data of the current session."""
    state: UserData = st.session_state.setdefault("own_data", UserData())
    host().hold(state)
    if state.removal_notice:
        st.warning(state.removal_notice)
        state.removal_notice = ""
    return state


def show_upload_table(frame: pd.DataFrame, **settings: Any) -> None:
    """Show a table with cells from files, none of which a spreadsheet would run as a formula."""
    st.dataframe(safe_frame(frame), hide_index=True, width="stretch", **settings)


def show_picture(picture: Picture) -> None:
    """Show a figure of the data or of an outcome, and its caption."""
    chart(picture.figure, f"data_{picture.name}", picture.alt)
    st.caption(as_text(picture.caption))


def choose(label: str, options: Sequence[str], key: str, help: str, index: int = 0) -> str:
    """Ask for a column. The choice is kept for the session but not in the link, which does not hold the data."""
    return str(st.selectbox(label, options, index, key=key, persist_state="session", help=help))


def go_to(step: str) -> None:
    """Open another step, from a button."""
    st.session_state["data_step"] = step
