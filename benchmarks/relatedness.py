"""γ̂ against the closeness C, beside the published values: HDGM, target Δ=0.7."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import m2st_core as m2st

PUBLISHED = {0.1: 0.035, 0.2: 0.067, 0.3: 0.076, 0.4: 0.104, 0.5: 0.134}


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="m2st_core bench relatedness", description=__doc__)
    parser.add_argument("--rows", type=int, default=2000, help="rows per half and sample")
    parser.add_argument("--tasks", type=int, default=10, help="of 100, at random")
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args(arguments)
    print("| C | published | on training halves | on test halves | largest γ̂_it of each task, test halves | seconds |")
    print("|---|---|---|---|---|---|")
    target = m2st.make_task("hdgm", delta=0.7).sample(2 * options.rows, seed=1)
    for closeness, published in PUBLISHED.items():
        began = time.perf_counter()
        tasks = m2st.hdgm_meta_tasks(closeness, 100, 2 * options.rows, seed=2)
        found = m2st.relatedness(
            target, tasks, restarts=options.restarts, max_tasks=options.tasks, steps=options.steps, seed=3
        )
        worst = found.on_test_rows.max(axis=1)
        print(
            f"| {closeness:g} | {published:.3f} | {found.gamma(on_training_rows=True):.3f} | {found.gamma():.3f} "
            f"| {worst.min():.3f} – {worst.max():.3f} | {time.perf_counter() - began:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
