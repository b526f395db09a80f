"""A cache of tables and figures for all sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from m2st_core.sweeps.grid import forget_grid_tables

Made = TypeVar("Made")


class _Same:
    """The key of something that cannot be hashed, such as a table: only the same object is equal."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@dataclass(frozen=True)
class _Call:
    """A call, equal to others of the same function with equal arguments."""

    make: Callable[..., Any]
    key: Any
    arguments: tuple[Any, ...] = field(compare=False)
    named: dict[str, Any] = field(compare=False)


def shared(make: Callable[..., Made], *arguments: Any, **named: Any) -> Made:
    """The cached result of a module's function: one object for all sessions, which must not be changed.

    Not for users' data, which must not outlive their session, nor with functions of a page, which are new at every run.

    >>> shared(sorted, (2, 1)) is shared(sorted, (2, 1))
    True
    """
    made: Made = _made(_Call(make, _key((arguments, tuple(named.items()))), arguments, named))
    return made


def _key(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(_key, value))
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return value


def forget_shared() -> None:
    """Let go of everything, and of the tables it was made of; it is made again when it is asked for."""
    _made.cache_clear()
    forget_grid_tables()


@lru_cache(maxsize=128)
def _made(call: _Call) -> Any:
    return call.make(*call.arguments, **call.named)
