"""Images of two groups as tiles, and the difference of their means."""

import numpy as np

from m2st_core.figures.samples import pixels_figure, tiles_figure


def test_tiles_are_in_the_order_of_the_rows_with_gaps_between():
    images = np.arange(8.0)[:, None, None] * np.ones((8, 2, 3))
    figure = tiles_figure(images, images[:2], names=("<b>", "new"))
    first, second = (np.array(trace.z, dtype=float) for trace in figure.data)
    assert first.shape == second.shape == (6, 24)
    assert first[0, ::4].tolist() == [0, 1, 2, 3, 4, 5] and first[3, :8:4].tolist() == [6, 7]
    assert np.isnan(first[2]).all() and np.isnan(first[:, 3]).all() and np.isnan(second[3:]).all()
    assert "<b>" not in figure.to_json() and figure.data[0].zmax == 7


def test_pixels_have_one_scale_on_both_sides_of_zero():
    figure = pixels_figure(np.array([[0.5, -2.0], [np.nan, 0.0]]), names=("old", "new"))
    assert (figure.data[0].zmin, figure.data[0].zmax) == (-2, 2)
    assert "more in old (+) or in new (−)" in figure.data[0].colorbar.title.text
