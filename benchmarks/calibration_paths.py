"""Levels of every way to a p-value: blocks, analyses, recommendations, uploads, the shell, splits, shared rows."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import m2st_core as m2st
from benchmarks import shared
from benchmarks.calibration_meta import related, unrelated
from benchmarks.common import bound_methods
from benchmarks.levels import ALPHA, N_PERMUTATIONS, cells, hdgm, null_rejections
from benchmarks.uploads import SIZES as UPLOAD_SIZES
from benchmarks.uploads import WAYS, count
from m2st_core.__main__ import main
from m2st_core.analysis.related import unlikeness
from m2st_core.data.arrays import as_blocks
from m2st_core.rng import Streams
from m2st_core.types import TwoSample

HISTORIES_CHECKED = 10


def blocks(runs: int) -> Iterator[Sequence[str]]:
    """Two blocks whose means differ by 2; x has three quarters of its rows in the first, y a third."""
    n, m = 24, 24
    labels = np.repeat([0, 1], [18, 6]), np.repeat([0, 1], [8, 16])
    found = as_blocks(labels, (n, m))

    def draw(n: int, m: int, seed: int) -> TwoSample:
        x, y = hdgm(n, m, seed)
        return TwoSample(
            *(rows + 2.0 * rows.new_tensor(part)[:, None] for rows, part in zip((x, y), labels, strict=True))
        )

    names = ["MMD-M", "MMD-FUSE", "MMD-O", "Meta-FUSE", "Meta-WiTS"]
    for name, method in bound_methods(names, related(0), "recommended", 0).items():
        yield "blocks", name, f"{n}, {m}", *cells(null_rejections(method, draw, n, m, runs, blocks=found), runs)


def analyses(runs: int) -> Iterator[Sequence[str]]:
    """The primary test of ``analyse``."""
    n, m = 20, 30
    learner = m2st.meta_train("Meta-FUSE", related(0), device="cpu")
    for primary in ("MMD-FUSE", "Meta-FUSE"):
        rejected = 0
        for seed in range(runs):
            x, y = hdgm(n, m, Streams(seed).child("analysis").seed)
            settings = {"alpha": ALPHA, "n_permutations": N_PERMUTATIONS, "seed": seed, "device": "cpu"}
            rejected += m2st.analyse(x, y, primary, learners={"Meta-FUSE": learner}, **settings).primary.rejected
        yield "analyse", primary, f"{n}, {m}", *cells(rejected, runs)


def recommendations(runs: int) -> Iterator[Sequence[str]]:
    """The choice from sizes, pooled rows and the check of the history, then the chosen test on the same rows."""
    n, m = 30, 60
    each = max(1, runs // HISTORIES_CHECKED)
    for kind, history in (("related", related), ("unrelated", unrelated)):
        rejected, chosen = 0, set()
        for seed in range(HISTORIES_CHECKED):
            tasks, streams = history(seed), Streams(seed).child(f"recommendation, {kind}")
            check = m2st.check_related_tasks(tasks, (n, m), repeats=4, seed=seed, device="cpu")
            unlike = unlikeness(tasks, (n, m), streams)
            learner = m2st.meta_train("Meta-FUSE", tasks, seed=seed, device="cpu")
            for index in range(each):
                target = streams.child(f"target {index}")
                x, y = hdgm(n, m, target.seed)
                pooled = np.concatenate([x, y])
                known = replace(check, unlike=unlike(pooled))
                name = m2st.recommend(n, m, n_tasks=len(tasks), check=known).method
                chosen.add(name)
                test = learner.test if name == learner.method else m2st.two_sample_test
                settings = {} if name == learner.method else {"method": name}
                result = test(x, y, alpha=ALPHA, n_permutations=N_PERMUTATIONS, seed=target.seed, **settings)
                rejected += result.rejected
        yield f"recommend, {kind} history", " or ".join(sorted(chosen)), f"{n}, {m}", *cells(rejected, each * 10)


def uploads(runs: int) -> Iterator[Sequence[str]]:
    """Files, read and carried out."""
    for name in WAYS:
        if name.startswith(("a learner trained earlier", "two files only: ")):
            way, method = name.split("; ")[0].split(": ")
            found = count(WAYS[name][0], runs, first=10**7)
            yield f"upload, {way}", method, f"{UPLOAD_SIZES[0]}, {UPLOAD_SIZES[1]}", *cells(found.primary, runs)


def shell(runs: int) -> Iterator[Sequence[str]]:
    """Two CSV files and the command ``test``."""
    n, m = 20, 30
    rejected = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{side}.csv") for side in "PQ"]
        for seed in range(runs):
            for path, rows in zip(paths, hdgm(n, m, Streams(seed).child("shell").seed), strict=True):
                np.savetxt(path, rows, delimiter=",", header="a,b", comments="")
            settings = ["--permutations", str(N_PERMUTATIONS), "--seed", str(seed), "--device", "cpu", "--json"]
            with redirect_stdout(io.StringIO()) as said:
                main(["test", *paths, "--method", "MMD-FUSE", *settings])
            rejected += json.loads(said.getvalue())["rejected"]
    yield "shell", "MMD-FUSE", f"{n}, {m}", *cells(rejected, runs)


def several_splits(runs: int) -> Iterator[Sequence[str]]:
    """One p-value from five splits."""
    n, m = 30, 40
    learner = m2st.meta_train("Meta-WiTS", related(0), device="cpu")
    settings = {"alpha": ALPHA, "n_permutations": N_PERMUTATIONS, "device": "cpu", "splits": 5}
    for name, test in (("Meta-WiTS", learner.test), ("C2ST-L", partial(m2st.two_sample_test, method="C2ST-L"))):
        rejected = 0
        for seed in range(runs):
            x, y = hdgm(n, m, Streams(seed).child("several splits").seed)
            rejected += test(x, y, seed=seed, **settings).rejected
        yield "splits=5", name, f"{n}, {m}", *cells(rejected, runs)


def shared_control(runs: int) -> Iterator[Sequence[str]]:
    """A control group that the related tasks have too; docs/shared_rows.md has it rounded, jittered and scaled."""
    rejected = np.sum([shared.null_run("as they are", 10**6 + seed) for seed in range(runs)], axis=0)
    for name, count_ in zip(shared.METHODS, rejected, strict=True):
        yield "shared control group", name, "40, 40", *cells(int(count_), runs)


PATHS: tuple[Callable[[int], Iterator[Sequence[str]]], ...] = (
    blocks,
    analyses,
    recommendations,
    uploads,
    shell,
    several_splits,
    shared_control,
)


def path_levels(runs: int) -> Iterator[Sequence[str]]:
    """Yield the rows of every path in turn."""
    for path in PATHS:
        yield from path(runs)
