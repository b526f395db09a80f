"""What Weights and One test open with was made by this version of the code."""

import json

import numpy as np
import pandas as pd
import pytest

from m2st_core.studies import first_results
from m2st_core.studies.first_results import TEST, WEIGHTS, shipped_result
from m2st_core.studies.one_test import SingleTest
from m2st_core.studies.weights import WeightsStudy

SHIPPED = first_results.first_results()


@pytest.fixture(scope="module")
def again():
    return first_results.compute_first_results()


def test_the_results_are_of_this_version():
    """If not: python -m m2st_core bench first_results."""
    assert json.loads(SHIPPED.made_by) == json.loads(first_results.code_version())
    assert first_results.FILE.stat().st_size < 100_000


def test_the_weights_are_computed_again(again):
    shipped, computed = SHIPPED.weights, again.weights
    assert list(shipped.table["kernel"]) == list(computed.table["kernel"])
    assert shipped.table["influence"].to_numpy() == pytest.approx(computed.table["influence"].to_numpy(), abs=0.02)
    assert shipped.features.share == pytest.approx(computed.features.share, abs=0.02)
    assert shipped.features.senses == computed.features.senses and shipped.finding(WEIGHTS) == computed.finding(WEIGHTS)
    shares, expected = shipped.features.shares, computed.features.shares
    pd.testing.assert_frame_equal(shares, expected, check_exact=False, atol=0.02)
    assert shipped.repeats["weight"].to_numpy() == pytest.approx(
        computed.repeats["weight"].to_numpy(), rel=0.05, abs=0.02
    )
    for one, other in zip(shipped.sample, computed.sample, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    maps = zip([*shipped.witnesses, shipped.mixture], [*computed.witnesses, computed.mixture], strict=True)
    for one, other in maps:
        np.testing.assert_allclose(one, other, atol=0.02 * np.abs(other).max())


def test_the_test_is_computed_again(again):
    pairs = ((SHIPPED.test.result, again.test.result), (SHIPPED.test.without, again.test.without))
    for shipped, computed in pairs:
        assert shipped.method == computed.method and shipped.n_test == computed.n_test == (100, 100)
        assert shipped.p_value == pytest.approx(computed.p_value, abs=0.005)
        np.testing.assert_allclose(np.sort(shipped.null), np.sort(computed.null), rtol=0.05, atol=1e-3)
    assert SHIPPED.test.result.rejected and not SHIPPED.test.without.rejected


def test_only_the_default_settings_have_a_shipped_result():
    assert shipped_result(WeightsStudy()) is SHIPPED.weights and shipped_result(SingleTest()) is SHIPPED.test
    assert shipped_result(WeightsStudy(seed=1)) is None and shipped_result(SingleTest(n=99)) is None
    assert WEIGHTS != TEST


def test_what_is_saved_is_read_again(tmp_path):
    SHIPPED.save(tmp_path / "first.npz")
    again = first_results.first_results(tmp_path / "first.npz")
    assert again.test == SHIPPED.test and again.test.result.null.tolist() == SHIPPED.test.result.null.tolist()
    pd.testing.assert_frame_equal(again.weights.table, SHIPPED.weights.table)
    np.testing.assert_allclose(again.weights.witnesses, SHIPPED.weights.witnesses)
