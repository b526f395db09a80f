"""The settings of a test, and the test planned: its rows and their split, its labellings, smallest p-value and memory.

Everything here is known before a test is fitted, so a test that could not reject, or would not fit into memory, is
refused at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from scipy.special import gammaln
from torch import Tensor

from m2st_core.data.arrays import constant_column_notes
from m2st_core.data.identifiers import identifier_notes
from m2st_core.data.repeated_rows import repeated_rows_note
from m2st_core.device import free_bytes
from m2st_core.kernels.networks import MOST_UNITS
from m2st_core.numbers import count_of, is_whole
from m2st_core.permutation.labellings import KEYS_AT_ONCE, PIECE_BYTES, order_within
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.types import DEFAULT_TEST, EXACT, PValueRule, TwoSample

MOST_PERMUTATIONS = 1_000_000  # the p-value's standard error is then below 0.0005
MOST_SPLITS = 1_000
ENUMERATED = 10_000  # up to this many labellings are all counted, whatever B is: so few rows are cheap
LARGEST_ROWS, LARGEST_ROWS_OF_BANKS = 40_000, 10_000  # both samples together, for one kernel and for many
MANY = 10**6  # larger counts of labellings are not computed
GIGABYTE = 10**9
FLOATS = (float, np.floating)
ROW_COPIES = 6  # of all rows, in float64: as given, split, embedded
NETWORK_COPIES = 6  # of a network's weights: gradient, two moments of Adam, and two passing copies
FEATURE_COPIES = 6  # of the covariance of features learned from related tasks
FOURIER = 600  # features beside the columns themselves


@dataclass(frozen=True, kw_only=True)
class TestSettings:
    """The settings of one test, checked when they are made.

    ``n_permutations`` is B, the number of random relabellings. ``train_fraction`` is the share of each sample that the
    kernel is fitted on. ``splits`` is the number of random splits whose p-values are combined. ``rule`` is exact,
    unless a reproduction asks for the paper's. ``seed`` fixes the split, the fit and the permutations.
    """

    __test__ = False  # not a pytest class

    alpha: float = 0.05
    n_permutations: int = 999
    train_fraction: float = 0.5
    splits: int = 1
    rule: PValueRule = EXACT
    seed: int = 0
    device: str | torch.device = "auto"

    def __post_init__(self) -> None:
        if not (isinstance(self.alpha, FLOATS) and 0 < self.alpha < 1):
            raise ValueError(f"alpha must be a number between 0 and 1, both excluded. Got {self.alpha!r}.")
        if not (isinstance(self.train_fraction, FLOATS) and 0.01 <= self.train_fraction <= 0.99):
            raise ValueError(f"train_fraction must be a number from 0.01 to 0.99. Got {self.train_fraction!r}.")
        for name, most in (("n_permutations", MOST_PERMUTATIONS), ("splits", MOST_SPLITS)):
            value = getattr(self, name)
            if not is_whole(value) or not 1 <= value <= most:
                raise ValueError(f"{name} must be a whole number from 1 to {most:,}. Got {value!r}.")


@dataclass(frozen=True)
class Labellings:
    """The ``used`` labellings of one run, the observed one included.

    ``enumerated`` says that these are all labellings, so that no random permutation is drawn. ``smallest_p`` is the
    p-value of a statistic larger than all others, or 0 if it has no bound.
    """

    used: int
    enumerated: bool
    smallest_p: float


@dataclass(frozen=True)
class TestPlan:
    """A test of R pairs of samples, checked and ready to run; one pair under S random splits is R = S pairs.

    ``sample`` has the rows to use, x (R, n, d) and y (R, m, d), and ``rows`` are their positions in the samples as
    ``given``. ``n_train`` and ``n_test`` count the training rows and the test rows of (x, y). Each run has its seed and
    its labellings. ``smallest_p`` is the smallest p-value that the test can give, ``memory`` the bytes that it
    takes, and ``notes`` say what the rows and their choice mean for the result. ``exact_if`` is what the p-value rests
    on and the rows cannot show.
    """

    __test__ = False  # not a pytest class

    method: Method
    settings: TestSettings
    given: TwoSample
    sample: TwoSample = field(repr=False)
    rows: tuple[np.ndarray, np.ndarray] = field(repr=False)
    seeds: tuple[int, ...]
    n_train: tuple[int, int]
    n_test: tuple[int, int]
    labellings: tuple[Labellings, ...] = field(repr=False)
    smallest_p: float
    memory: int
    notes: tuple[str, ...] = ()
    exact_if: str = ""

    def only(self, run: int) -> TestPlan:
        """The plan of one of the R runs."""
        sample = replace(self.sample, x=self.sample.x[run : run + 1], y=self.sample.y[run : run + 1])
        return replace(self, sample=sample, seeds=(self.seeds[run],), labellings=(self.labellings[run],))

    @property
    def training_rows(self) -> TwoSample:
        """The rows x (n, d) and y (m, d) that the first run fits on, and does not test."""
        order = draw_order(self.sample.sizes, self.n_train, [Streams(self.seeds[0])], self.sample.blocks)
        x, y = (
            rows[0, positions[0, :count]]
            for rows, positions, count in zip(self.sample, order, self.n_train, strict=True)
        )
        return TwoSample(x, y, self.sample.shape, self.sample.columns)


def plan_test(sample: TwoSample, method: Method, settings: TestSettings | None = None) -> TestPlan:
    """Plan a test of one pair of checked samples, x (n, d) and y (m, d); a ValueError says what to change.

    From samples too large for a test of quadratic cost, random rows are tested, of a scarce sample all. Of rows with
    blocks, those are tested whose block holds rows of both samples. A test that could not reject at ``alpha`` whatever
    its rows are is refused, and so is one that does not fit into memory.
    """
    settings = settings or TestSettings()
    seeds = [settings.seed]
    if settings.splits > 1:
        check_splits(method, settings.splits)
        seeds = split_seeds(settings.seed, settings.splits)
    (rows_x, rows_y), notes = (np.arange(len(sample.x)), np.arange(len(sample.y))), sample.notes
    if sample.blocks is not None:
        (rows_x, rows_y), left_out = _rows_in_both(sample.blocks)
        notes = left_out + notes
    if len(rows_x) + len(rows_y) > (most := largest_rows(method)):
        (rows_x, rows_y), why = _random_rows(sample, (rows_x, rows_y), method, most, settings.seed)
        notes = (why, *notes)
    if not sample.shape:
        notes += constant_column_notes(sample) + identifier_notes(sample) + repeated_rows_note(sample.pooled.numpy())
    x, y = sample.x[None, torch.from_numpy(rows_x)], sample.y[None, torch.from_numpy(rows_y)]
    plan = _plan(
        replace(
            sample,
            x=x.expand(len(seeds), -1, -1),
            y=y.expand(len(seeds), -1, -1),
            ids=None,
            blocks=sample.blocks and (sample.blocks[0][rows_x], sample.blocks[1][rows_y]),
        ),
        method,
        settings,
        seeds,
    )
    refuse_beyond_memory(
        f"{method.name} with {max(labellings.used for labellings in plan.labellings) - 1:,} permutations of "
        f"{sum(plan.sample.sizes):,} rows with {sample.x.shape[1]:,} columns",
        plan.memory,
        "Use fewer permutations, rows or columns.",
    )
    smallest, deciding = plan.smallest_p, plan.labellings[0]
    if settings.splits > 1:
        smallest, decides = combine_splits([labellings.smallest_p for labellings in plan.labellings])
        deciding = plan.labellings[decides]
    if smallest > settings.alpha:
        raise ValueError(_cannot_reject(plan, smallest, deciding))
    return replace(plan, given=sample, rows=(rows_x, rows_y), smallest_p=smallest, notes=notes)


def plan_batch(sample: TwoSample, method: Method, settings: TestSettings, seeds: Sequence[int]) -> TestPlan:
    """Plan the same test of R independent pairs, x (R, n, d) and y (R, m, d), each with its own seed.

    All pairs share the blocks of the sample, (n,) and (m,). With few labellings a test may be unable to reject; its
    rate of rejections is then 0, and only permutations too few for ``alpha`` are refused.
    """
    plan = _plan(sample, method, settings, seeds)
    for labellings in plan.labellings:
        if not labellings.enumerated and labellings.smallest_p > settings.alpha:
            raise ValueError(_cannot_reject(plan, labellings.smallest_p, labellings))
    return plan


def _plan(sample: TwoSample, method: Method, settings: TestSettings, seeds: Sequence[int]) -> TestPlan:
    """The plan of R runs, before its smallest p-value and its memory are checked."""
    if sample.blocks is not None and not method.by_permutation:
        raise ValueError(
            f"{method.name} finds its p-value without permutations, so it cannot honour blocks. "
            f"Choose an exact method, such as {DEFAULT_TEST}."
        )
    (n, m), fraction = sample.sizes, settings.train_fraction if method.needs_split else 0.0
    n_train = int(n * fraction), int(m * fraction)
    n_test = n - n_train[0], m - n_train[1]
    if min(n_test) < method.min_test_rows or (method.needs_split and min(n_train) < 2):
        raise ValueError(_too_few_rows(min(n, m), method, fraction))
    runs: list[np.ndarray] = [np.zeros(sum(n_test), dtype=int)]  # the blocks of the pooled test rows of each run
    if sample.blocks is not None:
        runs = [np.concatenate([side.numpy() for side in sample.blocks])]
    if sample.blocks is not None and method.needs_split:  # a split within blocks makes runs differ
        runs = []
        for seed in seeds:
            order = draw_order(sample.sizes, n_train, [Streams(seed)], sample.blocks)
            tested = [positions[0, count:] for positions, count in zip(order, n_train, strict=True)]
            runs.append(np.concatenate([side[rows].numpy() for side, rows in zip(sample.blocks, tested, strict=True)]))
    labellings = [labellings_of(run, n_test[0], method, settings.n_permutations, settings.rule) for run in runs]
    labellings *= len(seeds) // len(labellings)
    most = max(labellings, key=lambda one: one.used)
    return TestPlan(
        method=method,
        settings=settings,
        given=sample,
        sample=sample,
        rows=(np.arange(sample.sizes[0]), np.arange(sample.sizes[1])),
        seeds=tuple(seeds),
        n_train=n_train,
        n_test=n_test,
        labellings=tuple(labellings),
        smallest_p=most.smallest_p,
        memory=bytes_of_test(method, most.used, sum(sample.sizes), sample.x.shape[-1], sample.shape),
    )


def check_splits(method: Method, splits: int) -> None:
    """Refuse several splits of a method that does not split."""
    if splits > 1 and not method.needs_split:
        raise ValueError(
            f"{method.name} does not split the rows: it tests all of them. splits={splits} would change nothing. "
            "Leave splits at 1."
        )


def split_seeds(seed: int, splits: int) -> list[int]:
    """The seed of each split; the first has the test's own, so one split is the first of many."""
    return [seed, *(Streams(seed).child(f"split {number}").seed for number in range(2, splits + 1))]


