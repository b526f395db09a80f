"""The frozen description of a sweep: its grid, its checks, and its text as TOML and JSON."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, get_args

from m2st_core.data import TASKS, make_task
from m2st_core.data.images.tasks import ImageTask
from m2st_core.sweeps.cells import Cell, canonical, cell_data, digest
from m2st_core.testing.methods import METHODS, label_of
from m2st_core.testing.plan import MOST_PERMUTATIONS
from m2st_core.types import BASELINE, EXACT, PValueRule, Registry

LONGEST, MOST_BRACKETS, LAST = 10_000, 100, 2**63 - 1  # of TOML: its characters and lists; of all numbers
LIMIT = "limit"  # the true log-likelihood ratio as witness, where the task's densities are known
SHARED = ("task", "settings", "null", "rule", "tests", "alpha", "n_permutations", "seed")  # equal in all cells
LISTS = ("methods", "closeness", "n_tasks", "m_tr", "m_te")
LEAST = dict(closeness=0, n_tasks=1, m_tr=2, m_te=2, rows_per_task=4, repeats=1, tests=1, n_permutations=1, seed=0)
OLD_ENTRIES = {
    "preset": "Name a test with its settings instead: 'Meta-MKL' (the paper's text), 'Meta-MKL · code' (its code), "
    "'Meta-MKL · tuned'."
}
LARGEST = {"repeats": 1000, "tests": 10_000, "m_te": 100_000, "n_tasks": 10_000, "n_permutations": MOST_PERMUTATIONS}


def origin_of(method: str) -> str:
    """The origin of a method; the limit, which needs known densities, is an origin of its own."""
    return METHODS[method].origin if method in METHODS else LIMIT


class SpecError(ValueError):
    """All mistakes of a spec, one line each."""


@dataclass(frozen=True)
class SweepSpec:
    """A grid of power measurements, or of type-I error measurements with ``null``.

    Sizes (rows_per_task, m_tr, m_te) count rows per mode for HDGM and per sample elsewhere.

    >>> spec = SweepSpec(methods=("MMD-M",), m_te=(50, 100), repeats=2)
    >>> len(list(spec.cells())), SweepSpec.from_toml(spec.to_toml()) == spec
    (4, True)
    """

    task: str = "hdgm"
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    null: bool = False
    methods: tuple[str, ...] = ("Feature-MKL", "Meta-WiTS", BASELINE)
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
    rule: PValueRule = EXACT

    def __post_init__(self) -> None:
        if problems := [*self._name_problems(), *self._number_problems()]:
            raise SpecError("\n".join(problems))
        names = (name if name == LIMIT else METHODS.name_of(name) for name in self.methods)
        object.__setattr__(self, "task", TASKS.name_of(self.task))
        object.__setattr__(self, "methods", tuple(dict.fromkeys(names)))
        settings = dict(make_task(self.task, **self.settings).settings)
        object.__setattr__(self, "settings", settings)  # with defaults written out, equal specs have equal hashes

    @property
    def hash(self) -> str:
        """A hash that is the same for the same spec on every machine."""
        return digest(self.to_dict())

    @property
    def run_id(self) -> str:
        """The id of this spec's run."""
        return self.hash[:12]

    @property
    def label(self) -> str:
        """The name of a run that was given none."""
        return f"{self.task}: {', '.join(map(label_of, self.methods))}"

    @property
    def missing_data(self) -> str:
        """A sentence on what must be downloaded before this sweep can run; empty if nothing."""
        return task.missing() if isinstance(task := make_task(self.task, **self.settings), ImageTask) else ""

    @property
    def size(self) -> int:
        """An upper bound on the number of cells, computed without listing them."""
        return self.repeats * math.prod(len(getattr(self, name)) for name in LISTS)

    def cells(self) -> Iterator[Cell]:
        """Every cell once, repeat by repeat: whole curves appear early and then become smoother."""
        places: set[tuple[Any, ...]] = set()  # in the grid; a method that ignores a setting has one place for all of it
        shared = {name: getattr(self, name) for name in SHARED} | {"data": cell_data(self.task)}
        for repeat, closeness, n_tasks, m_tr, m_te, name in product(
            range(self.repeats), self.closeness, self.n_tasks, self.m_tr, self.m_te, self.methods
        ):
            method = METHODS.get(name)
            learns = method is not None and method.uses_related_tasks
            cell = Cell(
                **shared,
                method=name,
                closeness=closeness if learns else None,
                n_tasks=n_tasks if learns else None,
                rows_per_task=self.rows_per_task if learns else None,
                m_tr=m_tr if method is not None and method.needs_split else None,
                m_te=m_te,
                repeat=repeat,
                revision=method.revision if method is not None else 0,
            )
            place = (name, cell.closeness, cell.n_tasks, cell.m_tr, m_te, repeat)
            if place not in places:
                places.add(place)
                yield cell

    def _name_problems(self) -> Iterator[str]:
        """Sentences on unknown names and on names that do not fit together."""
        methods, task = self.methods if isinstance(self.methods, tuple) else (), None
        names: list[tuple[Registry[Any], Any]] = [(METHODS, name) for name in methods if name != LIMIT]
        for registry, name in [(TASKS, self.task), *names]:
            try:
                entry = registry[registry.name_of(name)]
                task = entry if registry is TASKS else task
            except ValueError as error:
                yield str(error)
        if task:
            try:
                make_task(self.task, **self.settings)
            except (ValueError, TypeError) as error:
                yield f"settings: {error}"
            if LIMIT in methods and not hasattr(task, "log_likelihood_ratio"):
                yield f"methods: the task {self.task!r} has no known likelihood ratio for {LIMIT!r}."

    def _number_problems(self) -> Iterator[str]:
        for name in LISTS:
            values = getattr(self, name)
            if not isinstance(values, tuple) or not values:
                yield f"{name} must list at least one value. Got {values!r}."
            elif len(set(map(str, values))) < len(values):
                yield f"{name} lists a value twice: {', '.join(map(str, values))}."
        for name, least in LEAST.items():
            values, most = getattr(self, name), LARGEST.get(name)
            number, kind = ("finite number", (int, float)) if name == "closeness" else ("whole number", int)
            allowed = f"from {least} to {most:,}" if most else f"≥ {least}"
            for value in values if isinstance(values, tuple) else (values,):
                if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= (most or LAST):
                    yield f"{name} must be a {number} {allowed}. Got {value!r}."
        if not isinstance(self.alpha, float) or not 0 < self.alpha < 1:
            yield f"alpha must be between 0 and 1. Got {self.alpha!r}."
        elif isinstance(self.n_permutations, int) and self.n_permutations + 1 < 1 / self.alpha:
            yield f"n_permutations={self.n_permutations} is too few for alpha={self.alpha:g}."
        if self.rule not in get_args(PValueRule):
            yield f"rule must be one of {', '.join(get_args(PValueRule))}. Got {self.rule!r}."
        if not isinstance(self.null, bool):
            yield f"null must be true or false. Got {self.null!r}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)} | {"settings": dict(self.settings)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}

    def to_json(self) -> str:
        """Canonical JSON."""
        return canonical(self.to_dict())

    def to_toml(self) -> str:
        """TOML that ``from_toml`` reads back."""
        values = self.to_dict()
        tables = values, values.pop("settings")
        entries, settings = (
            [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in table.items()] for table in tables
        )
        return "\n".join([*entries, "", "[settings]", *settings]) + "\n"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SweepSpec:
        """Make a spec from plain values. Unknown names and bad values are reported together."""
        defaults = {f.name: f.default for f in fields(cls)}
        known = f"Known: {', '.join(defaults)}."
        unknown = [name for name in values if name not in defaults]
        problems = [f"Unknown entry {name!r}. {OLD_ENTRIES.get(name, known)}" for name in unknown]
        chosen = {name: value for name, value in values.items() if name in defaults}
        for name, value in chosen.items():
            if isinstance(defaults[name], tuple):
                chosen[name] = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        if "closeness" in chosen:
            chosen["closeness"] = tuple(float(c) if type(c) is int else c for c in chosen["closeness"])
        if not isinstance(chosen.get("settings", {}), Mapping):
            problems.append(f"settings must be a table of the task's parameters. Got {chosen.pop('settings')!r}.")
        try:
            spec = cls(**chosen)
        except SpecError as error:
            problems.append(str(error))
        if problems:
            raise SpecError("\n".join(problems))
        return spec

    @classmethod
    def from_json(cls, text: str) -> SweepSpec:
        """Make a spec from what ``to_json`` wrote."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_toml(cls, text: str) -> SweepSpec:
        """Make a spec from TOML."""
        if len(text) > LONGEST or text.count("[") > MOST_BRACKETS:
            raise SpecError(f"A sweep is described by at most {LONGEST:,} characters and {MOST_BRACKETS} lists.")
        try:
            return cls.from_dict(json.loads(json.dumps(tomllib.loads(text), default=str)))  # dates as texts
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise SpecError(f"This is not TOML: {error}.") from None

    def with_(self, **changes: Any) -> SweepSpec:
        """Copy the spec with these entries changed."""
        return replace(self, **changes)
