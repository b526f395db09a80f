"""What a shared server takes on: a sweep beyond this belongs on the command line."""

from __future__ import annotations

from m2st_core.experiments.cost import predict
from m2st_core.experiments.spec import SpecError, SweepSpec

MOST_CELLS = 20_000
MOST_ROWS = 5_000
MOST_MEMORY = 4 * 2**30
MOST_HOURS = 48


def check_limits(spec: SweepSpec) -> None:
    """A SpecError with everything that is too large to be run here.

    >>> check_limits(SweepSpec(m_te=(100_000,)))
    Traceback (most recent call last):
    m2st_core.experiments.spec.SpecError: m_te=100,000 is too large: 5,000 rows is the most that is run here.
    """
    problems = []
    if spec.size > MOST_CELLS:
        problems.append(f"The grid has {spec.size:,} points, and {MOST_CELLS:,} is the most that is run here.")
    for name in ("m_te", "m_tr", "rows_per_task"):
        values = getattr(spec, name)
        largest = max(values) if isinstance(values, tuple) else values
        if largest > MOST_ROWS:
            problems.append(f"{name}={largest:,} is too large: {MOST_ROWS:,} rows is the most that is run here.")
    if not problems:
        cost = predict(spec)
        if cost.memory_bytes > MOST_MEMORY:
            problems.append(f"A worker would need {cost.memory_bytes / 2**30:.0f} GB. Ask for fewer or smaller tests.")
        if cost.seconds > MOST_HOURS * 3600:
            problems.append(f"It would take {cost.seconds / 3600:,.0f} hours of one core. Ask for less.")
    if problems:
        raise SpecError("\n".join(problems))
