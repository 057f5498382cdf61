"""A lock for objects that forked children go on using: DataLoader workers fork while other threads read.

A plain lock that some thread held at the fork stays locked in the child for ever, since that thread is not there.
What it guards has to be right at every instruction (a counter, a reference), since the child sees it as it stood.
"""

from __future__ import annotations

import os
import threading
import weakref


class ForkLock:
    """A context manager, like threading.Lock; free in a child, whoever held it in the parent."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        self._lock = threading.Lock()


_all: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _free_in_child() -> None:
    for lock in list(_all):
        lock.renew()


os.register_at_fork(after_in_child=_free_in_child)
