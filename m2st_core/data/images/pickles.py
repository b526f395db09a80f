"""Pickled data read as data: nothing that a pickle names is ever imported, looked up or called.

The official CIFAR files are pickles, and a pickle is a program. This reads its instructions one by one and follows only
those that build arrays, bytes, text, whole numbers, lists and dictionaries; any other is refused. NumPy's
three names are words here: an array is made from its shape, its type and its bytes, which have to fit together.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
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
BYTES = {"STRING", "BINSTRING", "SHORT_BINSTRING"}  # Python 2's text; pickletools reads it as Latin-1
CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
IGNORED = {"PROTO", "FRAME", "STOP"}
MARK = object()


class RefusedPickle(ValueError):
    """A pickle that is damaged, or that holds more than plain data."""


@dataclass(frozen=True)
class _Name:
    """One of NumPy's names, as a word."""

    module: str
    name: str


@dataclass
class _Type:
    """An array's element type: its code, and its byte order, which comes later."""

    code: str
    order: str = "|"


@dataclass
class _Array:
    """An array in the making."""

    values: np.ndarray | None = None


def read_pickle(data: bytes, where: str) -> dict[Any, Any]:
    """The dictionary of the pickle; text of Python 2 comes as bytes. ``where`` it was found is for the error message.

    Its values are arrays of whole numbers, plain values, or lists of plain values.
    """
    try:
        return _finished(_Machine().run(data))
    except RefusedPickle as error:
        raise RefusedPickle(f"{where} is refused: {error} Download it again from its official site.") from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise RefusedPickle(f"{where} is damaged or cut off. Download it again from its official site.") from None


class _Machine:
    """A stack, marks and a memo: what a pickle's instructions work on."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(data):
            self.step(opcode.name, argument)
        (result,) = self.stack
        return result

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in VALUES:
            stack.append(argument.encode("latin-1") if name in BYTES else argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name == "MARK":
            stack.append(MARK)
        elif name in ("EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE"):
            stack.append({"EMPTY_LIST": [], "EMPTY_DICT": {}, "EMPTY_TUPLE": ()}[name])
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self.to_mark()
            make: dict[str, Callable[[list[Any]], Any]] = {"TUPLE": tuple, "LIST": list, "DICT": _pairs}
            stack.append(make[name](items))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else self.to_mark()
            _of(list, stack[-1]).extend(items)
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
            word = stack.pop()
            stack.append(_named(stack.pop(), word))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(_made(stack.pop(), arguments))
        elif name == "BUILD":
            state = stack.pop()
            _complete(stack[-1], state)
        elif name not in IGNORED:
            raise RefusedPickle(f"it holds more than plain data (the instruction {name}).")

    def to_mark(self) -> list[Any]:
        """Everything above the last mark, which goes too."""
        place = len(self.stack) - 1 - self.stack[::-1].index(MARK)
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError
    return value


def _named(module: str, name: str) -> _Name:
    if (module, name) not in ALLOWED:
        raise RefusedPickle(f"it holds more than plain data (it asks for {str(module)[:40]}.{str(name)[:40]}).")
    return _Name(module, name)


def _made(name: Any, arguments: Any) -> _Array | _Type:
    """What calling one of NumPy's names would begin: an array or its type."""
    if not isinstance(name, _Name):
        raise RefusedPickle("it holds more than plain data (a call).")
    if (name.module, name.name) in RECONSTRUCT and arguments[0] == _Name("numpy", "ndarray"):
        return _Array()
    if name.name == "dtype":
        return _Type(_text(arguments[0]))
    raise RefusedPickle("it holds more than plain data (a call).")


def _complete(target: Any, state: Any) -> None:
    """Give a type its byte order, or an array its shape, type and bytes."""
    if isinstance(target, _Type):
        target.order = _text(state[1])
        return
    if not isinstance(target, _Array):
        raise RefusedPickle("it holds more than plain data (an object's state).")
    _, shape, kind, by_column, data = state
    if kind.code not in ARRAY_TYPES or kind.order not in ("|", "<", ">", "="):
        raise RefusedPickle(f"it has an array of {str(kind.code)[:20]}, and whole numbers are expected.")
    dtype = np.dtype(kind.order + kind.code)
    if type(data) is not bytes or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError
    target.values = np.frombuffer(data, dtype).reshape(shape, order="F" if by_column else "C")


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(_of(str, value))


def _finished(value: Any) -> dict[Any, Any]:
    """The dictionary, if it holds nothing but arrays, plain values and lists of plain values."""
    found = {}
    checked: set[int] = set()  # lists may appear many times
    for key, item in _of(dict, value).items():
        if isinstance(item, _Array):
            item = _of(np.ndarray, item.values)
        elif type(item) in (list, tuple) and id(item) not in checked:
            checked.add(id(item))
            for part in item:
                _check_plain(part)
        elif type(item) not in (list, tuple):
            _check_plain(item)
        _check_plain(key)
        found[key] = item
    return found


def _check_plain(value: Any) -> None:
    if value is not None and type(value) not in (bytes, str, int, bool):
        raise RefusedPickle("it is no plain dictionary of arrays, lists and words.")
