"""Features from related tasks: sums equal plain loops, signs are a posterior, and tasks left out weigh the spaces."""

import itertools
import math

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.data.arrays import as_related_tasks
from m2st_core.data.related import stack_related_tasks
from m2st_core.learners.learned_tests import detectable, evidence_related
from m2st_core.learners.raw_features import FourierFeatures, view_target
from m2st_core.learners.spaces import (
    ENERGIES,
    FEWEST_COORDINATES,
    LEAST_WEIGHT,
    ORDER_PRICES,
    PRICE,
    SIZE_PRICE,
    Differences,
    candidates,
    first_copies,
    fit_row_features,
    judge_directions,
    leading_directions,
    oriented_signs,
    smooth_coordinates,
    smooth_space,
    task_differences,
    task_folds,
)
from m2st_core.learners.units import Units, column_units, in_common_units, robust_units
from m2st_core.presets import FeatureSettings
from m2st_core.rng import Streams
from m2st_core.types import TwoSample

float64 = torch.float64
SMALL = FeatureSettings(widths=(4.0, 1.0), prices=(0.0, 3.0), fewest_fourier=40, fourier_per_column=10)


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=float64)


def unequal(count=5):
    return [TwoSample(rows(6 + i, 2, seed=i), rows(9 - i, 2, seed=50 + i)) for i in range(count)]


def shifted(count=12, columns=2, shift=1.0, size=25, seed=0):
    """Tasks that differ by a shift of the first column."""
    return [
        (
            rows(size, columns, seed=seed + i) + shift * torch.eye(columns)[0],
            rows(size + 5, columns, seed=seed + 500 + i),
        )
        for i in range(count)
    ]


def random_features(columns=2, half=4, repeats=1):
    units = Units(torch.full((repeats, 1, columns), 0.3).double(), torch.full((repeats, 1, columns), 0.5).double())
    return FourierFeatures(units, rows(repeats, columns, half, seed=3), 2)


def raw_by_hand(features, x):
    z = np.clip((x.numpy() - 0.3) / 0.5, -3, 3)
    angles = z @ features.frequencies[0].numpy()
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return np.concatenate([z, waves.reshape(len(z), -1)], axis=1)


# Sums


def test_sums_over_padded_tasks_equal_plain_loops(monkeypatch):
    """Tasks of unequal sizes, cut at 3 units, all at once or one at a time."""
    pairs, features = unequal(), random_features()
    meta = as_related_tasks(pairs)
    kept, aside = meta.hold_out(0.5, [torch.Generator().manual_seed(5)])
    (whole, first, second), covariance, centre = task_differences(features.raw, [meta, kept, aside])
    inside, freedom, centres = np.zeros((10, 10)), 0, []
    assert any(np.abs(raw_by_hand(features, x)[:, :2]).max() == 3 for x, _ in pairs)
    for task, (x, y) in enumerate(pairs):
        f, g = raw_by_hand(features, x), raw_by_hand(features, y)
        assert whole[0, task].numpy() == pytest.approx(f.mean(0) - g.mean(0), abs=1e-6)
        both = np.concatenate([f, g])
        for part, found in ((kept, first), (aside, second)):
            of_x, of_y = ((w[0, task, : len(both)] > 0).numpy() for w in (part.x_weight, part.y_weight))
            assert found[0, task].numpy() == pytest.approx(both[of_x].mean(0) - both[of_y].mean(0), abs=1e-6)
        for sample in (f, g):
            inside += (len(sample) - 1) * np.cov(sample.T)
            freedom += len(sample) - 1
        centres.append((f.mean(0) + g.mean(0)) / 2)
    assert covariance[0].numpy() == pytest.approx(inside / freedom, abs=1e-5)
    assert centre[0, 0].numpy() == pytest.approx(np.mean(centres, axis=0), abs=1e-6)
    monkeypatch.setattr("m2st_core.learners.spaces.CHUNK_ELEMENTS", 1)
    (again, *_), one_by_one, _ = task_differences(features.raw, [meta])
    torch.testing.assert_close(again, whole, rtol=0, atol=1e-6)
    torch.testing.assert_close(one_by_one, covariance, rtol=0, atol=1e-5)