def combine_splits(p_values: Sequence[float] | np.ndarray) -> tuple[float, int]:
    """Twice the smallest running median of S p-values, at most 1, and the position of the one that decides.

    p = 2·min_{ℓ≤S} median(p_1, …, p_ℓ), the median being the ⌈ℓ/2⌉-th smallest; a single p-value is left as it is.

    Valid for p-values of independent random splits of the same rows. Given the rows these are i.i.d., so they are
    exchangeable. Then e_s = 2·1[p_s ≤ α/2] has mean at most α, and its running means, read from the last to the first,
    are a martingale: by Doob's inequality one of them reaches 1 with probability at most α. It does where at least half
    of the first ℓ p-values are at most α/2, which is p ≤ α. (Gasparin, Wang, Ramdas 2025, Combining exchangeable
    p-values. Under arbitrary dependence only ℓ = S is allowed, "twice the median", which has far less power.)

    >>> combine_splits([0.04, 0.3, 0.01])
    (0.08, 0)
    >>> combine_splits([0.3, 0.02, 0.01])
    (0.04, 1)
    """
    p = np.asarray(p_values, dtype=float)
    if len(p) == 1:
        return float(p[0]), 0
    deciding = [int(np.argsort(p[:count], kind="stable")[(count + 1) // 2 - 1]) for count in range(1, len(p) + 1)]
    best = min(deciding, key=lambda index: float(p[index]))
    return min(1.0, 2 * float(p[best])), best


def _random_rows(
    sample: TwoSample, rows: tuple[np.ndarray, np.ndarray], method: Method, most: int, seed: int
) -> tuple[tuple[np.ndarray, np.ndarray], str]:
    """The positions of ``most`` random rows of those at these positions, of a scarce sample all, and a note on it."""
    (rows_x, rows_y), n, m = rows, len(rows[0]), len(rows[1])
    fewer = min(n, m, most // 2)
    counts = min(n, most - fewer), min(m, most - fewer)
    blocks = sample.blocks and (sample.blocks[0][rows_x], sample.blocks[1][rows_y])
    order = draw_order((n, m), counts, [Streams(seed).child("large samples")], blocks)
    kept_x, kept_y = (np.sort(side[0, :count].numpy()) for side, count in zip(order, counts, strict=True))
    why = (
        f"The samples are large. {method.name} uses {counts[0]:,} of {len(sample.x):,} and {counts[1]:,} of "
        f"{len(sample.y):,} rows, drawn at random with this seed."
    )
    return (rows_x[kept_x], rows_y[kept_y]), why


def largest_rows(method: Method) -> int:
    """The most rows, of both samples together, that one test uses: its cost is quadratic in them."""
    many = method.kernels_at_once > 1 or method.cost.test > 1
    return LARGEST_ROWS_OF_BANKS if many else LARGEST_ROWS


def _rows_in_both(blocks: tuple[Tensor, Tensor]) -> tuple[tuple[np.ndarray, np.ndarray], tuple[str, ...]]:
    """The positions of the rows whose block holds rows of both samples, and a note on the others."""
    codes_x, codes_y = (side.numpy() for side in blocks)
    number = 1 + int(max(codes_x.max(), codes_y.max()))
    count_x, count_y = (np.bincount(side, minlength=number) for side in (codes_x, codes_y))
    both, either = (count_x > 0) & (count_y > 0), count_x + count_y > 0
    if not both.any():
        raise ValueError(
            f"None of the {either.sum()} blocks holds rows of both samples, so no labels can be exchanged within "
            "blocks. Choose another block column, or none."
        )
    rows = np.flatnonzero(both[codes_x]), np.flatnonzero(both[codes_y])
    if both[either].all():
        return rows, ()
    left_x, left_y = (count_of(int(count[~both].sum()), "row") for count in (count_x, count_y))
    alone = count_of(int((either & ~both).sum()), "block")
    return rows, (
        f"Left out, since their blocks hold rows of one sample only: {left_x} of x and {left_y} of y in {alone}.",
    )


def draw_order(
    sizes: tuple[int, int],
    n_train: tuple[int, int],
    streams: Sequence[Streams],
    blocks: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw each run's order of the rows, x (R, n) and y (R, m): the first ``n_train`` are training rows.

    Row i of x and row i of y go the same way, so that x = y stays x = y.
    """
    orders: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for stream in streams:
        shuffled = stream.numpy("split").permutation(max(sizes))
        for side, size in enumerate(sizes):
            order = shuffled[shuffled < size]
            if blocks is not None:
                order = order_within(blocks[side].numpy(), n_train[side], order, stream)
            orders[side].append(order)
    x, y = (torch.from_numpy(np.stack(side)) for side in orders)
    return x, y


def _too_few_rows(smaller: int, method: Method, fraction: float) -> str:
    """How many rows a test needs, with this share of them for training, and what would help."""
    needed, how, remedy = method.min_test_rows, "", "Bring more rows."
    if method.needs_split:
        trained = ((n, int(n * fraction)) for n in itertools.count(4))
        needed = next(n for n, train in trained if train >= 2 and n - train >= method.min_test_rows)
        how = f" with train_fraction={fraction:g}"
        remedy = f"Bring more rows, or use {DEFAULT_TEST}, which needs no split."
    return f"{method.name} needs at least {needed} rows in each sample{how}. The smaller sample has {smaller}. {remedy}"


def labellings_of(blocks: np.ndarray, n: int, method: Method, n_permutations: int, rule: PValueRule) -> Labellings:
    """The labellings behind a p-value of pooled test rows with these blocks (N,), the first n of which are x's.

    There are Π_b C(n_b+m_b, n_b), and all are counted if they are few. The published rules b/B leave the observed
    labelling out and always draw. If x and y have equally many rows in every block, a labelling and its complement have
    the same two-sided statistic. The observed labelling then has at least one equal.
    """
    if not method.by_permutation or rule != EXACT:
        return Labellings(n_permutations + 1, False, 0.0)
    sizes = np.bincount(blocks)
    of_x = np.bincount(blocks[:n], minlength=len(sizes))
    logarithm = (gammaln(sizes + 1) - gammaln(of_x + 1) - gammaln(sizes - of_x + 1)).sum()
    count = MANY if logarithm > math.log(MANY) else math.prod(map(math.comb, sizes.tolist(), of_x.tolist()))
    if count > max(ENUMERATED, n_permutations + 1) or count == MANY:
        return Labellings(n_permutations + 1, False, 1 / (n_permutations + 1))
    balanced = (2 * of_x == sizes).all()
    return Labellings(count, True, (2 if method.two_sided and balanced else 1) / count)


def _cannot_reject(plan: TestPlan, smallest: float, labellings: Labellings) -> str:
    """Why a test cannot reject, whatever its rows are, and what would help."""
    alpha = plan.settings.alpha
    can = f"{plan.method.name} cannot reject at alpha={alpha:g}: its smallest possible p-value is {smallest:.3g}"
    if not labellings.enumerated:
        times = round(smallest / labellings.smallest_p)
        return f"{can}, with {labellings.used - 1} permutations. Use at least {math.ceil(times / alpha) - 1}."
    n, m = plan.n_test
    return f"{can}, because its {n} and {m} test rows have only {labellings.used} labellings. It needs more rows."


def bytes_of_test(
    method: Method, labellings: int, rows: int, columns: int = 0, shape: tuple[int, ...] | None = None
) -> int:
    """Peak bytes of one test, beside the software: rows, a network's weights and the permutation test.

    The permutation test holds memberships, statistics and one block of products; 0 columns leave only this.
    """
    units = min(3 * columns, MOST_UNITS)
    network = 8 * NETWORK_COPIES * (columns + 1 + 3 * units) * units
    learns = method.cost.image_fit in ("deep", "classifier") and shape is None
    keys = 8 * min(labellings * rows, KEYS_AT_ONCE)
    products = min(16 * labellings * rows * min(method.kernels_at_once, 2), 3 * PIECE_BYTES)
    permutations = labellings * (rows + method.cost.labelling_bytes) + max(keys, products)
    return 8 * ROW_COPIES * rows * columns + (network if learns else 0) + permutations


def check_training_memory(method: Method, rows: int, columns: int) -> None:
    """Refuse learning from related tasks of so many rows if it does not fit into memory."""
    features = (columns + FOURIER) ** 2 if method.origin == "ours" else 0
    refuse_beyond_memory(
        f"Learning from {rows:,} rows with {columns:,} columns",
        8 * (ROW_COPIES * rows * columns + FEATURE_COPIES * features),
        f"Leave out columns, or use {DEFAULT_TEST}, which learns nothing.",
    )


def refuse_beyond_memory(what: str, needed: int, remedy: str) -> None:
    """Refuse work that needs more memory than is free, in one sentence."""
    free = free_bytes()
    if free is not None and needed > free:
        raise ValueError(
            f"{what} needs about {needed / GIGABYTE:,.1f} GB of memory, and {free / GIGABYTE:,.1f} GB are free. "
            f"{remedy}"
        )
