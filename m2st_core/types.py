"""Types that all rooms share: registries, samples and results."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

Entry = TypeVar("Entry")


class Registry(dict[str, Entry]):
    """A dictionary that finds names without case and punctuation; unknown ones give an error with the nearest.

    >>> methods = Registry("method", {"MMD-D · tuned": 1, "ME": 2})
    >>> methods["mmd-d tuned"], methods.name_of("me")
    (1, 'ME')
    >>> methods["MMD-O tuned"]
    Traceback (most recent call last):
    ValueError: Unknown method 'MMD-O tuned'. Did you mean 'MMD-D · tuned'? Known: MMD-D · tuned, ME.
    """

    def __init__(self, what: str, entries: dict[str, Entry]) -> None:
        super().__init__(entries)
        self.what = what

    def __missing__(self, name: object) -> Entry:
        return self[self.name_of(name)]

    def name_of(self, name: object) -> str:
        """The registered spelling of a name, or a ValueError with the nearest."""
        if isinstance(name, str) and name in self:
            return name
        alike = [known for known in self if _letters(known) == _letters(str(name))]
        if len(alike) == 1 and isinstance(name, str):
            return alike[0]
        by_lower = {entry.lower(): entry for entry in self}
        close = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.5)
        guess = f"Did you mean {by_lower[close[0]]!r}? " if close else ""
        raise ValueError(f"Unknown {self.what} {name!r}. {guess}Known: {', '.join(self)}.")


def _letters(name: str) -> str:
    """The letters and digits of a name, in lower case."""
    return "".join(filter(str.isalnum, name.lower()))


Shape = tuple[int, int, int]
"""Channels, height and width of an image; its row has the pixels in this order."""

Progress = Callable[[int, int, float], None]
"""Called as ``progress(step, total, value)``; it stops the work by raising :class:`Cancelled`."""

PValueRule = Literal["(1+b)/(1+B)", "b/B, ≥", "b/B, >"]
"""How a p-value follows from the b of B random labellings whose statistic is at least (≥), or more than (>), the one
observed. The first counts the observed labelling, so it is exact; the others are the paper's and its code's."""

EXACT: PValueRule = "(1+b)/(1+B)"
"""The rule of every p-value, except where a reproduction of the paper asks for the paper's."""

Origin = Literal["general", "paper", "ours"]
"""The origin of a test: without related tasks, from Liu et al. (2021), or from this project's own family."""


DEFAULT_TEST = "Omnibus"
"""The test without related tasks, wherever none is named."""

DEFAULT_TAUGHT_TEST = "Meta-FUSE"
"""The test with related tasks, wherever none is named."""

BASELINE = DEFAULT_TEST
"""The test without related tasks that is shown beside one with them. It decides nothing."""

GENERIC_TEST = "MMD-M"
"""The generic test of Home, Learn and the examples of images, whose results ship as files: a single kernel, so that its
witness and its null distribution can be drawn."""


def labelled(method: str, origin: str) -> str:
    """The name of a method in lists, legends and sentences, where the paper's and ours stand side by side.

    >>> labelled("Feature-MKL", "ours"), labelled("Meta-MKL", "paper")
    ('Feature-MKL (ours)', 'Meta-MKL')
    """
    return f"{method} (ours)" if origin == "ours" else method


class Cancelled(Exception):  # noqa: N818 - an outcome the caller asked for, not an error
    """Raised by a progress callback to stop a long computation."""


