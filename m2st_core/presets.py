"""The settings of a method, as frozen dataclasses: the paper's text, its released code, and our own."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from m2st_core.types import Registry, Shape


@dataclass(frozen=True)
class AscentSettings:
    """How a kernel climbs the power criterion Ĵ_λ: Adam, full batch, a fixed number of steps."""

    steps: int
    learning_rate: float
    regularisation: float  # λ
    largest_batch: int | None = None  # rows of each sample in a step, drawn anew; None: all


@dataclass(frozen=True)
class ConvolutionSettings:
    """φ of images: 3×3 convolutions of stride 2, one after another while a side stays ≥ 2, then Linear→features."""

    shape: Shape = (3, 32, 32)  # that of the images at hand
    channels: tuple[int, ...] = (16, 32, 64, 128)
    features: int = 300
    upsample: int = 1  # images are enlarged this much first


@dataclass(frozen=True)
class PretrainingSettings:
    """First weights of a deep kernel of rows: φ learns to classify the tasks' rows, one linear head per task."""

    steps: int = 300
    tasks_per_step: int = 20
    learning_rate: float = 0.02  # Adam, down to 0 by half a cosine
    weight_decay: float = 1e-3  # of the heads
    feature_width: float = 4.0  # σ_φ² at the start, times the median heuristic
    input_width: float = 5.0  # σ_q² likewise
    mixing: float = 0.05  # ε


@dataclass(frozen=True)
class NetworkSettings:
    """φ: Linear d→H→H→H→3d with softplus between; H=None means 3d, as in the paper. For images: convolutions."""

    hidden: int | None = None
    convolutions: ConvolutionSettings | None = None
    standardise: bool = False  # scale the inputs by the training rows' mean and standard deviation
    kaiming: bool = False  # first weights normal with variance 2/fan_in, no biases
    pretraining: PretrainingSettings | None = None  # of Meta-KL's and AGT-KL's start, where rows are not images
    as_published: bool = False  # σ_q²=0.3u, σ_φ²=0.02u, ε=(1e−8u)² at the start, u uniform; steps act on σ and √ε


@dataclass(frozen=True)
class ClassifierSettings:
    """How C2ST trains φ and its linear head: Adam on the cross-entropy, batches of min(rows, 128)."""

    epochs: int
    learning_rate: float
    weight_decay: float = 0.0


@dataclass(frozen=True)
class EmbeddingSettings:
    """How ME and SCF place their J test points."""

    points: int = 5
    steps: int = 300
    learning_rate: float = 0.02
    robust_start: bool = True  # ME's first locations follow the inner half of the rows, not all
    optimise_frequencies: bool = True  # False: SCF keeps its first frequencies and its grid width
    reference: Literal["F", "chi2"] = "F"  # the distribution the statistic is compared with


@dataclass(frozen=True)
class ImageTrainingSettings:
    """How the features of images are learned: a network learns to tell images of the tasks' samples apart."""

    fresh: float = 0.3  # share of the images that the network does not learn from; they decide when to stop
    epochs: int = 60
    batch: int = 128
    learning_rate: float = 3e-3
    weight_decay: float = 1e-3
    shift: int = 2  # images are moved by up to this many pixels
    check_every: int = 2  # epochs
    patience: int = 8  # epochs without a gain on fresh images, after which it stops


@dataclass(frozen=True)
class FeatureSettings:
    """How features are learned from related tasks: discriminants in random Fourier features, in closed form."""

    widths: tuple[float, ...] = (4.0, math.inf, 1.0, 0.25, 0.06, 0.02)  # times the median squared distance; ∞: linear
    prices: tuple[float, ...] = (0.0, 3.0, 3.0, 3.0, 3.0, 3.0)  # log-likelihood on tasks left out that each must gain
    fourier_per_column: int = 50
    fewest_fourier: int = 200
    most_fourier: int = 600
    most_coordinates: int = 224  # of the smooth space in which the tasks are compared
    spaces: int = 6  # of different width, size and order, that are kept
    leading: int = 3  # directions along which the tasks may differ most
    held_out: float = 0.25  # share of each task's rows held out to score what is learned in these features
    convolutions: ConvolutionSettings | None = None  # for images: a network that classifies the tasks' samples
    training: ImageTrainingSettings = ImageTrainingSettings()
    mixed_tasks: int = 10  # random tasks for which Feature-MKL has a separate kernel
    regularisations: tuple[float, ...] = (0.1, 1.0, 10.0)  # candidates for λ of Feature-MKL's β


