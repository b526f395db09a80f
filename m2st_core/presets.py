"""The three presets: values of one frozen configuration, not forks of the code."""

from __future__ import annotations

from dataclasses import replace

from m2st_core.preset import (
    Adaptation,
    Ascent,
    BaseKernels,
    Classifier,
    Convolutions,
    Embedding,
    FeatureLearning,
    Images,
    MetaAscent,
    Network,
    Preset,
    Pretraining,
)
from m2st_core.types import Registry

ALGORITHM_1 = MetaAscent(
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
    p_value="b/B, ≥",
    median_start=False,
    mmd_o=Ascent(steps=1000, learning_rate=1e-3, regularisation=1e-8),
    mmd_d=Ascent(steps=1000, learning_rate=5e-5, regularisation=1e-8),
    network=Network(),
    classifier=Classifier(epochs=1000, learning_rate=1e-3),
    embedding=Embedding(robust_start=False, reference="chi2"),
    meta_network=Network(),
    meta_kl=ALGORITHM_1,
    adaptation=Adaptation("gradient", steps=(10,), learning_rate=0.8),
    base_kernels=BaseKernels(
        tasks=10, ascent=Ascent(steps=20, learning_rate=0.01, regularisation=1e-8), ridge=1e-8, agt_starts=10
    ),
    images=Images(
        convolutions=Convolutions(upsample=2),
        mmd_o=Ascent(steps=1000, learning_rate=5e-4, regularisation=1e-8),
        mmd_d=Ascent(steps=1000, learning_rate=2e-4, regularisation=1e-8, largest_batch=100),
        classifier=Classifier(epochs=1000, learning_rate=2e-4),
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
    p_value="b/B, >",
    embedding=replace(PAPER.embedding, optimise_frequencies=False),
    meta_network=Network(hidden=30, kaiming=True, as_published=True),
    meta_kl=PUBLISHED_INNER_LOOP,
    adaptation=Adaptation("Adam", steps=(50,), learning_rate=5e-5 / 3, row_share=0.2),
    images=replace(PAPER.images, meta_kl=PUBLISHED_INNER_LOOP),
)
RECOMMENDED = Preset(
    name="recommended",
    p_value="(1+b)/(1+B)",
    median_start=True,
    mmd_o=Ascent(steps=150, learning_rate=0.05, regularisation=1e-3, largest_batch=500),
    mmd_d=Ascent(steps=100, learning_rate=5e-3, regularisation=1e-3, largest_batch=500),
    network=Network(standardise=True),
    classifier=Classifier(epochs=200, learning_rate=0.01, weight_decay=1e-4),
    embedding=Embedding(steps=100),
    meta_network=Network(hidden=30, standardise=True, pretraining=Pretraining()),
    meta_kl=MetaAscent(
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
    adaptation=Adaptation("gradient", steps=(0, 1, 5), learning_rate=0.01),
    base_kernels=BaseKernels(
        tasks=5,
        ascent=Ascent(steps=5, learning_rate=0.001, regularisation=1e-2),
        ridge=0.0,
        relative_ridge=10.0,
        uniform_share=0.8,
        agt_starts=5,
    ),
    images=Images(
        convolutions=Convolutions(features=100),
        mmd_o=Ascent(steps=150, learning_rate=0.05, regularisation=1e-3, largest_batch=500),
        mmd_d=Ascent(steps=100, learning_rate=1e-3, regularisation=1e-3, largest_batch=100),
        classifier=Classifier(epochs=30, learning_rate=1e-3, weight_decay=1e-4),
        meta_kl=MetaAscent(
            outer_steps=60,
            outer_rate=1e-3,
            tasks_per_step=5,
            inner_steps=1,
            inner_rate=0.05,
            regularisation=1e-3,
            held_out_tasks=0.2,
        ),
        features=FeatureLearning(leading=9),
    ),
    features=FeatureLearning(),
)
PRESETS: Registry[Preset] = Registry("preset", {preset.name: preset for preset in (RECOMMENDED, PAPER, RELEASED)})
