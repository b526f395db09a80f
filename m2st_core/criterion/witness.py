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


def witness_of_rows(gram: Tensor, n: int) -> Tensor:
    """f at each pooled row, of which the first n are x's, from the others: Gram matrix (…, N, N) → (…, N).

    A row's kernel value with itself is left out of the mean over its own sample, or each would look typical of it.
    """
    m = gram.shape[-1] - n
    others = gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))
    own_x = torch.arange(n + m, device=gram.device) < n
    x = others[..., :n].sum(dim=-1) / torch.where(own_x, n - 1, n)
    y = others[..., n:].sum(dim=-1) / torch.where(own_x, m, m - 1)
    return x - y
