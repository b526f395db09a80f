"""Learning from images: fresh images stay fresh, runs do not mix, and what is learned can be kept."""

from dataclasses import replace

import pytest
import torch
from torch.func import grad

from m2st_core.criterion import mean_criterion
from m2st_core.data.arrays import as_related_tasks
from m2st_core.data.related import PairedRows
from m2st_core.device import one_thread_per_operation
from m2st_core.kernels.base import map_tensors
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.networks import make_cnn
from m2st_core.learners import image_features
from m2st_core.learners.algorithm1 import AutogradClimber, Paired, adapt_state, criterion
from m2st_core.learners.generic import generic_families
from m2st_core.learners.image_features import fit_image_features, part_images
from m2st_core.learners.knowledge import Knowledge, learned_spaces, rebuild_knowledge
from m2st_core.learners.learned_tests import fit_learned, learned_family, meta_bank
from m2st_core.learners.target_kernels import same_distances
from m2st_core.presets import PAPER, PRESETS, TUNED, ImageTrainingSettings
from m2st_core.rng import Streams
from m2st_core.types import TwoSample
from tests.quick import digits_by_class

SHAPE = (1, 8, 8)
PRESET = TUNED.on(SHAPE)
FEATURES = replace(PRESET.features, training=ImageTrainingSettings(epochs=12))


def pairs(classes=4, count=20):
    """All pairs of some digits; a digit's images are the same in all its pairs."""
    images = [torch.from_numpy(images[:count]) for images in digits_by_class()[:classes]]
    return {
        f"{a} or {b}": TwoSample(images[a], images[b], SHAPE) for a in range(classes) for b in range(a + 1, classes)
    }


@pytest.fixture(scope="module")
def learned():
    """The tasks, their one space ψ, the choices, and the senses of the tasks."""
    meta = as_related_tasks(pairs())
    (features,), choices, senses = fit_image_features(meta, FEATURES, [Streams(0)])
    return meta, features, choices, senses


def test_an_image_trains_the_network_or_is_fresh_in_all_its_tasks():
    meta = as_related_tasks(pairs())
    training, fresh = part_images(meta, FEATURES, [Streams(3)])
    seen, unseen = ({tuple(row.tolist()) for row in part.take_inside()} for part in (training, fresh))
    assert not seen & unseen
    assert len(seen) == 4 * 14 and len(unseen) == 4 * 6


def test_rows_that_are_no_images_are_all_fresh():
    meta = as_related_tasks([(pair.x, pair.y) for pair in pairs().values()])
    assert part_images(meta, TUNED.features, [Streams(0)]).fresh is meta


def test_too_few_images_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r"A sample of a related task has 13 images. Bring at least 14 in each"):
        part_images(as_related_tasks(pairs(count=13)), FEATURES, [Streams(0)])


def test_repeats_learn_as_if_alone(learned):
    """Coordinates may have either sign, and zeros before them; kernels do not."""
    meta, features, *_ = learned
    both = meta.repeated(2)
    (together,), *_ = fit_image_features(both, FEATURES, [Streams(5), Streams(0)])
    grams = []
    for space, rows in ((together, both.rows), (features, meta.rows)):
        kernel = learned_family(Knowledge(spaces=[space]), rows, 1.0).kernel
        grams.append(kernel(rows[:, None], rows[:, None])[-1, 0].detach())
    torch.testing.assert_close(*grams, rtol=1e-3, atol=1e-3)


def test_the_number_of_threads_changes_no_bit():
    meta, found = as_related_tasks(pairs(classes=3, count=60)), []  # two chunks of images per step
    settings = replace(FEATURES, training=ImageTrainingSettings(epochs=3))
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            with one_thread_per_operation():
                found.append(fit_image_features(meta, settings, [Streams(0)]).spaces[0](meta.rows))
        finally:
            torch.set_num_threads(1)
    assert torch.equal(*found)


def test_images_seen_some_at_a_time_teach_the_same(learned, monkeypatch):
    meta, features, choices, _ = learned
    monkeypatch.setattr(image_features, "ROWS_AT_ONCE", 7)
    (again,), others, _ = fit_image_features(meta, FEATURES, [Streams(0)])
    torch.testing.assert_close(again.prior, features.prior, rtol=1e-3, atol=1e-3)
    assert others["fresh_cross_entropy"] == pytest.approx(choices["fresh_cross_entropy"], rel=1e-5)


def test_features_of_held_out_digits_tell_pairs_apart(learned):
    meta, features, choices, senses = learned
    assert choices["fresh_cross_entropy"] < 0.6  # log 2 = 0.69 is what guessing gives
    assert float(features.prior.max()) > 1
    assert choices["smooth_coordinates"] in (18, 36, 72) and senses.shape == (1, 6)