@dataclass(frozen=True)
class MetaAscentSettings:
    """How one kernel is learned for all tasks: Algorithm 1, or AGT-KL where there are no inner steps."""

    outer_steps: int
    outer_rate: float  # Adam
    tasks_per_step: int
    inner_steps: int  # of gradient ascent on a task's support rows
    inner_rate: float  # η
    regularisation: float  # λ
    starts: int = 1  # independent first weights; held-out tasks choose among them, Meta-MKL mixes all
    second_order: bool = False  # differentiate through the inner steps
    restart: bool = False  # every inner step starts again from θ, as the published code does
    adapts: Literal["all", "network"] = "network"  # what the inner steps change; the rest changes in outer steps only
    ratio_of_means: bool = False  # mean MMD²/√(mean σ̂²+λ) rather than the mean of the tasks' ratios
    pooled_tasks: int = 1  # number of tasks merged into one
    task_share: float = 1.0  # share of the tasks used, the first ones
    support_share: float = 0.5  # share of a task's rows used to adapt; the rest are used to score
    held_out_tasks: float = 0.0  # share of the tasks used to choose when to stop and how far to adapt
    check_every: int = 10  # outer steps


@dataclass(frozen=True)
class AdaptationSettings:
    """How the kernel of Meta-KL or AGT-KL is adapted to the target's training rows."""

    optimiser: Literal["gradient", "Adam"]
    steps: tuple[int, ...]  # if several: chosen on held-out tasks; more steps must gain clearly
    learning_rate: float
    row_share: float = 1.0  # of the rows, drawn anew each step


@dataclass(frozen=True)
class BaseKernelSettings:
    """Meta-MKL's base kernels, and how β is found."""

    tasks: int  # drawn at random
    ascent: AscentSettings  # of each task's kernel, from Meta-KL's start
    ridge: float  # λ of the QP for β
    relative_ridge: float = 0.0  # the same in units of the kernels' mean variance, added to it
    uniform_share: float = 0.0  # share of the weight spread evenly, in case few rows favour a poor kernel
    agt_starts: int = 10  # AGT-MKL's independent initialisations


@dataclass(frozen=True)
class ImageSettings:
    """The settings of a preset that differ for images."""

    convolutions: ConvolutionSettings
    mmd_o: AscentSettings
    mmd_d: AscentSettings
    classifier: ClassifierSettings
    meta_kl: MetaAscentSettings
    features: FeatureSettings = FeatureSettings(leading=9)


@dataclass(frozen=True)
class Preset:
    """Everything a method may set, by name."""

    name: str
    median_start: bool  # widths start at the median heuristic; otherwise σ_φ²=0.1, σ_q²=2d, ε=1e−10, as in DK-for-TST
    mmd_o: AscentSettings
    mmd_d: AscentSettings
    network: NetworkSettings
    classifier: ClassifierSettings
    embedding: EmbeddingSettings
    meta_network: NetworkSettings
    meta_kl: MetaAscentSettings
    adaptation: AdaptationSettings
    base_kernels: BaseKernelSettings
    images: ImageSettings
    features: FeatureSettings = FeatureSettings()

    def on(self, shape: Shape | None) -> Preset:
        """The preset for images of this shape; for other rows, itself."""
        if shape is None:
            return self
        convolutions = replace(self.images.convolutions, shape=shape)
        return replace(
            self,
            mmd_o=self.images.mmd_o,
            mmd_d=self.images.mmd_d,
            classifier=self.images.classifier,
            meta_kl=self.images.meta_kl,
            network=replace(self.network, convolutions=convolutions),
            meta_network=replace(self.meta_network, convolutions=convolutions),
            features=replace(self.images.features, convolutions=convolutions),
        )


