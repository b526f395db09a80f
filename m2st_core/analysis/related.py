"""Do the related tasks of an upload help, and how related are they? The leave-one-task-out check, odd values, and γ̂.

Each task is left out in turn, and tested with and without learning from the others. These are separated from it first,
so that no recognised row of it is learned from with its label. Only unlabelled rows of a target are used. A test chosen
by this check stays exact if the related tasks hold no row of the target; ``check_uploaded_tasks`` separates them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from scipy.special import betaincinv
from torch import Tensor

from m2st_core.criterion import mmd2_unbiased
from m2st_core.data.arrays import as_named_rows, as_related_tasks, as_two_sample, match_columns
from m2st_core.data.related import RelatedTasks
from m2st_core.data.separate import separate
from m2st_core.data.tables.prepare import Prepared
from m2st_core.device import one_thread_per_operation, resolve_device
from m2st_core.kernels.distance import GaussianKernel, median_squared_distance
from m2st_core.learners.relatedness import Relatedness, relatedness
from m2st_core.learners.units import FAR, ODD, column_units, in_usual_units
from m2st_core.progress import part_of
from m2st_core.rng import Streams
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.testing.methods import METHODS
from m2st_core.testing.plan import TestSettings, plan_test
from m2st_core.testing.run import run_tests
from m2st_core.types import BASELINE, DEFAULT_TAUGHT_TEST, Progress, TwoSample, listed

CHECKED = (DEFAULT_TAUGHT_TEST, "Meta-Witness", "Meta-WiTS", BASELINE, "MMD-M")
ALPHA, PERMUTATIONS = 0.05, 199
CLEAR_GAIN = 0.1  # difference in power
SHARE_OF_ROWS = 0.8  # of a task's rows in one test at most, so that its tests differ
ROWS_COMPARED = 200
MOST_COLUMNS = 200  # whose values are looked at one by one, and beyond which training for γ̂ would take too long
FEWEST_COMPARED = 5  # related tasks, to estimate how much tasks vary
CLEAR = 0.5  # E[sign] beyond which a task's sense is clear
MANY_FAR = 0.005  # share of a column's values that are far from its median
NAMED = 3  # tasks named in a sentence
MEANINGS = {
    "helps": "So the related tasks help with tasks like themselves. Whether your target is one of these is not known.",
    "harms": "So the related tasks mislead even for tasks like themselves.",
    "unclear": "This is not a clear difference at these sizes.",
}
MOST_LEFT_OUT = 3  # tasks whose γ̂ is computed
FEWEST_ROWS = 8  # of each sample, for γ̂: two halves of four rows


@dataclass(frozen=True)
class RelatedCheck:
    """Power on left-out tasks, with and without learning from the others.

    ``table`` has one row per method: method, uses_related_tasks, power, low, high, tests. Low and high are a 95 %
    interval for the power on tasks like these (``power_interval``). ``sizes`` are the rows of (x, y) in each test. The
    related tasks help (or harm) if Meta-FUSE is better (or worse) than Omnibus, by at least 0.1 and by two standard
    errors between left-out tasks. The other methods are there to be seen; no choice depends on them.

    ``unlike`` compares unlabelled rows: the standard deviations by which the target's rows differ more from the related
    tasks' rows than those do from each other. It is None without a target or with fewer than five tasks.

    ``senses`` has E[sign] of each task's difference along the tasks' common direction, mostly positive; it is empty if
    they have none, and has no copies. ``sentences`` put all this into words, and name tasks with odd values.
    """

    table: pd.DataFrame
    left_out: tuple[str, ...]
    sizes: tuple[int, int]
    verdict: Literal["helps", "harms", "unclear"]
    unlike: float | None
    senses: Mapping[str, float]
    sentences: tuple[str, ...]


@one_thread_per_operation()
def check_related_tasks(
    tasks: Any,
    sizes: tuple[int, int],
    *,
    pooled: Any = None,
    most_left_out: int = 6,
    repeats: int = 12,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress | None = None,
) -> RelatedCheck:
    """Estimate leave-one-task-out power at about the target's sizes (n, m).

    At most ``most_left_out`` random tasks are tested ``repeats`` times each, on random subsets of their rows. The
    target's unlabelled rows, ``pooled``, are compared with the tasks' rows.
    """
    given = as_related_tasks(tasks)
    related = given.packed(range(len(given.names)))
    if len(related.names) < 2:
        raise ValueError(f"Leaving a task out needs at least 2 related tasks. There is {len(related.names)}.")
    width, columns = related.rows.shape[-1], related.columns
    if min(sizes) < 2:
        raise ValueError(f"sizes must be at least 2 rows each. Got {sizes[0]} and {sizes[1]}.")
    rows = None
    if pooled is not None:
        rows, pooled_names = as_named_rows(pooled, "pooled")
        if rows.shape[-1] != width and not (columns and pooled_names):
            raise ValueError(f"pooled must have as many columns as the related tasks: {width}. Got {rows.shape[-1]}.")
        order, _ = match_columns("the related tasks", columns, "pooled", pooled_names)
        rows = rows if order is None else rows[:, order]
    streams = Streams(seed).child("history check")
    samples = related.samples()
    chosen = streams.numpy("left out").permutation(len(samples))[:most_left_out]
    left_out = [related.names[position] for position in chosen]
    n, m = (
        max(4, min(size, int(SHARE_OF_ROWS * min(samples[name].sizes[side] for name in left_out))))
        for side, size in enumerate(sizes)
    )
    rejected = _rejections(related, chosen, (n, m), repeats, streams, device, progress)
    table = pd.DataFrame([_table_row(method, rejected[method]) for method in CHECKED])
    learned, plain = (
        "{:.0f} % of the tests (95 % interval {:.0f} to {:.0f} %)".format(*(100 * row[["power", "low", "high"]]))
        for row in (table.set_index("method").loc[method] for method in (DEFAULT_TAUGHT_TEST, BASELINE))
    )
    verdict = _verdict(rejected[DEFAULT_TAUGHT_TEST], rejected[BASELINE])
    unlike = None
    if rows is not None and len(samples) >= FEWEST_COMPARED:
        unlike = unlikeness_to_related(related, sizes, streams)(rows)
    sentence = (
        f"When {len(left_out)} related tasks were left out in turn and tested with {n} and {m} rows, "
        f"{DEFAULT_TAUGHT_TEST} detected the difference in {learned} after learning from the other tasks, and "
        f"{BASELINE} in {plain} without them."
    )
    senses = senses_of(meta_train(DEFAULT_TAUGHT_TEST, related, seed=streams.seed, device=device))
    repeated = _copies(related)
    senses = {name: sense for name, sense in senses.items() if name not in repeated}
    traits = (sense_sentence(senses), *(odd_values(related) if width <= MOST_COLUMNS else ()))
    return RelatedCheck(table, tuple(left_out), (n, m), verdict, unlike, senses, (sentence, MEANINGS[verdict], *traits))


def check_uploaded_tasks(data: Prepared, **settings: Any) -> RelatedCheck | None:
    """Check an upload's related tasks, without the target's rows, by ``check_related_tasks``.

    Return None if fewer than two tasks are left, for example where all tasks share the target's control group.
    """
    if data.separation is None or len(data.separation.tasks.names) < 2:
        return None
    data = data.separated()
    return check_related_tasks(data.related, data.target.sizes, pooled=data.target.pooled, **settings)


def _rejections(
    related: RelatedTasks,
    left_out: np.ndarray,
    sizes: tuple[int, int],
    repeats: int,
    streams: Streams,
    device: str | torch.device,
    progress: Progress | None,
) -> dict[str, np.ndarray]:
    """Whether each method rejects in each test of a left-out task, after learning from the others: (tasks, tests)."""
    rejected = {method: np.zeros((len(left_out), repeats), dtype=bool) for method in CHECKED}
    for index, position in enumerate(left_out):
        target, task_streams = related.task(int(position)), streams.child(f"task {related.names[position]}")
        batch = _subsets(target, sizes, repeats, task_streams)
        others = separate(target, _others(related, int(position))).tasks
        seeds = [task_streams.child(f"test {repeat}").seed for repeat in range(repeats)]
        stage = part_of(progress, index / len(left_out), (index + 1) / len(left_out))
        learners: dict[Any, MetaLearner] = {}
        for name in CHECKED:
            method = METHODS[name]
            if method.uses_related_tasks:
                if method.learn not in learners:
                    learner = meta_train(name, others, seed=task_streams.seed, device=device, progress=stage)
                    learners[method.learn] = learner
                method = learners[method.learn].for_method(name).bound(resolve_device(device))
            results = run_tests(batch, method, seeds=seeds, alpha=ALPHA, n_permutations=PERMUTATIONS, device=device)
            rejected[name][index] = [result.rejected for result in results]
        if progress is not None:
            progress(1000 * (index + 1) // len(left_out), 1000, 0.0)
    return rejected


def _verdict(learned: np.ndarray, plain: np.ndarray) -> Literal["helps", "harms", "unclear"]:
    """Whether power (tasks, tests) is better with the related tasks by 0.1 and by two standard errors between tasks."""
    powers, tasks = (learned.mean(), plain.mean()), len(learned)
    gain, noise = powers[0] - powers[1], np.inf
    if tasks > 1:
        sampling_error = sum(power * (1 - power) / learned.size for power in powers) ** 0.5
        gains = learned.mean(axis=1) - plain.mean(axis=1)
        noise = max(sampling_error, gains.std(ddof=1) / tasks**0.5)
    if abs(gain) < max(CLEAR_GAIN, 2 * noise):
        return "unclear"
    return "helps" if gain > 0 else "harms"


def power_interval(power: float, tasks: int) -> tuple[float, float]:
    """Return a 95 % interval for the mean power on tasks like these, from its average over so many left-out tasks.

    The tests of one task share rows, so only tasks are independent. The average of T powers between 0 and 1 varies at
    most as much as the share of successes in T trials. Hence the interval of Clopper and Pearson for T trials, with the
    fractional number of successes power·T: it covers at least as often as stated, and usually more often.

    >>> [tuple(round(end, 2) for end in power_interval(power, 6)) for power in (0.58, 0.72)]
    [(0.16, 0.92), (0.26, 0.97)]
    """
    successes = power * tasks
    low = float(betaincinv(successes, tasks - successes + 1, 0.025)) if power > 0 else 0.0
    high = float(betaincinv(successes + 1, tasks - successes, 0.975)) if power < 1 else 1.0
    return low, high


def _table_row(method: str, rejected: np.ndarray) -> dict[str, Any]:
    power = float(np.mean(rejected))
    low, high = power_interval(power, len(rejected))
    return {
        "method": method,
        "uses_related_tasks": METHODS[method].uses_related_tasks,
        "power": power,
        "low": low,
        "high": high,
        "tests": rejected.size,
    }


def unlikeness_to_related(tasks: Any, sizes: tuple[int, int], streams: Streams) -> Callable[[np.ndarray], float]:
    """Return a function of a target's unlabelled rows (N, d): how unlike the tasks' rows they are.

    The MMD² between a task's rows, both samples pooled in the target's proportion, and the other tasks' rows has a mean
    and a standard deviation over tasks. The target's MMD² is returned in standard deviations from this mean.
    """
    samples = as_related_tasks(tasks).samples()
    ratios = [size / wanted for sample in samples.values() for size, wanted in zip(sample.sizes, sizes, strict=True)]
    share = min(1.0, ROWS_COMPARED / sum(sizes), *ratios)
    counts = [max(1, int(share * size)) for size in sizes]
    drawn = [_subsets(pair, counts, 1, streams.child(f"rows of {name}")).pooled[0] for name, pair in samples.items()]
    drawn = in_usual_units(drawn)
    everything = torch.cat(drawn)
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

    distances = [distance(rows, torch.cat([*drawn[:i], *drawn[i + 1 :]])) for i, rows in enumerate(drawn)]
    spread = max(float(np.std(distances, ddof=1)), 1e-12)

    def deviations(pooled: np.ndarray) -> float:
        chosen = streams.numpy("target rows").permutation(len(pooled))[: sum(counts)]
        return (distance(torch.from_numpy(pooled[chosen]), everything) - float(np.mean(distances))) / spread

    return deviations


def _subsets(sample: TwoSample, sizes: Sequence[int], repeats: int, streams: Streams) -> TwoSample:
    """Draw random subsets of a task's rows: x (repeats, n, d), y (repeats, m, d)."""
    drawn = []
    for side, rows, size in zip("xy", sample, sizes, strict=True):
        generator = streams.numpy(f"rows of {side}")
        index = np.stack([generator.permutation(rows.shape[0])[:size] for _ in range(repeats)])
        drawn.append(rows[torch.from_numpy(index)])
    return TwoSample(drawn[0], drawn[1], sample.shape)


