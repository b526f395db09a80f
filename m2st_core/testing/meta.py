"""Train once on meta-tasks, test any number of targets."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from m2st_core.data.arrays import as_related_tasks, as_two_sample
from m2st_core.data.overlap import KnownRows
from m2st_core.data.separate import Separated, Units, coarse_notes, find_overlap, known_rows
from m2st_core.device import one_thread_per_operation, resolve_device, short_memory_in_words
from m2st_core.learners.ascent import Course
from m2st_core.learners.knowledge import Knowledge, rebuild
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.testing.examined import Examined, run_examined
from m2st_core.testing.methods import METHODS, Method, check_preset
from m2st_core.types import Progress, Shape, TestResult, TwoSample

FORMAT = 5
TENSORS, ABOUT = "learner.safetensors", "learner.json"
SEEN = ("rows", "sample")


@dataclass(frozen=True)
class MetaLearner:
    """What the meta-tasks taught, ready to test targets.

    ``course`` is the training curve, ``choices`` what held-out rows decided. ``prior`` says how strongly the meta-tasks
    differ along each learned feature, in within-sample standard deviations squared. ``seen`` has the rows
    that taught (of images, a projection), so that a target which shares some of them is recognised and refused.
    """

    method: str
    preset: str
    seed: int
    task_names: tuple[str, ...]
    columns: int
    knowledge: Knowledge
    seen: KnownRows
    shape: Shape | None = None  # of images

    @property
    def prior(self) -> np.ndarray:
        """Largest first; empty if no features were learned."""
        features = self.knowledge.features
        return np.zeros(0) if features is None else features.prior[0].flip(0).cpu().numpy()

    @property
    def course(self) -> Course:
        """The training curve."""
        return self.knowledge.course

    @property
    def choices(self) -> dict[str, float]:
        """What held-out rows decided."""
        return self.knowledge.choices

    def bound(self, device: torch.device) -> Method:
        """The method with what was learned built in."""
        method = METHODS[self.method]
        assert method.adapt is not None
        return replace(method, fit=partial(method.adapt, self.knowledge.to(device)))

    def test(
        self,
        x: Any,
        y: Any,
        *,
        alpha: float = 0.05,
        n_permutations: int = 999,
        train_fraction: float = 0.5,
        splits: int = 1,
        blocks: tuple[Any, Any] | None = None,
        apart: Separated | None = None,
        seed: int = 0,
        device: str | torch.device = "auto",
        progress: Progress | None = None,
    ) -> TestResult:
        """Test a target; arguments and result as in ``two_sample_test``, and ``apart`` as in ``examine``."""
        return self.examine(
            x,
            y,
            alpha=alpha,
            n_permutations=n_permutations,
            train_fraction=train_fraction,
            splits=splits,
            blocks=blocks,
            apart=apart,
            seed=seed,
            device=device,
            progress=progress,
        ).result

    def examine(
        self,
        x: Any,
        y: Any,
        *,
        apart: Separated | None = None,
        device: str | torch.device = "auto",
        **settings: Any,
    ) -> Examined:
        """Test a target and keep what explains the answer; arguments as in ``two_sample_test``.

        ``apart`` says that this learner was trained on related tasks from which x and y were separated.
        """
        sample = as_two_sample(x, y)
        if sample.x.shape[1] != self.columns:
            raise ValueError(f"The meta-tasks have {self.columns} columns and x and y have {sample.x.shape[1]}.")
        if sample.shape and self.shape and sample.shape != self.shape:
            raise ValueError(f"The meta-tasks have images of {self.shape} and x and y have {sample.shape}.")
        sample = replace(sample, shape=self.shape)
        notes = self.refuse_shared(sample) if apart is None else apart.notes
        method, preset = self.bound(resolve_device(device)), PRESETS.find(self.preset)
        examined = run_examined(sample, method, preset=preset, device=device, **settings)
        return replace(examined, result=replace(examined.result, notes=examined.result.notes + notes))

    def refuse_shared(self, sample: TwoSample, units: Units | None = None) -> tuple[str, ...]:
        """Refuse a target that shares rows with those that taught: its p-value would be wrong.

        ``units`` turn scaled rows back into those of their files. The notes say where shared rows cannot be recognised.
        """
        overlap = find_overlap(sample, self.seen, units)
        shared = len(overlap)
        if shared:
            raise ValueError(
                f"{shared} rows of x and y are among the rows that taught this learner, equal or nearly so, and a "
                "p-value from them would be wrong. Give the related tasks themselves instead of the learner: it is "
                "then trained without these rows. Or leave these rows out of x and y."
            )
        return coarse_notes(overlap.chance)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``learner.safetensors`` and ``learner.json`` into a folder, which is made if need be.

        They hold the rows that taught (of images, projections), by which shared rows are recognised.
        """
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        about, tensors = self.parts()
        (folder / TENSORS).write_bytes(tensors)
        (folder / ABOUT).write_text(about, encoding="utf-8")

    def parts(self) -> tuple[str, bytes]:
        """What ``save`` writes: JSON, with the hash of the tensors, and the tensors in safetensors format."""
        tensors = {name: value.contiguous().cpu().clone() for name, value in self.knowledge.state_dict().items()}
        tensors |= {f"course.{name}": torch.from_numpy(values) for name, values in vars(self.course).items()}
        tensors |= {f"seen.{name}": torch.from_numpy(getattr(self.seen, name)) for name in SEEN}
        packed = save(tensors)
        about = {
            "format": FORMAT,
            "method": self.method,
            "preset": self.preset,
            "seed": self.seed,
            "task_names": self.task_names,
            "columns": self.columns,
            "shape": self.shape,
            "base_names": self.knowledge.base_names,
            "choices": self.knowledge.choices,
            "sha256": hashlib.sha256(packed).hexdigest(),
        }
        return json.dumps(about, ensure_ascii=False, indent=1), packed


