"""Does the history help? Each related task is left out in turn and tested with what the others taught.

The others are separated from the left-out task first, so that no row of it that is recognised among them teaches with
its label. Of a target only unlabelled rows are looked at. A test that is chosen by the check stays exact if the tasks
hold no row of the target; ``check_uploaded_tasks`` separates them from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from m2st_core.criterion import mmd2_unbiased
from m2st_core.data.arrays import as_named_samples, as_rows
from m2st_core.data.separate import separate
from m2st_core.device import resolve_device
from m2st_core.kernels.gaussian import GaussianKernel, median_squared_distance
from m2st_core.learners.ascent import part_of
from m2st_core.rng import Streams
from m2st_core.sweeps.summary import wilson_interval
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.testing.methods import METHODS
from m2st_core.testing.run import run_tests
from m2st_core.types import Progress, TwoSample

WITH_HISTORY = ("Meta-FUSE", "Meta-Witness", "Meta-WiTS")
WITHOUT_HISTORY = ("MMD-FUSE", "MMD-M")
MOST_LEFT_OUT = 6
REPEATS = 12
CLEAR_GAIN = 0.1  # of power, either way
PERMUTATIONS = 199
ROWS_COMPARED = 200
FEWEST_COMPARED = 5  # tasks whose rows show how much tasks vary
SHARE_OF_ROWS = 0.8  # of a task's rows used in one test at most, so that its tests differ

Verdict = Literal["helps", "harms", "unclear"]


@dataclass(frozen=True)
class RelatedCheck:
    """Power on tasks left out, with and without what the others taught.

    ``table`` has a row per method: method, uses_history, power, low, high (Wilson's 95 % interval, for as many tests as
    the left-out rows could give without sharing rows), tests. ``sizes`` are the rows of (x, y) in these tests. The
    history helps, or harms, if the best method with it is better, or worse, than the best without, by at least 0.1 and
    by twice the standard error of that between the left-out tasks.

    ``unlike``: by how many standard deviations the target's rows, without labels, are more unlike the tasks' rows than
    those among each other; None if no target was given or there are fewer than five tasks.
    """

    table: pd.DataFrame
    left_out: tuple[str, ...]
    sizes: tuple[int, int]
    verdict: Verdict
    unlike: float | None
    sentences: tuple[str, ...]

    def power(self, method: str) -> float:
        """The share of left-out tests in which this method found the difference."""
        return float(self.table.set_index("method")["power"][method])


def check_related_tasks(
    tasks: Any,
    sizes: tuple[int, int],
    *,
    pooled: Any = None,
    with_history: Sequence[str] = WITH_HISTORY,
    without_history: Sequence[str] = WITHOUT_HISTORY,
    most_left_out: int = MOST_LEFT_OUT,
    repeats: int = REPEATS,
    alpha: float = 0.05,
    train_fraction: float = 0.5,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress | None = None,
) -> RelatedCheck:
    """Leave-one-task-out power at about the target's sizes (n, m).

    Each of at most ``most_left_out`` tasks, drawn at random, is tested ``repeats`` times on random parts of its rows,
    by methods taught by the other tasks, separated from it, and by methods that need none. ``pooled``, the target's
    rows of both samples together, are compared with the tasks' rows; their labels are not asked for.
    """
    samples = as_named_samples(tasks)
    if len(samples) < 2:
        raise ValueError(f"Leaving a task out needs at least 2 related tasks. There is {len(samples)}.")
    streams = Streams(seed).child("history check")
    names = list(samples)
    chosen = [names[i] for i in streams.numpy("left out").permutation(len(names))[:most_left_out]]
    used = tuple(
        max(4, min(size, int(SHARE_OF_ROWS * min(samples[name].sizes[side] for name in chosen))))
        for side, size in enumerate(sizes)
    )
    p_values: dict[str, list[float]] = {name: [] for name in (*with_history, *without_history)}
    apart = 0
    for index, name in enumerate(chosen):
        own, here = samples[name], streams.child(f"task {name}")
        apart += max(1, min(rows // part for rows, part in zip(own.sizes, used, strict=True)))
        batch = _parts(own, used, repeats, here)
        others = separate(own, {other: pair for other, pair in samples.items() if other != name}).tasks
        stage = part_of(progress, index / len(chosen), (index + 1) / len(chosen))
        learners: dict[Any, MetaLearner] = {}
        for method in p_values:
            bound = METHODS.find(method)
            if bound.uses_related_tasks:
                if bound.learn not in learners:
                    learners[bound.learn] = meta_train(method, others, seed=here.seed, device=device, progress=stage)
                bound = replace(learners[bound.learn], method=method).bound(resolve_device(device))
            results = run_tests(
                batch,
                bound,
                seeds=[here.child(f"test {repeat}").seed for repeat in range(repeats)],
                alpha=alpha,
                n_permutations=PERMUTATIONS,
                train_fraction=train_fraction,
                device=device,
            )
            p_values[method] += [result.p_value for result in results]
        if progress is not None:
            progress(1000 * (index + 1) // len(chosen), 1000, 0.0)
    rows = []
    for method, found in p_values.items():
        share = float(np.mean(np.array(found) <= alpha))
        low, high = wilson_interval(round(share * apart), apart)
        rows.append(
            {
                "method": method,
                "uses_history": method in with_history,
                "power": share,
                "low": min(low, share),
                "high": max(high, share),
                "tests": len(found),
            }
        )
    table = pd.DataFrame(rows)
    best = {uses: group.loc[group["power"].idxmax()] for uses, group in table.groupby("uses_history")}
    gain = float(best[True]["power"] - best[False]["power"])
    within = sum(float(row["power"] * (1 - row["power"]) / row["tests"]) for row in best.values()) ** 0.5
    ours, plain = (np.array(p_values[best[uses]["method"]]).reshape(len(chosen), -1) for uses in (True, False))
    gains = (ours <= alpha).mean(axis=1) - (plain <= alpha).mean(axis=1)
    noise = max(within, float(gains.std(ddof=1)) / len(chosen) ** 0.5) if len(chosen) > 1 else np.inf
    clear = max(CLEAR_GAIN, 2 * noise)
    verdict: Verdict = "helps" if gain >= clear else "harms" if gain <= -clear else "unclear"
    unlike = None
    if pooled is not None and len(samples) >= FEWEST_COMPARED:
        unlike = unlikeness(samples, sizes, streams)(as_rows(pooled, "pooled"))
    return RelatedCheck(
        table=table,
        left_out=tuple(chosen),
        sizes=(used[0], used[1]),
        verdict=verdict,
        unlike=unlike,
        sentences=_sentences(best, verdict, chosen, used),
    )


def unlikeness(
    samples: Mapping[str, TwoSample], sizes: tuple[int, int], streams: Streams
) -> Callable[[np.ndarray], float]:
    """A function that says how unlike the tasks' rows a target's are, without labels: pooled rows (N, d) → deviations.

    Unlikeness is the MMD² between the rows of a task, both samples together in the target's proportion, and those of
    the other tasks; the target's is given in standard deviations from the tasks' mean.
    """
    ratios = [own / want for sample in samples.values() for own, want in zip(sample.sizes, sizes, strict=True)]
    share = min(1.0, ROWS_COMPARED / sum(sizes), *ratios)
    counts = [max(1, int(share * size)) for size in sizes]
    tasks = [_parts(sample, counts, 1, streams.child(f"rows of {name}")).pooled[0] for name, sample in samples.items()]
    everything = torch.cat(tasks)
    scale = everything.std(dim=0)
    scale = scale.where(scale > 0, 1.0)
    generator = streams.numpy("other rows")
    some = torch.from_numpy(generator.permutation(len(everything))[:500])
    kernel = GaussianKernel(median_squared_distance((everything[some] / scale)[None])[0])

    @torch.no_grad()
    def distance(rows: Tensor, others: Tensor) -> float:
        kept = torch.from_numpy(generator.permutation(len(others))[: 2 * ROWS_COMPARED])
        rows, others = rows / scale, others[kept] / scale
        return float(mmd2_unbiased(kernel(rows, rows), kernel(others, others), kernel(rows, others)))

    found = [distance(rows, torch.cat([*tasks[:i], *tasks[i + 1 :]])) for i, rows in enumerate(tasks)]
    spread = max(float(np.std(found, ddof=1)), 1e-12)

    def of(pooled: np.ndarray) -> float:
        chosen = streams.numpy("target rows").permutation(len(pooled))[: sum(counts)]
        return (distance(torch.from_numpy(pooled[chosen]), everything) - float(np.mean(found))) / spread

    return of


def _sentences(
    best: Mapping[bool, pd.Series], verdict: Verdict, chosen: Sequence[str], used: Sequence[int]
) -> tuple[str, ...]:
    helped, plain = best[True], best[False]
    first, second = (METHODS[part["method"]].label for part in (helped, plain))
    meaning = {
        "helps": "So this history helps for tasks like itself. Whether the target is one of them is not known yet.",
        "harms": "So this history misleads even for tasks like itself.",
        "unclear": "At these sizes that is no clear difference.",
    }
    return (
        f"Of {len(chosen)} related tasks left out in turn, tested with {used[0]} and {used[1]} rows, {first} "
        f"found the difference in {helped['power']:.0%} of the tests with what the others taught, and {second} "
        f"in {plain['power']:.0%} without.",
        meaning[verdict],
    )


def _parts(sample: TwoSample, sizes: Sequence[int], repeats: int, streams: Streams) -> TwoSample:
    """Random parts of a task's rows: x (repeats, n, d), y (repeats, m, d)."""
    parts = []
    for side, rows, size in zip("xy", sample, sizes, strict=True):
        generator = streams.numpy(f"rows of {side}")
        index = np.stack([generator.permutation(rows.shape[0])[:size] for _ in range(repeats)])
        parts.append(rows[torch.from_numpy(index)])
    x, y = parts
    return TwoSample(x, y, sample.shape)