def listed(names: Sequence[str], most: int = 10) -> str:
    """Name the first few, and count the others.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def in_words(names: Sequence[str]) -> str:
    """Names as a part of a sentence.

    >>> in_words(["ME", "SCF", "MMD-O"])
    'ME, SCF and MMD-O'
    """
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])


def described_columns(width: int, columns: Sequence[str], shape: Shape | None) -> str:
    """Describe what rows hold, without their values.

    >>> described_columns(2, ("a", "b"), None), described_columns(64, (), (1, 8, 8))
    ('2 columns: a, b', 'images of 1 × 8 × 8')
    """
    if shape is not None:
        return f"images of {' × '.join(map(str, shape))}"
    return f"{width} {'column' if width == 1 else 'columns'}{': ' if columns else ''}{listed(columns)}"


@dataclass(frozen=True)
class TwoSample:
    """Rows of P and rows of Q, with any number of leading batch dimensions.

    Shapes: ``x`` is (…, n, d), ``y`` is (…, m, d). Flattened images have a ``shape``, with d = C·H·W. Rows of a table
    have the names of their ``columns``; ``notes`` say where columns without names were taken by position. ``ids`` (n,)
    and (m,) are whole numbers that are equal for rows of one unit, if a column identifies them. ``blocks`` (…, n) and
    (…, m) number the block of each row: labels are permuted, and rows are split, within their block only.
    """

    x: Tensor
    y: Tensor
    shape: Shape | None = None
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ids: tuple[Tensor, Tensor] | None = None
    blocks: tuple[Tensor, Tensor] | None = None

    def __post_init__(self) -> None:
        if self.x.shape[-1] != self.y.shape[-1] or self.x.shape[:-2] != self.y.shape[:-2]:
            raise ValueError(f"The samples do not fit together: got {self.x.shape=} and {self.y.shape=}.")
        if self.shape is not None and math.prod(self.shape) != self.x.shape[-1]:
            raise ValueError(f"Images of {self.shape} do not have {self.x.shape[-1]} pixels.")

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.x, self.y))

    def __repr__(self) -> str:
        batch = "".join(f"{size} × " for size in self.x.shape[:-2])
        width = described_columns(self.x.shape[-1], self.columns, self.shape)
        return f"TwoSample({batch}{self.sizes[0]} and {self.sizes[1]} rows, {width})"

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows of x and rows of y."""
        return self.x.shape[-2], self.y.shape[-2]

    @property
    def pooled(self) -> Tensor:
        """All rows, those of x first: (…, n+m, d)."""
        return torch.cat([self.x, self.y], dim=-2)

    def to(self, *args: Any) -> TwoSample:
        """The same rows on another device or in another dtype."""
        return replace(self, x=self.x.to(*args), y=self.y.to(*args))

    def swapped(self, where: Tensor | None = None) -> TwoSample:
        """The same rows with x and y exchanged: in all pairs, or in those that a mask (R,) marks.

        Samples of unequal size are exchanged in all pairs or in none.
        """
        if where is None or bool(where.all()):
            ids, blocks = (pair and pair[::-1] for pair in (self.ids, self.blocks))
            return replace(self, x=self.y, y=self.x, ids=ids, blocks=blocks)
        if not bool(where.any()):
            return self
        of_rows, blocks = where.to(self.x.device)[:, None, None], self.blocks
        if blocks is not None:
            of_x, of_y = blocks
            blocks = torch.where(where[:, None], of_y, of_x), torch.where(where[:, None], of_x, of_y)
        x, y = torch.where(of_rows, self.y, self.x), torch.where(of_rows, self.x, self.y)
        return replace(self, x=x, y=y, blocks=blocks)

    def images(self) -> tuple[Tensor, Tensor]:
        """Both samples as images, (…, n, C, H, W) and (…, m, C, H, W), if they are images."""
        if self.shape is None:
            raise ValueError("These rows are not images: they have no shape.")
        return self.x.unflatten(-1, self.shape), self.y.unflatten(-1, self.shape)


DECISIONS = {True: "Evidence of a difference", False: "No evidence of a difference"}
"""By whether a test rejects. No test shows that two samples are the same."""


