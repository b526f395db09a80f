import numpy as np
import pandas as pd
import pytest

from m2st_core.figures.kernels import bars_figure
from m2st_core.figures.power import left_out_figure
from m2st_core.figures.samples import witness_figure


def test_bars_carry_their_spread_from_top_to_bottom():
    names = ["a", "b", "c"]
    figure = bars_figure(names, np.array([3.0, 1.0, -1.0]), x_title="loss", spread=np.full(3, 0.2))
    (bar,) = figure.data
    assert list(bar.x) == [3, 1, -1] and list(bar.error_x.array) == [0.2] * 3
    assert list(figure.layout.yaxis.ticktext) == names and figure.layout.yaxis.autorange == "reversed"
    assert bars_figure(names, [1.0, 2.0, 3.0], x_title="weight").data[0].error_x.array is None


@pytest.mark.parametrize(("name", "shown"), [("<b>x</b>", "&lt;b&gt;x&lt;/b&gt;"), ("n" * 50, "n" * 39 + "…")])
def test_names_are_text_and_short(name, shown):
    figure = bars_figure([name], np.ones(1), x_title="loss")
    assert figure.layout.yaxis.ticktext == (shown,)


def test_two_columns_of_equal_name_have_two_bars():
    figure = bars_figure(["a", "a"], np.array([2.0, 1.0]), x_title="loss")
    assert list(figure.data[0].y) == [0, 1]


def test_the_witness_over_two_columns_has_its_own_axis_for_each():
    axes = [np.linspace(0, 1, 4), np.linspace(10, 20, 3)]
    values = np.arange(12.0).reshape(3, 4) - 6
    figure = witness_figure(values, axes, ["age", "dose"], (np.ones((5, 2)), np.zeros((6, 2))))
    heat, _, of_p, of_q = figure.data
    assert list(heat.x) == list(axes[0]) and list(heat.y) == list(axes[1]) and np.array_equal(heat.z, values)
    assert len(of_p.x) == 5 and len(of_q.x) == 6
    assert figure.layout.xaxis.title.text == "age" and figure.layout.yaxis.title.text == "dose"


def test_the_witness_along_one_column_is_a_line_between_the_samples():
    axis = np.linspace(0, 1, 4)
    figure = witness_figure(axis - 0.5, [axis], ["age"], (np.ones((5, 1)), np.zeros((6, 1))))
    line, of_p, of_q = figure.data
    assert list(line.y) == list(axis - 0.5) and min(of_p.y) > 0.5 and max(of_q.y) < -0.5


def test_power_on_left_out_tasks_shows_its_intervals():
    table = pd.DataFrame(
        {
            "method": ["Meta-FUSE", "MMD-M"],
            "uses_related_tasks": [True, False],
            "power": [0.6, 0.2],
            "low": [0.5, 0.1],
            "high": [0.9, 0.4],
            "tests": [72, 72],
        }
    )
    related, without = left_out_figure(table).data
    assert list(related.x) == ["Meta-FUSE (ours)"] and list(without.x) == ["MMD-M"]
    assert related.error_y.array[0] == pytest.approx(0.3) and without.error_y.arrayminus[0] == pytest.approx(0.1)
