"""What meta-tasks teach, and how it is learned: features, a kernel to start from, base kernels to mix.

``recommended`` learns features first (the warm start); its kernels are inner products of them. ``paper`` and
``released`` learn deep kernels on the rows themselves. From there on all presets share Algorithms 1 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from m2st_core.kernels import MLP, DeepKernel, Kernel, LinearKernel, RootDeepKernel
from m2st_core.kernels.base import map_tensors
from m2st_core.kernels.features import FeatureNetwork, Units
from m2st_core.learners.ascent import Course, part_of
from m2st_core.learners.image_features import part_images
from m2st_core.learners.kernels import maximise_criterion
from m2st_core.learners.meta_features import (
    FourierFeatures,
    ImageFeatures,
    MetaFeatures,
    prior_weights,
    shrunk_heads,
)
from m2st_core.learners.meta_kl import adaptation_scores, fit_meta_kernel, for_runs, reshape_runs
from m2st_core.learners.network import make_cnn, make_network, published_widths
from m2st_core.learners.warm_start import fit_features
from m2st_core.presets import MetaAscent, Preset
from m2st_core.rng import Streams
from m2st_core.tasks.meta import MetaSample
from m2st_core.types import Progress, TwoSample

AGGREGATE = "all tasks"


class Knowledge(nn.Module):
    """What the meta-tasks of R repeats taught; parts that a method does not need are None.

    ``features``: ψ of the warm start. ``kernel``: θ of Meta-KL or AGT-KL, batch (R,), on ψ where there is one.
    ``base``: Meta-MKL's kernels, batch (R, K), with ``base_names``. ``rows``: the tasks' rows without labels (R, n, d).
    ``choices``: what held-out rows decided. ``course``: the training curve.
    """

    rows: Tensor | None

    def __init__(
        self,
        *,
        features: MetaFeatures | None = None,
        kernel: Kernel | None = None,
        base: Kernel | None = None,
        base_names: tuple[str, ...] = (),
        rows: Tensor | None = None,
        choices: dict[str, float] | None = None,
        course: Course | None = None,
    ) -> None:
        super().__init__()
        self.features, self.kernel, self.base = features, kernel, base
        self.register_buffer("rows", rows)
        self.base_names = base_names
        self.choices = choices or {}
        self.course = course or Course.empty()

    def view(self, sample: TwoSample) -> TwoSample:
        """The rows as ``kernel`` and ``base`` see them."""
        if self.features is None:
            return sample
        with torch.no_grad():
            return TwoSample(self.features(sample.x), self.features(sample.y))


Learn = Callable[[MetaSample, Preset, Sequence[Streams], Progress | None], Knowledge]


def learn_features(
    meta: MetaSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """The warm start alone: what Meta-Witness, Meta-WiTS and Meta-FUSE need."""
    assert preset.warm_start is not None
    features, choices = fit_features(meta, preset.warm_start, streams, progress)
    return Knowledge(features=features, choices=choices)


def learn_rows(
    meta: MetaSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """MMD-D w/ AC: all rows of all tasks, without labels."""
    if meta.rows.shape[0] != 1:
        raise ValueError("MMD-D w/ AC learns from one repeat at a time.")
    return Knowledge(rows=meta.take_inside()[None])


def learn_meta_kl(
    meta: MetaSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """Meta-KL: Algorithm 1."""
    return _learn_kernel(meta, preset.meta_kl, preset, streams, progress)


def learn_agt_kl(
    meta: MetaSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """AGT-KL: the kernel that maximises the tasks' mean criterion, without inner steps."""
    return _learn_kernel(meta, replace(preset.meta_kl, inner_steps=0), preset, streams, progress)