def meta_train(
    method: str,
    related_tasks: Any,
    *,
    preset: str = "recommended",
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress | None = None,
) -> MetaLearner:
    """Learn from related tasks: a list of (x, y) pairs, or a mapping of names to pairs, of any sizes.

    >>> import m2st_core as m2st
    >>> learner = m2st.meta_train("Meta-WiTS", m2st.hdgm_related_tasks(n_tasks=2, rows=10))
    >>> learner.task_names
    ('Δ=0.350', 'Δ=0.400')
    """
    spec, settings = METHODS.find(method), PRESETS.find(preset)
    if not spec.uses_related_tasks:
        raise ValueError(f"{method} does not learn from meta-tasks. Use two_sample_test.")
    check_preset(spec, settings)
    assert spec.learn is not None
    meta = as_related_tasks(related_tasks)
    with one_thread_per_operation(), short_memory_in_words():
        streams = [Streams(seed).child("meta-training")]
        knowledge = spec.learn(meta.to(resolve_device(device)), settings.on(meta.shape), streams, progress)
    return MetaLearner(
        method=method,
        preset=preset,
        seed=seed,
        task_names=meta.names,
        columns=meta.rows.shape[-1],
        knowledge=knowledge,
        seen=known_rows(meta)[0],
        shape=meta.shape,
    )


def load_learner(path: str | os.PathLike[str]) -> MetaLearner:
    """A learner as it was saved, to the bit; a damaged or foreign file gives a ValueError."""
    folder = Path(path)
    for name in (ABOUT, TENSORS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} holds no learner: {name} is missing.")
    try:
        about = (folder / ABOUT).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{folder} holds a damaged learner (its JSON is no text). Train again.") from None
    return learner_from_parts(about, (folder / TENSORS).read_bytes(), str(folder))


def learner_from_parts(about_json: str, packed: bytes, where: str = "This") -> MetaLearner:
    """The learner that has these parts; ``where`` they come from is for the error messages."""
    try:
        about = json.loads(about_json)
        found = about["format"]
        if found != FORMAT:
            raise ValueError(
                f"{where} has learner format {found}, and this version reads {FORMAT}. In other formats some names of "
                "methods stand for other algorithms. Train again."
            )
        if about["sha256"] != hashlib.sha256(packed).hexdigest():
            raise ValueError(f"{where}: {TENSORS} is damaged: it is not the file that was saved. Train again.")
        method, preset = METHODS.find(about["method"]), PRESETS.find(about["preset"])
        if method.adapt is None:
            raise ValueError(f"{where} holds a learner for {method.name}, which this version can not use.")
        tensors = load(packed)
        course = Course(*(tensors.pop(f"course.{name}").numpy() for name in ("step", "train", "held_out")))
        seen = KnownRows(*(tensors.pop(f"seen.{name}").numpy() for name in SEEN))
        channels, height, width = about.get("shape") or (0, 0, 0)
        shape = (int(channels), int(height), int(width)) if channels else None
        knowledge = rebuild(tensors, preset.on(shape))
        knowledge.course = course
        knowledge.base_names = tuple(str(name) for name in about["base_names"])
        knowledge.choices = {str(name): float(value) for name, value in about["choices"].items()}
        return MetaLearner(
            method=method.name,
            preset=preset.name,
            seed=int(about["seed"]),
            task_names=tuple(str(name) for name in about["task_names"]),
            columns=int(about["columns"]),
            knowledge=knowledge,
            seen=seen,
            shape=shape,
        )
    except (json.JSONDecodeError, KeyError, TypeError, SafetensorError, RuntimeError) as error:
        raise ValueError(f"{where} holds a damaged learner ({type(error).__name__}). Train again.") from None
