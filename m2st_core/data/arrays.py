"""Make samples and related tasks of arrays, frames and lists, checked. Errors name the value and the remedy.

Columns belong to names. Every frame (pandas, polars, pyarrow, DuckDB, lazy ones) has names. Arrays, lists and series
have none, and neither has a pandas frame with the default labels 0 … d−1. :func:`match_columns` has the rules.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import torch

from m2st_core.data.related import RelatedTasks, stack_related_tasks
from m2st_core.types import DEFAULT_TEST, Shape, TwoSample, listed

LARGEST_WHOLE = 2**53  # beyond it float64 skips whole numbers
LARGEST_SPREAD, SMALLEST_SPREAD = 1e100, 1e-100  # squares of distances stay inside float64
CHANNELS = (1, 3, 4)
MIDNIGHT = re.compile(r"[ t]00:00(:00(\.0+)?)?$")  # of a date that was read as a moment
KINDS = {"O": "objects", "U": "text", "S": "text", "T": "text", "c": "complex numbers", "M": "dates", "m": "times"}


def as_two_sample(x: Any, y: Any, ids: str | None = None, blocks: Any = None) -> TwoSample:
    """Make checked float64 rows (n, d) and (m, d). Arrays of images become rows with a shape, see :func:`_as_images`.

    ``ids`` names a column of both frames that identifies their rows. It is no feature. ``blocks`` are labels (of x's
    rows, of y's rows).

    >>> as_two_sample([1, 2, 3], [4, 5]).sizes
    (3, 2)
    >>> as_two_sample(np.zeros((2, 8, 8), dtype=np.uint8), np.ones((3, 8, 8), dtype=np.uint8)).shape
    (1, 8, 8)
    """
    shape: Shape | None = None
    x, y = in_memory(x, "x"), in_memory(y, "y")
    identities = None
    if ids is not None:
        (x, x_ids), (y, y_ids) = _without_ids(x, "x", ids), _without_ids(y, "y", ids)
        identities = x_ids, y_ids
    if _are_images(x) or _are_images(y):
        (x, shape), (y, other) = _as_images(x, "x"), _as_images(y, "y")
        if shape != other:
            raise ValueError(f"x has images of {shape} (channels, height, width) and y of {other}.")
    (x, names), (y, others) = as_named_rows(x, "x"), as_named_rows(y, "y")
    if x.shape[1] != y.shape[1] and not (names and others):
        raise ValueError(f"x has {x.shape[1]} columns and y has {y.shape[1]}. Both samples need the same columns.")
    order, notes = match_columns("x", names, "y", others)
    y = y if order is None else np.ascontiguousarray(y[:, order])
    for name, rows in (("x", x), ("y", y)):
        if len(rows) < 2:
            raise ValueError(f"{name} has 1 row. Bring at least 2 rows in each sample.")
    check_spread(x, y)
    columns = names or (others if order is None else ())
    numbered = None if blocks is None else as_blocks(blocks, (len(x), len(y)))
    return TwoSample(torch.from_numpy(x), torch.from_numpy(y), shape, columns, notes, identities, numbered)


def check_spread(x: np.ndarray, y: np.ndarray) -> None:
    """Refuse rows that are all identical, or whose squared distances would leave float64."""
    with np.errstate(over="ignore"):
        spread = np.ptp(np.concatenate([x, y]), axis=0).max()
    if spread == 0:
        raise ValueError("All rows of x and y are identical: there is nothing to compare. Bring rows that vary.")
    if not SMALLEST_SPREAD <= spread <= LARGEST_SPREAD:
        raise ValueError(f"The values of x and y spread over {spread:.1e}, too wide or too narrow. Rescale them.")


def as_blocks(blocks: Any, sizes: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Number the blocks of labels (of x's rows, of y's rows), checked: (n,), (m,). 7, 7.0 and "7" are one block.

    >>> as_blocks((["a", "a", "b"], ["a", "c"]), (3, 2))
    (tensor([0, 0, 1]), tensor([0, 2]))
    """
    try:
        first, second = blocks
        labels = [np.asarray(side) for side in (first, second)]
    except (TypeError, ValueError):
        raise ValueError("blocks must be a pair (blocks of x's rows, blocks of y's rows), one label per row.") from None
    texts = []
    for name, side, size in zip("xy", labels, sizes, strict=True):
        if side.shape != (size,):
            given = f"{side.shape[0]} labels" if side.ndim == 1 else f"the shape {side.shape}"
            raise ValueError(f"blocks of {name} need one label for each of its {size} rows. Got {given}.")
        for row, label in enumerate(side, start=1):
            if label is None or label != label:
                raise ValueError(
                    f"blocks of {name} have a missing label at row {row}. Name its block, or drop the row."
                )
            whole = isinstance(label, (float, np.floating)) and float(label).is_integer()
            texts.append(str(int(label) if whole else label))
    _, codes = np.unique(np.array(texts), return_inverse=True)
    x, y = torch.from_numpy(codes).split(sizes)
    return x, y


def _without_ids(values: Any, name: str, column: str) -> tuple[pd.DataFrame, torch.Tensor]:
    """A frame without this column, and the ids in it."""
    if not isinstance(values, pd.DataFrame):
        raise ValueError(f"ids={column!r} names a column, and {name} has no columns with names. Pass a frame.")
    if column not in values.columns:
        column = next((label for label in values.columns if _composed(label) == _composed(column)), column)
    if column not in values.columns:
        raise ValueError(f"{name} has no column {column!r}, which ids names. It has {listed(names_of(values))}.")
    if isinstance(values[column], pd.DataFrame):
        raise ValueError(f"Two columns of {name} are called {column!r}, which ids names. Rename one.")
    return values.drop(columns=column), as_ids(values[column], f"{name}, column {column!r}")


def as_ids(cells: Iterable[Any], where: str) -> torch.Tensor:
    """A whole number for each id (n,), equal for two spellings of one id.

    Case, blanks, hyphens, leading zeros, a decimal ``.0`` and a midnight do not count: 7, "007" and "7.0" are one id,
    and so are "P-001" and "p1". Taking two persons for one costs a training row; not recognising one costs the level.
    """
    numbers = []
    for row, cell in enumerate(cells, start=1):
        text = "" if cell is None or cell is pd.NA or cell != cell else _plain_id(str(cell))
        if text in ("", "inf"):
            raise ValueError(f"{where}: row {row} has no id. Fill it in, or leave that row out.")
        numbers.append(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True))
    return torch.tensor(numbers, dtype=torch.int64)


