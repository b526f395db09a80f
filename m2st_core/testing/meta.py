"""Train once on related tasks, then test any number of targets."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from m2st_core.data.arrays import as_related_tasks, as_two_sample, in_order_of
from m2st_core.data.overlap import ColumnUnits, KnownRows, find_overlap, known_rows
from m2st_core.data.related import RelatedTasks
from m2st_core.data.separate import Separated, condition_of
from m2st_core.data.tables.encoding import ENCODING_FILE, Encoding
from m2st_core.device import one_thread_per_operation, resolve_device, short_memory_in_words
from m2st_core.learners.ascent import Course
from m2st_core.learners.knowledge import Knowledge, learned_spaces
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.testing.methods import METHODS, find_method
from m2st_core.testing.plan import TestPlan, TestSettings, check_training_memory, plan_test
from m2st_core.testing.run import FinishedTest, run
from m2st_core.types import Progress, Shape, TestResult, TwoSample, described_columns

FORMAT = 10
TENSORS, ABOUT = "learner.safetensors", "learner.json"
SEEN = ("rows", "sample", "ids")  # the last only if a column identifies rows
STAMP = (2020, 1, 1, 0, 0, 0)  # the same learner gives the same bytes


@dataclass(frozen=True)
class MetaLearner:
    """A method trained on related tasks, ready to test targets.

    ``course`` is the training curve, ``choices`` are those made on held-out rows. ``prior`` is the variance of the
    tasks' differences along each learned feature, in squared within-sample standard deviations. ``seen`` holds the
    training rows (projections of images), so that a target which shares some of them is recognised and refused.

    ``column_names`` are those of the frames it was trained on. A target's frame may have these columns in any order,
    and a frame with others is refused. Where either has no names, columns go by position, and a note of the result says
    so. ``notes`` say which of the related tasks had no names.
    """

    method: str
    seed: int
    task_names: tuple[str, ...]
    columns: int
    knowledge: Knowledge
    seen: KnownRows
    shape: Shape | None = None  # set if rows are images
    column_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        rows = described_columns(self.columns, self.column_names, self.shape)
        tasks = f"{len(self.task_names)} related task{'s' * (len(self.task_names) != 1)}"
        return f"MetaLearner({self.method!r}, {tasks}, {rows})"

    @property
    def prior(self) -> np.ndarray:
        """The prior variances, largest first; empty if no features were learned."""
        if not self.knowledge.spaces:
            return np.zeros(0)
        return learned_spaces(self.knowledge)[0].prior[0].flip(0).cpu().numpy()

    @property
    def course(self) -> Course:
        """The training curve."""
        return self.knowledge.course

    @property
    def choices(self) -> dict[str, float]:
        """Choices made on held-out rows."""
        return self.knowledge.choices

    def for_method(self, method: str) -> MetaLearner:
        """The same learner for another method with the same training; any other method is refused."""
        other = METHODS[method]
        if other.training != METHODS[self.method].training:
            raise ValueError(
                f"This learner was trained for {self.method}. {other.name} learns in another way: train anew."
            )
        return replace(self, method=other.name)

    def bound(self, device: torch.device) -> Method:
        """The method with what was learned built in."""
        return METHODS[self.method].with_knowledge(self.knowledge.to(device))

    def test(
        self,
        x: Any,
        y: Any,
        *,
        ids: str | None = None,
        blocks: tuple[Any, Any] | None = None,
        apart: Separated | None = None,
        progress: Progress | None = None,
        **settings: Any,
    ) -> TestResult:
        """Test a target, with the settings of ``two_sample_test``; ``apart`` as in ``examine``."""
        return self.examine(
            x, y, TestSettings(**settings), ids=ids, blocks=blocks, apart=apart, progress=progress
        ).result

    def examine(
        self,
        x: Any,
        y: Any,
        settings: TestSettings | None = None,
        *,
        ids: str | None = None,
        blocks: tuple[Any, Any] | None = None,
        apart: Separated | None = None,
        progress: Progress | None = None,
    ) -> FinishedTest:
        """Test a target and keep what explains the result.

        ``apart`` says that this learner was trained on related tasks from which x and y were separated.
        """
        plan = self.plan(as_two_sample(x, y, ids, blocks), settings or TestSettings())
        return run(self.teach(plan, apart), progress)

    def plan(self, sample: TwoSample, settings: TestSettings) -> TestPlan:
        """Plan a test of a checked pair of samples, its columns in the order of the training rows."""
        return plan_test(as_target(sample, self), METHODS[self.method], settings)

    def teach(self, plan: TestPlan, apart: Separated | None = None) -> TestPlan:
        """Build what was learned into a planned test, which can then run.

        A target that shares rows with the training tasks is refused, unless it was separated from them (``apart``).
        """
        condition, notes = (apart.exact_if, apart.notes) if apart is not None else self.refuse_shared(plan.given)
        method = self.for_method(plan.method.name).bound(resolve_device(plan.settings.device))
        return replace(plan, method=method, notes=plan.notes + notes, exact_if=condition)

    def refuse_shared(self, sample: TwoSample, units: ColumnUnits | None = None) -> tuple[str, tuple[str, ...]]:
        """Refuse a target that shares rows with the training tasks: its p-value would be wrong.

        ``units`` turn scaled rows back into those of their files. Return the condition on which no shared row was
        missed, and a note on it; both are empty if the search would have seen them.
        """
        sample = in_order_of(sample, self.column_names, self.columns)
        overlap = find_overlap(sample, self.seen, units)
        shared = len(overlap)
        if shared:
            raise ValueError(
                f"{shared} rows of x and y, or nearly equal ones, are among the rows this learner was trained on. A "
                "p-value from them would be wrong. Give the related tasks themselves instead of the learner: it is "
                "then trained without these rows. Or leave these rows out of x and y."
            )
        return condition_of(overlap, sample)

    def save(self, path: str | os.PathLike[str], encoding: Encoding | None = None) -> None:
        """Write a ZIP if the name ends with ``.zip``, and else a folder, which is made if need be.

        Either holds ``learner.safetensors`` and ``learner.json``, and the encoding of the columns if one is given. They
        include the training rows (projections of images), by which shared rows are recognised.
        """
        place = Path(path)
        if place.suffix.lower() == ".zip":
            if place.is_dir():
                raise ValueError(f"{place} is a folder. Choose another name, or move the folder away.")
            place.write_bytes(self.packed(encoding))
            return
        place.mkdir(parents=True, exist_ok=True)
        (place / ENCODING_FILE).unlink(missing_ok=True)  # that of an earlier learner
        for name, content in self._files(encoding).items():
            (place / name).write_bytes(content)

    def packed(self, encoding: Encoding | None = None) -> bytes:
        """The ZIP that ``save`` writes."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in self._files(encoding).items():
                archive.writestr(zipfile.ZipInfo(name, STAMP), content, zipfile.ZIP_DEFLATED)
        return packed.getvalue()

    def _files(self, encoding: Encoding | None) -> dict[str, bytes]:
        about, tensors = self.parts()
        files = {ABOUT: about.encode(), TENSORS: tensors}
        return files if encoding is None else files | {ENCODING_FILE: encoding.to_json().encode()}

    def parts(self) -> tuple[str, bytes]:
        """The learner as JSON, with the hash of the tensors, and the tensors."""
        tensors = {name: value.contiguous().cpu().clone() for name, value in self.knowledge.state_dict().items()}
        tensors |= {f"course.{name}": torch.from_numpy(values) for name, values in vars(self.course).items()}
        seen = {name: getattr(self.seen, name) for name in SEEN}
        tensors |= {f"seen.{name}": torch.from_numpy(values) for name, values in seen.items() if values is not None}
        packed = save(tensors)
        about = {
            "format": FORMAT,
            "method": self.method,
            "seed": self.seed,
            "task_names": self.task_names,
            "columns": self.columns,
            "column_names": self.column_names,
            "notes": self.notes,
            "shape": self.shape,
            "base_names": self.knowledge.base_names,
            "choices": self.knowledge.choices,
            "sha256": hashlib.sha256(packed).hexdigest(),
        }
        return json.dumps(about, ensure_ascii=False, indent=1), packed


