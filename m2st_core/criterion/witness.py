"""The witness function: where a kernel sees more of one sample than of the other."""

from __future__ import annotations

import torch
from torch import Tensor

from m2st_core.kernels.base import Kernel


@torch.no_grad()
def witness(kernel: Kernel, x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """f(t) = mean_i k(t, x_i) − mean_j k(t, y_j), of rows (…, n, d), (…, m, d) at places (…, g, d) → (…, g).

    f is positive where the kernel sees more of P and negative where it sees more of Q; the (biased) MMD² is the mean of
    f over the rows of x minus that over the rows of y.
    """
    places = kernel.embed(at)
    more, less = (kernel.gram(places, kernel.embed(rows)).mean(dim=-1) for rows in (x, y))
    return more - less
