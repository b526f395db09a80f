"""From what a user has in memory to a TwoSample, or to an error that says what, where and what to do."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd
import torch

from m2st_core.types import Shape, TwoSample

LARGEST_WHOLE = 2**53  # beyond it float64 skips whole numbers
LARGEST_SPREAD, SMALLEST_SPREAD = 1e100, 1e-100  # squares of distances stay inside float64
NAMED_COLUMNS = 10
CHANNELS = (1, 3, 4)


def as_two_sample(x: Any, y: Any) -> TwoSample:
    """Rows (n, d) and (m, d) in float64, checked.

    Arrays of images become rows that know their shape, see :func:`as_images`.

    >>> as_two_sample([1, 2, 3], [4, 5]).sizes
    (3, 2)
    >>> as_two_sample(np.zeros((2, 8, 8), dtype=np.uint8), np.ones((3, 8, 8), dtype=np.uint8)).shape
    (1, 8, 8)
    """
    shapes = []
    if _are_images(x) or _are_images(y):
        (x, first_shape), (y, second_shape) = as_images(x, "x"), as_images(y, "y")
        if first_shape != second_shape:
            raise ValueError(f"x has images of {first_shape} (channels, height, width) and y of {second_shape}.")
        shapes = [first_shape]
    if isinstance(x, pd.DataFrame) and isinstance(y, pd.DataFrame):
        y = match_columns(x, y, "x", "y")
    first, second = as_rows(x, "x"), as_rows(y, "y")
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"x has {first.shape[1]} columns and y has {second.shape[1]}. Both samples need the same columns."
        )
    for name, rows in (("x", first), ("y", second)):
        if len(rows) < 2:
            raise ValueError(f"{name} has 1 row. Bring at least 2 rows in each sample.")
    pooled = np.concatenate([first, second])
    with np.errstate(over="ignore"):
        spread = np.ptp(pooled, axis=0).max()
    if spread == 0:
        raise ValueError("All rows of x and y are identical: there is nothing to compare. Bring rows that vary.")
    if not SMALLEST_SPREAD <= spread <= LARGEST_SPREAD:
        raise ValueError(f"The values of x and y spread over {spread:.1e}, too wide or too narrow. Rescale them.")
    return TwoSample(torch.from_numpy(first), torch.from_numpy(second), *shapes)


def _are_images(values: Any) -> bool:
    """Four dimensions, or three of bytes."""
    dimensions, dtype = getattr(values, "ndim", 0), str(getattr(values, "dtype", ""))
    return dimensions == 4 or (dimensions == 3 and dtype.endswith("uint8"))


def as_images(values: Any, name: str) -> tuple[np.ndarray, Shape]:
    """Rows (n, C·H·W) of images (n, C, H, W), (n, H, W, C) or, grey, (n, H, W), and their shape.

    The axis with 1, 3 or 4 entries is that of the channels; where both could be, the first. Bytes 0…255 are scaled to
    [0, 1]; other numbers are left as they are.
    """
    if not _are_images(values):
        raise ValueError(f"{name} holds no images, and the other sample does. Pass (rows, channels, height, width).")
    array = _as_array(values, name)
    array = array[:, None] if array.ndim == 3 else array
    if array.shape[1] not in CHANNELS:
        if array.shape[3] not in CHANNELS:
            raise ValueError(f"{name} has the shape {array.shape}, without an axis of 1, 3 or 4 channels. Add one.")
        array = array.transpose(0, 3, 1, 2)
    scaled = array / 255.0 if array.dtype == np.uint8 else array
    _, channels, height, width = array.shape
    return scaled.reshape(len(array), -1), (channels, height, width)


def match_columns(x: pd.DataFrame, y: pd.DataFrame, x_name: str, y_name: str) -> pd.DataFrame:
    """Y with its columns in x's order, if both have names; columns that only one of them has are an error."""
    if not all(isinstance(name, str) for name in (*x.columns, *y.columns)):
        return y
    for table, name in ((x, x_name), (y, y_name)):
        if not table.columns.is_unique:
            twice = table.columns[table.columns.duplicated()][0]
            raise ValueError(f"{name}: two columns are called {twice!r}. Rename one.")
    only_x, only_y = [c for c in x if c not in y], [c for c in y if c not in x]
    if only_x or only_y:
        sides = [f"only in {name}: {', '.join(c)}" for name, c in ((x_name, only_x), (y_name, only_y)) if c]
        raise ValueError(f"The samples have different columns ({'; '.join(sides)}). Give both the same columns.")
    return y[x.columns]


