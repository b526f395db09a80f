"""Check what a user has in memory and make samples and related tasks of it. Errors say what, where and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from m2st_core.data.related import RelatedTasks, stack_repeats
from m2st_core.types import Shape, TwoSample

LARGEST_WHOLE = 2**53  # beyond it float64 skips whole numbers
LARGEST_SPREAD, SMALLEST_SPREAD = 1e100, 1e-100  # squares of distances stay inside float64
NAMED_COLUMNS = 10
CHANNELS = (1, 3, 4)
KINDS = {"O": "objects", "U": "text", "S": "text", "T": "text", "c": "complex numbers", "M": "dates", "m": "times"}


def as_two_sample(x: Any, y: Any) -> TwoSample:
    """Make checked float64 rows (n, d) and (m, d). Arrays of images become rows with a shape, see :func:`as_images`.

    >>> as_two_sample([1, 2, 3], [4, 5]).sizes
    (3, 2)
    >>> as_two_sample(np.zeros((2, 8, 8), dtype=np.uint8), np.ones((3, 8, 8), dtype=np.uint8)).shape
    (1, 8, 8)
    """
    shape: Shape | None = None
    if _are_images(x) or _are_images(y):
        (x, shape), (y, other) = as_images(x, "x"), as_images(y, "y")
        if shape != other:
            raise ValueError(f"x has images of {shape} (channels, height, width) and y of {other}.")
    if isinstance(x, pd.DataFrame) and isinstance(y, pd.DataFrame):
        y = match_columns(x, y)
    columns = tuple(name for name in getattr(x, "columns", ()) if isinstance(name, str))
    x, y = as_rows(x, "x"), as_rows(y, "y")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"x has {x.shape[1]} columns and y has {y.shape[1]}. Both samples need the same columns.")
    for name, rows in (("x", x), ("y", y)):
        if len(rows) < 2:
            raise ValueError(f"{name} has 1 row. Bring at least 2 rows in each sample.")
    with np.errstate(over="ignore"):
        spread = np.ptp(np.concatenate([x, y]), axis=0).max()
    if spread == 0:
        raise ValueError("All rows of x and y are identical: there is nothing to compare. Bring rows that vary.")
    if not SMALLEST_SPREAD <= spread <= LARGEST_SPREAD:
        raise ValueError(f"The values of x and y spread over {spread:.1e}, too wide or too narrow. Rescale them.")
    return TwoSample(torch.from_numpy(x), torch.from_numpy(y), shape, columns if len(columns) == x.shape[1] else ())


def _are_images(values: Any) -> bool:
    """Whether an array has four dimensions, or three and bytes."""
    dimensions, dtype = getattr(values, "ndim", 0), str(getattr(values, "dtype", ""))
    return dimensions == 4 or (dimensions == 3 and dtype.endswith("uint8"))


def as_images(values: Any, name: str) -> tuple[np.ndarray, Shape]:
    """Rows (n, C·H·W) of images (n, C, H, W), (n, H, W, C) or, grey, (n, H, W), and their shape.

    The axis with 1, 3 or 4 entries is that of the channels; the first if there are two. Bytes 0…255 are scaled to
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


def match_columns(x: pd.DataFrame, y: pd.DataFrame) -> pd.DataFrame:
    """Put y's columns in x's order, if both have names. Columns that only one of them has are an error."""
    if x.columns.equals(y.columns) or not all(isinstance(name, str) for name in (*x.columns, *y.columns)):
        return y
    for table, name in ((x, "x"), (y, "y")):
        if not table.columns.is_unique:
            twice = table.columns[table.columns.duplicated()][0]
            raise ValueError(f"{name}: two columns are called {twice!r}. Rename one.")
    only = {"x": [c for c in x if c not in y], "y": [c for c in y if c not in x]}
    if sides := [f"only in {name}: {', '.join(columns)}" for name, columns in only.items() if columns]:
        raise ValueError(f"The samples have different columns ({'; '.join(sides)}). Give both the same columns.")
    return y[x.columns]


def constant_column_notes(sample: TwoSample) -> tuple[str, ...]:
    """Note the columns that have one value in both samples. They change no distance."""
    pooled = sample.pooled
    constant = torch.nonzero((pooled == pooled[:1]).all(dim=0)).flatten().tolist()
    if not constant:
        return ()
    numbers, of = tuple(map(str, range(1, pooled.shape[1] + 1))), "" if sample.columns else f" of {pooled.shape[1]}"
    named = ", ".join((sample.columns or numbers)[index] for index in constant[:NAMED_COLUMNS])
    named += f" and {len(constant) - NAMED_COLUMNS} more" if len(constant) > NAMED_COLUMNS else ""
    return (f"Constant in both samples, so without information: column{'s' * (len(constant) > 1)} {named}{of}.",)


