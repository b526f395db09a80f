import numpy as np
import pytest
import torch

from m2st_core.rng import Streams


def test_a_stream_depends_on_seed_and_name_only():
    first = Streams(3).numpy("split").random(5)
    Streams(3).numpy("permutations").random(1000)
    np.random.default_rng(0).random(3)
    torch.manual_seed(1)
    assert (Streams(3).numpy("split").random(5) == first).all()
    assert not (Streams(4).numpy("split").random(5) == first).any()
    assert not (Streams(3).numpy("splits").random(5) == first).any()


def test_streams_of_different_names_are_uncorrelated():
    draws = np.stack([Streams(seed).numpy(name).random(2000) for seed in (0, 1) for name in ("a", "b", "c")])
    off_diagonal = np.corrcoef(draws)[np.triu_indices(len(draws), 1)]
    assert abs(off_diagonal).max() < 4.5 / np.sqrt(2000)  # 15 normal correlations: 4.5 σ is p ≈ 1e-4


def test_torch_streams_leave_the_global_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    Streams(0).torch("first weights")
    assert torch.equal(torch.rand(3), expected)


def test_children_are_families_of_their_own():
    assert Streams(0).child("repeat 1").numpy("a").random() != Streams(0).child("repeat 2").numpy("a").random()
    assert Streams(0).child("repeat 1").numpy("a").random() == Streams(0).child("repeat 1").numpy("a").random()


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None, True])
def test_bad_seeds_are_named(seed):
    with pytest.raises(ValueError, match="seed must be a whole number"):
        Streams(seed)
