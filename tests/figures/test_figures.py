import colorsys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import m2st_core as m2st
from m2st_core.figures.kernels import training_figure
from m2st_core.figures.null import null_figure, type_1_figure
from m2st_core.figures.power import (
    ablation_figure,
    compare_figure,
    power_figure,
    tasks_figure,
    total_rows_figure,
)
from m2st_core.figures.samples import samples_figure
from m2st_core.figures.theme import look_of
from m2st_core.testing.methods import label_of


def curves(figure):
    """The names of the curves."""
    return [trace.name for trace in figure.data if trace.mode == "lines+markers"]


def test_samples_show_every_row_in_two_colours_and_two_shapes():
    x, y = (part.numpy() for part in m2st.make_task("blobs").sample(30, 20, seed=1))
    first, second = samples_figure(x, y).data
    assert np.c_[first.x, first.y] == pytest.approx(x)
    assert np.c_[second.x, second.y] == pytest.approx(y)
    assert first.marker.color != second.marker.color and first.marker.symbol != second.marker.symbol
    assert "30 rows" in first.name and "20 rows" in second.name


def test_many_columns_are_shown_by_principal_components():
    x, y = (part.numpy() for part in m2st.make_task("mean_shift", shift=5.0, dimension=6).sample(40, seed=1))
    figure = samples_figure(x, y)
    assert figure.layout.xaxis.title.text == "first principal component"
    assert abs(figure.data[0].x.mean() - figure.data[1].x.mean()) > 4  # the shift is the widest direction


def test_large_samples_are_thinned():
    x = np.zeros((5000, 2))
    assert len(samples_figure(x, x + 1).data[0].x) == 1000


@pytest.mark.parametrize(
    ("method", "kind"), [("MMD-M", "random labellings"), ("SCF · tuned", "the reference distribution")]
)
def test_the_null_figure_colours_the_tail_that_the_p_value_counts(method, kind):
    result = m2st.two_sample_test(*m2st.make_task("mean_shift", shift=0.3).sample(40, seed=2), method=method)
    figure = null_figure(result)
    below, tail, line = figure.data
    assert kind in below.name and sum(below.y) + sum(tail.y) == len(result.null)
    assert sum(tail.y) == round(result.p_value * (len(result.null) + result.exact)) - result.exact
    assert f"{round(1000 * result.p_value)} of 1,000" in tail.name or not result.by_permutation
    assert figure.layout.shapes[0].x0 == figure.layout.shapes[0].x1 == result.statistic
    assert f"{result.statistic:.4g}" in line.name


def test_a_long_tail_of_the_null_does_not_flatten_the_rest():
    result = m2st.two_sample_test(*m2st.make_task("mean_shift").sample(40, seed=2), method="MMD-M")
    null = np.linspace(-0.1, 1, 200)
    null[-3:] = 500.0
    clipped = null_figure(replace(result, null=null, statistic=0.9))
    assert clipped.layout.xaxis.title.text.endswith("(last bar: all beyond)")
    assert clipped.data[0].x[-1] < 2 and sum(clipped.data[0].y) + sum(clipped.data[1].y) == 200
    heavy = null_figure(replace(result, null=np.geomspace(1, 1e4, 200), statistic=20.0))
    assert heavy.layout.xaxis.type == "log" and max(heavy.data[0].y) < 20
    plain = null_figure(replace(result, null=np.linspace(0, 1, 200), statistic=0.9))
    assert plain.layout.xaxis.type is None and "beyond" not in plain.layout.xaxis.title.text


def summary(**changes):
    base = {
        "task": "hdgm", "null": False, "method": "Meta-KL", "closeness": 0.3, "n_tasks": 100.0,
        "m_tr": 50.0, "m_te": 50, "rate": 0.5, "error": 0.1, "repeats": 2, "published": np.nan,
        "published_error": np.nan, "doubt": "",
    }  # fmt: skip
    return [base | changes]