def as_rows(values: Any, name: str) -> np.ndarray:
    """Make a new float64 array (n, d) of finite numbers; n numbers become one column."""
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
            f"{name} has {rows[row, column]} at row {row + 1}, column {column + 1} (rows with such values: {count}). "
            "Remove or fill in missing and infinite values."
        )
    return rows


def _as_array(values: Any, name: str) -> np.ndarray:
    """Make a NumPy array of bool, int or float."""
    if isinstance(values, pd.DataFrame):
        for index, (column, dtype) in enumerate(values.dtypes.items()):
            if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype):
                raise ValueError(f"Column {str(column)!r} of {name} is {dtype}, not numbers. Convert or drop it.")
            if pd.api.types.is_integer_dtype(dtype):
                _check_whole(values.iloc[:, index].dropna().to_numpy(), f"{name} (column {str(column)!r})", index)
        return values.astype("float64").to_numpy()
    if isinstance(values, torch.Tensor):
        if values.layout != torch.strided or values.is_quantized:
            raise ValueError(f"{name} is a {values.layout} tensor. Pass a dense one.")
        values = values.detach().cpu().resolve_conj().resolve_neg()
        values = (values.to(torch.float64) if values.is_floating_point() else values).numpy()
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name} is a masked array with missing values. Remove or fill them in.")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        raise ValueError(f"{name} is not a table of numbers with rows of equal length. Pass one.") from None
    if array.dtype.kind not in "biuf":
        kind = KINDS.get(array.dtype.kind, str(array.dtype))
        raise ValueError(f"{name} holds {kind} (dtype {array.dtype}), not real numbers. Convert it to floats first.")
    return array


def _check_whole(column: np.ndarray, name: str, index: int) -> None:
    """Refuse whole numbers that float64 would round."""
    beyond = np.flatnonzero((column > LARGEST_WHOLE) | (column < -LARGEST_WHOLE))
    if beyond.size:
        raise ValueError(
            f"{name} has the whole number {column[beyond[0]]} at row {beyond[0] + 1}, column {index + 1}, more than "
            "float precision can hold (2^53). Subtract an offset, or leave that column out."
        )


def as_related_tasks(related_tasks: Any) -> RelatedTasks:
    """Make one repeat (R=1) from a list of (x, y) pairs, or a mapping of names to pairs, checked task by task.

    Images that several tasks share are held once. Pairs are read one by one, so a mapping may make each when asked.
    """
    if isinstance(related_tasks, RelatedTasks):
        return related_tasks
    names, pairs = _named(related_tasks)
    return stack_repeats([_checked(names, pairs)], names)


def as_named_samples(related_tasks: Any) -> dict[str, TwoSample]:
    """Read related tasks as ``as_related_tasks`` does, and return the samples by name."""
    if isinstance(related_tasks, RelatedTasks):
        return related_tasks.samples()
    names, pairs = _named(related_tasks)
    return dict(zip(names, _checked(names, pairs), strict=True))


def _named(related_tasks: Any) -> tuple[tuple[str, ...], Iterable[Any]]:
    """Names and pairs; the pairs are not read."""
    pairs: Iterable[Any]
    if isinstance(related_tasks, Mapping):
        names, pairs = tuple(map(str, related_tasks)), related_tasks.values()
    else:
        try:
            pairs = tuple(related_tasks)
        except TypeError:
            raise ValueError("related_tasks must be a list of (x, y) pairs, or a mapping of names to pairs.") from None
        names = tuple(f"task {index + 1}" for index, _ in enumerate(pairs))
    if not names:
        raise ValueError("related_tasks is empty. Bring at least one related pair of samples, or use Omnibus.")
    return names, pairs


def _checked(names: Sequence[str], pairs: Iterable[Any]) -> Iterator[TwoSample]:
    """Yield the checked samples one by one, images in float32."""
    first: TwoSample | None = None
    for name, pair in zip(names, pairs, strict=True):
        try:
            x, y = pair
        except (TypeError, ValueError):
            raise ValueError(f"Related task {name!r} is not a pair (x, y) of two samples.") from None
        try:
            sample = as_two_sample(x, y)
        except ValueError as error:
            raise ValueError(f"Related task {name!r}: {error}") from None
        sample = replace(sample, shape=pair.shape) if isinstance(pair, TwoSample) else sample
        first = first or sample
        if sample.shape != first.shape:
            shapes = f"{sample.shape or 'no images'} and {names[0]!r} has {first.shape or 'no images'}"
            raise ValueError(f"Related task {name!r} has {shapes} (channels, height, width). Give all the same shape.")
        columns = sample.x.shape[1], first.x.shape[1]
        if columns[0] != columns[1]:
            raise ValueError(f"Related task {name!r} has {columns[0]} columns and {names[0]!r} has {columns[1]}.")
        yield sample.to(torch.float32) if sample.shape else sample
