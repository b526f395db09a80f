"""Miniature image data sets for every task that needs some."""

import pytest

from tests.data import miniature


@pytest.fixture(scope="session", autouse=True)
def miniature_images(tmp_path_factory):
    """CIFAR-10, CIFAR-100 and CIFAR-10.1 of random pixels."""
    root = tmp_path_factory.mktemp("images")
    miniature.write_all(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("M2ST_DATA", str(root))
        yield root