def learn_meta_mkl(
    meta: MetaSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """Meta-MKL: Algorithm 3 from Meta-KL's start."""
    known = learn_meta_kl(meta, preset, streams, part_of(progress, 0, 0.9))
    return _with_base_kernels(known, meta, preset, streams, part_of(progress, 0.9, 1))


def learn_agt_mkl(
    meta: MetaSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """AGT-MKL: the same from AGT-KL's start, or from several independent ones, one for each base kernel."""
    starts = min(preset.base_kernels.agt_starts, len(meta.names))
    if starts == 1:
        known = learn_agt_kl(meta, preset, streams, part_of(progress, 0, 0.9))
    else:
        many = [stream.child(f"start {k}") for stream in streams for k in range(starts)]
        known = learn_agt_kl(meta.repeated(starts), preset, many, part_of(progress, 0, 0.9))
    return _with_base_kernels(known, meta, preset, streams, part_of(progress, 0.9, 1))


def _learn_kernel(
    meta: MetaSample, settings: MetaAscent, preset: Preset, streams: Sequence[Streams], progress: Progress | None
) -> Knowledge:
    """θ from its start by Algorithm 1, and how many steps of adaptation pay, if held-out rows may choose."""
    if preset.warm_start is None:
        deep = _deep_start(meta, preset, streams).float()
        course = fit_meta_kernel(deep, meta.with_rows(meta.rows.float()), None, settings, streams, progress)
        steps = preset.adaptation.steps[0]
        return Knowledge(kernel=deep.double(), choices={"adaptation steps": steps}, course=course)
    features, chosen = fit_features(meta, preset.warm_start, streams, part_of(progress, 0, 0.5))
    fresh = part_images(meta, preset.warm_start, streams).fresh
    support, query = features.view(fresh, preset.warm_start, streams)
    rows = int(meta.sizes.double().mean())
    kernel = LinearKernel(torch.diag_embed(prior_weights(features, rows).sqrt()))
    course = fit_meta_kernel(kernel, support, query, settings, streams, part_of(progress, 0.5, 1))
    scores = adaptation_scores(kernel, support, query, settings, preset.adaptation.steps, streams)
    best = max(scores, key=lambda steps: scores[steps])
    choices = (
        chosen | {"adaptation steps": best} | {f"held-out criterion, {n} steps": value for n, value in scores.items()}
    )
    return Knowledge(features=features, kernel=kernel, choices=choices, course=course)


def _deep_start(meta: MetaSample, preset: Preset, streams: Sequence[Streams]) -> DeepKernel:
    """A fresh deep kernel, one per repeat."""
    rows = meta.rows
    network = make_network(rows, preset.meta_network, streams)
    if preset.meta_network.as_published:
        u = torch.stack([torch.rand(3, generator=s.torch("first widths"), dtype=torch.float64) for s in streams]).T
        input_width, feature_width, root = u.to(rows) * torch.tensor([[0.3], [0.02], [1e-8]]).to(rows)
        return RootDeepKernel(network, feature_width, input_width, root.square())
    return DeepKernel(network, *published_widths(rows, preset.meta_network))


def _with_base_kernels(
    known: Knowledge, meta: MetaSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None
) -> Knowledge:
    """One kernel for each of a few random tasks, from θ, which they replace; the warm start adds the aggregate."""
    settings, repeats = preset.base_kernels, meta.rows.shape[0]
    assert known.kernel is not None
    count = min(settings.tasks, len(meta.names))
    orders = [torch.randperm(len(meta.names), generator=stream.torch("base tasks"))[:count] for stream in streams]
    which = torch.stack(orders).to(meta.rows.device)  # R x K
    names = tuple(meta.names[int(task)] for task in which[0])
    if settings.ascent is None:
        assert known.features is not None and isinstance(known.kernel, LinearKernel) and preset.warm_start is not None
        fresh = part_images(meta, preset.warm_start, streams).fresh
        heads = shrunk_heads(known.features, fresh).take_along_dim(which[..., None], dim=1)  # R x K x Q
        matrix = known.kernel.matrix.detach()[:, None]  # R x 1 x Q x Q
        padded = torch.zeros_like(matrix).repeat(1, count, 1, 1)
        padded[..., 0] = heads
        base: Kernel = LinearKernel(torch.cat([matrix, padded], dim=1))
        names = (AGGREGATE, *names)
    else:
        base = known.kernel if len(next(known.kernel.parameters())) != repeats else for_runs(known.kernel, count)
        _, rows = meta.draw_pairs(which, 0.0, [stream.torch("base rows") for stream in streams])
        smallest = int(rows.inside.sum(dim=-1).min())
        sample = TwoSample(rows.x[:, :smallest], rows.y[:, :smallest])
        children = [stream.child(f"base {k}") for stream in streams for k in range(count)]
        maximise_criterion(base, sample, settings.ascent, children, progress)
        reshape_runs(base, repeats, count)
    known.base, known.base_names, known.kernel = base.requires_grad_(False), names, None
    return known


def rebuild(state: dict[str, Tensor], preset: Preset) -> Knowledge:
    """The module that has this state; its parts and their sizes are those of the tensors (and of the images)."""

    def part(name: str) -> dict[str, Tensor]:
        return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}

    def kernel(tensors: dict[str, Tensor]) -> Kernel | None:
        if not tensors:
            return None
        if "matrix" in tensors:
            return LinearKernel(torch.zeros_like(tensors["matrix"]))
        published = "root_input_width" in tensors
        ones = torch.ones_like(tensors["root_input_width" if published else "log_input_width"])
        return (RootDeepKernel if published else DeepKernel)(_network(tensors, preset), ones, ones, 0.5 * ones)

    features = part("features")
    known = Knowledge(
        features=_features(features, preset) if features else None,
        kernel=kernel(part("kernel")),
        base=kernel(part("base")),
        rows=torch.zeros_like(state["rows"]) if "rows" in state else None,
    )
    known.load_state_dict(state)
    return known


def _features(state: dict[str, Tensor], preset: Preset) -> MetaFeatures:
    if preset.meta_network.convolutions is not None:
        network = make_cnn(preset.meta_network.convolutions, [torch.Generator() for _ in state["prior"]])
        network.frozen = True
        return ImageFeatures(network, state["prior"].shape[-1])
    return FourierFeatures(Units(state["centre"], state["scale"]), state["frequencies"], state["prior"].shape[-1])


def _network(state: dict[str, Tensor], preset: Preset) -> FeatureNetwork:
    """A network with the sizes, and batch shape, of these tensors."""
    convolutions = preset.meta_network.convolutions
    if convolutions is not None:
        lead = state["network.bias"].shape[:-2]
        cnn = make_cnn(convolutions, [torch.Generator() for _ in range(lead.numel())])
        map_tensors(cnn, lambda tensor: tensor.reshape(*lead, *tensor.shape[1:]))
        return cnn
    prefix = "network.weights."
    weights = [state[f"{prefix}{layer}"] for layer in range(sum(name.startswith(prefix) for name in state))]
    sizes = [weights[0].shape[-2], *(weight.shape[-1] for weight in weights)]
    network = MLP(sizes, [torch.Generator() for _ in range(weights[0].shape[:-2].numel())])
    map_tensors(network, lambda tensor: tensor.reshape(*weights[0].shape[:-2], *tensor.shape[1:]))
    return network
