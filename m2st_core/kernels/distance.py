"""Kernels that are functions of a distance: Gaussian, Laplace and energy; and the median heuristic."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from m2st_core.kernels.base import Kernel, Rows
from m2st_core.rng import Streams, draw_rows

SMALLEST_EXPONENT = -80.0  # exp of anything below is a denormal float32, which processors handle slowly
CENTRE_ROWS = 64
MEDIAN_ROWS = 500  # of which the median heuristic is taken


def negative_squared_distances(
    a: Tensor, b: Tensor, dtype: torch.dtype | None = None, smallest: float | None = None
) -> Tensor:
    """−‖a_i−b_j‖², (…, n, m), as one matrix product. Values are clamped to [``smallest``, 0]."""
    left, right = distance_factors(a, b)
    return (left @ right.mT).to(dtype or a.dtype).clamp_(min=smallest, max=0)


def distance_factors(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Rows extended by their squared lengths, (…, n, d+2) and (…, m, d+2), whose product is −‖a_i−b_j‖².

    Both sides are first shifted by the median of some rows of b: a large common offset, or one huge row, then costs no
    digits.
    """
    every = math.ceil(b.shape[-2] / CENTRE_ROWS)
    centre = b.detach()[..., ::every, :].median(dim=-2, keepdim=True).values
    a, b = a - centre, b - centre
    a_length, b_length = (rows.square().sum(dim=-1, keepdim=True) for rows in (a, b))
    left = torch.cat([a, a_length, torch.ones_like(a_length)], dim=-1)
    return left, torch.cat([2 * b, -torch.ones_like(b_length), -b_length], dim=-1)


class GaussianKernel(Kernel):
    """k(x, y) = exp(−‖x−y‖²/σ²), without a factor 2; ``width`` is σ² > 0, of any batch shape.

    >>> GaussianKernel(torch.tensor(4.0))(torch.tensor([[0.0]]), torch.tensor([[2.0]])).item() # doctest: +ELLIPSIS
    0.3678...
    """

    def __init__(self, width: Tensor) -> None:
        super().__init__()
        self.log_width = nn.Parameter(width.log())

    @property
    def width(self) -> Tensor:
        """σ²."""
        return self.log_width.exp()

    def embed(self, x: Tensor) -> Rows:
        """Rows divided by the largest σ of a family (…, k), so that all widths share their distances."""
        return (x * torch.exp(-0.5 * _widest(self.log_width))[..., None, None],)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """exp(−distance²·σ²_max/σ²)."""
        if self.log_width.ndim < 2 or self.log_width.shape[-1] == 1:
            return negative_squared_distances(first[0], second[0], dtype, SMALLEST_EXPONENT).exp_()
        squares = negative_squared_distances(first[0], second[0], dtype)
        return (squares * width_ratios(self.log_width, squares)).clamp_(min=SMALLEST_EXPONENT).exp_()


class LaplaceKernel(Kernel):
    """k(x, y) = exp(−‖x−y‖₁/σ); ``width`` is σ > 0, of any batch shape.

    >>> LaplaceKernel(torch.tensor(2.0))(torch.zeros(1, 2), torch.ones(1, 2)).item() # doctest: +ELLIPSIS
    0.3678...
    """

    def __init__(self, width: Tensor) -> None:
        super().__init__()
        self.log_width = nn.Parameter(width.log())

    def embed(self, x: Tensor) -> Rows:
        """Rows divided by the largest σ of a family (…, k), so that all widths share their distances."""
        return (x * torch.exp(-_widest(self.log_width))[..., None, None],)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """exp(−distance·σ_max/σ)."""
        distances = torch.cdist(first[0], second[0], p=1.0)
        distances = distances.to(dtype or distances.dtype)
        return (distances * -width_ratios(self.log_width, distances)).clamp_(min=SMALLEST_EXPONENT).exp_()


def _widest(log_width: Tensor) -> Tensor:
    """The log width by which rows are divided: the largest of a family (…, k), otherwise each kernel's own."""
    return log_width.amax(dim=-1, keepdim=True) if log_width.ndim > 1 else log_width


def width_ratios(log_width: Tensor, distances: Tensor) -> Tensor:
    """The family's largest width over each width, (…, k, 1, 1), which multiply the distances of embedded rows."""
    return torch.exp(_widest(log_width) - log_width)[..., None, None].to(distances)


class EnergyKernel(Kernel):
    """k(x, y) = ‖x−o‖ + ‖y−o‖ − ‖x−y‖, whose MMD² is the energy distance; ``centre`` o is (…, 1, d), a buffer.

    The energy distance is 2E‖x−y‖ − E‖x−x'‖ − E‖y−y'‖. It does not depend on o, which makes k positive semi-definite.
    ``norm`` is 2 for Euclidean distances and 1 for ℓ₁, the sum of the columns' energy distances.

    >>> EnergyKernel(torch.zeros(1, 1))(torch.tensor([[2.0]]), torch.tensor([[3.0]])).item()
    4.0
    """

    centre: Tensor

    def __init__(self, centre: Tensor, norm: float = 2.0) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.norm = norm

    def embed(self, x: Tensor) -> Rows:
        """Rows measured from the centre."""
        return (x - self.centre,)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Distances to the centre, minus those between rows."""
        lengths = (torch.linalg.vector_norm(rows[0], self.norm, dim=-1, keepdim=True) for rows in (first, second))
        distances = torch.cdist(first[0], second[0], p=self.norm, compute_mode="donot_use_mm_for_euclid_dist")
        return (next(lengths) + next(lengths).mT - distances).to(dtype or distances.dtype)


@torch.no_grad()
def median_width(rows: Tensor, streams: Sequence[Streams]) -> Tensor:
    """The median heuristic σ² = median ‖x_i−x_j‖² of at most 500 rows, drawn blind to the labels: (R, n, d) → (R,)."""
    generators = [stream.torch("median heuristic") for stream in streams]
    return median_squared_distance(draw_rows(rows, min(rows.shape[-2], MEDIAN_ROWS), generators))


def median_squared_distance(x: Tensor) -> Tensor:
    """The median of ‖x_i−x_j‖² over i<j: (…, n, d) → (…).

    If it is 0, the median of the positive distances is used; identical rows give 1.
    """
    n = x.shape[-2]
    i, j = torch.triu_indices(n, n, offset=1, device=x.device)
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")[..., i, j]  # … x n(n-1)/2
    medians = _median(distances)
    if not bool((medians > 0).all()):
        positive = distances.where(distances > 0, torch.nan)
        medians = medians.where(medians > 0, _median(positive).nan_to_num(nan=1.0))
    return medians.square()


def _median(values: Tensor) -> Tensor:
    """The median over the last dimension, ignoring nan; the mean of the two middle values if their number is even."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy warns about runs that have nan only
        return torch.as_tensor(np.nanmedian(values.cpu().numpy(), axis=-1)).to(values)
