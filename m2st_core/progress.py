"""The progress of long work: its stages, and the time left."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from m2st_core.types import Progress

SETTLING = 10.0  # seconds: time constant of the smoothing


def part_of(progress: Progress | None, start: float, end: float) -> Progress | None:
    """The progress of the stage from ``start`` to ``end``, two shares of the whole, in thousandths."""
    if progress is None:
        return None
    return lambda step, total, value: progress(round(1000 * (start + (end - start) * step / total)), 1000, value)


@dataclass
class Pace:
    """Smoothed estimate of the seconds left. None until a share ``least`` is done, when it becomes reliable."""

    least: float = 0.1
    began: float = field(default_factory=time.monotonic)
    _at: float = 0.0
    _left: float | None = None

    def left(self, share: float) -> float | None:
        """The seconds left when this share of the work is done."""
        now = time.monotonic()
        if share < self.least:
            return None
        estimate = (now - self.began) * (1 - share) / share
        if self._left is None:
            self._left = estimate
        else:
            expected = max(0.0, self._left - (now - self._at))
            self._left = expected + (estimate - expected) * (1 - math.exp((self._at - now) / SETTLING))
        self._at = now
        return self._left
