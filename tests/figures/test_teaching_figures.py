"""The figures of Learn, Weights and Relatedness show the numbers they were given."""

import numpy as np
import pandas as pd
import pytest

from m2st_core.figures.null import filling_figure, p_value_strip, settling_figure
from m2st_core.figures.relatedness import (
    bound_course_figure,
    bound_terms_figure,
    closeness_power_figure,
    gamma_figure,
    gamma_power_figure,
    gamma_spread_figure,
)
from m2st_core.figures.samples import heat_figure
from m2st_core.figures.weights import (
    criterion_figure,
    learning_size_figure,
    share_figure,
    weight_spread_figure,
    weights_figure,
)

AXIS = np.linspace(-1, 1, 5)


def test_a_heat_map_is_symmetric_about_zero_and_marks_it():
    values = np.add.outer(AXIS, 3 * AXIS)
    figure = heat_figure(values, AXIS, name="f", sample=(np.zeros((4, 2)), np.ones((3, 2))))
    heat, zero, x, y = figure.data
    assert np.array(heat.z) == pytest.approx(values) and heat.zmin == -heat.zmax < 0
    assert (zero.contours.start, zero.contours.end, zero.line.dash) == (0, 0, "dot")
    assert (len(x.x), len(y.x)) == (4, 3) and x.marker.symbol != y.marker.symbol
    assert heat_figure(np.zeros((5, 5)), AXIS, name="f").data[0].zmax == 1


def test_the_strip_tells_rejected_p_values_by_shape():
    figure = p_value_strip({"P = Q": np.array([0.5, 0.9]), "P ≠ Q": np.array([0.01, 0.05, 0.3])}, 0.05)
    rejected, kept = figure.data
    assert sorted(rejected.x) == [0.01, 0.05] and sorted(kept.x) == [0.3, 0.5, 0.9]
    assert rejected.marker.symbol != kept.marker.symbol
    assert all(abs(place - 1) < 0.5 for place in rejected.y) and list(figure.layout.yaxis.ticktext) == [
        "P = Q",
        "P ≠ Q",
    ]


def test_the_null_fills_up_on_a_fixed_axis():
    null = np.array([0.0, 1.0, 3.0, -1.0])
    few, all_of_them = (filling_figure(null, 2.0, shown) for shown in (2, 4))
    assert list(few.data[0].x) == [0, 1] and list(few.data[1].x) == []
    assert list(all_of_them.data[0].x) == [0, 1, -1] and list(all_of_them.data[1].x) == [3]
    assert few.layout.xaxis.range == all_of_them.layout.xaxis.range
    assert few.layout.shapes[0].x0 == 2
    settling = settling_figure(np.array([1.0, 0.4, 0.3]), 2, 0.05)
    assert list(settling.data[0].y) == [1.0, 0.4] and settling.layout.yaxis.range[1] > 1


@pytest.fixture
def kernels():
    return pd.DataFrame(
        {
            "kernel": ["Δ=0.3", "all tasks"],
            "learned": [0.2, 0.8],
            "best one": [1.0, 0.0],
            "uniform": [0.5, 0.5],
            "criterion": [0.4, -0.1],
        }
    )


def test_weights_stand_beside_best_one_and_uniform(kernels):
    methods = {"learned": "Meta-MKL", "best one": "Meta-Best1", "uniform": "Meta-MKL-A"}
    learned, best, uniform = weights_figure(kernels, methods).data
    assert list(learned.x) == [0.2, 0.8] and list(best.x) == [1, 0] and list(uniform.x) == [0.5, 0.5]
    assert len({trace.marker.pattern.shape for trace in (learned, best, uniform)}) == 3
    assert list(learned.customdata) == [0, 1]
    assert [trace.name for trace in (learned, best, uniform)] == [f"{m}: {c}" for c, m in methods.items()]
    assert list(criterion_figure(kernels, "Meta-MKL").data[0].x) == [0.4, -0.1]
    (alone,) = weights_figure(kernels, {"learned": "Feature-MKL"}).data
    assert alone.name == "Feature-MKL (ours): learned" and alone.marker.color != learned.marker.color


def test_variation_of_the_weights_shows_every_training_sample():
    repeats = pd.DataFrame({"repeat": [0, 1, 0, 1], "kernel": ["b", "b", "a", "a"], "weight": [0.1, 0.2, 0.3, 0.4]})
    boxes = weight_spread_figure(repeats, "Meta-MKL").data
    assert [box.name for box in boxes] == ["b", "a"] and list(boxes[1].x) == [0.3, 0.4]
    marks, mean = share_figure(pd.DataFrame({"m_tr": [10, 10, 50], "share": [0.2, 0.4, 1.0]})).data
    assert list(marks.y) == [0.2, 0.4, 1.0] and list(mean.y) == pytest.approx([0.3, 1.0])