@dataclass(frozen=True)
class TestResult:
    """The result of a two-sample test, with everything needed to report and repeat it.

    ``null`` is the statistic under B random relabellings of the test rows; for an asymptotic test it is B quantiles
    of the reference distribution. With few rows it holds all B = ``n_permutations`` other ones (``enumerated``).
    ``p_value_se`` is the Monte-Carlo standard error of the p-value: how much other random permutations would move it.
    It never covers the random split. It is 0 if no permutation was drawn: asymptotic, or ``enumerated``.
    ``smallest_p`` is the smallest p-value that these labellings can give (0 if nothing bounds it).
    ``split_p_values`` are those of S > 1 splits, in the order drawn; ``p_value`` combines them. Everything else in the
    result, such as the statistic and the null, belongs to the split that decides.
    ``n_train`` and ``n_test`` count the training rows and the test rows of (x, y).
    ``criterion`` is the power criterion Ĵ on the test rows, for kernel tests. ``weights`` are β of a mixture as
    learned, by the name of each kernel, which is that of the related task it comes from. ``diagnostics`` holds further
    results of the fit, such as each kernel's Ĵ on the training rows, and ``weights_used`` where β was shrunk.
    """

    __test__ = False  # not a pytest class

    method: str
    p_value: float
    p_value_se: float
    statistic: float
    rejected: bool
    alpha: float
    null: np.ndarray = field(repr=False, compare=False)
    criterion: float | None
    n_train: tuple[int, int]
    n_test: tuple[int, int]
    n_permutations: int
    train_fraction: float
    rule: str  # how p follows from the statistic: "(1+b)/(1+B)", "b/B, ≥", "b/B, >" or "asymptotic"
    seed: int
    device: str
    seconds: float = field(compare=False)
    notes: tuple[str, ...] = ()
    weights: dict[str, float] = field(default_factory=dict)
    diagnostics: dict[str, Any] = field(default_factory=dict)
    enumerated: bool = False
    smallest_p: float = 0.0
    split_p_values: tuple[float, ...] = ()
    origin: Origin = "general"  # of the method
    exact_if: str = ""  # what the data cannot show and the p-value rests on

    @property
    def label(self) -> str:
        """The method's name, with a mark if it is ours."""
        return labelled(self.method, self.origin)

    @property
    def by_permutation(self) -> bool:
        """Whether the p-value comes from permutations; only then does it have a Monte-Carlo error."""
        return self.rule != "asymptotic"

    @property
    def exact(self) -> bool:
        """Whether P(p ≤ α) ≤ α at every sample size, if rows are exchangeable under the null hypothesis.

        The rows must be exchangeable given the fitted test: none of their labels may have influenced it. Where the data
        cannot show this, ``exact_if`` holds what would have to be true, and ``exact`` is False.
        """
        return self.counts_itself and not self.exact_if

    @property
    def counts_itself(self) -> bool:
        """Whether the observed labelling is one of those that p counts: p = (1+b)/(1+B)."""
        return self.rule == EXACT

    @property
    def condition(self) -> str:
        """The condition on which the p-value is exact, as a sentence; empty if there is none."""
        return f"The p-value is exact if {self.exact_if}." if self.exact_if else ""

    @property
    def sentence(self) -> str:
        """The decision in plain words; it never says that the samples are the same."""
        n, m = self.n_test
        splits = f" under each of {len(self.split_p_values)} random splits" if self.split_p_values else ""
        sentence = (
            f"{DECISIONS[self.rejected]} at α={self.alpha:g}: {self.label} gives "
            f"{self.p_words}{',' if self.at_floor else ''} on {n} and {m} test rows"
            f"{'' if self.by_permutation else ' (asymptotic)'}{splits}."
        )
        return f"{sentence} {self.condition}".rstrip()

    @property
    def at_floor(self) -> bool:
        """Whether the p-value is the smallest that its labellings can give."""
        return 0 < self.p_value <= self.smallest_p * (1 + 1e-9)

    @property
    def p_words(self) -> str:
        """The p-value, and what bounds it where it can be no smaller."""
        p = f"{self.p_value:.4g}"
        if not self.at_floor:
            return f"p = {p}"
        if self.enumerated:
            return f"p = {p}, the smallest that the {self.n_permutations + 1:,} labellings of these rows can give"
        splits = f" of each of {len(self.split_p_values)} splits" if self.split_p_values else ""
        return f"p ≤ {p}, the smallest that {self.n_permutations:,} permutations{splits} can give"

    @property
    def error_words(self) -> str:
        """The uncertainty of the p-value: its Monte-Carlo error, and what that error does not cover."""
        if not self.by_permutation:
            return "asymptotic: trust it for large samples only"
        if self.enumerated:
            precision = f"all {self.n_permutations + 1:,} labellings were counted"
        elif self.at_floor:
            precision = "no smaller p-value was possible"
        else:
            precision = f"± {self.p_value_se:.2g} from the random permutations"
        split = "splits are" if self.split_p_values else "split is"
        return f"{precision}; the random {split} not included" if any(self.n_train) else precision

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values for JSON, without the null distribution."""
        values = asdict(self) | {"exact": self.exact}
        del values["null"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], null: np.ndarray) -> TestResult:
        """The result that gave these values by ``to_dict``."""
        fields: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in values.items() if name != "exact"
        }
        return cls(**fields, null=null)


VERSION = "0.1.0"
