"""The figures of Learn, Weights and Relatedness show the numbers they were given."""

import numpy as np
import pandas as pd
import pytest

from m2st_core.figures.kernels import criterion_figure, share_figure, weight_spread_figure, weights_figure
from m2st_core.figures.null import p_value_strip, shuffle_figure
from m2st_core.figures.power import found_figure, learning_figure
from m2st_core.figures.relatedness import (
    bound_course_figure,
    gamma_figure,
    gamma_power_figure,
    gamma_spread_figure,
)
from m2st_core.figures.samples import heat_figure

AXIS = np.linspace(-1, 1, 5)


def test_a_heat_map_is_symmetric_about_zero_and_marks_it():
    values = np.add.outer(AXIS, 3 * AXIS)
    figure = heat_figure(values, AXIS, name="f", sample=(np.zeros((4, 2)), np.ones((3, 2))))
    heat, zero, x, y = figure.data
    assert np.array(heat.z) == pytest.approx(values) and heat.zmin == -heat.zmax < 0
    assert (zero.contours.start, zero.contours.end, zero.line.dash) == (0, 0, "dot")
    assert (len(x.x), len(y.x)) == (4, 3) and x.marker.symbol != y.marker.symbol
    assert heat_figure(np.zeros((5, 5)), AXIS, name="f").data[0].zmax == 1


def test_the_strip_tells_rejected_p_values_by_shape_and_marks_ones_own():
    figure = p_value_strip({"P = Q": np.array([0.5, 0.9]), "P ≠ Q": np.array([0.01, 0.05, 0.3])}, 0.05, 0.2)
    rejected, kept, own = figure.data
    assert sorted(rejected.x) == [0.01, 0.05] and sorted(kept.x) == [0.3, 0.5, 0.9] and own.x == (0.2,)
    assert len({trace.marker.symbol for trace in figure.data}) == 3
    assert all(abs(place - 1) < 0.5 for place in rejected.y) and own.y == (1,)
    assert list(figure.layout.yaxis.ticktext) == ["P = Q", "P ≠ Q"]


ROWS = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
MEMBERS = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]], dtype=bool)
STATISTICS = np.array([2.0, 0.0, 3.0, 0.01])


def called_p(traces):
    """Which rows are drawn as P's; all others must be drawn as Q's."""
    p, q = (np.array(trace.marker.size) > 0 for trace in traces)
    assert (p != q).all()
    return p.astype(int).tolist()


def test_labels_swap_and_dots_pile_up_frame_by_frame():
    figure = shuffle_figure(ROWS, MEMBERS, STATISTICS, 3)
    _, p, _, q, dots, counter, observed = figure.data
    assert called_p((p, q)) == [1, 1, 0, 0]  # at the end, the observed labels again
    assert list(dots.marker.size) == [10, 10, 10] and dots.marker.color[1] != dots.marker.color[0]
    assert dots.x[0] == dots.x[2] < 2 < dots.x[1] and list(dots.y) == [0.5, 0.5, 1.5]
    assert counter.text == ("3 shuffles, 1 at least as large: p = 2/4 = 0.50",) and observed.x == (2, 2)
    landed = [frame for frame in figure.frames if frame.name.endswith("-0.0")]
    assert [frame.data[3].text[0].split()[0] for frame in landed] == ["0", "1", "2", "3"]
    assert [called_p(frame.data[:2]) for frame in landed] == [MEMBERS[i].astype(int).tolist() for i in (0, 1, 2, 0)]
    assert list(landed[2].data[2].marker.size) == [10, 10, 0] and landed[0].traces == (1, 3, 4, 5)
    assert any(frame.data[2].y[0] > 0.5 for frame in figure.frames)  # the first dot falls
    play = figure.layout.updatemenus[0].buttons[0]
    assert play.label == "Play" and len(play.args[1]["frame"]) == len(figure.frames)


def test_a_slider_shows_a_state_in_between():
    figure = shuffle_figure(ROWS, MEMBERS, STATISTICS, 1)
    assert called_p((figure.data[1], figure.data[3])) == [1, 0, 1, 0]
    assert list(figure.data[4].marker.size) == [10, 0, 0]


def test_found_samples_are_full_dots_in_the_same_places():
    found = {"without": (np.array([True] + 11 * [False]), "grey"), "with": (np.array(12 * [True]), "green")}
    figure = found_figure(found)
    full, missed, all_full, none = figure.data
    assert [len(trace.x) for trace in figure.data] == [1, 11, 12, 0]
    assert full.marker.color == "grey" and all_full.marker.color == "green" and missed.marker.symbol == "circle-open"
    assert (full.x[0], full.y[0]) == (all_full.x[0] - 12, all_full.y[0])
    assert [note.text for note in figure.layout.annotations] == ["<b>1 of 12</b><br>without", "<b>12 of 12</b><br>with"]


def test_power_stands_alone_on_fixed_axes():
    intervals = np.array([[0.1, 0.3], [0.4, 0.6]])
    floor, power = learning_figure([10, 100], np.array([0.2, 0.5]), intervals, now=100, floor=0.25).data
    assert list(floor.y) == [0.25, 0.25] and list(power.y) == [0.2, 0.5]
    assert list(power.error_y.array) == pytest.approx([0.1, 0.1]) and power.marker.size[1] > power.marker.size[0]
    figure = learning_figure([10, 100], np.array([0.0, 0.1]), intervals, now=10, floor=0.0)
    assert figure.layout.yaxis.range == (0, 1)


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
    assert learned.type == "bar" and best.marker.symbol != uniform.marker.symbol
    assert list(learned.y) == list(best.y) == list(kernels["kernel"])
    assert [trace.name for trace in (learned, best, uniform)] == [f"{m}: {c}" for c, m in methods.items()]
    assert list(criterion_figure(kernels, "Meta-MKL").data[0].x) == [0.4, -0.1]
    (alone,) = weights_figure(kernels, {"learned": "Feature-MKL"}).data
    assert alone.name == "Feature-MKL (ours)" and alone.marker.color != learned.marker.color


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


def test_power_against_gamma_carries_its_interval():
    table = pd.DataFrame(
        {"gamma": [0.2, 0.1], "closeness": [0.5, 0.1], "rate": [0.3, 0.9], "low": [0.2, 0.8], "high": [0.4, 0.95]}
    ).assign(floor=[0.15, 0.12])
    marks = gamma_power_figure(table).data[0]
    assert gamma_power_figure(table).layout.shapes[0].x1 == pytest.approx(0.135)
    assert list(marks.x) == [0.1, 0.2] and list(marks.text) == ["C=0.1", "C=0.5"]
    assert list(marks.error_y.array) == pytest.approx([0.05, 0.1])


def test_bounds_are_drawn_against_m():
    lines = bound_course_figure([10, 100], {"direct": [5.0, 2.0], "meta": [4.0, 1.0]}, now=10)
    assert [list(line.y) for line in lines.data] == [[5, 2], [4, 1]]
    assert lines.data[0].line.dash != lines.data[1].line.dash
