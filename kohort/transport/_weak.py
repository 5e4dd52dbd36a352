"""Callbacks with a weak reference to their object."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def weak_callback(method: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls a bound method without a reference to its object.

    An object gives it to the objects that it owns. With the method itself, both would refer to
    each other, and their memory would wait for the garbage collector. The function raises
    ReferenceError once the object is gone.
    """
    find = weakref.WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        found = find()
        if found is None:
            raise ReferenceError("the object of the callback is gone")
        return found(*args, **kwargs)

    return call
