import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix

from m2st_core.data.arrays import as_two_sample, constant_column_notes

GOOD = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    "values",
    [
        GOOD.tolist(),
        GOOD.astype(np.float32),
        GOOD.astype(np.int8),
        np.asfortranarray(GOOD),
        torch.tensor(GOOD),
        torch.tensor(GOOD, requires_grad=True),
        torch.tensor(GOOD, dtype=torch.bfloat16),
        torch.tensor(GOOD).long(),
        pd.DataFrame(GOOD),
        pd.DataFrame({"a": GOOD[:, 0].astype(int), "b": GOOD[:, 1]}),
        pd.DataFrame(GOOD.astype(int)).astype("Int64"),
    ],
    ids=lambda values: type(values).__name__,
)
def test_all_kinds_of_arrays_give_the_same_rows(values):
    sample = as_two_sample(values, GOOD + 1)
    assert sample.x.dtype == torch.float64
    assert sample.x.numpy().tolist() == GOOD.tolist()


@pytest.mark.parametrize(
    "values", [[1, 2, 3], np.arange(3), pd.Series([1.0, 2.0, 5.0]), torch.arange(3), [True, False]]
)
def test_numbers_become_one_column(values):
    assert as_two_sample(values, [[1.0], [2.0]]).x.shape == (len(values), 1)


def test_the_users_array_is_copied():
    mine = GOOD.copy()
    as_two_sample(mine, GOOD).x.zero_()
    assert (mine == GOOD).all()


def bad_row(value):
    rows = GOOD.copy()
    rows[3, 1] = value
    return rows


BAD = {
    "nan": (bad_row(np.nan), r"x has nan at row 4, column 2 \(rows with such values: 1"),
    "inf": (bad_row(-np.inf), "x has -inf at row 4, column 2"),
    "missing in pandas": (
        pd.DataFrame({"a": [1, None, 3], "b": [1, 2, 3]}).astype("Int64"),
        "x has nan at row 2, column 1",
    ),
    "text": (np.array([["a", "b"], ["c", "d"]]), "x holds text"),
    "text list": (["a", "b"], "x holds text"),
    "text column": (pd.DataFrame({"a": [1, 2], "name": ["u", "v"]}), "Column 'name' of x"),
    "dates": (pd.DataFrame({"day": pd.to_datetime(["2020-01-01", "2020-01-02"]), "b": [1, 2]}), "Column 'day' of x"),
    "date array": (np.array(["2020-01-01"] * 2, dtype="datetime64"), "x holds dates"),
    "categories": (pd.DataFrame({"a": [1, 2], "c": pd.Categorical([1, 2])}), "Column 'c' of x"),
    "objects": (GOOD.astype(object), "x holds objects"),
    "complex": (GOOD + 1j, "x holds complex numbers"),
    "complex column": (pd.DataFrame(GOOD + 1j), "Column '0' of x is complex128"),
    "complex tensor": (torch.zeros(3, 2, dtype=torch.complex64), "x holds complex"),
    "0-d": (3.0, "x is a single value"),
    "3-d": (np.zeros((2, 2, 2)), r"flatten them: x.reshape\(len\(x\), -1\). If they are samples, test them one by one"),
    "structured": (np.zeros(3, dtype=[("a", float), ("b", float)]), r"structured array.*pd.DataFrame\(x\)"),
    "scipy sparse": (csr_matrix(GOOD), r"sparse matrix. Pass a dense one: x.toarray\(\)"),
    "empty": ([], "x is empty"),
    "no columns": (np.zeros((5, 0)), "x is empty"),
    "one row": (GOOD[:1], "x has 1 row"),
    "other columns": (np.zeros((5, 3)), "x has 3 columns and y has 2"),
    "ragged": ([[1, 2], [3]], "rows of equal length"),
    "large whole": (
        np.array([[2**53 + 1, 1], [2, 3]]),
        "9007199254740993 at row 1, column 1, more than float precision",
    ),
    "large negative": (np.array([[1, 1], [2, -(2**60)]]), "at row 2, column 2"),
    "unsigned": (np.array([[2**63 + 1, 1], [2, 3]], dtype=np.uint64), "more than float precision"),
    "huge": (GOOD * 1e200, "spread over"),
    "large Int64": (pd.DataFrame({"a": [1, 2**53 + 1], "b": [1, 2]}).astype("Int64"), "column 'a'.* 9007199254740993"),
    "large beside floats": (pd.DataFrame({"a": [0.5, 1.5], "b": [2, 2**60]}), "column 'b'.*at row 2, column 2"),
    "graph tensors": ([torch.ones(2, requires_grad=True)] * 3, "not a table of numbers"),
    "masked": (np.ma.masked_equal(GOOD, 5.0), "masked array"),
    "sparse": (torch.tensor(GOOD).to_sparse(), r"x.to_dense\(\)"),
    "none": (None, "x is None. Pass rows of numbers"),
    "list of dicts": ([{"a": 1.0}, {"a": 2.0}], r"x is a list of dicts.*pd.DataFrame\(x\)"),
    "mapping": ({"a": [1, 2], "b": [3, 4]}, r"x is a dict. Pass a frame of its columns: pd.DataFrame\(x\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_names_what_and_where(name):
    values, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        as_two_sample(values, GOOD)


def test_the_second_sample_is_named_too():
    with pytest.raises(ValueError, match="y has nan at row 4, column 2"):
        as_two_sample(GOOD, bad_row(np.nan))


def test_identical_rows_are_nothing_to_compare():
    with pytest.raises(ValueError, match="All rows of x and y are identical"):
        as_two_sample(np.ones((4, 2)), np.ones((5, 2)))


def test_constant_columns_are_noted():
    x, y = np.c_[GOOD, np.full(6, 7.0)], np.c_[GOOD + 1, np.full(6, 7.0)]
    assert constant_column_notes(as_two_sample(x, y)) == (
        "Constant in both samples, so without information: column 3 of 3.",
    )
    named = [pd.DataFrame(rows, columns=["age", "weight", "site"]) for rows in (x, y)]
    assert constant_column_notes(as_two_sample(*named)) == (
        "Constant in both samples, so without information: column site.",
    )
    y[:, 2] = 8  # constant in each sample, but not the same: that is information
    assert constant_column_notes(as_two_sample(x, y)) == ()
    wide = np.c_[GOOD, np.zeros((6, 15))]
    assert (
        "columns 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 5 more of 17"
        in constant_column_notes(as_two_sample(wide, wide))[0]
    )
