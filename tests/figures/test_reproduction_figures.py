"""Published, the paper's algorithms and ours: three layers that look different in every figure."""

import pandas as pd
import pytest

from m2st_core.figures.null import type_1_figure
from m2st_core.figures.power import layers_figure, layers_marks
from m2st_core.paper.experiments import FIGURE_2, OURS
from m2st_core.testing.methods import METHODS


def summary(methods, sizes=(50, 100), **changes):
    rows = [{"method": m, "m_te": s, "rate": s / 200, "error": 0.1, "repeats": 20} for m in methods for s in sizes]
    return pd.DataFrame([row | changes for row in rows])


def published(methods, sizes=(50, 100)):
    rows = [{"method": m, "m_te": s, "power": 0.3, "std_error": 0.02, "doubt": ""} for m in methods for s in sizes]
    return pd.DataFrame(rows, columns=["method", "m_te", "power", "std_error", "doubt"])


def named(figure):
    return {trace.name: trace for trace in figure.data if trace.showlegend is not False}


def test_lines_tell_the_layers_apart():
    tables = {"paper": summary((*FIGURE_2, "limit")), "ours": summary(OURS)}
    shown = named(layers_figure(tables, published(["Meta-KL", "Meta-MKL"]), "m_te", "rows"))
    assert list(shown) == [*FIGURE_2, "limit", *(f"{method} (ours)" for method in OURS), "published"]
    assert {shown[name].line.dash for name in FIGURE_2 if METHODS[name].origin == "paper"} == {"solid"}
    assert {shown[name].line.dash for name in FIGURE_2 if METHODS[name].origin == "general"} <= {"dot", "dashdot"}
    assert {shown[f"{method} (ours)"].line.dash for method in OURS} == {"dash"}
    assert shown["published"].marker.symbol == "diamond-open" and shown["published"].mode == "markers"
    assert not any(shown[name].marker.symbol == "diamond-open" for name in shown if name != "published")
    assert list(shown["Meta-KL"].x) == [50, 100] and list(shown["Meta-KL"].y) == [0.25, 0.5]


def test_no_two_methods_of_a_layer_look_alike():
    shown = named(layers_figure({"paper": summary((*FIGURE_2, "limit"))}, published([]), "m_te", "rows")).values()
    assert len({(trace.line.color, trace.marker.symbol, trace.line.dash) for trace in shown}) == 10


def test_published_numbers_without_a_curve_are_named():
    shown = named(layers_figure({"paper": summary(["Meta-KL"])}, published(["Meta-KL", "ME"]), "m_te", "rows"))
    assert list(shown) == ["Meta-KL", "published", "ME, published"]
    assert shown["published"].marker.color == shown["Meta-KL"].line.color


def test_a_doubtful_number_says_so():
    doubtful = published(["ME"]).assign(doubt=["", "a misprint"])
    (trace,) = layers_figure({}, doubtful, "m_te", "rows").data
    assert list(trace.customdata) == ["", ": a misprint"]


def test_one_size_has_a_mark_for_each_method():
    tables = {"paper": summary(["Meta-KL", "ME"], [200]), "ours": summary(["Meta-FUSE"], [200], rate=0.99)}
    theirs, ours, points = layers_marks(tables, published(["Meta-KL"], [200])).data
    assert (list(theirs.y), list(theirs.x)) == (["Meta-KL", "ME"], [1, 1]) and list(ours.y) == ["Meta-FUSE (ours)"]
    assert (list(points.x), list(points.y)) == ([0.3], ["Meta-KL"])
    assert len({trace.marker.symbol for trace in (theirs, ours, points)}) == 3
    assert points.marker.color[0] == theirs.marker.color[0]


def test_type_one_errors_of_both_layers_stand_in_one_column():
    bounds = {"low": 0.04, "high": 0.07, "rate": 0.05}
    tables = {"paper": summary(["ME"], [100], **bounds), "ours": summary(["Meta-FUSE"], [100], **bounds)}
    (marks,) = type_1_figure(pd.concat(tables.values(), ignore_index=True), 0.05, (0.04, 0.06)).data
    assert list(marks.y) == ["ME", "Meta-FUSE (ours)"] and list(marks.x) == pytest.approx([0.05, 0.05])
