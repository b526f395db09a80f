"""Frames are cleaned as files are, and go through test, explanation and report as they are prepared."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import m2st_core as m2st
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.questions import TableError


def rows(seed: int, shift: float = 0.0, count: int = 30) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "patient": [f"{seed}-{i:03}" for i in range(count)],
            "age": rng.integers(20, 80, count),
            "dose": rng.normal(shift, 1.0, count),
            "sex": rng.choice(["f", "m"], count),
            "smokes": rng.random(count) < 0.5,
        }
    )


def as_file(name: str, frame: pd.DataFrame):
    return read_table(name, frame.to_csv(index=False).encode())


@pytest.fixture
def tasks():
    return {f"site 1.{i}": (rows(10 + 2 * i), rows(11 + 2 * i, 2.0)) for i in range(4)}


def test_frames_give_the_rows_of_their_files(tasks):
    x, y = rows(1), rows(2, 2.0)
    data = m2st.prepare(x, y, related=tasks)
    assert data.digest == m2st.prepare(x, y, related=tasks).digest != m2st.prepare(x, y).digest
    files = [
        as_file(f"s{i}_{side}.csv", f)
        for i, pair in enumerate(tasks.values())
        for side, f in zip("PQ", pair, strict=True)
    ]
    same = m2st.prepare(m2st.Upload((as_file("x.csv", x), as_file("y.csv", y)), tuple(files)))
    assert data.task_names == tuple(tasks) and (data.x_name, data.y_name) == ("x", "y")
    assert data.features == same.features and data.identifiers == same.identifiers == ("patient",)
    assert np.array_equal(data.x, same.x) and np.array_equal(data.y, same.y)
    assert np.array_equal(data.related.rows, same.related.rows)


def test_any_library_and_any_order_of_columns():
    x, y = rows(1), rows(2)
    data = m2st.prepare(x, y)
    assert np.array_equal(data.y, m2st.prepare(pl.from_pandas(x), pl.from_pandas(y[y.columns[::-1]]).lazy()).y)
    plain = np.random.default_rng(0).normal(size=(2, 20, 3))
    assert m2st.prepare(*plain, cleaning=m2st.Cleaning(scaling="none")).x == pytest.approx(plain[0], abs=1e-15)


def test_a_prepared_frame_goes_through_test_explanation_and_report(tasks):
    x, y = rows(1), rows(2, 3.0)
    y.loc[4, "dose"] = np.nan
    data = m2st.prepare(x, y, related=tasks, names=("old <b>", "new"), cleaning=m2st.Cleaning("drop rows", block="sex"))
    assert data.target.sizes == (30, 29) and data.rows[1].tolist() == [*range(1, 5), *range(6, 31)]
    outcome = m2st.carry_out(data, m2st.Plan("Meta-FUSE", n_permutations=99))
    assert outcome.analysis.rejected
    assert data.features[m2st.explain(outcome.analysis.evidence).importance.columns[0]] == "dose"
    report = m2st.html_report(outcome)
    assert "“new” differs from “old &lt;b&gt;”" in report and "within the blocks of “sex”" in report
    learner = m2st.meta_train("Meta-Witness", data.related)
    assert learner.column_names == data.features


def test_rows_of_the_target_are_not_learned_from(tasks):
    x, y = rows(1), rows(2)
    shared = {**tasks, "copy": (x, rows(5, 2.0))}
    data = m2st.prepare(x, y, related=shared)
    assert data.separation.shared == 30 and any(
        "30 rows of the target are also in the related tasks" in note for note in data.decisions
    )
    apart = data.separated()
    assert apart.task_names == tuple(tasks) and apart.separated() is apart
    assert apart.related.take_inside().numpy().mean(axis=0)[:2] == pytest.approx(0, abs=1e-12)
    order = [1, 0, *range(2, len(data.features))]
    moved = data.in_order_of(tuple(data.features[column] for column in order)).separated()
    assert np.allclose(moved.related.rows, apart.related.rows[..., order]) and moved.separated() is moved
    nothing = m2st.prepare(x, y, related=[(x, y)])
    with pytest.raises(ValueError, match="nothing is left to learn from"):
        nothing.separated()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((rows(1),), ValueError, "y is missing"),
        ((rows(1), rows(2).drop(columns="age").assign(size=1.0), [(1, 2, 3)]), ValueError, "'task 1' is not a pair"),
        ((rows(1), rows(2)[[]]), TableError, "y: the frame is empty"),
        ((rows(1), rows(2).replace({"sex": {"f": None}})), TableError, "y: row .*, column 'sex': the value is missing"),
        ((rows(1), rows(1)), TableError, "x and y are the same table"),
        ((rows(1).assign(t=pd.Timedelta("1h")), rows(1)), TableError, "x: column 't' is timedelta64.* such as seconds"),
        (("P.csv", "Q.csv"), ValueError, "x is the name of a file"),
        ((np.zeros((5, 2)), rows(1)), TableError, "x: it has no header"),
        ((m2st.EXAMPLES["hdgm"].load(), rows(1)), TypeError, "name what else is passed"),
    ],
)
def test_what_cannot_be_prepared_is_told(arguments, error, message):
    x, y, related = (*arguments, None, None)[:3]
    with pytest.raises(error, match=message):
        m2st.prepare(x, y, related=related)
