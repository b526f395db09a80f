import numpy as np
import pandas as pd
import pytest

from m2st_core.figures.explain import history_figure, importance_figure, witness_figure


def test_importance_bars_carry_their_spread_and_at_most_twenty_columns():
    names = [f"column {index}" for index in range(30)]
    loss, spread = np.linspace(3, -1, 30), np.full(30, 0.2)
    figure = importance_figure(names, loss, spread)
    (bar,) = figure.data
    assert list(bar.x) == list(loss[:20]) and list(bar.error_x.array) == [0.2] * 20
    assert list(figure.layout.yaxis.ticktext) == names[:20] and figure.layout.yaxis.autorange == "reversed"


@pytest.mark.parametrize(("name", "shown"), [("<b>x</b>", "&lt;b&gt;x&lt;/b&gt;"), ("n" * 50, "n" * 39 + "…")])
def test_names_are_text_and_short(name, shown):
    figure = importance_figure([name], np.ones(1), np.zeros(1))
    assert figure.layout.yaxis.ticktext == (shown,)


def test_two_columns_of_equal_name_have_two_bars():
    figure = importance_figure(["a", "a"], np.array([2.0, 1.0]), np.zeros(2))
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


def test_history_bars_show_their_intervals():
    table = pd.DataFrame(
        {
            "method": ["Meta-FUSE", "MMD-M"],
            "uses_history": [True, False],
            "power": [0.6, 0.2],
            "low": [0.5, 0.1],
            "high": [0.9, 0.4],
            "tests": [72, 72],
        }
    )
    with_history, without = history_figure(table).data
    assert list(with_history.x) == ["Meta-FUSE (ours)"] and list(without.x) == ["MMD-M"]
    assert with_history.error_y.array[0] == pytest.approx(0.3) and without.error_y.arrayminus[0] == pytest.approx(0.1)
