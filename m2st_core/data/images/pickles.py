"""Read pickled data as data: nothing that a pickle names is imported, looked up or called.

The official CIFAR files are pickles, and a pickle is a program. This module interprets the instructions that build
arrays, bytes, text, whole numbers, lists and dictionaries, and refuses all others. NumPy's three names are only
compared as text: an array is made from its shape, its type and its bytes, which must fit together.
"""

from __future__ import annotations

import math
import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np

RECONSTRUCT = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}
ALLOWED = RECONSTRUCT | {("numpy", "ndarray"), ("numpy", "dtype")}
ARRAY_TYPES = {"u1", "i1", "i2", "i4", "i8", "u2", "u4", "u8"}
VALUES = {
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "STRING", "BINSTRING", "SHORT_BINSTRING",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}  # fmt: skip
BYTES = {"STRING", "BINSTRING", "SHORT_BINSTRING"}  # Python 2's text, which pickletools reads as Latin-1
CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
IGNORED = {"PROTO", "FRAME", "STOP"}
MARK = object()


class _RefusedPickle(ValueError):
    """A pickle that is damaged, or that holds more than plain data."""


@dataclass(frozen=True)
class _Name:
    """One of NumPy's names, as text."""

    module: str
    name: str


@dataclass
class _Type:
    """The element type of an array: its code, and its byte order, which is set later."""

    code: str
    order: str = "|"


@dataclass
class _Array:
    """An array whose values are set later."""

    values: np.ndarray | None = None


def read_pickle(data: bytes, where: str) -> dict[Any, Any]:
    """Return the dictionary of a pickle, with Python 2's text as bytes. ``where`` names it in error messages.

    Its values are arrays of whole numbers, plain values, or lists of plain values.
    """
    try:
        machine = _Machine()
        for opcode, argument, _ in pickletools.genops(data):
            machine.step(opcode.name, argument)
        (result,) = machine.stack
        return _finished(result)
    except _RefusedPickle as error:
        raise _RefusedPickle(f"{where} is refused: {error} Download it again from its official site.") from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise _RefusedPickle(f"{where} is damaged or cut off. Download it again from its official site.") from None


def _more_than_data(what: str) -> _RefusedPickle:
    return _RefusedPickle(f"it holds more than plain data ({what}).")


class _Machine:
    """The stack and the memo of a pickle's instructions."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in VALUES:
            stack.append(argument.encode("latin-1") if name in BYTES else argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name == "MARK":
            stack.append(MARK)
        elif name in ("EMPTY_TUPLE", "TUPLE"):
            stack.append(() if name == "EMPTY_TUPLE" else tuple(self.to_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name in ("EMPTY_LIST", "LIST"):
            stack.append([] if name == "EMPTY_LIST" else self.to_mark())
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else self.to_mark()
            _of(list, stack[-1]).extend(items)
        elif name in ("EMPTY_DICT", "DICT"):
            stack.append({} if name == "EMPTY_DICT" else _pairs(self.to_mark()))
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else self.to_mark()
            _of(dict, stack[-1]).update(_pairs(items))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if argument is None else int(argument)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[int(argument)])
        elif name == "GLOBAL":
            stack.append(_named(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            attribute = stack.pop()
            stack.append(_named(stack.pop(), attribute))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(_made(stack.pop(), arguments))
        elif name == "BUILD":
            state = stack.pop()
            _complete(stack[-1], state)
        elif name not in IGNORED:
            raise _more_than_data(f"the instruction {name}")

    def to_mark(self) -> list[Any]:
        """Pop the items above the last mark, and the mark."""
        mark = len(self.stack) - 1 - self.stack[::-1].index(MARK)
        items = self.stack[mark + 1 :]
        del self.stack[mark:]
        return items


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError
    return value


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(_of(str, value))


def _named(module: str, name: str) -> _Name:
    if (module, name) not in ALLOWED:
        raise _more_than_data(f"it asks for {str(module)[:40]}.{str(name)[:40]}")
    return _Name(module, name)


def _made(name: Any, arguments: Any) -> _Array | _Type:
    """The empty array, or the type, that a call of one of NumPy's names would make."""
    if isinstance(name, _Name):
        if (name.module, name.name) in RECONSTRUCT and arguments[0] == _Name("numpy", "ndarray"):
            return _Array()
        if name.name == "dtype":
            return _Type(_text(arguments[0]))
    raise _more_than_data("a call")


def _complete(target: Any, state: Any) -> None:
    """Set the byte order of a type, or the shape, type and bytes of an array."""
    if isinstance(target, _Type):
        target.order = _text(state[1])
        return
    if not isinstance(target, _Array):
        raise _more_than_data("an object's state")
    _, shape, kind, by_column, data = state
    if kind.code not in ARRAY_TYPES or kind.order not in ("|", "<", ">", "="):
        raise _RefusedPickle(f"it has an array of {str(kind.code)[:20]}, and whole numbers are expected.")
    dtype = np.dtype(kind.order + kind.code)
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError
    if math.prod(shape) * dtype.itemsize != len(_of(bytes, data)):
        raise ValueError
    target.values = np.frombuffer(data, dtype).reshape(shape, order="F" if by_column else "C")


def _finished(value: Any) -> dict[Any, Any]:
    """Return the dictionary, if it holds nothing but arrays, plain values and lists of plain values."""
    finished = {}
    checked: set[int] = set()  # a list may appear many times
    for key, item in _of(dict, value).items():
        _check_plain(key)
        if isinstance(item, _Array):
            item = _of(np.ndarray, item.values)
        elif type(item) not in (list, tuple):
            _check_plain(item)
        elif id(item) not in checked:
            checked.add(id(item))
            for element in item:
                _check_plain(element)
        finished[key] = item
    return finished


def _check_plain(value: Any) -> None:
    if value is not None and type(value) not in (bytes, str, int, bool):
        raise _RefusedPickle("it is not a plain dictionary of arrays, lists and words.")
