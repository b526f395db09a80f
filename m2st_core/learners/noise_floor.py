"""γ̂ beside its noise floor: what two samples of one task give."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

FLOOR_LEVEL = 0.95


@dataclass(frozen=True)
class Relatedness:
    """γ̂_it = |Ĵ(target) − Ĵ(task i)| at the kernel of restart t, on both halves of the rows: (tasks, restarts).

    The kernels were chosen on the training halves; the test halves are fresh. The paper used the training halves.
    ``same_task`` has the same numbers on test halves for pairs of samples of one task: (pairs, restarts).
    ``target_share`` is the target's part of the variance of a difference, which is 1/2 for equally many rows.
    """

    task_names: tuple[str, ...]
    on_training_rows: np.ndarray
    on_test_rows: np.ndarray
    same_task: np.ndarray
    target_share: float = 0.5

    def gamma(self, on_training_rows: bool = False) -> float:
        """γ̂ = min_i max_t γ̂_it: the most related task, and the kernel that sets it apart most."""
        return float((self.on_training_rows if on_training_rows else self.on_test_rows).max(axis=1).min())

    @property
    def floor(self) -> float:
        """The noise floor: what γ̂ on test halves exceeds in about 1 of 20 cases if all tasks are equal to the target.

        Then γ̂_i = |e₀ − e_i| with the errors e of Ĵ on target and task i, taken as normal. The root mean square of
        ``same_task``'s largest numbers is their scale. All tasks share e₀, which keeps min_i from falling far.
        """
        scale = float(np.sqrt((self.same_task.max(axis=1) ** 2).mean()))
        return scale * smallest_distance(len(self.on_test_rows), self.target_share, FLOOR_LEVEL)

    @property
    def stands_out(self) -> bool:
        """Whether γ̂ on test halves exceeds the noise floor."""
        return self.gamma() > self.floor

    @property
    def sentence(self) -> str:
        """Whether γ̂ says more than noise, in plain words."""
        if self.stands_out:
            return (
                f"γ̂ = {self.gamma():.3f} stands out from its noise floor {self.floor:.3f}: even the most related task "
                "differs from the target."
            )
        return (
            f"γ̂ = {self.gamma():.3f} does not stand out from its noise floor {self.floor:.3f}: two samples of one task "
            "with as many rows give as much, so it does not tell how related the tasks are."
        )


def smallest_distance(count: int, share: float, level: float) -> float:
    """The quantile of min_i |√s·z₀ − √(1−s)·z_i| for standard normal z₀, …, z_count and the share s of z₀.

    >>> round(smallest_distance(1, 0.5, 0.95), 2)
    1.96
    """
    z = np.linspace(-6, 6, 601)
    weight = norm.pdf(z) / norm.pdf(z).sum()
    own, other = math.sqrt(share), math.sqrt(1 - share)

    def exceeded(distance: float) -> float:
        near = norm.cdf((own * z + distance) / other) - norm.cdf((own * z - distance) / other)
        return float((weight * (1 - near) ** count).sum()) - (1 - level)

    return float(brentq(exceeded, 0, 6))