def senses_of(learner: MetaLearner) -> dict[str, float]:
    """E[sign] of each task's difference along the tasks' common direction; most are positive.

    Empty if left-out tasks did not confirm a common direction.
    """
    senses, choices = learner.knowledge.senses, learner.choices
    if senses is None or not choices["one_order"] + choices["any_order"]:
        return {}
    signs = senses[0] if float(senses[0].sum()) >= 0 else -senses[0]
    return dict(zip(learner.task_names, signs.tolist(), strict=True))


def sense_sentence(senses: Mapping[str, float]) -> str:
    """Say how many tasks point the same way along their common direction."""
    if not senses:
        return "No direction of difference that the related tasks have in common could be confirmed."
    reversed_tasks = [name for name, sense in senses.items() if sense < -CLEAR]
    same = sum(sense > CLEAR for sense in senses.values())
    unclear = len(senses) - same - len(reversed_tasks)
    sentence = f"{same} of {len(senses)} related tasks point the same way"
    if reversed_tasks:
        verb = "looks" if len(reversed_tasks) == 1 else "look"
        sentence += f"; {len(reversed_tasks)} {verb} reversed ({listed(reversed_tasks, NAMED)}), which is allowed for"
    if unclear:
        sentence += f"; for {unclear} the sense is unclear"
    caution = " Where tasks are weak, some of this may be wrong; the tests allow for it." if reversed_tasks else ""
    return f"{sentence}.{caution}"


