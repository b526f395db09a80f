"""Memory: what is too large is bounded, predicted, done in parts, or refused in a sentence."""

from dataclasses import replace

import pytest
import torch

import m2st_core as m2st
from m2st_core import device
from m2st_core.learners import ascent
from m2st_core.learners.target_kernels import make_network
from m2st_core.permutation import labellings
from m2st_core.permutation.fitted import KernelTest
from m2st_core.rng import Streams
from m2st_core.testing.plan import bytes_of_test, plan_test
from m2st_core.testing.run import learn_once, run_tests
from m2st_core.types import TwoSample


def sample(runs):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(runs, 20, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    return TwoSample(x, y + 0.5)


def small_memory(name, most):
    """The method on a GPU that holds so many tests at once, and how many it was asked to hold."""
    method, asked = m2st.METHODS[name], []

    class Small(KernelTest):
        def statistics(self, pooled, *rest):
            asked.append(len(pooled))
            if len(pooled) > most:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
            return super().statistics(pooled, *rest)

    return replace(method, fit=lambda *arguments: Small(method.fit(*arguments).kernel)), asked


@pytest.mark.parametrize("name", ["MMD-M", "MMD-O · tuned"])
def test_fewer_tests_at_once_give_the_same_p_values(name):
    expected = run_tests(sample(7), m2st.METHODS[name], seeds=range(7), n_permutations=39)
    method, asked = small_memory(name, 3)
    shares = []
    found = run_tests(
        sample(7),
        method,
        seeds=range(7),
        n_permutations=39,
        progress=lambda step, total, _: shares.append(step / total),
    )
    assert asked == [7, 3, 3, 1]
    assert [result.p_value for result in found] == [result.p_value for result in expected]
    assert [result.seed for result in found] == list(range(7)) and shares[-1] == 1


def test_a_test_that_does_not_fit_alone_is_a_sentence():
    method, asked = small_memory("MMD-M", 0)
    with pytest.raises(ValueError, match="This does not fit into the memory of the GPU: use fewer rows"):
        run_tests(sample(4), method, seeds=range(4))
    assert asked == [4, 2, 1]


def test_learning_that_does_not_fit_is_a_sentence(monkeypatch):
    def too_much(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    pair = TwoSample(*(part[0] for part in sample(1)))
    method = m2st.METHODS["MMD-O · tuned"]
    with pytest.raises(ValueError, match="memory of the GPU"):
        learn_once(replace(method, fit=too_much), pair, 0)
    name, learned = next((name, method) for name, method in m2st.METHODS.items() if method.learn)
    monkeypatch.setitem(m2st.METHODS, name, replace(learned, learn=too_much))
    with pytest.raises(ValueError, match="memory of the GPU"):
        m2st.meta_train(name, [pair])


def wide(rows, columns, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator), torch.randn(rows, columns, generator=generator) + 0.3


@pytest.mark.parametrize("columns", [128, 129, 3000])
@pytest.mark.parametrize("preset", ["tuned", "paper"])
def test_no_layer_of_a_network_is_wider_than_384_units(columns, preset):
    rows, settings = wide(4, columns)[0][None].double(), m2st.PRESETS[preset].network
    network = make_network(rows, settings, [Streams(0)])
    assert network.features == 384 and sum(p.numel() for p in network.parameters()) < 384 * (columns + 3 * 384 + 4) + 1
    assert bool(network.notes) == (columns > 128)


def test_a_bounded_network_is_noted():
    x, y = wide(8, 200)
    (note,) = m2st.two_sample_test(x, y, "C2ST-L · tuned", n_permutations=19).notes
    assert note.startswith("With 200 columns, the layers of the network have 384 units")


@pytest.mark.parametrize("name", ["MMD-M", "MMD-FUSE", "Omnibus", "C2ST-L · tuned"])
def test_labellings_in_pieces_give_the_same_statistics(name, monkeypatch):
    x, y = (part[0] for part in sample(1))
    expected = m2st.two_sample_test(x, y, name, n_permutations=99)
    monkeypatch.setattr(labellings, "PIECE_BYTES", 2**14)
    monkeypatch.setattr(labellings, "KEYS_AT_ONCE", 40 * 16)
    found = m2st.two_sample_test(x, y, name, n_permutations=99)
    assert found.p_value == expected.p_value
    assert found.null == pytest.approx(expected.null, rel=1e-4, abs=1e-6)


def test_memory_of_permutations_is_bounded_by_their_labellings_alone():
    """The prediction for 10⁶ permutations grows with the labellings held, not with products of all of them."""
    held = bytes_of_test(m2st.METHODS["MMD-M"], 10**6, rows=200, columns=2)
    assert 10**6 * 200 < held < 10**6 * 310 + 3 * labellings.PIECE_BYTES


@pytest.mark.parametrize("many", [1_000_001, 10**9])
def test_permutations_have_a_cap(many):
    with pytest.raises(ValueError, match="n_permutations must be a whole number from 1 to 1,000,000"):
        m2st.TestSettings(n_permutations=many)


def test_what_does_not_fit_into_memory_is_refused_before_it_runs(monkeypatch):
    x, y = wide(20, 40)
    monkeypatch.setattr("m2st_core.testing.plan.free_bytes", lambda: 10**8)
    assert m2st.two_sample_test(x, y, "MMD-M").p_value
    words = (
        "MMD-M with 1,000,000 permutations of 40 rows with 40 columns needs about 0.8 GB of memory, and 0.1 GB are free"
    )
    with pytest.raises(ValueError, match=words):
        m2st.two_sample_test(x, y, "MMD-M", n_permutations=1_000_000)
    monkeypatch.setattr("m2st_core.testing.plan.free_bytes", lambda: 10**7)
    with pytest.raises(ValueError, match="Learning from 80 rows with 40 columns needs about 0.0 GB"):
        m2st.meta_train("Meta-FUSE", [(x, y), (y, x)])


def test_a_container_limits_what_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "CONTAINER", tmp_path)
    machine = device.free_bytes()
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert device.free_bytes() == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert device.free_bytes() == pytest.approx(machine, rel=0.5)


@pytest.mark.parametrize(("sizes", "used"), [((60, 50_000), (60, 39_940)), ((50_000, 30_000), (20_000, 20_000))])
def test_of_large_samples_the_scarce_one_is_not_thinned(sizes, used):
    plan = plan_test(TwoSample(*(torch.zeros(size, 1) for size in sizes)), m2st.METHODS["MMD-M"])
    assert plan.sample.sizes == used and tuple(map(len, plan.rows)) == used
    assert f"MMD-M uses {used[0]:,} of {sizes[0]:,} and {used[1]:,} of {sizes[1]:,} rows" in plan.notes[0]


@pytest.mark.parametrize("name", [name for name, method in m2st.METHODS.items() if method.cost.test > 1])
def test_tests_that_compare_many_kernels_take_fewer_rows(name):
    pair = TwoSample(torch.zeros(299_000, 1), torch.zeros(60, 1))
    assert plan_test(pair, m2st.METHODS[name]).sample.sizes == (9_940, 60)


def test_leading_eigenvectors_of_a_large_matrix_are_those_of_the_whole(monkeypatch):
    rows = torch.randn(300, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = (rows @ torch.diag(0.8 ** torch.arange(60.0, dtype=torch.float64)) @ rows.mT)[None]
    expected, _ = ascent.leading_eigenvectors(matrix)
    monkeypatch.setattr(ascent, "ALL_EIGENVECTORS", 100)
    monkeypatch.setattr(ascent, "SOME_EIGENVECTORS", 40)
    values, vectors = ascent.leading_eigenvectors(matrix)
    assert values[:, :20].numpy() == pytest.approx(expected[:, :20].numpy(), rel=1e-3)
    identity = (vectors.mT @ vectors)[0].numpy()
    assert identity == pytest.approx(torch.eye(40).numpy(), abs=1e-9)
    assert (vectors.mT @ matrix @ vectors).diagonal(dim1=-2, dim2=-1).numpy() == pytest.approx(values.numpy())