def constant_column_notes(sample: TwoSample) -> tuple[str, ...]:
    """A note on the columns that have one value in both samples; they change no distance."""
    pooled = sample.pooled
    constant = torch.nonzero((pooled == pooled[:1]).all(dim=0)).flatten().tolist()
    if not constant:
        return ()
    named = ", ".join(str(index + 1) for index in constant[:NAMED_COLUMNS])
    more = f" and {len(constant) - NAMED_COLUMNS} more" if len(constant) > NAMED_COLUMNS else ""
    return (f"Constant in both samples, so without information: column {named}{more} of {pooled.shape[1]}.",)


def hash_rows(rows: np.ndarray) -> np.ndarray:
    """A 64-bit fingerprint of each row (n, d) → (n,), to find the same row again."""
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in np.ascontiguousarray(rows)]
    return np.frombuffer(b"".join(digests), dtype=np.int64)


def as_rows(values: Any, name: str) -> np.ndarray:
    """A fresh float64 array (n, d) of finite numbers; n numbers become one column."""
    array = _as_array(values, name)
    if array.ndim == 0:
        raise ValueError(f"{name} is a single value, not a sample. Pass rows of numbers.")
    if array.ndim > 2:
        raise ValueError(f"{name} has {array.ndim} dimensions. Flatten each item to a row: shape (rows, columns).")
    array = array[:, None] if array.ndim == 1 else array
    if 0 in array.shape:
        raise ValueError(f"{name} is empty (shape {array.shape}). Pass at least 2 rows and 1 column.")
    if array.dtype.kind in "iu":
        for column in range(array.shape[1]):
            _check_whole(array[:, column], name, column)
    rows = np.array(array, dtype=np.float64, order="C")
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        count = int((~np.isfinite(rows)).any(axis=1).sum())
        raise ValueError(
            f"{name} has {rows[row, column]} at row {row + 1}, column {column + 1} ({count} such rows in all). "
            "Remove or fill in missing and infinite values."
        )
    return rows


def _as_array(values: Any, name: str) -> np.ndarray:
    """A NumPy array of bool, int or float."""
    if isinstance(values, pd.DataFrame):
        for column, dtype in values.dtypes.items():
            if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype):
                raise ValueError(f"Column {str(column)!r} of {name} is {dtype}, not numbers. Convert or drop it.")
        for index, column in enumerate(values.columns):
            if pd.api.types.is_integer_dtype(values.dtypes.iloc[index]):
                _check_whole(values.iloc[:, index].dropna().to_numpy(), f"{name} (column {str(column)!r})", index)
        return values.astype("float64").to_numpy()
    if isinstance(values, torch.Tensor):
        if values.layout != torch.strided or values.is_quantized:
            raise ValueError(f"{name} is a {values.layout} tensor. Pass a dense one.")
        values = values.detach().cpu().resolve_conj().resolve_neg()
        values = values.to(torch.float64) if values.is_floating_point() else values
        return _of_numbers(values.numpy(), name)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name} is a masked array with missing values. Remove or fill them in.")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        raise ValueError(f"{name} is not a table of numbers with rows of equal length. Pass one.") from None
    return _of_numbers(array, name)


def _check_whole(column: np.ndarray, name: str, index: int) -> None:
    """Refuse whole numbers that float64 would round."""
    beyond = np.flatnonzero((column > LARGEST_WHOLE) | (column < -LARGEST_WHOLE))
    if beyond.size:
        raise ValueError(
            f"{name} has the whole number {column[beyond[0]]} at row {beyond[0] + 1}, column {index + 1}, more than "
            "float precision can hold (2^53). Subtract an offset, or leave that column out."
        )


def _of_numbers(array: np.ndarray, name: str) -> np.ndarray:
    """The array, if its dtype is one of real numbers."""
    what = {"O": "objects", "U": "text", "S": "text", "T": "text", "c": "complex numbers", "M": "dates", "m": "times"}
    if array.dtype.kind not in "biuf":
        found = what.get(array.dtype.kind, str(array.dtype))
        raise ValueError(f"{name} holds {found} (dtype {array.dtype}), not real numbers. Convert it to floats first.")
    return array
