"""Learners reach what they are supposed to reach, batched as well as alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.kernels.distance import GaussianKernel
from m2st_core.learners.ascent import ascend, squares_of
from m2st_core.learners.classifier import fit_classifier
from m2st_core.learners.embeddings import REGULARISATION, fit_mean_embedding, fit_smooth_characteristic, hotelling
from m2st_core.learners.generic import fit_bank
from m2st_core.learners.target_kernels import fit_deep, fit_gaussian, fit_median
from m2st_core.presets import RELEASED, TUNED
from m2st_core.rng import Streams, draw_rows
from m2st_core.types import Cancelled, TwoSample
from tests import naive

float64 = torch.float64


def batch(task, n, m=None, runs=3, **settings):
    pairs = [m2st.make_task(task, **settings).sample(n, m, seed=seed) for seed in range(runs)]
    return TwoSample(torch.stack([pair.x for pair in pairs]), torch.stack([pair.y for pair in pairs]))


def streams(runs=3):
    return [Streams(seed) for seed in range(runs)]


def module_of(fitted):
    """The kernel or the features of a fitted test; a classifier is a module already."""
    return getattr(fitted, "kernel", None) or getattr(fitted, "features", None) or fitted


def one(sample, index):
    return TwoSample(sample.x[index : index + 1], sample.y[index : index + 1])


def test_ascend_finds_each_runs_own_maximum():
    target = torch.tensor([1.0, -2.0, 3.0])
    values = torch.nn.Parameter(torch.zeros(3))
    course = ascend([values], lambda: -((values - target) ** 2), steps=300, learning_rate=0.1)
    assert torch.allclose(values, target, atol=1e-2)
    assert course.shape == (300, 3) and (course[-1] > course[0]).all()


def test_ascend_reports_and_can_be_stopped():
    values, seen = torch.nn.Parameter(torch.zeros(1)), []

    def progress(step, total, value):
        seen.append((step, total))
        if step == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        ascend([values], lambda: -(values**2), steps=10, learning_rate=0.1, progress=progress)
    assert seen == [(1, 10), (2, 10), (3, 10)]


def test_drawn_rows_are_distinct_rows_of_each_run():
    rows = torch.arange(24.0).reshape(2, 12, 1)
    drawn = draw_rows(rows, 5, [torch.Generator().manual_seed(seed) for seed in range(2)])
    for run in range(2):
        values = drawn[run, :, 0].tolist()
        assert len(set(values)) == 5 and set(values) <= set(rows[run, :, 0].tolist())


def test_median_kernel_uses_the_pooled_rows():
    sample = batch("hdgm", 20, 30)
    kernel = fit_median(sample.pooled, TUNED, streams()).kernel
    expected = [naive.median_squared_distance(rows.numpy()) for rows in sample.pooled]
    assert kernel.width.tolist() == pytest.approx(expected)


def test_gaussian_width_is_near_the_best_of_a_grid():
    train = batch("variance_shift", 60, scale=2.0)
    kernel = fit_gaussian(train, TUNED, streams()).kernel
    lam = TUNED.mmd_o.regularisation
    for run in range(3):
        pair = one(train, run)
        grid = [
            power_criterion(h_matrix(GaussianKernel(torch.tensor([width], dtype=float64)), *pair), lam).item()
            for width in np.geomspace(0.05, 100, 60)
        ]
        reached = power_criterion(h_matrix(GaussianKernel(kernel.width[run : run + 1].detach()), *pair), lam).item()
        assert reached > max(grid) - 0.02 * abs(max(grid))


def test_the_bank_spans_the_distances():
    pooled = batch("hdgm", 25, 15).pooled
    bank = fit_bank(pooled, TUNED, streams())
    gaussian, laplace, weight = *(family.kernel for family in bank.families), bank.families[0].share
    assert 20 * weight == pytest.approx(1)
    for run, part in enumerate(pooled.numpy()):
        gaps = part[:, None] - part[None]
        for kernel, distances, scale in (
            (gaussian, np.sqrt((gaps**2).sum(-1)), lambda width: (width / 2) ** 0.5),
            (laplace, abs(gaps).sum(-1), lambda width: width * 2**0.5),
        ):
            low, high = np.quantile(distances[np.triu_indices(40, 1)], [0.05, 0.95])
            sigmas = scale(kernel.log_width[run].exp().detach().numpy())
            assert sigmas == pytest.approx(np.linspace(low / 2, 2 * high, 10))


@pytest.mark.parametrize("fit", [fit_gaussian, fit_deep])
def test_kernels_gain_on_their_training_rows(fit):
    train = batch("blobs", 80, correlation=0.9)
    one_step = {name: replace(getattr(TUNED, name), steps=1) for name in ("mmd_o", "mmd_d")}
    kernels = [fit(train, preset, streams()).kernel for preset in (replace(TUNED, **one_step), TUNED)]
    before, after = (power_criterion(h_matrix(kernel, *train), 1e-3).detach() for kernel in kernels)
    assert (after > before - 1e-3).all() and after.mean() > before.mean() + 0.05


@pytest.mark.parametrize("fit", [fit_deep, fit_classifier])
def test_recommended_networks_do_not_depend_on_the_units_of_the_columns(fit):
    """Columns in metres or in micrometres from a far-away origin: the same kernel, but for rounding."""
    train, units, origin = batch("mean_shift", 20, shift=1.0), torch.tensor([1e6, 1e-3], dtype=float64), 1e3
    test = batch("mean_shift", 9).x
    plain = module_of(fit(train, TUNED, streams()))
    scaled = module_of(fit(TwoSample(train.x * units + origin, train.y * units + origin), TUNED, streams()))
    inputs = [test, test * units + origin]
    if fit is fit_deep:
        values = [kernel(rows, rows) for kernel, rows in zip((plain, scaled), inputs, strict=True)]
    else:
        values = [classifier(rows) for classifier, rows in zip((plain, scaled), inputs, strict=True)]
    assert torch.allclose(*values, atol=1e-6)


def test_the_classifier_separates_what_can_be_separated():
    train, test = batch("mean_shift", 40, shift=4.0), batch("mean_shift", 200, shift=4.0)
    classifier = fit_classifier(train, TUNED, streams())
    assert ((classifier(test.x) > 0).double().mean(dim=-1) > 0.9).all()
    assert ((classifier(test.y) < 0).double().mean(dim=-1) > 0.9).all()


def test_unequal_classes_weigh_the_same():
    """With nothing to learn, the mean logit stays near 0 although one class has five times the rows."""
    train = batch("mean_shift", 200, 40, runs=6, null=True)
    short = replace(TUNED, classifier=replace(TUNED.classifier, epochs=30))
    logits = fit_classifier(train, short, streams(6))(batch("mean_shift", 300, runs=6).x)
    assert abs(logits.mean().item()) < 0.3  # an unweighted classifier would sit at log 5 = 1.6


def test_hotelling_equals_the_loop():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(2, 12, 3, generator=generator, dtype=float64) for _ in range(2))
    expected = [naive.hotelling((x[run] - y[run]).numpy(), REGULARISATION) for run in range(2)]
    assert hotelling(x, y).tolist() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("fit", [fit_mean_embedding, fit_smooth_characteristic])
def test_points_move_to_where_the_statistic_is_larger(fit):
    train = batch("variance_shift", 60, scale=2.0)
    still = replace(TUNED, embedding=replace(TUNED.embedding, steps=1, learning_rate=0.0))
    features = [fit(train, preset, streams()).features for preset in (still, TUNED)]
    before, after = (hotelling(f(train.x), f(train.y)).detach() for f in features)
    assert (after > before).all()


def test_released_frequencies_are_not_optimised():
    train = batch("variance_shift", 30)
    features = fit_smooth_characteristic(train, RELEASED, streams()).features
    first = [torch.randn(5, 2, generator=s.torch("first points"), dtype=float64) for s in streams()]
    assert torch.equal(features.points.detach(), torch.stack(first))


def test_outliers_do_not_send_the_points_away():
    train = batch("mean_shift", 40)
    train.x[:, 0] = 1e6
    features = fit_mean_embedding(train, TUNED, streams()).features
    inside = features.units(train.x[:, 1:])
    assert (features.points.abs().amax(dim=(-2, -1)) < 3 * inside.abs().amax(dim=(-2, -1))).all()


def test_a_symmetric_product_is_computed_by_half():
    rows = torch.randn(2, 40, 11, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(squares_of(rows), rows.mT @ rows, rtol=1e-12, atol=1e-12)
