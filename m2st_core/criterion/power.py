"""The criterion a kernel is trained on: a signal-to-noise ratio that grows with the test's power."""

from __future__ import annotations

from torch import Tensor

from m2st_core.criterion.mmd import mmd2_paired, off_diagonal_sum


def variance(h: Tensor) -> Tensor:
    """σ̂² = 4/m³·Σ_i(Σ_jH_ij)² − 4/m⁴·(Σ_ijH_ij)², the paper's eq. (6): (…, m, m) → (…)."""
    means = h.mean(dim=-1)  # over j
    return 4 * means.var(dim=-1, correction=0)


def power_criterion(h: Tensor, regularisation: float) -> Tensor:
    """Ĵ_λ = MMD²/√(σ̂²+λ), the paper's eq. (5): (…, m, m) → (…)."""
    return mmd2_paired(h) / (variance(h) + regularisation).sqrt()


def masked_terms(h: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """MMD² and σ̂² of the rows marked by ``inside`` (…, m), 0 or 1, of a padded H (…, m, m) → (…), (…)."""
    count = inside.sum(dim=-1)
    h = h * inside[..., :, None] * inside[..., None, :]
    mmd2 = off_diagonal_sum(h) / (count * (count - 1)).clamp(min=1)
    means = h.sum(dim=-1) / count.clamp(min=1)[..., None]
    square, mean = ((means**power).sum(dim=-1) / count.clamp(min=1) for power in (2, 1))
    return mmd2, 4 * (square - mean.square()).clamp(min=0)
