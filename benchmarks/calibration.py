"""Does every test keep its level? Rejection rates at α=0.05 over many independent null runs, as a Markdown table.

A rate is inside the band if a binomial with p=0.05 gives it with 99 % probability; of a hundred cells about one may
fall outside by chance. B=99, so an exact p-value of at most 0.05 has probability exactly 0.05.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from scipy import stats

import m2st_core as m2st
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.testing import run_tests
from m2st_core.types import TwoSample

ALPHA, N_PERMUTATIONS, AT_ONCE = 0.05, 99, 250


def hdgm(n: int, m: int, seed: int) -> TwoSample:
    """HDGM's P, twice."""
    return m2st.make_task("hdgm", null=True).sample(n, m, seed=seed)


def heavy_tails(n: int, m: int, seed: int) -> TwoSample:
    """Student t with 1.5 degrees of freedom in two columns: no variance."""
    rows = Streams(seed).numpy("heavy tails").standard_t(1.5, size=(n + m, 2))
    return TwoSample(torch.from_numpy(rows[:n]), torch.from_numpy(rows[n:]))


NULLS = {"HDGM": hdgm, "Student t, 1.5 d.f.": heavy_tails}


def rejection_rate(method: str, null: str, n: int, m: int, runs: int, preset: str = "recommended") -> float:
    """The share of null runs that reject."""
    rejected = 0
    for start in range(0, runs, AT_ONCE):
        seeds = range(start, min(start + AT_ONCE, runs))
        pairs = [NULLS[null](n, m, seed) for seed in seeds]
        batch = TwoSample(torch.stack([pair.x for pair in pairs]), torch.stack([pair.y for pair in pairs]))
        results = run_tests(
            batch,
            m2st.METHODS[method],
            seeds=[Streams(seed).child("test").seed for seed in seeds],
            alpha=ALPHA,
            n_permutations=N_PERMUTATIONS,
            preset=PRESETS[preset],
        )
        rejected += sum(result.rejected for result in results)
    return rejected / runs


def verdict(rate: float, runs: int) -> str:
    """Inside, below or above the 99 % band."""
    low, high = (value / runs for value in stats.binom.interval(0.99, runs, ALPHA))
    return "inside" if low <= rate <= high else "**above**" if rate > high else "below"


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study; write the table where --out says."""
    parser = argparse.ArgumentParser(prog="m2st_core bench calibration", description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--out", type=Path, help="write the Markdown table to this file too")
    options = parser.parse_args(arguments)
    runs = options.runs
    low, high = np.array(stats.binom.interval(0.99, runs, ALPHA)) / runs
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    say("# Type-I error of every test")
    say("")
    say(f"{runs:,} independent null runs per cell, α=0.05, 99 % band [{low:.4f}, {high:.4f}], preset `recommended`,")
    say("half of the rows to learn from. Made by `python -m m2st_core bench calibration --out docs/calibration.md`.")
    say("")
    say("| method | null | rows n, m per sample | rejection rate | 99 % band |")
    say("|---|---|---|---|---|")
    for name, method in m2st.METHODS.items():
        if method.needs_meta:
            continue
        sizes = ((60, 60), (40, 80)) if method.exact else ((500, 500), (500, 700))
        for null in NULLS:
            for n, m in sizes:
                rate = rejection_rate(name, null, n, m, runs)
                say(f"| {name} | {null} | {n}, {m} | {rate:.4f} | {verdict(rate, runs)} |")
    say("")
    say("## ME and SCF with few rows")
    say("")
    say("Their p-values are asymptotic. `recommended` refers the statistic to Hotelling's F, `paper` to χ².")
    say("")
    say("| method | rows n=m per sample | tested | rate with F (`recommended`) | rate with χ² (`paper`) |")
    say("|---|---|---|---|---|")
    for name in ("ME", "SCF"):
        for n in (30, 60, 100, 200):
            with_f, with_chi2 = (rejection_rate(name, "HDGM", n, n, runs, p) for p in ("recommended", "paper"))
            say(f"| {name} | {n} | {n // 2} | {with_f:.4f} | {with_chi2:.4f} |")
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