def _plain_id(text: str) -> str:
    text = MIDNIGHT.sub("", unicodedata.normalize("NFKC", text).strip().casefold())
    text = re.sub(r"[\s_-]+", "", re.sub(r"(?<=\d)\.0*$", "", text))
    return re.sub(r"(?<!\d)0+(?=\d)", "", text)


def in_memory(values: Any, name: str) -> Any:
    """Convert a frame or series of any library to pandas, a lazy one collected; return other values as they are."""
    if isinstance(values, (np.ndarray, torch.Tensor, pd.DataFrame, pd.Series, list, tuple)):
        return values
    try:
        table = nw.from_native(values, pass_through=True, allow_series=True)
        table = table.collect() if isinstance(table, nw.LazyFrame) else table
        return table.to_pandas() if hasattr(table, "to_pandas") else values
    except Exception as error:  # each library has its own
        reason = " ".join(str(error).split())
        raise ValueError(f"{name} cannot be read as a frame of numbers: {reason}. Pass a pandas frame.") from error


def _are_images(values: Any) -> bool:
    """Whether an array has four dimensions, or three and bytes."""
    dimensions, dtype = getattr(values, "ndim", 0), str(getattr(values, "dtype", ""))
    return dimensions == 4 or (dimensions == 3 and dtype.endswith("uint8"))


