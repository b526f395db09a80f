"""The checklist of CONTRIBUTING.md: one entry makes a method known everywhere."""

from m2st_core.commands.own_data import names_by_origin
from m2st_core.dashboard.explore.sweeps import method_groups
from m2st_core.figures.theme import look_of
from m2st_core.kernels.distance import GaussianKernel, median_width
from m2st_core.permutation.fitted import KernelTest
from m2st_core.sweeps.cost import predict_cost
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.testing.method import Look, Method, MethodCost
from m2st_core.testing.methods import METHODS, label_of
from m2st_core.testing.two_sample import two_sample_test

LOOK = Look("#123456", "hexagon", "dot")


def fit_narrow(pooled, preset, streams, progress=None):
    """A Gaussian kernel of a quarter of the median heuristic's width."""
    return KernelTest(GaussianKernel(median_width(pooled, streams) / 4))


def test_a_new_method_is_one_entry(monkeypatch):
    toy = Method(
        "MMD-Narrow",
        "Gaussian kernel with a quarter of the median width.",
        "k(x,y) = exp(−4·‖x−y‖²/σ²)",
        "nobody (2026)",
        "general",
        LOOK,
        fit=fit_narrow,
        needs_split=False,
        cost=MethodCost(test=100.0),
    )
    monkeypatch.setitem(METHODS, toy.name, toy)
    assert toy.name in names_by_origin()
    assert look_of(toy.name) == LOOK and label_of(toy.name) == toy.name
    assert toy.name in method_groups()["Without related tasks"]
    usual, costly = (predict_cost(SweepSpec(methods=(name,), m_te=(100,), repeats=1)) for name in ("MMD-M", toy.name))
    assert costly.seconds > 20 * usual.seconds
    result = two_sample_test(range(20), range(40, 60), toy.name)
    assert result.rejected and result.method == toy.name
