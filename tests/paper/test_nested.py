"""Variances between and within histories, and published numbers whose repeats share one history."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.reproduction import in_sizes
from m2st_core.paper.published import (
    history_share_interval,
    history_spread,
    one_history_sentence,
    variance_components,
    with_one_history,
)

COUNTS = ["method", "n_tasks", "m_te", "history", "repeat", "rejections", "tests"]


def simulated(between, within, histories, repeats, seed):
    """Normal rates with these variances."""
    generator = np.random.default_rng(seed)
    means = generator.normal(0.5, between**0.5, (histories, 1))
    return means + generator.normal(0, within**0.5, (histories, repeats))


def write(folder, *, histories=6, points=(("Meta-KL", 20, 200), ("Meta-KL", 100, 200))):
    """A file in which the mean rates 0.5 and 0.7 alternate between histories, and repeats differ by ±0.1."""
    rows = [
        (*point, history, repeat, 50 + 20 * (history % 2) + (10 if repeat % 2 else -10), 100)
        for point in points
        for history in range(histories)
        for repeat in range(2)
    ]
    pd.DataFrame(rows, columns=COUNTS).to_csv(folder / "nested.csv", index=False)


def compared(*rows):
    """A comparison: method, N, m_te, our rate, its error, the published number, the difference in SE."""
    columns = ["method", "n_tasks", "m_te", "rate", "error", "published", "difference"]
    table = pd.DataFrame(rows, columns=columns).astype({"n_tasks": "Float64"}).assign(published_error=0.03)
    return table.assign(
        closeness=pd.array([0.3] * len(table), "Float64"), m_tr=pd.array([50.0] * len(table), "Float64")
    )


def test_components_are_those_of_the_analysis_of_variance():
    rates = simulated(0.01, 0.04, 7, 5, seed=1)
    means = [sum(row) / 5 for row in rates]
    within = sum((rate - mean) ** 2 for row, mean in zip(rates, means, strict=True) for rate in row) / (7 * 4)
    all_ = sum(means) / 7
    mean_square = 5 * sum((mean - all_) ** 2 for mean in means) / 6
    assert variance_components(rates) == pytest.approx((max(0, (mean_square - within) / 5), within))


def test_components_recover_known_variances():
    """Means over 400 designs of 10 × 5 differ from the truth by less than three standard errors."""
    found = np.array([variance_components(simulated(0.03, 0.04, 10, 5, seed)) for seed in range(400)])
    errors = found.std(axis=0) / 20
    assert (np.abs(found.mean(axis=0) - [0.03, 0.04]) < 3 * errors).all()


def test_repeats_that_differ_more_than_histories_leave_nothing_between():
    assert variance_components(np.array([[0.0, 1.0], [1.0, 0.0]])) == (0.0, 0.5)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_interval_holds_the_share_in_95_of_100(share):
    """Of 1,000 intervals, within three standard errors (0.021) of 95 %."""
    intervals = [history_share_interval(simulated(share, 1 - share, 10, 5, seed)) for seed in range(1000)]
    assert np.mean([low <= share <= high for low, high in intervals]) == pytest.approx(0.95, abs=0.021)


def test_a_file_is_split_point_by_point(tmp_path):
    write(tmp_path)
    table = history_spread(tmp_path)
    assert table[["method", "n_tasks", "m_te", "histories", "repeats"]].values.tolist() == [
        ["Meta-KL", 20, 200, 6, 2], ["Meta-KL", 100, 200, 6, 2]]  # fmt: skip
    one = table.iloc[0]  # within: 2 · 0.1²; of the means: 6/5 · 0.1²
    assert one["within"] == pytest.approx(0.02) and one["between"] == pytest.approx(0.012 - 0.01)
    assert one["share"] == pytest.approx(0.002 / 0.022) and one["low"] <= one["share"] <= one["high"]


@pytest.mark.parametrize("histories", [0, 4])
def test_with_few_histories_nothing_is_said(tmp_path, histories):
    if histories:
        write(tmp_path, histories=histories)
    table = with_one_history(compared(("Meta-KL", 20, 200, 0.665, 0.04, 0.269, 7.6)), tmp_path)
    assert history_spread(tmp_path).empty and table["one_history"].isna().all() and one_history_sentence(table) == ""


def test_the_difference_is_divided_by_what_one_history_would_spread(tmp_path):
    write(tmp_path, points=[("Meta-KL", 20, 200)])
    table = pd.read_csv(tmp_path / "nested.csv")
    more = table.assign(n_tasks=100, rejections=table["rejections"].where(table["history"] % 2 == 0, 5))
    pd.concat([table, more]).to_csv(tmp_path / "nested.csv", index=False)
    rows = compared(
        ("Meta-KL", 20, 200, 0.665, 0.04, 0.269, 7.6),
        ("Meta-KL", 150, 200, 0.668, 0.035, 0.656, 0.3),  # has the variances of N=100
        ("Meta-KL", 20, 250, 0.776, 0.035, 0.333, 8.2),  # not measured
        ("Meta-MKL", 20, 200, 0.685, 0.032, 0.361, 8.5),  # not measured
        ("Meta-KL", 100, 200, 0.708, 0.031, 0.5, np.nan),  # doubtful
    )
    found = with_one_history(rows, tmp_path)
    assert found["one_history"].iloc[0] == pytest.approx((0.665 - 0.269) / np.sqrt(0.002 + 0.03**2 + 0.04**2))
    assert found["own_spread"].iloc[0] == pytest.approx((0.665 - 0.269) / np.sqrt(0.002 + 0.02 / 20 + 0.04**2))
    between, within = variance_components(np.array([[0.4, 0.6], [0.05, 0.05]] * 3))
    assert found["one_history"].iloc[1] == pytest.approx(0.012 / np.sqrt(between + 0.03**2 + 0.035**2))
    assert found["own_spread"].iloc[1] == pytest.approx(0.012 / np.sqrt(between + within / 20 + 0.035**2))
    assert found["one_history"].isna().tolist() == [False, False, True, True, True]
    assert "with that added, 1 of 2 numbers are beyond two, instead of 1. With our" in one_history_sentence(found)


def test_without_spread_between_histories_nothing_changes(tmp_path):
    """Then the value is the difference in combined standard errors."""
    write(tmp_path, points=[("Meta-KL", 100, 200)])
    table = pd.read_csv(tmp_path / "nested.csv")
    table.assign(rejections=50 + 10 * (-1) ** table["repeat"]).to_csv(tmp_path / "nested.csv", index=False)
    found = with_one_history(compared(("Meta-KL", 100, 200, 0.7, 0.04, 0.5, 4.0)), tmp_path)
    assert found["one_history"].item() == pytest.approx(0.2 / np.hypot(0.03, 0.04))


def test_other_settings_are_left_alone(tmp_path):
    write(tmp_path)
    rows = compared(*[("Meta-KL", 100, 200, 0.7, 0.03, 0.5, 4.0)] * 3)
    rows["m_tr"] = pd.array([10, None, 50], "Float64")
    assert with_one_history(rows, tmp_path)["one_history"].isna().tolist() == [True, True, False]


def test_sizes_in_words():
    sizes = [50, 80, 100]
    said = [in_sizes(pd.Series(holds, sizes, dtype=bool)) for holds in ([1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 0, 0])]
    assert said == ["at every size", "up to m_te=80", "at m_te=80, 100", "at no size"]