def test_smooth_coordinates_are_white_and_the_largest_components_come_first():
    """Coordinates that the features do not have are 0."""
    root = rows(6, 4, seed=2)
    covariance, importance = (root @ root.T)[None], torch.linspace(0.5, 2, 6, dtype=float64)
    whiten = smooth_coordinates(covariance, importance)[0]
    gram = whiten.T @ covariance[0] @ whiten
    torch.testing.assert_close(gram, torch.diag(torch.tensor([1.0, 1, 1, 1, 0, 0], dtype=float64)), rtol=0, atol=1e-8)
    values, vectors = np.linalg.eigh(np.diag(importance) @ covariance[0].numpy() @ np.diag(importance))
    for place in range(4):
        expected = importance.numpy() * vectors[:, -1 - place] / math.sqrt(values[-1 - place])
        found = whiten[:, place].numpy()
        assert found * np.sign(found @ expected) == pytest.approx(expected, abs=1e-8)
    assert not whiten[:, 4:].any()


# Directions and signs


def white_tasks(strength, signs, seed=0, coordinates=6, noise=None):
    """z_i = sign_i·strength·e₁ + noise of variance τ_i."""
    tau = torch.ones(len(signs), dtype=float64) if noise is None else noise
    means = tau.sqrt()[:, None] * rows(len(signs), coordinates, seed=seed)
    means[:, 0] += strength * torch.as_tensor(signs, dtype=float64)
    return Differences(means[None], (1 / tau)[None])


def signs_of(tasks):
    return oriented_signs(tasks, leading_directions(tasks, 1, "one")[..., 0])[0].numpy()


def every_sign(tasks):
    """E[sign_i·sign_j] by enumeration: μ ~ N(0, 4τ̄/K), and a share of either sense that is uniform in (0, 1)."""
    z, precision = tasks.means[0].numpy(), tasks.precision[0].numpy()
    count, coordinates = z.shape
    total = coordinates / (4 * (1 / precision).mean()) + precision.sum()
    signs = np.array([(1, *rest) for rest in itertools.product((1, -1), repeat=count - 1)])
    evidence = 0.5 * (((signs * precision) @ z) ** 2).sum(1) / total
    ups = (signs > 0).sum(1)
    evidence += [math.lgamma(up + 1) + math.lgamma(count - up + 1) for up in ups]
    chance = np.exp(evidence - evidence.max())
    return (signs.T * (chance / chance.sum())) @ signs


HALF = [1, -1] * 4
MOST = [1] * 6 + [-1, 1]


@pytest.mark.parametrize("signs", [HALF, MOST], ids=["half", "most"])
@pytest.mark.parametrize(("strength", "error"), [(3.5, 0.002), (2.5, 0.03), (1.5, 0.2)])
def test_signs_are_those_of_all_sign_vectors_where_they_are_clear(strength, error, signs):
    """Mean error of E[sign_i·sign_j] over all pairs and five seeds."""
    errors = []
    for seed in range(5):
        tau = 0.5 + torch.rand(8, generator=torch.Generator().manual_seed(seed), dtype=float64)
        tasks = white_tasks(strength, signs, seed, noise=tau)
        found = signs_of(tasks)
        errors.append(np.abs(np.outer(found, found) - every_sign(tasks))[np.triu_indices(8, 1)].mean())
    assert np.mean(errors) < error


def test_signs_of_pure_noise_are_as_uncertain_as_the_posterior():
    """Mean |E[sign_i·sign_j]| of 8 tasks over 10 seeds: 0.4 by enumeration, and no more than 0.15 beyond it."""
    pairs = np.triu_indices(8, 1)
    tasks = [white_tasks(0.0, HALF, seed) for seed in range(10)]
    found = np.mean([np.abs(np.outer(signs_of(one), signs_of(one)))[pairs].mean() for one in tasks])
    exact = np.mean([np.abs(every_sign(one))[pairs].mean() for one in tasks])
    assert 0.25 < exact < 0.5 and abs(found - exact) < 0.15


@pytest.mark.parametrize("coordinates", [14, 112])
def test_signs_are_found_when_half_of_the_tasks_are_exchanged(coordinates):
    signs = np.array([1, -1] * 20)
    found = signs_of(white_tasks(4.0, signs, coordinates=coordinates))
    agree = found * signs * np.sign(found @ signs)
    assert (agree > 0).mean() > 0.95 and np.median(agree) > 0.95


