"""The figures of Learn, Weights and Relatedness show the numbers they were given."""

import re

import numpy as np
import pandas as pd
import pytest

from m2st_core.figures.kernels import mixture_figure, rank_figure
from m2st_core.figures.null import p_value_strip, shuffle_figure
from m2st_core.figures.power import found_figure, learning_figure
from m2st_core.figures.relatedness import (
    bound_course_figure,
    gamma_figure,
    gamma_power_figure,
    task_gamma_figure,
    theorem_figure,
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
    """Two repeats of three kernels, in no order."""
    return pd.DataFrame(
        {
            "repeat": [0, 0, 0, 1, 1, 1],
            "kernel": [2, 0, 1, 0, 1, 2],
            "name": ["<b>c", "a", "b", "a", "b", "<b>c"],
            "strength": [0.3, 0.1, 0.2, 0.1, 0.2, 0.3],
            "beta": [0.6, 0.1, 0.3, 0.3, 0.5, 0.2],
            "share": [0.2, 0.2, 0.6, 0.2, 0.4, 0.4],
        }
    )


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def test_a_mixture_has_means_repeats_and_a_place_to_click_for_each_kernel(kernels):
    figure = mixture_figure(kernels)
    drawn = traces(figure)
    assert list(drawn["mean"].y) == pytest.approx([0.2, 0.4, 0.4]) and len(drawn["repeats"].y) == 6
    assert figure.data[-1].name == "kernel" and list(figure.data[-1].x) == [0, 1, 2]
    assert figure.data[-1].customdata[1] == "Δ = 0.200: mean β = 0.40"
    assert list(figure.layout.xaxis.ticktext) == ["0.10", "0.20", "0.30"] and "used" not in drawn
    assert [line.y0 for line in figure.layout.shapes] == [pytest.approx(1 / 3)]


def test_used_weights_are_drawn_where_they_differ(kernels):
    drawn = traces(mixture_figure(kernels.assign(used=0.2 * kernels["beta"] + 0.8 / 3)))
    assert list(drawn["used"].y) == pytest.approx([0.2 * beta + 0.8 / 3 for beta in drawn["mean"].y])
    assert "used: 0.31" in drawn["kernel"].customdata[0] and "used" not in traces(mixture_figure(kernels))


def test_shares_have_no_uniform_line_and_names_from_files_are_escaped(kernels):
    figure = mixture_figure(kernels.assign(strength=np.nan), measured="share")
    assert not figure.layout.shapes and list(figure.data[0].y) == pytest.approx([0.2, 0.5, 0.3])
    assert figure.layout.xaxis.ticktext[2] == "&lt;b&gt;c" and "<b>" not in figure.data[-1].customdata[2]


def test_each_kernel_has_its_picture_below_its_bar(kernels):
    maps = np.stack([np.full((4, 4), value) for value in (2.0, -3.0, np.nan)])
    pictures = traces(mixture_figure(kernels, pictures=maps))["pictures"]
    z, x = np.array(pictures.z, dtype=float), np.array(pictures.x)
    for kernel, value in enumerate((1, -1)):  # each at its own full colour
        assert (z[:, (x > kernel - 0.45) & (x < kernel + 0.45)] == value).all()
    assert np.isnan(z[:, x > 1.45]).all() and pictures.yaxis == "y2"


def test_ranks_add_up_to_all_weight():
    ranked = pd.DataFrame([[0.5, 0.2, 0.1, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1, 0.0]], index=[10, 50])
    figure = rank_figure(ranked, 50, "Meta-MKL", "m_tr", 200)
    bars = figure.data
    assert [bar.name for bar in bars] == ["largest", "second", "third", "all others"]
    assert sum(np.array(bar.y) for bar in bars) == pytest.approx([1, 1]) and list(bars[-1].y) == pytest.approx(
        [0.2, 0.1]
    )
    assert list(figure.layout.xaxis.ticktext) == ["10", "<b>50</b>"]
    assert len(rank_figure(ranked.iloc[:, :2], 50, "Meta-MKL", "m_tr", 200).data) == 2


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


def test_power_against_gamma_has_bars_and_the_bands_of_tests_without_history():
    table = pd.DataFrame(
        {"method": "Meta-KL", "gamma": [0.1, 0.2], "closeness": [0.1, 0.5], "rate": [0.9, 0.3], "error": [0.01, 0.02]}
    )
    others = pd.DataFrame({"method": ["MMD-O"], "rate": [0.6], "error": [0.05]})
    figure = gamma_power_figure(table, others, 0.5)
    (marks,) = figure.data
    assert list(marks.x) == [0.1, 0.2] and list(marks.y) == [0.9, 0.3] and list(marks.error_y.array) == [0.01, 0.02]
    assert marks.marker.size[1] > marks.marker.size[0]  # C = 0.5 is the chosen one
    band, line = figure.layout.shapes
    assert (band.y0, band.y1) == pytest.approx((0.55, 0.65)) and line.y0 == line.y1 == 0.6
    named = {re.sub("<.*?>", "", words.text) for words in figure.layout.annotations}
    assert named == {"MMD-O", "Meta-KL", "C = 0.1", "C = 0.5"}


def test_the_theorem_has_measured_points_with_bars_and_bounds_without():
    table = pd.DataFrame(
        {"rows": [20, 50, 20, 50], "line": ["measured", "measured", "bound", "bound"], "value": [0.1, -0.01, 900, 700]}
    ).assign(error=[0.01, 0.01, np.nan, np.nan])
    measured, bound = theorem_figure(table, "rows", 50).data
    assert list(measured.x) == [20] and list(measured.error_y.array) == [0.01]  # −0.01 has no place on a log axis
    assert list(bound.y) == [900, 700] and bound.error_y.array is None and bound.mode == "lines"


def test_names_of_uploaded_tasks_are_shown_literally_beside_their_floors():
    table = pd.DataFrame({"task": ["<b>May</b>"], "gamma": [0.2], "floor": [0.1]})
    bars, floors = task_gamma_figure(table).data
    assert list(bars.y) == ["&lt;b&gt;May&lt;/b&gt;"] and list(bars.x) == [0.2] and list(floors.x) == [0.1]


def test_bounds_are_drawn_against_m():
    lines = bound_course_figure([10, 100], {"direct": [5.0, 2.0], "meta": [4.0, 1.0]}, now=10)
    assert [list(line.y) for line in lines.data] == [[5, 2], [4, 1]]
    assert lines.data[0].line.dash != lines.data[1].line.dash