def test_power_curves_have_bands_and_published_points():
    table = pd.DataFrame(
        summary(m_te=100, rate=0.7, published=0.4, published_error=0.02) + summary() + summary(method="limit")
    )
    figure = power_figure(table)
    curve, band, points = figure.data[:3]
    assert (list(curve.x), list(curve.y)) == ([50, 100], [0.5, 0.7])
    assert list(band.y) == pytest.approx([0.6, 0.8, 0.6, 0.4])
    assert (list(points.x), list(points.y), points.marker.symbol) == ([100], [0.4], "diamond-open")
    assert figure.data[3].name == "limit" and figure.data[3].line.color != curve.line.color


def test_published_points_share_one_name_and_many_methods_get_a_taller_chart():
    methods = [name for name, method in m2st.METHODS.items() if method.origin != "ours"][:10]
    table = pd.DataFrame([row for name in methods for row in summary(method=name, published=0.4, published_error=0.1)])
    assert sorted(curves(power_figure(table))) == sorted(methods)
    assert {trace.name for trace in power_figure(table).data if trace.mode == "markers"} == {"published"}
    assert power_figure(table).layout.height > power_figure(table.iloc[:2]).layout.height


def test_training_rows_count_where_all_rows_are_shown():
    split = [row for m in (50, 100) for row in summary(m_te=m)]
    whole = [row for m in (50, 100) for row in summary(m_te=m, method="MMD-M", m_tr=np.nan)]
    figure = total_rows_figure(pd.DataFrame(split + whole))
    assert {trace.name: list(trace.x) for trace in figure.data if trace.mode == "lines+markers"} == {
        "Meta-KL": [100, 150],
        "MMD-M": [50, 100],
    }
    assert "training rows included" in figure.layout.xaxis.title.text


def test_a_sweep_over_tasks_makes_a_curve_per_size():
    table = pd.DataFrame(
        [row for n in (20, 100) for m in (50, 100) for row in summary(n_tasks=float(n), m_te=m, rate=n / 200)]
    )
    assert curves(tasks_figure(table)) == ["Meta-KL, m_te=50", "Meta-KL, m_te=100"]
    assert list(tasks_figure(table).data[0].x) == [20, 100]