ALGORITHM_1 = MetaAscentSettings(
    outer_steps=1000,
    outer_rate=0.01,
    tasks_per_step=10,
    inner_steps=10,
    inner_rate=0.8,
    regularisation=1e-8,
    second_order=True,
    adapts="all",
)
PAPER = Preset(
    name="paper",
    median_start=False,
    mmd_o=AscentSettings(steps=1000, learning_rate=1e-3, regularisation=1e-8),
    mmd_d=AscentSettings(steps=1000, learning_rate=5e-5, regularisation=1e-8),
    network=NetworkSettings(),
    classifier=ClassifierSettings(epochs=1000, learning_rate=1e-3),
    embedding=EmbeddingSettings(robust_start=False, reference="chi2"),
    meta_network=NetworkSettings(),
    meta_kl=ALGORITHM_1,
    adaptation=AdaptationSettings("gradient", steps=(10,), learning_rate=0.8),
    base_kernels=BaseKernelSettings(
        tasks=10, ascent=AscentSettings(steps=20, learning_rate=0.01, regularisation=1e-8), ridge=1e-8, agt_starts=10
    ),
    images=ImageSettings(
        convolutions=ConvolutionSettings(upsample=2),
        mmd_o=AscentSettings(steps=1000, learning_rate=5e-4, regularisation=1e-8),
        mmd_d=AscentSettings(steps=1000, learning_rate=2e-4, regularisation=1e-8, largest_batch=100),
        classifier=ClassifierSettings(epochs=1000, learning_rate=2e-4),
        meta_kl=ALGORITHM_1,
    ),
)
PUBLISHED_INNER_LOOP = replace(
    ALGORITHM_1,
    second_order=False,
    adapts="network",
    restart=True,
    pooled_tasks=2,
    task_share=0.8,
    support_share=0.25,
)
RELEASED = replace(
    PAPER,
    name="released",
    embedding=replace(PAPER.embedding, optimise_frequencies=False),
    meta_network=NetworkSettings(hidden=30, kaiming=True, as_published=True),
    meta_kl=PUBLISHED_INNER_LOOP,
    adaptation=AdaptationSettings("Adam", steps=(50,), learning_rate=5e-5 / 3, row_share=0.2),
    images=replace(PAPER.images, meta_kl=PUBLISHED_INNER_LOOP),
)
TUNED = Preset(
    name="tuned",
    median_start=True,
    mmd_o=AscentSettings(steps=150, learning_rate=0.05, regularisation=1e-3, largest_batch=500),
    mmd_d=AscentSettings(steps=100, learning_rate=5e-3, regularisation=1e-3, largest_batch=500),
    network=NetworkSettings(standardise=True),
    classifier=ClassifierSettings(epochs=200, learning_rate=0.01, weight_decay=1e-4),
    embedding=EmbeddingSettings(steps=100),
    meta_network=NetworkSettings(hidden=30, standardise=True, pretraining=PretrainingSettings()),
    meta_kl=MetaAscentSettings(
        outer_steps=50,
        outer_rate=0.002,
        tasks_per_step=20,
        inner_steps=1,
        inner_rate=0.01,
        regularisation=1e-2,
        starts=5,
        ratio_of_means=True,
        support_share=0.25,
        held_out_tasks=0.2,
    ),
    adaptation=AdaptationSettings("gradient", steps=(0, 1, 5), learning_rate=0.01),
    base_kernels=BaseKernelSettings(
        tasks=5,
        ascent=AscentSettings(steps=5, learning_rate=0.001, regularisation=1e-2),
        ridge=0.0,
        relative_ridge=10.0,
        uniform_share=0.8,
        agt_starts=5,
    ),
    images=ImageSettings(
        convolutions=ConvolutionSettings(features=100),
        mmd_o=AscentSettings(steps=150, learning_rate=0.05, regularisation=1e-3, largest_batch=500),
        mmd_d=AscentSettings(steps=100, learning_rate=1e-3, regularisation=1e-3, largest_batch=100),
        classifier=ClassifierSettings(epochs=30, learning_rate=1e-3, weight_decay=1e-4),
        meta_kl=MetaAscentSettings(
            outer_steps=60,
            outer_rate=1e-3,
            tasks_per_step=5,
            inner_steps=1,
            inner_rate=0.05,
            regularisation=1e-3,
            held_out_tasks=0.2,
        ),
    ),
)
PRESETS: Registry[Preset] = Registry("preset", {preset.name: preset for preset in (PAPER, RELEASED, TUNED)})