def odd_values(related: RelatedTasks) -> tuple[str, ...]:
    """Sentences about tasks whose values differ from those of the others in scale, are far away, or are copies."""
    pooled = [sample.pooled for sample in related.samples().values()]
    names = related.names
    columns = related.columns or tuple(f"column {index + 1}" for index in range(related.rows.shape[-1]))
    units = [column_units(rows) for rows in pooled]
    centres, spreads = (torch.stack(parts) for parts in zip(*units, strict=True))
    usual = spreads.median(dim=0).values
    sentences = []
    for task, ratios in enumerate((spreads / usual).tolist()):
        for column, ratio in enumerate(ratios):
            if ratio > ODD or ratio < 1 / ODD:
                times = f"{ratio:,.0f} times" if ratio > 1 else f"a factor {1 / ratio:,.0f} less than"
                compared = "as much as in the other tasks" if ratio > 1 else "in the other tasks"
                sentences.append(
                    f"“{columns[column]}” of {names[task]} spreads {times} {compared}. "
                    "Check its unit. It is measured in its own units here."
                )
    triples = zip(pooled, centres, spreads, strict=True)
    far = torch.stack([((rows - c).abs() > FAR * s).double().mean(dim=0) for rows, c, s in triples])
    for column in (far > MANY_FAR).any(dim=0).nonzero()[:, 0].tolist():
        tasks = [names[task] for task in (far[:, column] > MANY_FAR).nonzero()[:, 0].tolist()]
        sentences.append(
            f"“{columns[column]}” has values more than {FAR:g} spreads from the median in {listed(tasks, NAMED)} "
            f"(up to {float(far[:, column].max()):.1%} of the rows). Nothing is learned from them."
        )
    same = (
        f"{original} and {name} are the same comparison. It counts once." for name, original in _copies(related).items()
    )
    return (*sentences, *same)