def test_a_task_that_does_not_count_changes_no_sign():
    tasks = white_tasks(2.0, HALF)
    more = Differences(
        torch.cat([tasks.means, 9 * rows(1, 1, 6, seed=8)], 1), torch.cat([tasks.precision, torch.zeros(1, 1)], 1)
    )
    axis = leading_directions(tasks, 1, "one")[..., 0]
    torch.testing.assert_close(oriented_signs(more, axis)[:, :8], oriented_signs(tasks, axis))


@pytest.mark.parametrize("tasks", [4, 30])  # fewer tasks than coordinates, and more
@pytest.mark.parametrize("order", ["one", "any"])
def test_leading_directions_equal_numpy(tasks, order):
    """The mean of the (turned) tasks, then eigenvectors of Σ z zᵀ/τ orthogonal to it."""
    noise = 0.5 + torch.rand(tasks, generator=torch.Generator().manual_seed(1), dtype=float64)
    found = white_tasks(1.0, [1, -1] * (tasks // 2), noise=noise)
    z, tau = found.means[0].numpy(), noise.numpy()
    axes = leading_directions(found, 3, order)[0].numpy()
    signs = np.ones(tasks)
    if order == "any":
        first = np.linalg.eigh((z / tau[:, None]).T @ z)[1][:, -1]
        signs = oriented_signs(found, torch.from_numpy(first)[None])[0].numpy()
    mean = (signs / tau) @ z
    mean /= np.linalg.norm(mean)
    rest = z - np.outer(z @ mean, mean)
    vectors = np.linalg.eigh((rest / tau[:, None]).T @ rest)[1][:, ::-1]
    for axis, expected in zip(axes.T, [mean, vectors[:, 0], vectors[:, 1]], strict=True):
        assert axis * np.sign(axis @ expected) == pytest.approx(expected, abs=1e-8)


def test_directions_that_few_tasks_do_not_have_are_zero():
    axes = leading_directions(white_tasks(1.0, [1]), 3, "one")[0]
    assert axes[:, 0].norm().item() == pytest.approx(1) and not axes[:, 1:].any()


# Evidence


def verdict(tasks, order, count=2):
    return judge_directions(*task_folds(tasks, [Streams(0)]), count if order != "none" else 0, order)


def test_tasks_left_out_say_how_large_differences_are():
    """±3 is found at its size, 9, within 25 %; of pure noise little is left, and hardly any evidence."""
    for order, signs in (("one", [1] * 60), ("any", [1, -1] * 30)):
        prior, floor, evidence = verdict(white_tasks(3.0, signs, coordinates=8), order)
        assert prior[0, 0].item() == pytest.approx(9, rel=0.25) and evidence.item() > 50
        assert floor.item() < 0.5 <= 9
        noise = [verdict(white_tasks(0.0, signs, seed, coordinates=8), order) for seed in range(10)]
        assert np.median([prior.max().item() for prior, *_ in noise]) < 0.3
        assert np.median([evidence.item() for *_, evidence in noise]) < 2


def test_a_common_sense_is_seen_where_either_sense_is_not():
    """Differences of 0.7 noise deviations: the mean of 60 tasks shows them, their squares hardly."""
    weak = white_tasks(0.7, [1] * 60, coordinates=8)
    assert verdict(weak, "one")[2] > max(verdict(weak, order)[2] for order in ("any", "none")) + 3


def test_differences_in_no_common_direction_are_seen_by_the_flat_prior():
    """Each of 60 tasks differs in all 8 coordinates, at random: s = 1."""
    tasks = Differences(rows(1, 60, 8) * math.sqrt(2), torch.ones(1, 60, dtype=float64))
    prior, floor, evidence = verdict(tasks, "none")
    assert prior.shape == (1, 0) and floor.item() == pytest.approx(1, rel=0.5)
    assert evidence.item() > 20


@pytest.mark.parametrize(("shift", "spread"), [(1.0, 0.3), (1.0, 2.0), (-1.0, 0.3), (-1.0, 2.0)])
def test_evidence_and_prior_equal_their_formulas(shift, spread):
    """Three coordinates, two directions, one fold; the directions are the axes."""
    g = np.random.default_rng(2)
    d, tau = g.normal(size=(6, 3)) * [spread, 3, 0.5] + [shift, 0, 0], g.uniform(0.5, 1.5, 6)
    fresh = Differences(torch.from_numpy(d)[None, None], torch.from_numpy(1 / tau)[None, None])
    axes = torch.tensor([[2.0, 0, 0], [1.9, 1, 0], [1.9, -1, 0]], dtype=float64)[None, None]
    seen = Differences(axes, torch.ones(1, 1, 3, dtype=float64))
    prior, floor, evidence = judge_directions(seen, fresh, 2, "one")

    def log_density(value, variance):
        return -0.5 * (value**2 / variance + np.log(variance))

    sizes, gains = [], []
    for q in range(2):
        t = d[:, q]
        size = max(0, ((t**2 - tau) / tau**2).sum() / (1 / tau**2).sum())
        sizes.append(size)
        gains.append(max(0, (log_density(t, size + tau) - log_density(t, tau)).sum()))
    mean = (d[:, 0] / tau).sum() / (1 / tau).sum()
    same = (log_density(d[:, 0] - mean, tau) - log_density(d[:, 0], tau)).sum()
    assert (mean > 0 and same > gains[0]) == ((shift, spread) == (1.0, 0.3))
    if mean > 0 and same > gains[0]:
        sizes[0], gains[0] = max(0, mean**2 - 1 / (1 / tau).sum()), same
    sizes[1] /= 1 + math.exp(PRICE - gains[1])
    grid = [energy * tau.mean() for energy in ENERGIES]  # one coordinate is left
    fits = np.array([(log_density(d[:, 2], size + tau) - log_density(d[:, 2], tau)).sum() for size in grid])
    chance = np.exp(fits) / np.exp(fits).sum()
    least = math.exp(chance @ np.log(grid))
    assert floor.item() == pytest.approx(least, abs=1e-9)
    assert prior[0].tolist() == pytest.approx([max(size, least) for size in sizes], abs=1e-9)
    expected = gains[0] + max(0, gains[1] - PRICE) + math.log(np.exp(fits).mean())
    assert evidence.item() == pytest.approx(expected, abs=1e-9)


def test_every_task_is_left_out_once():
    tasks = white_tasks(1.0, [1] * 23)
    seen, fresh = task_folds(tasks, [Streams(4)])
    assert fresh.precision.shape == (1, 10, 23)
    assert torch.equal(fresh.precision.sum(dim=1), tasks.precision)
    assert torch.equal((seen.precision > 0), ~(fresh.precision > 0))
    sizes = (fresh.precision > 0).sum(dim=-1)
    assert sizes.min() == 2 and sizes.max() == 3


def identity_scores(pairs, seed=0):
    """Scores of all candidates in the coordinates of the rows themselves, by (order, size)."""
    meta = as_related_tasks(pairs)
    ones = torch.ones(meta.rows.shape[-1], dtype=float64)
    space = smooth_space(torch.nn.Identity(), meta, [Streams(seed)], ones)
    return {(one.order, one.size): one.score.item() for one in candidates(space, 2, SMALL, 0.0)}


def test_the_order_of_samples_does_not_matter_but_for_tasks_in_one_order():
    """Exchanging P and Q of all tasks changes nothing; of some, only what assumes one order.

    In any order, the prior of the signs knows that one sense is more common, which clear signs hardly notice.
    """
    pairs = shifted(12, columns=4, shift=2.0)
    before = identity_scores(pairs)
    assert identity_scores([(y, x) for x, y in pairs]) == pytest.approx(before, abs=1e-9)
    after = identity_scores([(y, x) if task % 2 else (x, y) for task, (x, y) in enumerate(pairs)])
    for (order, size), score in before.items():
        if order == "one":
            assert after[order, size] < score - 10
        else:
            assert after[order, size] == pytest.approx(score, abs=1e-9 if order == "none" else 1e-2)


def test_prices_are_those_of_order_and_size():
    """A score is the evidence of left-out tasks less the prices of width, order and size."""
    meta = as_related_tasks(shifted(8, columns=8))
    space = smooth_space(torch.nn.Identity(), meta, [Streams(0)], torch.ones(8, dtype=float64))
    free = {(one.order, one.size): one.score.item() for one in candidates(space, 2, SMALL, 0.0)}
    paid = {(one.order, one.size): one.score.item() for one in candidates(space, 2, SMALL, 5.0)}
    assert sorted({size for _, size in free}) == [2, 4, 8]
    assert paid == pytest.approx({key: score - 5 for key, score in free.items()})
    for (order, size), score in free.items():
        _, seen, fresh = space.cut(size)
        evidence = judge_directions(seen, fresh, min(SMALL.leading, size) if order != "none" else 0, order)[2].item()
        assert score == pytest.approx(evidence - ORDER_PRICES[order] - SIZE_PRICE * math.log2(size / 2))


def test_estimated_variances_make_differences_noisier():
    meta = as_related_tasks(shifted(8, columns=8, size=5))
    space = smooth_space(torch.nn.Identity(), meta, [Streams(0)], torch.ones(8, dtype=float64))
    assert space.freedom.item() == 8 * (5 + 10 - 2)
    whole, seen, fresh = space.cut(4)
    for part, before in ((whole, space.whole), (seen, space.seen), (fresh, space.fresh)):
        assert part.means.shape[-1] == 4
        torch.testing.assert_close(part.precision, before.precision * (1 - 4 / 104))


# Copies


def copies_of(pairs):
    """The same tasks again: as they are, with the samples exchanged, and with their rows in another order."""
    return {
        "same": pairs,
        "exchanged": [(y, x) for x, y in pairs],
        "reordered": [(x.flip(0), y.flip(0)) for x, y in pairs],
    }


@pytest.mark.parametrize("kind", ["same", "exchanged", "reordered"])
def test_copies_of_tasks_change_nothing(kind):
    """In float32 features, whose sums depend on the order of rows; each of the ten tasks is left out alone."""
    pairs, features = shifted(10), random_features(half=10)
    ones = torch.ones(22, dtype=float64)

    def space_of(tasks):
        return smooth_space(features.raw, as_related_tasks(tasks), [Streams(0)], ones)

    once, twice = space_of(pairs), space_of([*pairs, *copies_of(pairs)[kind]])
    assert once.copies[0].tolist() == list(range(10)) and twice.copies[0].tolist() == [*range(10)] * 2
    scores = ([one.score.item() for one in candidates(space, 7, SMALL, 0.0)] for space in (once, twice))
    assert next(scores) == pytest.approx(next(scores), abs=1e-3)


def test_few_tasks_and_their_copies_are_not_judged_on_rows_they_were_learned_from():
    """Two tasks without a difference: their copies must not confirm them."""
    pairs = shifted(2, shift=0.0, columns=4)
    for again in copies_of(pairs).values():
        assert max(identity_scores([*pairs, *again]).values()) < 3


def test_copies_have_the_sense_of_the_first():
    pairs = shifted(8, shift=1.5)
    senses = fit_row_features(as_related_tasks([*pairs, *copies_of(pairs)["exchanged"]]), SMALL, [Streams(0)]).senses[0]
    assert senses[:8].abs().min() > 0.9
    torch.testing.assert_close(senses[8:], -senses[:8])


def test_tasks_that_only_resemble_each_other_are_no_copies():
    means = rows(1, 1, 5).repeat(1, 3, 1) * torch.tensor([1.0, 1.001, -1.0], dtype=float64)[:, None]
    assert first_copies(means).tolist() == [[0, 1, 0]]


# Units


def test_units_are_medians_and_quartiles_and_do_not_follow_single_rows():
    pairs = shifted(6, shift=0.0)
    every = np.concatenate([part.numpy() for pair in pairs for part in pair])
    units = robust_units(as_related_tasks(pairs))
    low, middle, high = np.quantile(every, [0.25, 0.5, 0.75], axis=0)
    assert units.centre[0, 0].numpy() == pytest.approx(middle) and units.scale[0, 0].numpy() == pytest.approx(
        (high - low) / 1.349
    )
    pairs[0][0][0] = 1e30
    again = robust_units(as_related_tasks(pairs))
    assert again.scale[0, 0].numpy() == pytest.approx(units.scale[0, 0].numpy(), rel=0.05)


def test_a_column_of_few_values_has_its_standard_deviation_and_a_constant_one_has_1():
    column = torch.tensor([0.0] * 9 + [1.0], dtype=float64)
    x = torch.stack([column, torch.full((10,), 4.0, dtype=float64)], dim=1)
    units = robust_units(as_related_tasks([(x, x[:8]), (x, x)]))
    every = np.array([0.0] * 9 + [1.0] + [0.0] * 8 + ([0.0] * 9 + [1.0]) * 2)
    assert units.scale[0, 0].tolist() == pytest.approx([every.std(), 1.0])


def test_a_column_in_other_units_in_one_task_is_recognised():
    """Times 1,000, and in degrees from another zero: the spaces are almost those of the clean history."""
    pairs = [(x.clone(), y.clone()) for x, y in shifted(12, shift=1.5)]
    clean = as_related_tasks(pairs)
    spoilt = [(x.clone(), y.clone()) for x, y in pairs]
    for part in spoilt[3]:
        part[:, 0] *= 1000
    for part in spoilt[7]:
        part[:, 1] = 50 * part[:, 1] - 400
    found = in_common_units(as_related_tasks(spoilt))
    assert in_common_units(clean).rows.equal(clean.rows)
    gap = (found.rows - clean.rows).abs()
    assert gap.max() < 1 and gap.median() == 0  # a task's own median and spread are not exactly those of all
    here, there = (fit_row_features(meta, SMALL, [Streams(0)]) for meta in (clean, found))
    assert there.choices["smooth_coordinates"] == here.choices["smooth_coordinates"] and there.choices["one_order"]
    assert there.choices["direction_evidence"] == pytest.approx(here.choices["direction_evidence"], rel=0.2)
    grid = rows(1, 200, 2, seed=77)
    one, other = (spaces.spaces[0](grid)[0, :, -1].numpy() for spaces in (here, there))
    assert abs(np.corrcoef(one, other)[0, 1]) > 0.98


def test_values_far_from_all_others_teach_nothing():
    """A value of 1,000 deviations becomes the median of its column; those that a normal or a 0/1 column has stay."""
    pairs = [tuple(torch.nn.functional.pad(part, (0, 1)) for part in pair) for pair in shifted(6, shift=1.5)]
    pairs[1][0][0, 2] = 1.0
    pairs[2][0][4, 1] = 1000.0
    assert float(in_common_units(as_related_tasks(pairs)).task(1).x[0, 2]) == 1
    found = in_common_units(as_related_tasks(pairs)).task(2).x
    every = torch.cat([part[:, 1] for pair in pairs for part in pair])
    assert float(found[4, 1]) == pytest.approx(float(every.quantile(0.5)))
    pairs[2][0][4, 1] = found[4, 1]
    assert found.equal(pairs[2][0])


def test_columns_of_wide_rows_have_units():
    """More values than torch takes quantiles of: some of the rows suffice."""
    wide = torch.arange(4.0).repeat_interleave(2)[:, None].expand(8, 2**22)
    centre, spread = column_units(wide)
    assert centre.shape == (2**22,) and (centre >= 0).all() and (spread > 0).all()


# All together


def test_repeats_learn_as_if_alone():
    """Two repeats of tasks of unequal sizes, with padding, at once and one by one."""
    names = tuple(f"task {i}" for i in range(6))
    histories = [
        [TwoSample(rows(20 + i, 2, seed=40 * r + i) + shift, rows(30 - i, 2, seed=40 * r + 20 + i)) for i in range(6)]
        for r, shift in enumerate((1.0, 0.3))
    ]
    streams = [Streams(3), Streams(4)]
    together = fit_row_features(stack_related_tasks(histories, names), SMALL, streams)
    grid = rows(1, 50, 2, seed=5)
    alone = [fit_row_features(as_related_tasks(h), SMALL, [s]) for h, s in zip(histories, streams, strict=True)]
    for repeat, single in enumerate(alone):
        torch.testing.assert_close(together.senses[repeat], single.senses[0], rtol=0, atol=1e-3)
        weights = torch.stack([space.log_weight[repeat].exp() for space in together.spaces])
        assert (weights > 0).sum() == len(single.spaces) and weights.sum().item() == pytest.approx(1)
        for space, own in zip(together.spaces, single.spaces, strict=False):
            assert space.log_weight[repeat].item() == pytest.approx(own.log_weight.item(), abs=1e-3)
            width = own.prior.shape[-1]
            assert not space.prior[repeat, :-width].any()
            torch.testing.assert_close(space.prior[repeat, -width:], own.prior[0], rtol=1e-3, atol=1e-5)
            here, there = space(grid.repeat(2, 1, 1))[repeat], own(grid)[0]
            weighted = [psi * prior for psi, prior in ((here, space.prior[repeat]), (there, own.prior[0]))]
            gram, expected = weighted[0] @ here.T, weighted[1] @ there.T  # whatever the signs of ψ
            torch.testing.assert_close(gram, expected, rtol=0, atol=0.01 * expected.abs().max().item())


def test_spaces_are_the_best_candidates_with_the_softmax_of_their_scores():
    meta = as_related_tasks(shifted(8))
    learned = fit_row_features(meta, SMALL, [Streams(0)])
    weights = np.exp([space.log_weight.item() for space in learned.spaces])
    assert weights.sum() == pytest.approx(1) and list(weights) == sorted(weights)[::-1]
    assert 1 <= len(weights) <= SMALL.spaces and weights[-1] > LEAST_WEIGHT * weights[0]
    for space in learned.spaces:
        size = space.prior.shape[-1]
        assert size in (FEWEST_COORDINATES, 2 * FEWEST_COORDINATES)
        assert torch.equal(space.prior, space.prior.sort(dim=-1).values)
        psi = space(meta.rows)[0]  # in float32, where the smallest variances are near rounding
        real = psi.std(dim=0) > 0
        inside = [psi[meta.where[0, i][w[0, i] > 0]] for i in range(8) for w in (meta.x_weight, meta.y_weight)]
        scatter = sum((part - part.mean(0)).T @ (part - part.mean(0)) for part in inside)
        covariance = scatter / sum(len(part) - 1 for part in inside)
        covariance = covariance[real][:, real]
        torch.testing.assert_close(covariance.diagonal(), torch.ones_like(covariance[0]), rtol=0, atol=0.1)


@pytest.mark.parametrize(("task", "narrow"), [("blobs", True), ("mean_shift", False)])
def test_narrow_features_are_taken_only_where_they_pay(task, narrow):
    pairs = m2st.make_task(task).draw_related_tasks(n_tasks=20, rows=150, closeness=0.2, seed=3)
    settings = FeatureSettings(widths=(4.0, 0.06), prices=(0.0, 3.0))
    best = fit_row_features(as_related_tasks(pairs), settings, [Streams(0)]).spaces[0]
    wide = FeatureSettings(widths=(4.0,), prices=(0.0,), spaces=1)
    widest = fit_row_features(as_related_tasks(pairs), wide, [Streams(0)]).spaces[0]
    assert (best.frequencies.norm() > 2 * widest.frequencies.norm()) == narrow


@pytest.mark.parametrize("same_order", [True, False])
def test_exchanged_tasks_are_recognised(same_order):
    pairs = [pair if same_order or i % 2 else pair[::-1] for i, pair in enumerate(shifted(20, shift=1.2))]
    spaces, choices, senses = fit_row_features(as_related_tasks(pairs), SMALL, [Streams(0)])
    assert choices["one_order"] == same_order and choices["any_order"] != same_order
    assert choices["direction_evidence"] > 20 and spaces[0].prior[0, -1] > 0.3
    signs = torch.ones(20) if same_order else torch.tensor([1.0, -1.0] * 10)
    assert (senses[0] * signs * senses[0, 0].sign()).min() > 0.5


def test_the_edge_of_detection():
    """Σr = 4√D, with D = (Σs)²/Σs², in proportion to s."""
    prior = torch.tensor([[0.0, 0.1, 0.1, 2.0], [0.5, 0.5, 0.5, 0.5]], dtype=float64)
    found = detectable(prior)
    for s, r in zip(prior.numpy(), found.numpy(), strict=True):
        assert r.sum() == pytest.approx(4 * math.sqrt(s.sum() ** 2 / (s**2).sum()))
        assert r * s.sum() == pytest.approx(s * r.sum())


def test_evidence_that_a_target_is_related_equals_its_formula():
    features = random_features()
    features.transform = rows(1, 10, 2, seed=9)
    features.prior = torch.tensor([[0.2, 3.0]], dtype=float64)
    x, y = rows(8, 2, seed=1), rows(5, 2, seed=2) + 1
    f, g = (raw_by_hand(features, part) @ features.transform[0].numpy() for part in (x, y))
    variance = (7 * f.var(0, ddof=1) + 4 * g.var(0, ddof=1)) / 11
    noise, d = variance * (1 / 8 + 1 / 5), f.mean(0) - g.mean(0)
    expected = 0.0
    for q, s in enumerate((0.2, 3.0)):
        log_density = [-0.5 * (d[q] ** 2 / v + math.log(v)) for v in (s + noise[q], noise[q])]
        expected += log_density[0] - log_density[1]
    target = view_target(features, TwoSample(x[None], y[None]))
    assert target.difference[0].numpy() == pytest.approx(d, abs=1e-5)
    assert target.variance[0].numpy() == pytest.approx(variance, rel=1e-5)
    assert evidence_related(features, target).item() == pytest.approx(expected, rel=1e-4)