def test_type_one_ablation_and_training_figures_show_their_numbers():
    table = pd.DataFrame(summary(rate=0.06) + summary(method="MMD-M", rate=0.04, published=0.05))
    figure = type_1_figure(table, 0.05, (0.03, 0.07))
    assert list(figure.data[0].x) == [0.06, 0.04] and (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (
        0.03,
        0.07,
    )
    bars, points = ablation_figure(table).data
    assert list(bars.y) == [0.06, 0.04] and list(points.x) == ["MMD-M"]
    curves = training_figure({"step": [0, 10], "train": [0.1, 0.2], "held_out": [float("nan")] * 2}).data
    assert [curve.name for curve in curves] == ["training rows"] and list(curves[0].y) == [0.1, 0.2]


def test_compared_runs_share_a_colour_and_differ_in_line_and_marker():
    rows = [row | {"run": run} for run in ("aaaaaa", "bbbbbb") for row in summary() + summary(m_te=100, rate=0.8)]
    first, second = compare_figure(pd.DataFrame(rows), size_unit="per mode").data
    assert list(first.x) == [50, 100] and list(first.y) == [0.5, 0.8] and first.name == "Meta-KL, aaaaaa"
    assert first.line.color == second.line.color
    assert first.line.dash != second.line.dash and first.marker.symbol != second.marker.symbol


def test_no_two_methods_look_alike_even_without_colour():
    looks = [(look_of(method).marker, look_of(method).dash) for method in m2st.METHODS]
    assert len(set(looks)) == len(looks)


def test_methods_that_are_often_compared_differ_in_colour():
    shown = ("Feature-MKL", "Meta-WiTS", "MMD-M", "Meta-MKL", "Meta-KL")
    images = ("Feature-MKL", "Meta-WiTS", "MMD-D", "MMD-O", "Meta-MKL", "Meta-KL")
    paper = ("Meta-MKL", "Meta-KL", "AGT-KL", "MMD-D", "MMD-O", "C2ST-L", "C2ST-S")
    for methods in (shown, images, paper):
        assert len({look_of(method).colour for method in methods}) == len(methods)


def test_the_papers_tests_are_green_ours_violet_and_general_ones_grey_or_brown():
    for name, method in m2st.METHODS.items():
        red, green, blue = (int(method.look.colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        hue, _, saturation = colorsys.rgb_to_hls(red, green, blue)
        kinds = {
            "paper": 0.19 < hue < 0.53,
            "ours": 0.66 < hue < 0.92,
            "general": saturation < 0.1 or hue < 0.13,
        }
        assert [kind for kind, holds in kinds.items() if holds] == [method.origin], name


def test_colours_stand_out_from_light_and_dark_pages():
    """A contrast of at least 3 with both backgrounds of .streamlit/config.toml."""

    def luminance(colour):
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return np.dot(linear, (0.2126, 0.7152, 0.0722))

    for name, method in m2st.METHODS.items():
        own = luminance(method.look.colour)
        assert (luminance("#FFFFFF") + 0.05) / (own + 0.05) > 3, name
        assert (own + 0.05) / (luminance("#14171C") + 0.05) > 3, name


def test_figures_know_every_method_and_whose_it_is():
    assert [look_of(name) for name in m2st.METHODS] == [method.look for method in m2st.METHODS.values()]
    looks = [(method.look.colour, method.look.marker, method.look.dash) for method in m2st.METHODS.values()]
    assert len(set(looks)) == len(looks)
    assert [label_of(name) for name in m2st.METHODS] == [method.label for method in m2st.METHODS.values()]
    assert label_of("limit") == "limit"


def test_lines_of_one_test_share_a_colour_and_differ_in_dash_and_marker():
    for name in ("Meta-MKL", "SCF"):
        text, code, tuned = (look_of(f"{name}{suffix}") for suffix in ("", " · code", " · tuned"))
        assert text.colour == code.colour == tuned.colour
        assert len({text.dash, code.dash, tuned.dash}) == 3 and text.marker not in (code.marker, tuned.marker)


def test_lines_tell_whose_a_method_is():
    methods = m2st.METHODS.values()
    methods = [method for method in methods if not method.changes]
    lines = {one.origin: {m.look.dash for m in methods if m.origin == one.origin} for one in methods}
    assert lines["ours"] == {"dash"} and lines["paper"] == {"solid", "longdash"}
    assert not any(a & b for one, a in lines.items() for other, b in lines.items() if one != other)


def test_our_methods_are_marked_in_every_legend_and_on_every_axis():
    table = pd.DataFrame(summary(method="Feature-MKL") + summary(method="Meta-MKL"))
    assert curves(power_figure(table)) == ["Feature-MKL (ours)", "Meta-MKL"]
    ends = [annotation.text for annotation in power_figure(table).layout.annotations]
    assert ["Feature-MKL (ours)" in ends[0], "Meta-MKL" in ends[1]] == [True, True]
    assert list(type_1_figure(table, 0.05, (0.03, 0.07)).data[0].y) == ["Feature-MKL (ours)", "Meta-MKL"]
    assert list(ablation_figure(table).data[0].x) == ["Feature-MKL (ours)", "Meta-MKL"]
    assert compare_figure(table.assign(run="aaaaaa")).data[0].name == "Feature-MKL (ours), aaaaaa"
    result = m2st.two_sample_test(*m2st.make_task("mean_shift").sample(40, seed=2), method="MMD-M")
    ours = null_figure(replace(result, method="Meta-FUSE", origin="ours"))
    assert ours.layout.xaxis.title.text == "statistic of Meta-FUSE (ours)"