def _copies(related: RelatedTasks) -> dict[str, str]:
    """The tasks that have the same rows as an earlier one, in any order: name → name of the earlier one."""
    first: dict[bytes, str] = {}
    repeated = {}
    for name, sample in related.samples().items():
        parts = sorted(rows.sort(dim=0).values.contiguous().cpu().numpy().tobytes() for rows in sample)
        earlier = first.setdefault(b"".join(parts), name)
        if earlier != name:
            repeated[name] = earlier
    return repeated


def _others(related: RelatedTasks, position: int) -> RelatedTasks:
    """The related tasks but the one at this position."""
    return related.packed(np.delete(np.arange(len(related.names)), position))


def gamma_by_task(
    related: RelatedTasks, tasks: Sequence[str], *, progress: Progress | None = None
) -> dict[str, Relatedness]:
    """Compute γ̂ of each of these tasks to the most related of a few others; of none if they have too many columns."""
    if related.rows.shape[-1] > MOST_COLUMNS:
        return {}
    found = {}
    for index, position in enumerate(map(related.names.index, tasks)):
        stage = part_of(progress, index / len(tasks), (index + 1) / len(tasks))
        task, others = related.task(position), _others(related, position)
        found[tasks[index]] = relatedness(task, others, restarts=2, max_tasks=3, steps=30, progress=stage)
    return found


