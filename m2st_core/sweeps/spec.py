"""What a sweep is: a frozen description, its cells, and the learners they share."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from typing import Any

from m2st_core.data import TASKS, make_task
from m2st_core.data.images.tasks import ImageTask
from m2st_core.presets import PRESETS
from m2st_core.testing.methods import METHODS
from m2st_core.types import labelled

LIMIT = "limit"  # the true log-likelihood ratio as witness, where the task's densities are known
CODE = "5"  # part of every key; changes when the same spec would give other numbers
LARGEST = {"repeats": 1000, "tests": 10_000, "m_te": 100_000, "n_tasks": 10_000}


def origin_of(method: str) -> str:
    """Whose a method is; the limit, which no one can use on real data, is of its own kind."""
    return METHODS[method].origin if method in METHODS else LIMIT


def label_of(method: str) -> str:
    """The name of a method or of the limit, with a mark if it is ours."""
    return labelled(method, origin_of(method))


class SpecError(ValueError):
    """Everything that is wrong with a spec, one line each."""


def canonical(value: Any) -> str:
    """The one JSON text of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """The key of a value: a hash of its canonical JSON and of the code's version."""
    return hashlib.sha256(f"{CODE}:{canonical(value)}".encode()).hexdigest()[:32]


def key_of(spec: Cell | LearnerSpec) -> str:
    """What a spec depends on, hashed; the user's images count, where there are any."""
    return digest({name: value for name, value in asdict(spec).items() if name != "data" or value})


def data_of(task: str) -> str:
    """The fingerprint of the user's images that a task draws; empty if it draws none, or none are there."""
    found = make_task(task)
    return found.fingerprint() if isinstance(found, ImageTask) else ""


@dataclass(frozen=True)
class LearnerSpec:
    """One meta-training: what it depends on, and nothing else."""

    task: str
    settings: dict[str, Any]
    preset: str
    learn: str  # methods that learn in the same way share it
    closeness: float
    n_tasks: int
    rows_per_task: int
    repeat: int
    seed: int
    data: str = ""  # fingerprint of the user's images

    @property
    def key(self) -> str:
        """Where it is stored."""
        return key_of(self)


@dataclass(frozen=True)
class Cell:
    """One method at one point of the grid in one repeat: ``tests`` test samples after one training sample.

    What a method does not use is None: closeness, n_tasks and rows_per_task without meta-tasks, m_tr without a split.
    """

    task: str
    settings: dict[str, Any]
    null: bool
    method: str
    preset: str
    closeness: float | None
    n_tasks: int | None
    rows_per_task: int | None
    m_tr: int | None
    m_te: int
    repeat: int
    tests: int
    alpha: float
    n_permutations: int
    seed: int
    data: str = ""  # fingerprint of the user's images

    @property
    def key(self) -> str:
        """Where its result is stored."""
        return key_of(self)

    @property
    def learner(self) -> LearnerSpec | None:
        """The meta-training it needs."""
        if self.closeness is None or self.n_tasks is None or self.rows_per_task is None:
            return None
        learn = METHODS[self.method].learn
        assert learn is not None
        return LearnerSpec(
            self.task,
            self.settings,
            self.preset,
            learn.__name__,
            self.closeness,
            self.n_tasks,
            self.rows_per_task,
            self.repeat,
            self.seed,
            self.data,
        )


