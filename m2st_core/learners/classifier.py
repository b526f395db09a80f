"""Classifiers of rows: C2ST, and the first weights of deep kernels that are learned from related tasks.

From a hundred rows, the gradient of Ĵ is mostly noise; that of the cross-entropy is not. So φ first learns to classify
the rows of all tasks, with a linear head for each task: tasks need not name their samples in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.distance import median_width
from m2st_core.kernels.networks import MLP, FeatureNetwork
from m2st_core.learners.ascent import ascend
from m2st_core.learners.target_kernels import make_network
from m2st_core.permutation.fitted import LabelTest, ProbabilityTest
from m2st_core.presets import Preset, PretrainingSettings
from m2st_core.rng import Streams, random_orders
from m2st_core.types import Progress, TwoSample

BATCH_ROWS = 128
FLOOR = 0.01  # least strength of a direction, as a share of its noise variance


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
    """Minimise the cross-entropy on the training rows (R, n, d), (R, m, d), with equal weight for both classes."""
    rows = train.pooled
    (n, m), device = train.sizes, rows.device
    network = make_network(rows, preset.network, streams)
    head = MLP((network.features, 1), [stream.torch("first head") for stream in streams])
    classifier = RowClassifier(network, head.to(rows))
    target = (torch.arange(n + m, device=device) < n).to(rows)
    weight = torch.where(target == 1, (n + m) / (2 * n), (n + m) / (2 * m))
    batches = _Batches(n + m, [stream.torch("training batches") for stream in streams], device)

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


def fit_probabilities(
    train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> ProbabilityTest:
    """C2ST-L: compare the classifier's mean probability of P."""
    return ProbabilityTest(fit_classifier(train, preset, streams, progress))


def fit_labels(
    train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> LabelTest:
    """C2ST-S: compare how often the classifier predicts P."""
    return LabelTest(fit_classifier(train, preset, streams, progress))


class _Batches:
    """Row indices of successive batches; each epoch visits the rows in a new random order.

    Indices are drawn on the CPU and copied to the device once per epoch.
    """

    def __init__(self, rows: int, generators: Sequence[torch.Generator], device: torch.device) -> None:
        self.rows = rows
        self.generators = generators
        self.device = device
        self.per_epoch = -(-rows // BATCH_ROWS)
        self.remaining: list[Tensor] = []

    def next(self) -> Tensor:
        """The next batch of each run: (R, up to 128)."""
        if not self.remaining:
            order = random_orders(self.rows, self.generators).to(self.device)
            self.remaining = list(order.split(BATCH_ROWS, dim=-1))
        return self.remaining.pop(0)


def pretrained_kernel(
    network: MLP, meta: RelatedTasks, tasks: Tensor, settings: PretrainingSettings, streams: Sequence[Streams]
) -> DeepKernel:
    """A deep kernel whose network has learned to classify these tasks (R, T), with widths from the median heuristic.

    ``align_classifier`` rescales the last layer so that distances between features reflect how tasks' samples differ.
    """
    train_classifier(network, meta, tasks, settings, streams)
    align_classifier(network, meta, tasks)
    rows = network.normalise(meta.rows)
    feature_width = median_width(network(rows).detach(), streams)
    input_width = median_width(rows, streams)
    feature_width = torch.where(feature_width > 0, settings.feature_width * feature_width, 1.0)
    mixing = torch.full_like(input_width, settings.mixing)
    return DeepKernel(network, feature_width, settings.input_width * input_width, mixing)


def train_classifier(
    network: MLP, meta: RelatedTasks, tasks: Tensor, settings: PretrainingSettings, streams: Sequence[Streams]
) -> None:
    """Minimise the mean cross-entropy of w_iᵀφ(x)+b_i over the tasks; φ is the network's, w_i and b_i are task i's."""
    repeats, count = tasks.shape
    heads = nn.Parameter(meta.rows.new_zeros(repeats, count, network.features + 1))
    groups: list[dict[str, Any]] = [
        {"params": list(network.parameters())},
        {"params": [heads], "weight_decay": settings.weight_decay},
    ]
    optimiser = torch.optim.Adam(groups, lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps)
    generators = [stream.torch("tasks of the classifier") for stream in streams]
    labels, inside = (meta.x_weight > 0).to(meta.rows), meta.inside.to(meta.rows)
    for _ in range(settings.steps):
        batch = random_orders(count, generators)[:, : settings.tasks_per_step].to(tasks.device)
        which = tasks.take_along_dim(batch, dim=1)[..., None]  # R x t x 1
        rows = meta.take(meta.where.take_along_dim(which, dim=1))  # R x t x L x d
        features = network(network.normalise(rows.flatten(1, 2))).unflatten(1, rows.shape[1:3])
        head = heads.take_along_dim(batch[..., None], dim=1)[..., None]  # R x t x (f+1) x 1
        logits = (features @ head[..., :-1, :] + head[..., -1:, :])[..., 0]
        label, mask = labels.take_along_dim(which, dim=1), inside.take_along_dim(which, dim=1)
        loss = functional.binary_cross_entropy_with_logits(logits, label, mask, reduction="none").sum(dim=(1, 2))
        optimiser.zero_grad()
        (loss / mask.sum(dim=(1, 2))).sum().backward()
        optimiser.step()
        schedule.step()


@torch.no_grad()
def align_classifier(network: MLP, meta: RelatedTasks, tasks: Tensor) -> None:
    """Multiply the last layer by Σ^(−½)·U·√s, so that distances count what differs between the samples of a task.

    Σ is the covariance of φ within the samples. In whitened features the difference of a task's means d_i has noise of
    variance τ_i = 1/n_i+1/m_i in every direction, so mean_i(d_i d_iᵀ − τ_i·I) = U diag(s) Uᵀ estimates how far tasks
    differ along each. Directions in which tasks do not differ get strength FLOOR·τ.
    """
    which, batch = tasks[..., None], (meta.x_weight, meta.y_weight, meta.where)
    x_weight, y_weight, where = (tensor.take_along_dim(which, dim=1) for tensor in batch)
    phi = meta.with_rows(network(network.normalise(meta.rows)).double()).take(where)  # R x T x L x f
    x_mean, y_mean = (torch.einsum("rtl,rtlf->rtf", weight, phi) for weight in (x_weight, y_weight))
    of_x, of_y = ((weight > 0).to(phi)[..., None] for weight in (x_weight, y_weight))
    centred = (phi - x_mean[:, :, None]) * of_x + (phi - y_mean[:, :, None]) * of_y
    degrees = (of_x + of_y).sum(dim=(1, 2, 3)) - 2 * tasks.shape[1]
    covariance = torch.einsum("rtlf,rtlg->rfg", centred, centred) / degrees.clamp(min=1)[:, None, None]
    values, vectors = torch.linalg.eigh(covariance)
    least = 1e-6 * values[:, -1:] + torch.finfo(values.dtype).tiny
    white = vectors * values.clamp(min=least).rsqrt()[:, None]
    difference = (x_mean - y_mean) @ white
    noise = (x_weight.square() + y_weight.square()).sum(dim=-1).mean(dim=1)[:, None]
    spread = difference.mT @ difference / tasks.shape[1] - torch.diag_embed(noise.expand(-1, phi.shape[-1]))
    strength, directions = torch.linalg.eigh(spread)
    change = white @ (directions * strength.clamp(min=FLOOR * noise).sqrt()[:, None])
    for last in (network.weights[-1], network.biases[-1]):
        last.copy_((last.double() @ change).to(last))
