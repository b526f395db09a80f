"""A GPU whose memory is too small: fewer tests at once, and a sentence where not even one fits."""

from dataclasses import replace

import pytest
import torch

import m2st_core as m2st
from m2st_core.permutation.fitted import KernelTest
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


@pytest.mark.parametrize("name", ["MMD-M", "MMD-O"])
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
    method = m2st.METHODS["MMD-O"]
    with pytest.raises(ValueError, match="memory of the GPU"):
        learn_once(replace(method, fit=too_much), pair, 0)
    name, learned = next((name, method) for name, method in m2st.METHODS.items() if method.learn)
    monkeypatch.setitem(m2st.METHODS, name, replace(learned, learn=too_much))
    with pytest.raises(ValueError, match="memory of the GPU"):
        m2st.meta_train(name, [pair])