def _as_images(values: Any, name: str) -> tuple[np.ndarray, Shape]:
    """Rows (n, C·H·W) of images (n, C, H, W), (n, H, W, C) or, grey, (n, H, W), and their shape.

    The channels are the axis with 1, 3 or 4 entries, the first if there are two. Bytes 0…255 are scaled to [0, 1];
    other numbers are not.
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


def match_columns(
    first: str, names: Sequence[str], second: str, others: Sequence[str]
) -> tuple[list[int] | None, tuple[str, ...]]:
    """Find the columns ``names`` of the first among ``others`` of the second: their positions, or None if in order.

    Columns are matched by name, and different names are an error. If one side has no names (it is empty), whole numbers
    0 … d−1 on the other side, in any order, are positions; other names are matched by order, with a note (unless there
    is a single column).

    >>> match_columns("x", ("a", "b"), "y", ("b", "a"))
    ([1, 0], ())
    >>> match_columns("x", (), "y", ("2", "0", "1"))
    ([1, 2, 0], ())
    >>> match_columns("x", (), "y", ("b", "a"))
    (None, ('The columns of x have no names, so they were taken in the order of y: b, a.',))
    """
    if tuple(names) == tuple(others) or len(names) + len(others) == 1:
        return None, ()
    numbered = [str(position) for position in range(len(names or others))]
    if not (names and others) and set(names or others) != set(numbered):
        nameless, named = (second, first) if names else (first, second)
        note = f"The columns of {nameless} have no names, so they were taken in the order of {named}"
        return None, (f"{note}: {listed(names or others)}.",)
    names, others = list(names or numbered), list(others or numbered)
    for side, columns in ((first, names), (second, others)):
        if repeated := [name for position, name in enumerate(columns) if name in columns[:position]]:
            raise ValueError(f"Two columns of {side} are called {repeated[0]!r}. Rename one.")
    only = {first: [name for name in names if name not in others], second: [n for n in others if n not in names]}
    if unmatched := [f"only in {side}: {listed(columns)}" for side, columns in only.items() if columns]:
        raise ValueError(
            f"The columns of {first} are {listed(names)} and those of {second} are {listed(others)} "
            f"({'; '.join(unmatched)}). Give both the same columns."
        )
    return [others.index(name) for name in names], ()


def in_order_of(
    sample: TwoSample, columns: tuple[str, ...], width: int, first: str = "the related tasks", second: str = "x and y"
) -> TwoSample:
    """Put the columns of a sample in the order of these ``columns``, by :func:`match_columns`."""
    if sample.x.shape[-1] != width and not (columns and sample.columns):
        have = f"{first} have {width} columns and {second} have {sample.x.shape[-1]}."
        raise ValueError(have[0].upper() + have[1:])
    order, notes = match_columns(first, columns, second, sample.columns)
    x, y = sample if order is None else (rows[..., order].contiguous() for rows in sample)
    columns = columns or (sample.columns if order is None else ())
    return replace(sample, x=x, y=y, columns=columns, notes=sample.notes + notes)


def constant_column_notes(sample: TwoSample) -> tuple[str, ...]:
    """Note the columns with the same value in all rows. They change no distance."""
    pooled = sample.pooled
    constant = torch.nonzero((pooled == pooled[:1]).all(dim=0)).flatten().tolist()
    if not constant:
        return ()
    names, of = sample.columns, ""
    if not names:
        names, of = tuple(map(str, range(1, pooled.shape[1] + 1))), f" of {pooled.shape[1]}"
    named = listed([names[index] for index in constant])
    return (f"Constant in both samples, so without information: column{'s' * (len(constant) > 1)} {named}{of}.",)


def as_named_rows(values: Any, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Make a new float64 array (n, d) of finite numbers, n numbers as one column, and name the columns of a frame."""
    values = in_memory(values, name)
    array = _as_array(values, name)
    if array.ndim == 0:
        raise ValueError(f"{name} is a single value, not a sample. Pass rows of numbers.")
    if array.ndim > 2:
        raise ValueError(
            f"{name} has {array.ndim} dimensions. If its items are rows, flatten them: {name}.reshape(len({name}), -1)."
            " If they are samples, test them one by one, or pass related_tasks as a list of pairs."
        )
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
    return rows, names_of(values)


def names_of(values: Any) -> tuple[str, ...]:
    """The labels of a frame's columns as composed text, several levels joined; none for 0 … d−1 and other values."""
    if not isinstance(values, pd.DataFrame):
        return ()
    labels = values.columns
    if pd.api.types.is_integer_dtype(labels.dtype) and labels.equals(pd.RangeIndex(values.shape[1])):
        return ()
    names = tuple(map(_composed, labels))
    return names if len(set(names)) == labels.nunique() else tuple(map(repr, labels))  # 1 and "1" are two columns


def _composed(label: Any) -> str:
    """A label as text in which ä is one character (Unicode NFC)."""
    return unicodedata.normalize("NFC", " / ".join(map(str, label)) if isinstance(label, tuple) else str(label))


def _as_array(values: Any, name: str) -> np.ndarray:
    """Make a NumPy array of bool, int or float."""
    values = values.to_frame() if isinstance(values, pd.Series) else values
    if isinstance(values, pd.DataFrame):
        for index, (column, dtype) in enumerate(values.dtypes.items()):
            if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype):
                raise ValueError(f"Column {str(column)!r} of {name} is {dtype}, not numbers. Convert or drop it.")
            if pd.api.types.is_integer_dtype(dtype):
                _check_whole(values.iloc[:, index].dropna().to_numpy(), f"{name} (column {str(column)!r})", index)
        return values.astype("float64").to_numpy()
    if isinstance(values, torch.Tensor):
        if values.layout != torch.strided or values.is_quantized:
            raise ValueError(f"{name} is a {values.layout} tensor. Pass a dense one, such as {name}.to_dense().")
        values = values.detach().cpu().resolve_conj().resolve_neg()
        values = (values.to(torch.float64) if values.is_floating_point() else values).numpy()
    elif hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
        return _as_array(torch.from_dlpack(values), name)
    if values is None:
        raise ValueError(f"{name} is None. Pass rows of numbers.")
    if hasattr(values, "toarray"):
        raise ValueError(f"{name} is a sparse matrix. Pass a dense one: {name}.toarray().")
    if isinstance(values, Mapping):
        raise ValueError(f"{name} is a {type(values).__name__}. Pass a frame of its columns: pd.DataFrame({name}).")
    if getattr(values, "dtype", None) is not None and getattr(values.dtype, "names", None):
        raise ValueError(f"{name} is a structured array. Pass a frame of its columns: pd.DataFrame({name}).")
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name} is a masked array with missing values. Remove or fill them in.")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        raise ValueError(f"{name} is not a table of numbers with rows of equal length. Pass one.") from None
    if array.dtype.kind == "O" and array.size and isinstance(array.flat[0], Mapping):
        raise ValueError(f"{name} is a list of dicts. Pass a frame of its columns: pd.DataFrame({name}).")
    if array.dtype.kind not in "biuf":
        kind = KINDS.get(array.dtype.kind, str(array.dtype))
        raise ValueError(f"{name} holds {kind} (dtype {array.dtype}), not real numbers. Convert it to floats first.")
    return array