def as_target(sample: TwoSample, learned: RelatedTasks | MetaLearner) -> TwoSample:
    """The target as these related tasks, or their learner, have their rows: order of the columns, shape of images."""
    width = learned.columns if isinstance(learned, MetaLearner) else learned.rows.shape[-1]
    columns = learned.column_names if isinstance(learned, MetaLearner) else learned.columns
    sample = in_order_of(sample, columns, width)
    if sample.shape and learned.shape and sample.shape != learned.shape:
        raise ValueError(f"The related tasks have images of {learned.shape}, x and y have {sample.shape}.")
    return replace(sample, shape=learned.shape, notes=sample.notes + learned.notes)


def meta_train(
    method: str,
    related_tasks: Any,
    *,
    ids: str | None = None,
    preset: str | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress | None = None,
) -> MetaLearner:
    """Learn from related tasks: a list of (x, y) pairs, or a mapping of names to pairs, of any sizes.

    Columns of frames are matched by name, and the learner keeps the names. ``ids`` names a column that identifies rows:
    it is no feature, and by it the learner recognises its training rows in a target that has it, too. ``preset``
    chooses the settings of a test of the paper, as in ``two_sample_test``.

    >>> import m2st_core as m2st
    >>> learner = m2st.meta_train("Meta-WiTS", m2st.hdgm_related_tasks(n_tasks=2, rows=10))
    >>> learner.task_names
    ('Δ=0.350', 'Δ=0.400')
    """
    spec = find_method(method, preset)
    if spec.learn is None:
        raise ValueError(f"{spec.name} does not learn from related tasks. Use two_sample_test.")
    meta = as_related_tasks(related_tasks, ids)
    check_training_memory(spec, meta.rows.shape[-2], meta.rows.shape[-1])
    with one_thread_per_operation(), short_memory_in_words():
        streams = [Streams(seed).child("meta-training")]
        knowledge = spec.learn(meta.to(resolve_device(device)), spec.preset.on(meta.shape), streams, progress)
    return MetaLearner(
        method=spec.name,
        seed=seed,
        task_names=meta.names,
        columns=meta.rows.shape[-1],
        knowledge=knowledge,
        seen=known_rows(meta)[0],
        shape=meta.shape,
        column_names=meta.columns,
        notes=meta.notes,
    )
