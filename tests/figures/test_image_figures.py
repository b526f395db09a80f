"""Figures of images: what is where, in which colour."""

import numpy as np
import pandas as pd
import pytest

from m2st_core.figures.kernels import class_witness_figure, pair_figure
from m2st_core.figures.samples import image_grid


@pytest.mark.parametrize("channels", [1, 3])
def test_a_grid_shows_every_image_once_with_transparent_gaps(channels):
    images = np.stack([np.full((channels, 8, 8), value) for value in (0.0, 0.5, 1.0)])
    picture = image_grid(images, columns=2)
    assert picture.shape == (2 * 40 + 2, 2 * 40 + 2, 4) and picture.dtype == np.uint8
    assert picture[0, 0].tolist() == [0, 0, 0, 255] and picture[0, 42].tolist() == [128, 128, 128, 255]
    assert picture[42, 0].tolist() == [255, 255, 255, 255]
    assert picture[40, 0, 3] == picture[0, 40, 3] == picture[60, 60, 3] == 0


def test_a_pair_of_classes_has_its_value_on_both_sides():
    figure = pair_figure(("a", "b", "c"), {("a", "b"): 0.7, ("b", "c"): 0.0}, "β")
    table = np.array(figure.data[0].z, dtype=float)
    assert table[0, 1] == table[1, 0] == 0.7 and table[1, 2] == 0 and np.isnan(table[0, 2]) and np.isnan(table[0, 0])
    assert figure.data[0].zmax == 0.7 and pair_figure(("a",), {}, "β").data[0].zmax == 1


def test_classes_are_coloured_by_their_side():
    table = pd.DataFrame(
        {"class": ["7", "6"], "mean": [0.2, -0.1], "error": [0.01, 0.02], "share_p": [0.6, 0.4], "share_q": [0.3, 0.7]}
    )
    bars = class_witness_figure(table).data[0]
    assert list(bars.x) == [0.2, -0.1] and bars.marker.color[0] != bars.marker.color[1]
    assert bars.marker.pattern.shape[0] != bars.marker.pattern.shape[1]
