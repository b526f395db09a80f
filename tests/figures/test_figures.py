import numpy as np
import pytest

import m2st_core as m2st
from m2st_core.figures import null_figure, samples_figure


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


@pytest.mark.parametrize(("method", "kind"), [("MMD-M", "random relabellings"), ("ME", "quantiles of the reference")])
def test_the_null_figure_holds_null_and_observation(method, kind):
    result = m2st.two_sample_test(*m2st.make_task("mean_shift").sample(40, seed=2), method=method)
    figure = null_figure(result)
    assert list(figure.data[0].x) == list(result.null) and kind in figure.data[0].name
    assert figure.layout.shapes[0].x0 == figure.layout.shapes[0].x1 == result.statistic
    assert f"{result.statistic:.4g}" in figure.data[1].name
