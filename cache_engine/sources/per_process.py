"""A thing made once a process: clients with sockets, event loops or locks in them do not survive a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """`get()` makes the thing when first asked in this process; a forked child makes its own."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._pid = 0
        self._lock = threading.Lock()
        """Guards _thing; replaced in a child, where it may have been copied while held."""
        self._thing: T | None = None

    def get(self) -> T:
        thing = self._thing
        if thing is not None and self._pid == os.getpid():
            return thing
        if self._pid != os.getpid():
            self._lock, self._thing, self._pid = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._thing is None:
                self._thing = self._make()
            return self._thing

    def forget(self) -> None:
        """Drop the thing; the next get() makes another."""
        self._thing = None