def left_out_gamma(related: RelatedTasks, left_out: Sequence[str], *, progress: Progress | None = None) -> str:
    """Say how far γ̂ is of at most three left-out tasks to the most related of a few others, without the target."""
    return gamma_sentence(gamma_by_task(related, left_out[:MOST_LEFT_OUT], progress=progress))


def gamma_sentence(by_task: Mapping[str, Relatedness]) -> str:
    """Say how many of these left-out tasks are unlike the most related of a few others."""
    found = by_task.values()
    if not found:
        return f"γ̂ is not computed for more than {MOST_COLUMNS} columns."
    gammas, above = [measured.gamma() for measured in found], sum(measured.stands_out for measured in found)
    unlike = {0: "None is", 1: "One is"}.get(above, f"{above} are")
    return (
        f"{len(gammas)} left-out tasks were each compared with the most similar of a few others. {unlike} clearly "
        f"unlike it (γ̂ from {min(gammas):.2f} to {max(gammas):.2f}; two samples of one task reach "
        f"{np.median([measured.floor for measured in found]):.2f} by chance)."
    )


@dataclass(frozen=True)
class TargetGamma:
    """γ̂ of a target, and the rows of (x, y) that it was computed on.

    γ̂ uses labels. If ``exploratory``, they are labels of tested rows, and no choice may depend on it.
    """

    relatedness: Relatedness
    sizes: tuple[int, int]
    exploratory: bool
    sentence: str


def target_gamma(
    target: Any,
    related_tasks: Any,
    method: str,
    *,
    train_fraction: float = 0.5,
    seed: int = 0,
    progress: Progress | None = None,
) -> TargetGamma:
    """Compute γ̂ of a target, a pair (x, y), on the rows that the method trains on, or on all if it does not split.

    Five tasks, three restarts and fifty steps give a first impression within seconds; see ``relatedness`` for more.
    """
    spec, sample = METHODS[method], target if isinstance(target, TwoSample) else as_two_sample(*target)
    if spec.needs_split:
        sample = plan_test(sample, spec, TestSettings(train_fraction=train_fraction, seed=seed)).training_rows
    n, m = sample.sizes
    if min(n, m) < FEWEST_ROWS:
        raise ValueError(f"γ̂ needs at least {FEWEST_ROWS} rows of each sample. There are {n} and {m}.")
    result = relatedness(sample, related_tasks, restarts=3, max_tasks=5, steps=50, seed=seed, progress=progress)
    use = (
        f"It uses the {n} and {m} rows that {spec.name} trains on and does not test, so it may guide the choice."
        if spec.needs_split
        else f"This is exploratory: {spec.name} tests the same {n} and {m} rows, so no choice may depend on it."
    )
    return TargetGamma(result, (n, m), not spec.needs_split, f"{result.sentence} {use}")