def test_images_have_generic_kernels_on_pixels_and_on_features(learned):
    meta, features, *_ = learned
    pooled = meta.take(meta.where[:, 0]).float()
    families = generic_families(features, pooled, 0.6, [Streams(0)])
    assert [family.share * len(family.names) for family in families] == pytest.approx([0.2, 0.2, 0.2])
    assert len({name for family in families for name in family.names}) == 9
    known = Knowledge(spaces=[features])
    for fit, shares in ((fit_learned, [1 / 2, 1 / 4, 1 / 4]), (meta_bank, [1 / 3, 2 / 9, 2 / 9, 2 / 9])):
        bank = fit(known, pooled, PRESET, [Streams(0)])
        assert [family.share * len(family.names) for family in bank.families] == pytest.approx(shares)
        for family in bank.families[1:]:
            gram = family.kernel(pooled[:, None], pooled[:, None])[0].detach()
            torch.testing.assert_close(gram, gram.mT)
            torch.testing.assert_close(gram.diagonal(dim1=1, dim2=2), torch.ones_like(gram[..., 0]), rtol=0, atol=1e-3)


def test_white_features_are_white_within_the_fresh_images(learned):
    meta, features, *_ = learned
    fresh = part_images(meta, FEATURES, [Streams(0)]).fresh
    phi = features.raw(meta.rows)[0].double() @ features.whiten[0]
    inside = [phi[fresh.where[0, t][w[0, t] > 0]] for t in range(6) for w in (fresh.x_weight, fresh.y_weight)]
    scatter = sum((part - part.mean(0)).T @ (part - part.mean(0)) for part in inside)
    covariance = scatter / sum(len(part) - 1 for part in inside)
    leading = covariance[:10, :10]  # beyond, the few images leave variances near rounding
    torch.testing.assert_close(leading, torch.eye(10, dtype=leading.dtype), rtol=0, atol=1e-3)


def test_features_of_images_are_rebuilt_from_their_tensors(learned):
    meta, features, _, senses = learned
    again = rebuild_knowledge(Knowledge(spaces=[features], senses=senses).state_dict(), PRESET)
    assert torch.equal(learned_spaces(again)[0](meta.rows), features(meta.rows))
    assert torch.equal(learned_spaces(again)[0].whiten, features.whiten) and torch.equal(again.senses, senses)


def test_fewer_columns_have_the_same_distances():
    x, y = (torch.rand(1, count, 300, generator=torch.Generator().manual_seed(count)) for count in (7, 9))
    short = same_distances(TwoSample(x, y))
    assert short.pooled.shape == (1, 16, 16)
    torch.testing.assert_close(torch.cdist(short.x, short.y), torch.cdist(x, y), rtol=1e-4, atol=1e-4)
    narrow = TwoSample(x[..., :3], y[..., :3])
    assert same_distances(narrow) is narrow


def deep_kernel(count):
    cnn = make_cnn(PAPER.on(SHAPE).network.convolutions, [Streams(k).torch("w") for k in range(count)])
    ones = torch.ones(count, dtype=torch.float64)
    return DeepKernel(cnn, 0.1 * ones, 30 * ones, 0.1 * ones).float()


@pytest.mark.parametrize("second_order", [True, False])
def test_gradients_run_by_run_are_those_of_all_runs_together(second_order):
    settings = replace(PAPER.meta_kl, inner_steps=1, inner_rate=0.01, second_order=second_order)
    settings = replace(settings, regularisation=1e-3)
    kernel = deep_kernel(2)
    paired = Paired(kernel)
    images = torch.stack([torch.from_numpy(images[:20]) for images in digits_by_class()[:8]]).float()
    ones = torch.ones(4, 10)
    support, query = (PairedRows(images[:4, part], images[4:, part], ones) for part in (slice(0, 10), slice(10, 20)))
    found, value = AutogradClimber(kernel, settings).gradient(support, query, mean_criterion(2, 1e-3, False))

    def mean(changed):
        start = {name: tensor.repeat_interleave(2, dim=0) for name, tensor in (paired.state_dict() | changed).items()}
        adapted = adapt_state(paired, start, support, settings, 1)
        return criterion(paired, adapted, query, settings.regularisation).sum() / 2

    parameters = {name: parameter.detach() for name, parameter in paired.named_parameters()}
    expected = grad(mean)(parameters)
    assert float(value.sum()) == pytest.approx(float(mean(parameters)), rel=1e-4)
    for name, gradient in expected.items():
        name = name.removeprefix("kernel.")
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max()))


@pytest.mark.parametrize("name", ["paper", "released"])
def test_deep_kernels_of_images_are_rebuilt_from_their_tensors(name):
    base = deep_kernel(6).double().requires_grad_(False)
    map_tensors(base, lambda tensor: tensor.reshape(1, 6, *tensor.shape[1:]))
    known = Knowledge(kernel=deep_kernel(1).double(), base=base, base_names=tuple("abcdef"))
    again = rebuild_knowledge(known.state_dict(), PRESETS[name].on(SHAPE))
    x = torch.from_numpy(digits_by_class()[0][:12])[None]
    assert torch.equal(again.kernel(x, x), known.kernel(x, x))
    assert torch.equal(again.base(x[:, None], x[:, None]), base(x[:, None], x[:, None]))