def test_gamma_curves_hold_published_and_measured_values():
    published = pd.DataFrame({"closeness": [0.1, 0.2], "gamma_hat": [0.03, 0.06]})
    ours = pd.DataFrame(
        {
            "closeness": [0.1, 0.2],
            "on_training_rows": [0.05, 0.07],
            "on_test_rows": [0.01, 0.03],
            "lowest": [0.01, 0.03],
            "highest": [0.08, 0.09],
            "floor": [0.02, 0.025],
        }
    )
    floor, paper, chosen, fresh = gamma_figure(published, ours).data
    assert list(floor.y) == [0.02, 0.025] and floor.name == "noise floor: two samples of one task"
    assert list(paper.y) == [0.03, 0.06] and list(chosen.y) == [0.05, 0.07] and list(fresh.y) == [0.01, 0.03]
    assert list(fresh.error_y.array) == pytest.approx([0.07, 0.06]) and chosen.error_y.array is None
    assert len({trace.marker.symbol for trace in (paper, chosen, fresh)}) == 3


def test_the_spread_marks_min_over_tasks_of_max_over_restarts():
    values = pd.DataFrame(
        [
            {"closeness": 0.1, "task": task, "restart": restart, "gamma": gamma, "floor": 0.25}
            for task, found in (("a", [0.1, 0.5]), ("b", [0.2, 0.3]))
            for restart, gamma in enumerate(found)
        ]
    )
    others, largest, floor, line = gamma_spread_figure(values).data
    assert list(floor.y) == [0.25, 0.25] and "noise floor" in floor.name
    assert sorted(others.y) == [0.1, 0.2] and sorted(largest.y) == [0.3, 0.5] and list(line.y) == [0.3, 0.3]


def test_power_against_gamma_and_closeness_carry_their_intervals():
    table = pd.DataFrame(
        {"gamma": [0.2, 0.1], "closeness": [0.5, 0.1], "rate": [0.3, 0.9], "low": [0.2, 0.8], "high": [0.4, 0.95]}
    ).assign(floor=[0.15, 0.12])
    marks = gamma_power_figure(table).data[0]
    assert gamma_power_figure(table).layout.shapes[0].x1 == pytest.approx(0.135)
    assert list(marks.x) == [0.1, 0.2] and list(marks.text) == ["C=0.1", "C=0.5"]
    assert list(marks.error_y.array) == pytest.approx([0.05, 0.1])
    rates, intervals = np.array([0.9, 0.5]), np.array([[0.8, 0.95], [0.4, 0.6]])
    figure = closeness_power_figure(np.array([0.1, 0.5]), rates, intervals, floor=0.2)
    assert list(figure.data[0].y) == [0.9, 0.5] and figure.layout.shapes[0].y0 == 0.2


def test_bounds_are_stacked_by_term_and_drawn_against_m():
    table = pd.DataFrame({"bound": ["direct", "meta", "meta"], "term": ["ξ", "γ", "ξ"], "value": [3.0, 1.0, 2.0]})
    figure = bound_terms_figure(table)
    assert {trace.name: list(trace.y) for trace in figure.data} == {"ξ": [3, 2], "γ": [1]}
    assert figure.layout.barmode == "stack"
    lines = bound_course_figure([10, 100], {"direct": [5.0, 2.0], "meta": [4.0, 1.0]}, now=10)
    assert [list(line.y) for line in lines.data] == [[5, 2], [4, 1]] and lines.data[0].line.dash != lines.data[
        1
    ].line.dash


def test_learning_is_drawn_against_its_rows():
    table = pd.DataFrame(
        {
            "m_tr": [5, 50],
            "train": [0.6, 0.1],
            "fresh": [0.0, 0.05],
            "power": [0.2, 0.3],
            "low": [0.1, 0.2],
            "high": [0.4, 0.5],
        }
    )
    figure = learning_size_figure(table, now=50, floor=0.25)
    assert [list(curve.y) for curve in figure.data] == [[0.6, 0.1], [0.0, 0.05], [0.2, 0.3]]
    assert list(figure.data[2].error_y.array) == pytest.approx([0.2, 0.2]) and figure.data[0].error_y.array is None
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[1].y0) == (50, 0.25)
