"""What the theorem on Meta-MKL bounds, measured: J* − J(k̂) on fresh rows, as n and m grow.

On HDGM with Δ = 0.7 and each closeness C, five related tasks each train a deep kernel on n rows of each sample, as the
theorem has it: it maximises Ĵ of these rows. Then m rows of the target choose the best of the five, or weigh all of
them. A kernel trained on the m rows alone stands beside them. J is that of fresh rows, the same for all kernels. J* is
approximated by the best of five kernels trained on many rows of the target; other rows say which is best.

``bench theorem`` takes minutes and writes the package's file. Rows are counted per sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from benchmarks.common import parse, processes, stacked
from m2st_core.criterion import criterion_ratio
from m2st_core.data.related import PairedRows
from m2st_core.data.synthetic import HDGM
from m2st_core.device import one_thread_per_operation
from m2st_core.kernels.base import Kernel, copy_with
from m2st_core.kernels.mixtures import Family
from m2st_core.learners.mixtures import KernelTerms, kernel_terms, solve_weights
from m2st_core.learners.target_kernels import fit_deep
from m2st_core.presets import TUNED, AscentSettings
from m2st_core.rng import Streams
from m2st_core.studies.shipped import Shipped, shipped_stamp
from m2st_core.studies.synthetic import DELTA
from m2st_core.studies.theorem import CLOSENESSES, M_ROWS, N_ROWS, REGULARISATION
from m2st_core.types import TwoSample

KERNELS = 5
ASCENT = AscentSettings(steps=120, learning_rate=5e-3, regularisation=REGULARISATION, largest_batch=128)
BEST_ROWS, BEST_ASCENT = 8_000, replace(ASCENT, steps=600, largest_batch=200)
FRESH, BLOCK = 3_000, 1_000  # rows of each sample on which J is measured, a block at a time
TARGET = HDGM(delta=DELTA)


def train(pairs: TwoSample, streams: Streams, ascent: AscentSettings = ASCENT) -> Family:
    """A deep kernel for each of R pairs of samples, (R, n, 2), that maximises Ĵ of its rows; as kernels of one run."""
    count = len(pairs.x)
    children = [streams.child(f"kernel {index}") for index in range(count)]
    rows = TwoSample(pairs.x.float(), pairs.y.float())
    kernel = fit_deep(rows, replace(TUNED, mmd_d=ascent), children).kernel.requires_grad_(False)
    return as_family(copy_with(kernel, lambda tensor: tensor[None]), count)


def as_family(kernel: Kernel, count: int) -> Family:
    """A batch (1, R) of kernels as a family."""
    return Family(kernel, tuple(map(str, range(count))), 1 / count)


def terms_on(kernels: Family, rows: TwoSample, block: int = BLOCK) -> KernelTerms:
    """MMD² and the covariance behind σ̂² of all kernels on rows (n, 2), as means over blocks of them."""
    parts = []
    for x, y in zip(rows.x.float().split(block), rows.y.float().split(block), strict=True):
        parts.append(kernel_terms([kernels], PairedRows(x[None], y[None], torch.ones(1, len(x)))))
    named = ((part.eta, part.sigma, part.null_deviation) for part in parts)
    return KernelTerms(*(torch.stack(values).mean(dim=0) for values in zip(*named, strict=True)))


def criterion_of(terms: KernelTerms, weights: Tensor) -> float:
    """J of the mixture with weights (1, k)."""
    variance = (weights @ terms.sigma[0] * weights).sum(dim=-1)
    return float(criterion_ratio((weights * terms.eta).sum(dim=-1), variance, REGULARISATION))


def chosen_and_weighed(terms: KernelTerms) -> dict[str, Tensor]:
    """Weights (1, k) by what is done with the kernels: the one of largest Ĵ alone, and β that maximises Ĵ."""
    best = terms.criterion(REGULARISATION).argmax(dim=-1)
    return {
        "best": torch.nn.functional.one_hot(best, terms.eta.shape[-1]).to(terms.eta),
        "weighed": solve_weights(terms.eta, terms.sigma, REGULARISATION),
    }


def best_kernel() -> Family:
    """The best of several kernels that were trained long on many rows of the target; other rows say which it is."""
    streams = Streams(0).child("theorem's best kernel")
    many = TARGET.sample(BEST_ROWS, seed=streams.child("training").seed)
    kernels = train(stacked([many] * KERNELS), streams, BEST_ASCENT)
    found = terms_on(kernels, TARGET.sample(FRESH, seed=streams.child("choice").seed)).criterion(0.0)[0]
    print(f"J of kernels with many rows: {found.min():.4f} to {found.max():.4f}", flush=True)
    best = torch.arange(KERNELS) == found.argmax()
    return as_family(kernels.kernel.some(best), 1)


def one_repeat(best: Family, repeat: int) -> list[dict[str, Any]]:
    """J* − J(k̂) on fresh rows, and the smallest σ, by closeness, n, m and what is done, of one draw of everything."""
    with one_thread_per_operation():
        return list(_gaps(best, Streams(repeat).child("theorem")))


def _gaps(best: Family, streams: Streams) -> Iterator[dict[str, Any]]:
    fresh, target = (TARGET.sample(n, seed=streams.child(name).seed) for n, name in ((FRESH, "J"), (M_ROWS[-1], "m")))
    largest = float(terms_on(best, fresh).criterion(0.0))
    firsts = {m: TwoSample(target.x[:m], target.y[:m]) for m in M_ROWS}
    for m, first in firsts.items():
        kernels = train(stacked([first]), streams.child("target alone"))
        yield {
            "done": "alone",
            "m": m,
            "best": largest,
            "gap": largest - float(terms_on(kernels, fresh).criterion(0.0)),
        }
    for closeness in CLOSENESSES:
        seed = streams.child(f"tasks {closeness:g}").seed
        tasks = TARGET.draw_related_tasks(closeness=closeness, n_tasks=KERNELS, rows=N_ROWS[-1], seed=seed)
        for n in N_ROWS:
            pairs = stacked([TwoSample(task.x[:n], task.y[:n]) for task in tasks.values()])
            kernels = train(pairs, streams.child("related tasks"))
            found = terms_on(kernels, fresh)
            smallest = float(found.sigma.diagonal(dim1=-2, dim2=-1).min().sqrt())
            for m, first in firsts.items():
                for done, weights in chosen_and_weighed(terms_on(kernels, first)).items():
                    named = {"done": done, "closeness": closeness, "n": n, "m": m, "sigma": smallest}
                    yield named | {"gap": largest - criterion_of(found, weights)}


def packed(rows: pd.DataFrame) -> Shipped:
    """J* − J(k̂) with its standard error between repeats, and what the bound needs."""
    grouped = rows.groupby(["done", "closeness", "n", "m"], dropna=False)["gap"]
    values = {
        "best": float(rows["best"].mean()),
        "sigma": float(rows["sigma"].min()),
        "repeats": int(rows["repeat"].nunique()),
        "kernels": KERNELS,
        "parameters": sum(one.numel() for one in train(stacked([TARGET.sample(8)]), Streams(0)).kernel.parameters()),
    }
    table = grouped.agg(gap="mean", error="sem").reset_index()
    return Shipped(tables={"gap": table}, values=values, stamp=shipped_stamp([]))


def main(arguments: Sequence[str] = ()) -> None:
    """Measure all repeats and write their means and standard errors."""
    options = parse(arguments, __doc__, repeats=8, workers=2)
    best, rows = best_kernel(), []
    with processes(options.workers) as pool:
        for repeat, found in enumerate(pool.map(partial(one_repeat, best), range(options.repeats))):
            rows += [{"repeat": repeat, **row} for row in found]
            if repeat:
                path = packed(pd.DataFrame(rows)).save("theorem")
                print(f"{path.name} with {repeat + 1} repeats: {path.stat().st_size / 1e3:.0f} kB", flush=True)