def _check_whole(column: np.ndarray, name: str, index: int) -> None:
    """Refuse whole numbers that float64 cannot hold."""
    beyond = np.flatnonzero((column > LARGEST_WHOLE) | (column < -LARGEST_WHOLE))
    if beyond.size:
        raise ValueError(
            f"{name} has the whole number {column[beyond[0]]} at row {beyond[0] + 1}, column {index + 1}, more than "
            "float precision can hold (2^53). Subtract an offset, or leave that column out."
        )


def as_related_tasks(related_tasks: Any, ids: str | None = None) -> RelatedTasks:
    """Make one repeat (R=1) from a list of (x, y) pairs, or a mapping of names to pairs, checked task by task.

    ``ids`` names a column of all frames that identifies their rows. Images that several tasks share are held once.
    Pairs are read lazily, one at a time.
    """
    if isinstance(related_tasks, RelatedTasks):
        return related_tasks
    names, pairs = named_pairs(related_tasks)
    nameless: list[str] = []
    tasks = stack_related_tasks([_checked(names, pairs, nameless, ids)], names)
    if not tasks.columns or not nameless:
        return tasks
    which = f"{'task' if len(nameless) == 1 else 'tasks'} {listed([repr(name) for name in nameless])}"
    note = f"Columns without names in the related {which} were taken in this order: {listed(tasks.columns)}."
    return replace(tasks, notes=(note,))


def named_pairs(related_tasks: Any) -> tuple[tuple[str, ...], Iterable[Any]]:
    """The names and the pairs, which are not read yet."""
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
        raise ValueError(f"related_tasks is empty. Bring at least one related pair of samples, or use {DEFAULT_TEST}.")
    return names, pairs


def as_pair(name: str, pair: Any) -> tuple[Any, Any]:
    """The two samples of a related task, or an error that names the task."""
    try:
        x, y = pair
    except (TypeError, ValueError):
        raise ValueError(f"Related task {name!r} is not a pair (x, y) of two samples.") from None
    return x, y


def _checked(
    names: Sequence[str], pairs: Iterable[Any], nameless: list[str], ids: str | None = None
) -> Iterator[TwoSample]:
    """Yield the checked samples one at a time, their columns in one order, images in float32.

    The names of tasks whose columns have none are appended to ``nameless``.
    """
    first: TwoSample | None = None
    columns: tuple[str, ...] = ()
    named_by = names[0]
    for name, pair in zip(names, pairs, strict=True):
        x, y = as_pair(name, pair)
        try:
            sample = as_two_sample(x, y, None if isinstance(pair, TwoSample) else ids)
        except ValueError as error:
            raise ValueError(f"Related task {name!r}: {error}") from None
        if isinstance(pair, TwoSample):
            sample = replace(sample, shape=pair.shape, columns=pair.columns, ids=pair.ids)
        first = first or sample
        if sample.shape != first.shape:
            shapes = f"{sample.shape or 'no images'} and {names[0]!r} has {first.shape or 'no images'}"
            raise ValueError(f"Related task {name!r} has {shapes} (channels, height, width). Give all the same shape.")
        widths = sample.x.shape[1], first.x.shape[1]
        if widths[0] != widths[1] and not (columns and sample.columns):
            raise ValueError(f"Related task {name!r} has {widths[0]} columns and {names[0]!r} has {widths[1]}.")
        if not sample.columns or sample.notes:
            nameless.append(name)
        sides = f"related task {named_by!r}", f"related task {name!r}"
        sample = in_order_of(sample, columns, sample.x.shape[1], *sides)
        if sample.columns and not columns:
            columns, named_by = sample.columns, name
        yield sample.to(torch.float32) if sample.shape else sample
