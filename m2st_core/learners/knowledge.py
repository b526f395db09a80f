"""What is learned from related tasks, as one module that can be saved and rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.base import Kernel, LinearKernel, map_tensors
from m2st_core.kernels.deep import DeepKernel, RootDeepKernel
from m2st_core.kernels.networks import MLP, FeatureNetwork, make_cnn
from m2st_core.learners.ascent import Course
from m2st_core.learners.raw_features import FourierFeatures, ImageFeatures, MetaFeatures
from m2st_core.learners.units import Units
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress

Learned = TypeVar("Learned")


class Knowledge(nn.Module):
    """The result of learning from the related tasks of R repeats. Entries that a method does not need are None.

    ``kernel``: θ of Meta-KL or AGT-KL, a deep kernel, batch (R,). ``base``: kernels to mix, batch (R, K), with
    ``base_names``: deep kernels or, for Feature-MKL, inner products of features ψ. ``spaces``: several ψ, the likeliest
    first. ``rows``: the tasks' rows without labels (R, n, d). ``senses`` (R, T): E[sign] of each task's difference
    along the tasks' common direction. ``choices``: settings chosen on held-out tasks. ``course``: the training curve.
    """

    rows: Tensor | None
    senses: Tensor | None

    def __init__(
        self,
        *,
        spaces: Sequence[MetaFeatures] = (),
        kernel: Kernel | None = None,
        base: Kernel | None = None,
        base_names: tuple[str, ...] = (),
        rows: Tensor | None = None,
        senses: Tensor | None = None,
        choices: dict[str, float] | None = None,
        course: Course | None = None,
    ) -> None:
        super().__init__()
        self.spaces = nn.ModuleList(spaces)
        self.kernel, self.base = kernel, base
        self.register_buffer("rows", rows)
        self.register_buffer("senses", senses)
        self.base_names = base_names
        self.choices = choices or {}
        self.course = course or Course.empty()


def learned_spaces(knowledge: Knowledge) -> list[MetaFeatures]:
    """All feature spaces, the likeliest first."""
    spaces = [space for space in knowledge.spaces if isinstance(space, MetaFeatures)]
    if not spaces:
        raise ValueError("This learner has no features. Train it again for this method.")
    return spaces


def needed_knowledge(learned: Learned | None, name: str) -> Learned:
    """Return an entry of Knowledge, or raise a ValueError if this learner has none."""
    if learned is None:
        raise ValueError(f"This learner has no {name}. Train it again for this method.")
    return learned


Learn = Callable[[RelatedTasks, Preset, Sequence[Streams], Progress | None], Knowledge]


def rebuild_knowledge(state: dict[str, Tensor], preset: Preset) -> Knowledge:
    """The module that has this state. Its entries and their sizes follow from the tensors (and the preset's images)."""

    def entries(name: str) -> dict[str, Tensor]:
        return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}

    def kernel(tensors: dict[str, Tensor]) -> Kernel | None:
        if not tensors:
            return None
        if "matrix" in tensors:
            return LinearKernel(torch.zeros_like(tensors["matrix"]))
        published = "root_input_width" in tensors
        ones = torch.ones_like(tensors["root_input_width" if published else "log_input_width"])
        return (RootDeepKernel if published else DeepKernel)(_network(tensors, preset), ones, ones, 0.5 * ones)

    count = len({name.split(".")[1] for name in state if name.startswith("spaces.")})
    knowledge = Knowledge(
        spaces=[_features(entries(f"spaces.{index}"), preset) for index in range(count)],
        kernel=kernel(entries("kernel")),
        base=kernel(entries("base")),
        rows=torch.zeros_like(state["rows"]) if "rows" in state else None,
        senses=torch.zeros_like(state["senses"]) if "senses" in state else None,
    )
    knowledge.load_state_dict(state, assign=True)  # with the dtype in which they were saved
    return knowledge


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
