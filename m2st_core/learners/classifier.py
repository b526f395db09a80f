"""The classifier of C2ST-S and C2ST-L: φ and a linear head, trained to tell P's rows from Q's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from m2st_core.kernels.features import MLP, FeatureNetwork
from m2st_core.learners.ascent import ascend
from m2st_core.learners.network import make_network
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

BATCH_ROWS = 128


class RowClassifier(nn.Module):
    """The logit of "this row comes from P", f(x) = φ(x)·w + b: (R, n, d) → (R, n)."""

    def __init__(self, network: FeatureNetwork, head: MLP) -> None:
        super().__init__()
        self.network = network
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """f of each row."""
        return self.head(self.network(self.network.normalise(x)))[..., 0]


def fit_classifier(
    train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> RowClassifier:
    """Minimise the cross-entropy on the training rows (R, n, d), (R, m, d), both classes weighing the same."""
    rows = train.pooled
    (n, m), device = train.sizes, rows.device
    network = make_network(rows, preset.network, streams)
    head = MLP((network.features, 1), [stream.torch("first head") for stream in streams])
    classifier = RowClassifier(network, head.to(rows))
    target = (torch.arange(n + m, device=device) < n).to(rows)
    weight = torch.where(target == 1, (n + m) / (2 * n), (n + m) / (2 * m))
    batches = Batches(n + m, [stream.torch("training batches") for stream in streams], device)

    def log_likelihood() -> Tensor:
        index = batches.next()  # R x batch
        logits = classifier(rows.take_along_dim(index[..., None], dim=-2))
        losses = functional.binary_cross_entropy_with_logits(logits, target[index], weight[index], reduction="none")
        return -losses.mean(dim=-1)

    settings = preset.classifier
    ascend(
        classifier.parameters(),
        log_likelihood,
        steps=settings.epochs * batches.per_epoch,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        progress=progress,
    )
    return classifier


class Batches:
    """Row indices of one batch after another; each epoch visits the rows in a new random order.

    They are drawn on the CPU and brought to the device once per epoch.
    """

    def __init__(self, rows: int, generators: Sequence[torch.Generator], device: torch.device) -> None:
        self.rows = rows
        self.generators = generators
        self.device = device
        self.per_epoch = -(-rows // BATCH_ROWS)
        self.left: list[Tensor] = []

    def next(self) -> Tensor:
        """The next batch of each run: (R, up to 128)."""
        if not self.left:
            order = torch.stack([torch.randperm(self.rows, generator=generator) for generator in self.generators])
            self.left = list(order.to(self.device).split(BATCH_ROWS, dim=-1))
        return self.left.pop(0)