@dataclass(frozen=True)
class SweepSpec:
    """A grid of power (or, with ``null``, type-I error) measurements.

    Sizes (rows_per_task, m_tr, m_te) count rows per mode for HDGM and per sample elsewhere.

    >>> spec = SweepSpec(methods=("MMD-M",), m_te=(50, 100), repeats=2)
    >>> len(list(spec.cells())), SweepSpec.from_toml(spec.to_toml()) == spec
    (4, True)
    """

    task: str = "hdgm"
    settings: dict[str, Any] = field(default_factory=dict)
    null: bool = False
    methods: tuple[str, ...] = ("Feature-MKL", "Meta-WiTS", "MMD-FUSE")
    preset: str = "recommended"
    closeness: tuple[float, ...] = (0.3,)
    n_tasks: tuple[int, ...] = (100,)
    rows_per_task: int = 50
    m_tr: tuple[int, ...] = (50,)
    m_te: tuple[int, ...] = (50, 80, 100, 120, 150, 200, 250)
    repeats: int = 20
    tests: int = 100
    alpha: float = 0.05
    n_permutations: int = 199
    seed: int = 0

    def __post_init__(self) -> None:
        problems = self.problems()
        if problems:
            raise SpecError("\n".join(problems))
        target = make_task(self.task, **self.settings)
        object.__setattr__(self, "settings", dict(target.settings))  # defaults written out: one spec, one hash

    @property
    def hash(self) -> str:
        """The same for the same spec, on every machine."""
        return digest(self.to_dict())

    @property
    def missing_data(self) -> str:
        """What has to be downloaded before this can be run, in words; empty if nothing."""
        task = make_task(self.task, **self.settings)
        return task.missing() if isinstance(task, ImageTask) else ""

    @property
    def size(self) -> int:
        """At most this many cells, known without listing them."""
        grid = (self.closeness, self.n_tasks, self.m_tr, self.m_te, self.methods)
        return self.repeats * math.prod(len(values) for values in grid)

    def cells(self) -> Iterator[Cell]:
        """Every cell once, repeat by repeat, so that whole curves appear early and then get smoother."""
        seen, data = set(), data_of(self.task)
        for repeat, closeness, n_tasks, m_tr, m_te, method in product(
            range(self.repeats), self.closeness, self.n_tasks, self.m_tr, self.m_te, self.methods
        ):
            cell = self._cell(method, closeness, n_tasks, m_tr, m_te, repeat, data)
            if cell.key not in seen:
                seen.add(cell.key)
                yield cell

    def _cell(self, method: str, closeness: float, n_tasks: int, m_tr: int, m_te: int, repeat: int, data: str) -> Cell:
        known = METHODS.get(method)
        learns = known is not None and known.uses_related_tasks
        return Cell(
            task=self.task,
            settings=self.settings,
            null=self.null,
            method=method,
            preset=self.preset,
            closeness=closeness if learns else None,
            n_tasks=n_tasks if learns else None,
            rows_per_task=self.rows_per_task if learns else None,
            m_tr=m_tr if known is not None and known.needs_split else None,
            m_te=m_te,
            repeat=repeat,
            tests=self.tests,
            alpha=self.alpha,
            n_permutations=self.n_permutations,
            seed=self.seed,
            data=data,
        )

    def problems(self) -> list[str]:
        """Everything that is wrong, in plain words."""
        found: list[str] = []
        for what, name in (("task", self.task), ("preset", self.preset)):
            try:
                (TASKS if what == "task" else PRESETS).find(name)
            except ValueError as error:
                found.append(str(error))
        if self.task in TASKS:
            try:
                target = make_task(self.task, **self.settings)
            except (ValueError, TypeError) as error:
                found.append(f"settings: {error}")
            else:
                if LIMIT in self.methods and not hasattr(target, "log_likelihood_ratio"):
                    found.append(f"methods: the task {self.task!r} has no known likelihood ratio for {LIMIT!r}.")
        found += self._method_problems()
        for name, least, whole in (
            ("closeness", 0.0, False),
            ("n_tasks", 1, True),
            ("m_tr", 2, True),
            ("m_te", 2, True),
            ("methods", None, False),
        ):
            values = getattr(self, name)
            if not isinstance(values, tuple) or not values:
                found.append(f"{name} must list at least one value. Got {values!r}.")
            elif len(set(values)) < len(values):
                found.append(f"{name} lists a value twice: {', '.join(map(str, values))}.")
            elif least is not None:
                found += [p for v in values if (p := _number_problem(name, v, least, LARGEST.get(name), whole))]
        for name, least in (("rows_per_task", 4), ("repeats", 1), ("tests", 1), ("n_permutations", 1), ("seed", 0)):
            problem = _number_problem(name, getattr(self, name), least, LARGEST.get(name), whole=True)
            found += [problem] if problem else []
        if not isinstance(self.alpha, float) or not 0 < self.alpha < 1:
            found.append(f"alpha must be between 0 and 1. Got {self.alpha!r}.")
        elif isinstance(self.n_permutations, int) and self.n_permutations + 1 < 1 / self.alpha:
            found.append(f"n_permutations={self.n_permutations} is too few for alpha={self.alpha:g}.")
        if not isinstance(self.null, bool):
            found.append(f"null must be true or false. Got {self.null!r}.")
        return found

    def _method_problems(self) -> list[str]:
        found = []
        for name in self.methods if isinstance(self.methods, tuple) else ():
            if name == LIMIT:
                continue
            try:
                method = METHODS.find(name)
            except ValueError as error:
                found.append(str(error))
                continue
            if method.only_recommended and self.preset in PRESETS and PRESETS[self.preset].features is None:
                found.append(f"methods: {name} is not part of the preset {self.preset!r}.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    def to_json(self) -> str:
        """The canonical JSON."""
        return canonical(self.to_dict())

    def to_toml(self) -> str:
        """TOML that ``from_toml`` reads back."""
        values = self.to_dict()
        settings = values.pop("settings")
        lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
        lines += ["", "[settings]"] + [f"{key} = {_toml(value)}" for key, value in settings.items()]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SweepSpec:
        """A spec from plain values; unknown names and bad values are all reported together."""
        known = {f.name: f for f in fields(cls)}
        problems = [f"Unknown entry {name!r}. Known: {', '.join(known)}." for name in values if name not in known]
        cleaned: dict[str, Any] = {}
        for name, value in values.items():
            if name not in known:
                continue
            default = getattr(_DEFAULTS, name)
            if isinstance(default, tuple):
                value = tuple(value) if isinstance(value, (list, tuple)) else (value,)
                if name == "closeness":
                    value = tuple(float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in value)
            elif name == "settings" and not isinstance(value, Mapping):
                problems.append(f"settings must be a table of the task's parameters. Got {value!r}.")
                continue
            cleaned[name] = dict(value) if name == "settings" else value
        probe = object.__new__(cls)
        for name in known:
            object.__setattr__(probe, name, cleaned.get(name, getattr(_DEFAULTS, name)))
        problems += probe.problems()
        if problems:
            raise SpecError("\n".join(problems))
        return cls(**cleaned)

    @classmethod
    def from_json(cls, text: str) -> SweepSpec:
        """A spec from JSON."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise SpecError(f"This is not JSON: {error}.") from None
        if not isinstance(values, dict):
            raise SpecError("A spec is a table of entries.")
        return cls.from_dict(values)

    @classmethod
    def from_toml(cls, text: str) -> SweepSpec:
        """A spec from TOML."""
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise SpecError(f"This is not TOML: {error}.") from None

    def with_(self, **changes: Any) -> SweepSpec:
        """A spec that differs in these entries."""
        return replace(self, **changes)


def _number_problem(name: str, value: Any, least: float, most: float | None, whole: bool) -> str | None:
    good = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if good and value >= least and (most is None or value <= most):
        return None
    range_ = f"≥ {least:g}" if most is None else f"from {least:g} to {most:,}"
    return f"{name} must be a {'whole ' if whole else ''}number {range_}. Got {value!r}."


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)


_DEFAULTS = SweepSpec()
